"""How a run's measurements went, in a few numbers."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from beam_slurm.metrics import Evaluation, History


@dataclass(frozen=True)
class Course:
    """How a quantity went. ``first`` and ``last`` are means over ``window`` steps each."""

    first: float
    last: float
    best: float
    best_step: int
    window: int


def course(values: list[tuple[int, float | None]], window: int | None = None) -> Course | None:
    """The course of (step, value) pairs; one step is noise, so a tenth of them is averaged."""
    known = [(step, x) for step, x in values if x is not None and math.isfinite(x)]
    if not known:
        return None
    size = window or max(1, len(known) // 10)
    best_step, best = max(known, key=lambda pair: pair[1])
    return Course(
        first=statistics.fmean(x for _, x in known[:size]),
        last=statistics.fmean(x for _, x in known[-size:]),
        best=best,
        best_step=best_step,
        window=size,
    )


def courses(history: History) -> dict[str, Course | None]:
    """Reward, response length, and the accuracy of each set as "accuracy SET"."""
    steps = history.steps
    found = {
        name: course([(step.step, getattr(step, name)) for step in steps])
        for name in ("reward", "response_length")
    }
    for name, evaluations in by_set(history).items():
        found[f"accuracy {name}"] = course([(e.step, e.accuracy) for e in evaluations], window=1)
    return found


def by_set(history: History) -> dict[str, list[Evaluation]]:
    """The evaluations of each set."""
    found: dict[str, list[Evaluation]] = {}
    for evaluation in history.evaluations:
        found.setdefault(evaluation.set, []).append(evaluation)
    return found


def step_seconds(history: History, recent: int | None = None) -> float | None:
    """Median time of a step, of all or of the ``recent`` ones."""
    steps = history.steps[-recent:] if recent else history.steps
    known = [x for step in steps if (x := step.step_time) is not None and math.isfinite(x)]
    return statistics.median(known) if known else None
