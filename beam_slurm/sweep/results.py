"""What came out: the objective of each point, and the combinations from best to worst."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from beam_slurm import metrics
from beam_slurm.metrics import History
from beam_slurm.report import common
from beam_slurm.report.facts import Facts, seconds_left
from beam_slurm.sweep.schema import Objective
from beam_slurm.sweep.states import Look


@dataclass(frozen=True)
class Row:
    """One combination, over its seeds.

    Attributes:
        values: what it sets.
        looks: its points, one a seed.
        found: the objective of those that have succeeded.
    """

    values: dict[str, Any]
    looks: tuple[Look, ...]
    found: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """Over the seeds; None while none has succeeded."""
        return statistics.fmean(self.found) if self.found else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None of fewer than two."""
        return statistics.stdev(self.found) if len(self.found) > 1 else None


def value(history: History | None, wanted: Objective) -> float | None:
    """A run's objective so far; None while it has not measured it.

    A nan or inf counts: "last" and "mean" are then no number either, which ranks last; "best" is
    the best of the numbers.
    """
    course = [found for _, found in metrics.series(history, wanted.metric)] if history else []
    if not course:
        return None
    window = wanted.window
    if window is not None:
        last = course[-window:]
        return sum(last) / len(last)
    numbers = [found for found in course if math.isfinite(found)]
    return max(numbers, key=lambda found: wanted.sign * found) if numbers else math.nan


def rank(looks: Sequence[Look], wanted: Objective) -> list[Row]:
    """Every combination, the best first; those of which no point has succeeded at the end.

    Points that still run are left out of the mean: what they have now is not what they will have.
    """
    groups: dict[str, list[Look]] = {}
    for look in looks:
        groups.setdefault(repr(look.entry.values), []).append(look)
    rows = []
    for group in groups.values():
        over = [look for look in group if look.facts.state.word == "succeeded"]
        known = [value(look.facts.history, wanted) for look in over]
        rows.append(
            Row(group[0].entry.values, tuple(group), tuple(x for x in known if x is not None))
        )

    def order(row: Row) -> tuple[int, float]:
        if row.mean is None:
            return 2, 0.0
        return (0, -wanted.sign * row.mean) if math.isfinite(row.mean) else (1, 0.0)

    return sorted(rows, key=order)


def records(looks: Sequence[Look], wanted: Objective | None) -> list[dict[str, Any]]:
    """One flat record a point, for CSV and JSON. ``objective`` is null while there is none.

    That of an evaluation has ``task`` too, what was evaluated, and ``scores``.
    """
    found = []
    for look in looks:
        facts = look.facts
        measured = value(facts.history, wanted) if wanted else None
        task = facts.manifest.get("task")
        found.append(
            {
                "point": look.index,
                "run": facts.run.id,
                **look.entry.values,
                "seed": look.entry.seed,
                "state": facts.state.word,
                "class": facts.state.kind or None,
                "why": facts.state.why or None,
                "job": facts.job,
                "step": facts.step,
                "steps": facts.steps,
                "objective": measured,
                "seconds": facts.seconds,
                "seconds_left": None if facts.state.ended else seconds_left(facts),
                "folder": str(facts.run.path),
                **({"task": task, "scores": _scores(facts)} if task else {}),
            }
        )
    return found


def _scores(facts: Facts) -> dict[str, Any]:
    found = common.result(facts.run, facts.state)
    return common.as_json(found)["scores"] if found else {}


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The records as CSV with a head; what one lacks is empty, nan and inf are spelled so."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def finite(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records for JSON, which has no nan and no inf."""
    return [
        {
            name: None if isinstance(x, float) and not math.isfinite(x) else x
            for name, x in row.items()
        }
        for row in rows
    ]
