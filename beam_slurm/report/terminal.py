"""What ``report`` shows in the terminal: a table of how runs went; of one, two small plots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from beam_slurm.metrics import History
from beam_slurm.report import common, hours, text
from beam_slurm.report.common import Scored
from beam_slurm.report.courses import Course, by_set, courses, step_seconds
from beam_slurm.report.facts import Facts
from beam_slurm.report.overview import job_of, label

WIDTH, HEIGHT = 42, 7  # characters of a small plot


def show(found: Sequence[Facts]) -> RenderableType:
    """One run: title, table and plots. Several: a line each, and how they were scored alike."""
    return _one(found[0]) if len(found) == 1 else _several(found)


def _one(facts: Facts) -> RenderableType:
    head = Text.assemble((facts.run.id, "bold"), "  ", label(facts.state))
    if facts.state.why:
        head.append(f"  {facts.state.why}")
    took = f" · {text.duration(facts.seconds)}" if facts.seconds is not None else ""
    spent = hours.of(facts)
    cost = f" · {text.number(spent.total)} GPU-hours" if spent.total else ""
    about = f"{facts.manifest.get('profile', '–')} · {facts.size} · job {job_of(facts)}{took}{cost}"
    if facts.evaluates and facts.common:
        return Group(head, Text(about, "dim"), Text(), *_scores(facts, facts.common[0]))
    if not facts.history and not facts.common:
        none = facts.no_metrics or "it has measured nothing yet"
        return Group(head, Text(about, "dim"), Text(none))
    history = facts.history or History()
    rewards = [(float(s.step), s.reward) for s in history.steps]
    plots = [_plot("reward", rewards, percent=False)]
    for name, evaluations in by_set(history).items():
        points = [(float(e.step), e.accuracy) for e in evaluations]
        plots.append(_plot(f"accuracy, {name}", points, percent=True))
    return Group(
        head,
        Text(about, "dim"),
        Text(),
        _table(history, facts.common or ()),
        Text(),
        Columns([plot for plot in plots if plot], padding=(0, 4)),
    )


def _scores(facts: Facts, scored: Scored) -> Iterator[RenderableType]:
    """What an evaluation has found, and where it stands beside the others."""
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    step = f" after step {scored.step}" if scored.step is not None else ""
    grid.add_column(f"{text.safe(scored.asked.set)}{step}", no_wrap=True)
    for title in ("value", "95 % interval"):
        grid.add_column(title, justify="right", no_wrap=True)
    for row in common.rows(scored):
        grid.add_row(*row)
    yield grid
    yield Text(f"\n{scored.asked.how}", "dim")
    if trained := facts.trained:
        yield Text(f"beside the others of its run: beam-slurm report {text.safe(trained)}", "dim")


def _several(found: Sequence[Facts]) -> RenderableType:
    """First → last of what most runs have, side by side."""
    known = [facts.history or History() for facts in found]
    sets = list(dict.fromkeys(name for history in known for name in by_set(history)))
    titles = ["run", "state", "step", *(f"accuracy {name}" for name in sets)]
    titles += ["reward", "response, tokens", "step time", "GPU-hours"]
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for at, title in enumerate(titles):
        grid.add_column(title, justify="left" if at < 2 else "right", no_wrap=True)
    for facts, history in zip(found, known, strict=True):
        course = courses(history)
        last = history.last
        spent = hours.of(facts).total
        grid.add_row(
            facts.run.id,
            label(facts.state),
            f"{last.step if last else '–'}/{facts.steps or '?'}",
            *(_way(course.get(f"accuracy {name}"), percent=True) for name in sets),
            _way(course["reward"]),
            _way(course["response_length"]),
            text.duration(step_seconds(history)),
            text.number(spent) if spent else "–",
        )
    return Group(grid, *_alike(found))


def _alike(found: Sequence[Facts]) -> Iterator[RenderableType]:
    """The common evaluations of several runs: a table each way of asking."""
    for asked, score in common.lines(facts.common or () for facts in found).items():
        grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        grid.add_column(f"common {text.safe(asked.set)}, {score}", no_wrap=True)
        for title in ("first", "last", "best"):
            grid.add_column(title, justify="right", no_wrap=True)
        grid.add_column("", no_wrap=True, style="dim")
        for facts in found:
            known = common.along(facts.common or (), asked)
            if went := common.course_of(known):
                cells = (text.percent(x) for x in (went.first, went.last, went.best))
                grid.add_row(text.safe(facts.run.id), *cells, _certainty(known[-1]))
        yield Text()
        yield grid


def _way(found: Course | None, percent: bool = False) -> str:
    if found is None:
        return "–"
    if percent:
        return f"{text.percent(found.first).removesuffix(' %')} → {text.percent(found.last)}"
    return f"{text.number(found.first)} → {text.number(found.last)}"


def _table(history: History, scored: Sequence[Scored]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("", no_wrap=True)
    for title in ("first", "last", "best"):
        grid.add_column(title, justify="right", no_wrap=True)
    grid.add_column("", no_wrap=True, style="cyan")
    grid.add_column("", no_wrap=True, style="dim")
    steps = history.steps
    for name, found in courses(history).items():
        if found is None:
            continue
        if name == "reward":
            values = [step.reward for step in steps]
            grid.add_row("reward", *_cells(found), text.sparkline(values), _window(found))
        elif name == "response_length":
            values = [step.response_length for step in steps]
            first, last, _ = _cells(found)
            line = text.sparkline(values)
            grid.add_row("response, tokens", first, last, "", line, _window(found))
        else:
            evaluations = by_set(history)[name.removeprefix("accuracy ")]
            cells = (text.percent(x) for x in (found.first, found.last, found.best))
            line = text.sparkline([e.accuracy for e in evaluations])
            grid.add_row(name, *cells, line, _interval(history, name))
    for asked, score in common.lines([scored]).items():
        known = common.along(scored, asked)
        if went := common.course_of(known):
            cells = (text.percent(x) for x in (went.first, went.last, went.best))
            line = text.sparkline([it.accuracy for it in known])
            name = f"common {text.safe(asked.set)}, {score}"
            grid.add_row(name, *cells, line, _certainty(known[-1]))
    pace = step_seconds(history)
    if pace is not None:
        line = text.sparkline([step.step_time for step in steps])
        grid.add_row("step time", "", text.duration(pace), "", line, "median of all steps")
    return grid


def _certainty(last: Scored) -> str:
    interval = last.interval()
    parts = [f"95 % interval {common.between(*interval)} %"] if interval else []
    parts += [f"step {last.step}"] if last.step is not None else []
    return f"last: {', '.join(parts)}" if parts else ""


def _cells(found: Course) -> tuple[str, str, str]:
    return text.number(found.first), text.number(found.last), text.number(found.best)


def _window(found: Course) -> str:
    return f"first, last: means of {found.window} steps" if found.window > 1 else ""


def _interval(history: History, name: str) -> str:
    last = by_set(history)[name.removeprefix("accuracy ")][-1]
    interval = last.interval()
    if not interval:
        return ""
    low, high = (text.percent(x).removesuffix(" %") for x in interval)
    return f"last: 95 % interval {low} to {high} %, {last.responses or last.problems} responses"


def _plot(
    title: str, points: Sequence[tuple[float, float | None]], *, percent: bool
) -> Text | None:
    """Braille with its extremes beside it; None for fewer than two points."""
    known = [(x, y) for x, y in points if y is not None and math.isfinite(y)]
    if len(known) < 2:
        return None
    values = [y for _, y in known]
    label = text.percent if percent else text.number
    top, bottom = label(max(values)), label(min(values))
    margin = max(len(top), len(bottom))
    rows = text.plot(_dense(known), WIDTH, HEIGHT)
    shown = Text(" " * (margin + 2) + title + "\n", "bold", no_wrap=True)
    for at, row in enumerate(rows):
        left = top if at == 0 else bottom if at == len(rows) - 1 else ""
        shown.append(f"{left:>{margin}} ▏", "dim")
        shown.append(row + "\n", "cyan")
    x0, x1 = f"{known[0][0]:.0f}", f"step {known[-1][0]:.0f}"
    shown.append(" " * (margin + 2) + x0 + x1.rjust(WIDTH - len(x0)), "dim")
    return shown


def _dense(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The line between the points, so that few points read as a course and not as dust."""
    found: list[tuple[float, float]] = []
    pieces = 4 + 3 * WIDTH // len(points)
    for (x0, y0), (x1, y1) in pairwise(points):
        for at in range(pieces):
            part = at / pieces
            found.append((x0 + part * (x1 - x0), y0 + part * (y1 - y0)))
    return [*found, points[-1]]
