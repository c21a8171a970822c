"""The report as one page of HTML that asks nobody for anything: figures, tables, attempts.

Everything that runs and frameworks have said may stand in it, so the template escapes every value;
only the drawings go in as they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import jinja2
import markupsafe

from beam_slurm import __version__
from beam_slurm.attempts import Attempt
from beam_slurm.metrics import METRICS, Metric, series
from beam_slurm.records.record import Record
from beam_slurm.records.surroundings import TITLES
from beam_slurm.report import (
    attempts,
    bars,
    common,
    figure,
    hours,
    look,
    panels,
    published,
    text,
)
from beam_slurm.report.courses import Course, course
from beam_slurm.report.facts import Facts
from beam_slurm.report.overview import job_of
from beam_slurm.report.panel import Panel, Shown
from beam_slurm.script import TEMPLATES

Row = list[Any]
LINES = 20  # last lines of a run that failed


def html(runs: Sequence[Shown]) -> str:
    """The whole page.

    Raises:
        BeamSlurmError: matplotlib is absent.
    """
    found, absent = panels.of(runs)
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return jinja.get_template("report/page.html.j2").render(
        theme=look.THEME,
        title=runs[0].facts.run.id if len(runs) == 1 else f"{len(runs)} runs",
        subtitle=" · ".join(dict.fromkeys(map(_about, runs))) if len(runs) > 1 else "",
        runs=[_run(run, len(runs) > 1) for run in runs],
        figures=[_figure(panel, runs) for panel in found],
        marks=_marks(runs),
        notes=_notes(runs, absent if found else []),
        numbers=_numbers(runs),
        spent=_spent(runs),
        attempt_heads=("", "job", "nodes", "began", "took", "steps", "how it ended"),
        version=__version__,
        now=text.date(time.time()),
    )


def _printable(value: Any) -> Any:
    """What has no place in a page is left out: colours of a terminal, control characters."""
    if not isinstance(value, str) or isinstance(value, markupsafe.Markup):
        return value
    return "\n".join(text.printable(line) for line in value.split("\n"))


# --- what a run is ------------------------------------------------------------------------------


def _about(run: Shown) -> str:
    return f"{run.profile} ({run.facts.manifest.get('framework', '–')}), {run.facts.size}"


def _run(run: Shown, several: bool) -> dict[str, Any]:
    facts = run.facts
    # Of many runs, those are worth a table that did not simply succeed.
    plain = several and len(facts.attempts) == 1 and facts.state.word == "succeeded"
    name = next(name for name, light in look.LIGHT.items() if light == run.colour)
    failed = facts.state.word in ("failed", "cancelled", "unknown")
    words = facts.last_words if failed else {}
    more = [words["do"]] if words.get("do") else []
    if facts.state.why and not facts.state.ended:
        more.append(facts.state.why)
    if words.get("stopped"):
        more.append(f"Not started again: {words['stopped']}")
    if facts.no_metrics and not facts.common:
        more.append(facts.no_metrics)
    elif not facts.history and not facts.common:
        more.append("It has measured nothing yet.")
    return {
        "id": facts.run.id,
        "colour": f"var(--{name})",
        "outline": look.MARKERS[run.marker],
        "word": facts.state.word,
        "label": facts.state.label,
        "cause": (facts.state.why or words.get("cause") or "") if failed else "",
        "notes": more,
        "facts": list(_facts(facts)),
        "lines": [str(line) for line in words.get("lines") or []][-LINES:],
        "attempts": [] if plain else [_attempt(facts, attempt) for attempt in facts.attempts],
    }


def _facts(facts: Facts) -> Iterator[tuple[str, str]]:
    manifest, spent = facts.manifest, hours.of(facts)
    yield "profile", f"{manifest.get('profile', '–')} ({manifest.get('framework', '–')})"
    yield "size", facts.size
    last = facts.history.last if facts.history else None
    if facts.trained:
        yield "of", facts.trained
    for scored in (facts.common or ()) if facts.evaluates else ():
        yield "checkpoint", "–" if scored.step is None else f"step {scored.step}"
        yield "set", f"{scored.asked.set}: {scored.asked.how}"
    if "task" not in manifest:
        yield "steps", f"{last.step if last else '–'} of {facts.steps or '?'}"
    yield "created", text.date(facts.run.created)
    yield "job", job_of(facts)
    if facts.seconds is not None:
        yield "took" if facts.state.ended else "since start", text.duration(facts.seconds)
    if spent.total:
        yield "GPU-hours", text.number(spent.total)
    if facts.blamed:
        yield "nodes blamed", " ".join(facts.blamed)
    sources = Record(facts.run).sources
    for name, people in TITLES.items():
        source = sources.get(name, {})
        if source.get("commit"):
            changed = ", changed since" if source.get("dirty") else ""
            yield people, f"commit {str(source['commit'])[:10]}{changed}"


def _attempt(facts: Facts, attempt: Attempt) -> Row:
    took = attempts.seconds(attempt)
    ended = attempts.told(attempt) or attempts.silent(facts, attempt)
    return [
        attempt.number,
        attempt.job or "–",
        attempts.nodes(attempt.chosen) or "–",
        text.date(attempt.began),
        text.duration(took),
        attempts.steps(attempt) or "–",
        [line for line in (ended, attempts.then(attempt)) if line],
    ]


# --- what it has measured -----------------------------------------------------------------------


def _figure(panel: Panel, runs: Sequence[Shown], wide: bool = False) -> dict[str, Any]:
    drawn = markupsafe.Markup(figure.svg(panel, runs, wide))  # noqa: S704 - matplotlib escapes text
    return {
        "title": "" if wide else panel.title,
        "unit": panel.unit,
        "svg": drawn,
        "notes": panel.notes,
        "wide": wide,
    }


def _marks(runs: Sequence[Shown]) -> str:
    """What lines and marks mean that stand in every panel."""
    found = []
    if steps := panels.smoothed(runs):
        found.append(f"Faint: each step; bold: the mean of about {steps} steps")
    if len(runs) == 1 and runs[0].history.checkpoints:
        found.append(f"◇ {figure.marked(runs[0].history)[1]}")
    if len(runs) == 1 and figure.restarts(runs[0].facts):
        found.append("┊ new attempt")
    return " · ".join(found)


def _notes(runs: Sequence[Shown], absent: Sequence[str]) -> list[str]:
    found = panels.ratios(runs)
    if absent:
        whom = "this run" if len(runs) == 1 else "any of these runs"
        found.append(f"Not measured by {whom}: {', '.join(absent)}.")
    return found


def _numbers(runs: Sequence[Shown]) -> dict[str, Any]:
    """First, last and best of one run, beside what is published; first and last of several."""
    if len(runs) == 1 and runs[0].facts.evaluates:
        scores: list[Row] = [list(row) for it in runs[0].common for row in common.rows(it)]
        return {"heads": ["value", "95 % interval"], "rows": scores, "note": ""}
    sets = panels.sets_of(runs)
    named = [(f"accuracy/{name}", f"{panels.titled(name)} accuracy") for name in sets]
    named += [(f"evaluation_length/{it}", f"{panels.titled(it)} response length") for it in sets]
    named += [(name, METRICS[name].text) for name in panels.TRAINED]
    found = [(name, words, [_course(run, name) for run in runs]) for name, words in named]
    rows = list(_common(runs))
    for name, words, courses in found:
        if not any(courses):
            continue
        metric = METRICS[name.partition("/")[0]]
        rows.append([words, *(_way(metric, it) for it in courses)])
        if len(runs) == 1 and courses[0]:
            best = panels.value(metric.name, courses[0].best)
            rows[-1] += [best if metric.goal == "maximize" else "", _published(runs[0], name)]
    heads = ["first → last", "best", "published"]
    if len(runs) > 1:
        heads = [run.facts.run.id for run in runs]
    elif not any(row[-1] for row in rows):
        rows, heads = [row[:-1] for row in rows], heads[:-1]
    note = "Of what is measured each step, first and last are means over a tenth of the steps."
    return {"heads": heads, "rows": rows, "note": note}


def _common(runs: Sequence[Shown]) -> Iterator[Row]:
    """A row each way of asking that there was: as ``_numbers`` has them."""
    for asked, score in common.lines(run.common for run in runs).items():
        line = [common.along(run.common, asked) for run in runs]
        row: Row = [f"{panels.titled(asked.set)}, common evaluation ({score})"]
        row += map(common.spell, line)
        if len(runs) == 1:
            best = max(line[0], key=lambda it: it.accuracy)
            row += [common.spell([best]), ""]
        yield row


def _course(run: Shown, name: str) -> Course | None:
    metric = METRICS[name.partition("/")[0]]
    return course(list(series(run.history, name)), window=1 if metric.evaluated else None)


def _way(metric: Metric, found: Course | None) -> str:
    return panels.spell(metric.name, found.first, found.last) if found else "–"


def _published(run: Shown, name: str) -> str:
    metric, _, evaluated = name.partition("/")
    only = len(panels.sets_of([run])) == 1
    return "; ".join(
        panels.spell(metric, result.first, result.last, exactly=True)
        + (f" ({result.note})" if result.note else "")
        for result in published.of(run.facts)
        if result.about(metric, evaluated, only) and not result.ratio
    )


# --- what it has cost ---------------------------------------------------------------------------


def _spent(runs: Sequence[Shown]) -> dict[str, Any]:
    """GPU-hours by kind: a row a run, or of one run a row an attempt."""
    if len(runs) == 1:
        each = hours.by_attempt(runs[0].facts)
        numbers = [str(attempt.number) for attempt in runs[0].facts.attempts]
        named = [(f"attempt {n}", spent) for n, spent in zip([*numbers, "…"], each, strict=False)]
        if len(named) > 1:
            named.append(("all", hours.of(runs[0].facts)))
    else:
        named = [(run.facts.run.id, hours.of(run.facts)) for run in runs]
    named = [(name, spent) for name, spent in named if spent]
    kinds = [kind for kind in hours.KINDS if any(spent.hours.get(kind) for _, spent in named)]
    rows: list[Row] = [
        [
            name,
            text.duration(spent.queue or None),
            *(text.number(spent.hours.get(kind) or None) for kind in kinds),
            text.number(spent.total),
        ]
        for name, spent in named
    ]
    panel = bars.gpu_hours(runs)
    return {
        "figure": _figure(panel, runs, wide=True) if panel else None,
        "heads": ["in the queue", *kinds, "GPU-hours"],
        "rows": rows,
        "note": "GPU-hours · " + " · ".join(hours.KINDS[kind] for kind in kinds),
    }
