"""What ``sweep`` shows: the plan of a dry run, the points now, the combinations ranked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from beam_slurm.errors import BeamSlurmError
from beam_slurm.report import common, text
from beam_slurm.report.facts import seconds_left
from beam_slurm.report.overview import COLOURS, job_of, label
from beam_slurm.sweep.folder import Folder, open_folder
from beam_slurm.sweep.limits import Limits
from beam_slurm.sweep.planning import Planned
from beam_slurm.sweep.points import short
from beam_slurm.sweep.results import Row, value
from beam_slurm.sweep.schema import Objective
from beam_slurm.sweep.states import Look

# The order in which a sweep's points go through them.
WORDS = ("pending", "starting", "running", "succeeded", "failed", "cancelled", "unknown")


def plan(planned: Sequence[Planned]) -> Table:
    """The points of a dry run."""
    keys = _keys(each.point.values for each in planned)
    seeds = planned[0].point.seed is not None
    grid = _grid(["point", *map(short, keys), *(["seed"] if seeds else []), "nodes", "GPU-hours"])
    for each in planned:
        point, hardware = each.point, each.request.profile.hardware
        grid.add_row(
            str(point.index),
            *(_value(point.values.get(key)) for key in keys),
            *([str(point.seed)] if seeds else []),
            f"{hardware.nodes + each.request.profile.job.spares} × {hardware.gpus_per_node}",
            text.number(each.gpu_hours),
        )
    return grid


def chunks(planned: Sequence[Planned], limits: Limits, parallel: int | None) -> list[str]:
    """How the points will be cut into arrays, one line each."""
    kinds = Counter(each.directives for each in planned)
    noun = planned[0].noun
    lines: list[str] = []
    for count in kinds.values():
        for first in range(0, count, max(limits.array, 1)):
            size = min(limits.array, count - first)
            most = f"%{min(parallel, size)}" if parallel else ""
            lines.append(
                f"array {len(lines)}: {text.count(size, noun)}, --array=0-{size - 1}{most}"
            )
    return lines


def counts(of: Folder, looks: Sequence[Look]) -> Text:
    """How many points are in which state, in one line."""
    found = Counter(look.facts.state.word for look in looks)
    parts = [Text(f"{found[word]} {word}", COLOURS.get(word, "")) for word in WORDS if found[word]]
    stopped = sum(look.stopped for look in looks)
    if stopped:
        parts.append(Text(f"{stopped} of them stopped early", "yellow"))
    return Text(", ").join([Text(text.count(len(looks), of.noun)), *parts])


def table(looks: Sequence[Look], wanted: Objective | None) -> Table:
    """One line a point."""
    keys = _keys(look.entry.values for look in looks)
    seeds = any(look.entry.seed is not None for look in looks)
    titles = ["point", *map(short, keys), *(["seed"] if seeds else [])]
    evaluated = any("task" in look.facts.manifest for look in looks)
    measured, cells = _scores(looks) if evaluated else _course(looks, wanted)
    grid = _grid([*titles, "state", "job", *measured, "why"])
    for look, found in zip(looks, cells, strict=True):
        facts = look.facts
        grid.add_row(
            str(look.index),
            *(_value(look.entry.values.get(key)) for key in keys),
            *([_value(look.entry.seed)] if seeds else []),
            label(facts.state),
            job_of(facts),
            *found,
            "" if facts.state.word == "succeeded" else facts.state.why,
        )
    return grid


def _course(looks: Sequence[Look], wanted: Objective | None) -> tuple[list[str], list[list[str]]]:
    """How far training is: the titles of the columns, and what each point has in them."""
    cells = []
    for look in looks:
        facts = look.facts
        last = facts.history.last if facts.history else None
        left = None if facts.state.ended else seconds_left(facts)
        objective = [text.number(value(facts.history, wanted))] if wanted else []
        step = f"{last.step if last else '–'}/{facts.steps or '?'}"
        cells.append([step, *objective, text.duration(left)])
    return ["step", *([wanted.metric] if wanted else []), "left"], cells


def _scores(looks: Sequence[Look]) -> tuple[list[str], list[list[str]]]:
    """The same of evaluations: what each has come to. All of them ask equally often."""
    found = [common.result(look.facts.run, look.facts.state) for look in looks]
    cells = []
    for each in found:
        interval = each.interval() if each else None
        cells.append(
            [
                text.percent(each.accuracy if each else None),
                f"{common.between(*interval)} %" if interval else "",
            ]
        )
    return [next((it.asked.score for it in found if it), "avg@k"), "95 % interval"], cells


def ranking(rows: Sequence[Row], wanted: Objective) -> Table:
    """One line a combination, the best first."""
    keys = _keys(row.values for row in rows)
    grid = _grid(["rank", *map(short, keys), wanted.metric, "±", "seeds", "points"])
    for at, row in enumerate(rows, 1):
        grid.add_row(
            str(at) if row.mean is not None else "–",
            *(_value(row.values.get(key)) for key in keys),
            text.number(row.mean),
            text.number(row.spread),
            f"{len(row.found)}/{len(row.looks)}",
            _states(row),
            style="bold" if at == 1 and row.mean is not None else None,
        )
    return grid


def _states(row: Row) -> Text:
    """The numbers of the points, in the colours of their states; a word where it is no success."""
    parts = []
    for look in row.looks:
        word = look.facts.state.word
        said = str(look.index) if word == "succeeded" else f"{look.index} {word}"
        parts.append(Text(said, COLOURS.get(word, "")))
    return Text(", ").join(parts)


def head(of: Folder) -> Text:
    """Which sweep this is."""
    arrays = [chunk.job for chunk in of.content.chunks if chunk.job]
    jobs = f"job {', '.join(arrays)}" if arrays else "no job yet"
    where = f"process {of.content.queue or '–'}" if of.local else jobs
    when = text.date(of.content.created)
    return Text.assemble((of.id, "bold"), f"  {of.content.profile}  {where}  {when}")


def line(path: Path) -> Text:
    """A sweep among the runs: where its points are is asked for with ``sweep status``."""
    try:
        of = open_folder(path)
    except BeamSlurmError as error:  # the runs beside it are to be seen all the same
        return Text(error.what, "yellow")
    count = f"  {text.count(len(of.content.points), of.noun)}: beam-slurm sweep status {of.id}"
    return head(of).append(count, "dim")


def as_json(path: Path) -> dict[str, Any]:
    """The same for machines: a sweep has points where a run has a state."""
    try:
        of = open_folder(path)
    except BeamSlurmError as error:
        return {"id": path.name, "folder": str(path), "why": error.what}
    return {
        "id": of.id,
        "folder": str(of.path),
        "profile": of.content.profile,
        "executor": of.content.executor,
        "created": of.content.created,
        "points": len(of.content.points),
        "jobs": [chunk.job for chunk in of.content.chunks if chunk.job],
    }


def _grid(titles: Sequence[str]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        words = title in ("checkpoint", "state", "why", "points")
        grid.add_column(title, justify="left" if words else "right", no_wrap=title != "why")
    return grid


def _keys(values: Any) -> list[str]:
    return list(dict.fromkeys(key for found in values for key in found))


def _value(found: Any) -> str:
    return "–" if found is None else f"{found:g}" if isinstance(found, float) else str(found)
