"""Bars of what time goes by: the parts of a step, and the GPU-hours of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from beam_slurm.metrics import Step
from beam_slurm.report import hours, text
from beam_slurm.report.look import INK, LIGHT, PAPER, SOFT
from beam_slurm.report.panel import Panel, Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = {
    "generation": "generation",
    "logprobs": "log-probs",
    "training": "training",
    "transfer": "transfer",
    "rest": "rest",
}
COLOURS = {**LIGHT, "bring-up": LIGHT["transfer"]}
SMALL = 0.005  # part of the whole beneath which a kind is not worth a place in a legend
OVERLAP = 1.05  # parts that add up to more than this of their step go on at the same time
NARROW, WIDE = 0.02, 0.01  # a letter's part of a panel's width, of one column or of more
MOST = 8  # attempts with a bar of their own


@dataclass(frozen=True)
class Bar:
    """One bar: its kinds lie end to end; ``after`` stands behind it."""

    name: str
    amounts: Mapping[str, float]
    after: str


# --- a step -------------------------------------------------------------------------------------


def step_time(runs: Sequence[Shown]) -> Panel | None:
    """One run: each step's parts over the steps. Several: the mean step of each."""
    timed = [(run, found) for run in runs if (found := _timed(run.history.steps))]
    if not timed:
        return None
    overlap = [run.name for run, found in timed if any(map(_overlap, found))]
    whose = f" in {', '.join(overlap)}" if len(runs) > 1 else ""
    notes = [
        f"Generation and training go on at the same time{whose}: "
        "the parts add up to more than the step."
    ]
    notes = notes if overlap else []
    if len(runs) == 1:
        notes += ["Black: the whole step."] if overlap else []
        return Panel("step_time", "Step time", "s", partial(_stack, timed[0][1]), tuple(notes))
    bars = []
    for run, found in timed:
        each = [parts(step) for step in found]
        mean = {kind: statistics.fmean(step[kind] for step in each) for kind in PARTS}
        whole = statistics.fmean(step.step_time or 0.0 for step in found)
        bars.append(Bar(run.name, mean, text.duration(whole)))
    notes.append("Mean of all steps.")
    return Panel(
        "step_time", "Step time", "s", partial(_bars, bars, PARTS, NARROW), tuple(notes), len(bars)
    )


def parts(step: Step) -> dict[str, float]:
    """Seconds of a step by part; what is in none of them is the rest."""
    found = {
        "generation": _known(step.generation_time),
        "logprobs": _known(step.logprob_time),
        "training": _known(step.training_time),
        "transfer": _known(step.transfer_time),
    }
    return {**found, "rest": max(_known(step.step_time) - sum(found.values()), 0.0)}


def _overlap(step: Step) -> bool:
    return sum(parts(step).values()) > OVERLAP * _known(step.step_time)


def _timed(steps: Sequence[Step]) -> list[Step]:
    return [s for s in steps if s.step_time is not None and math.isfinite(s.step_time)]


def _known(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0


def _stack(steps: Sequence[Step], ax: Axes) -> None:
    xs = [step.step for step in steps]
    whole = [_known(step.step_time) for step in steps]
    each = [parts(step) for step in steps]
    amounts = {kind: [step[kind] for step in each] for kind in PARTS}
    below = [0.0] * len(xs)
    for kind in _worth(amounts):
        above = [a + b for a, b in zip(below, amounts[kind], strict=True)]
        # A bar a step, and no step between those that were not timed.
        ax.bar(
            xs,
            [a - b for a, b in zip(above, below, strict=True)],
            width=1.0,
            bottom=below,
            color=COLOURS[kind],
            lw=0,
            label=PARTS[kind],
        )
        below = above
    if any(_overlap(step) for step in steps):
        ax.plot(xs, whole, lw=1.2, color=INK)
    _cap(ax, xs, [max(pair) for pair in zip(below, whole, strict=True)])


def _cap(ax: Axes, xs: Sequence[int], values: Sequence[float]) -> None:
    """From 0 up; one step that took far longer than the others is named, not drawn to scale."""
    usual = sorted(values)[int(0.95 * (len(values) - 1))]
    worst = max(values)
    top = 1.35 * usual if worst > 2.5 * usual > 0 else 1.12 * worst
    ax.set_ylim(0, top or 1)
    if top < worst:
        at = xs[values.index(worst)]
        left = at < sum(xs) / len(xs)
        ax.annotate(
            f"↑ step {at}: {text.duration(worst)}",
            (at, 0.98 * top),
            xytext=(6 if left else -6, 0),
            textcoords="offset points",
            ha="left" if left else "right",
            va="top",
            fontsize=8.5,
            color=INK,
            bbox={"facecolor": PAPER, "alpha": 0.8, "lw": 0, "pad": 1},
        )


# --- a run --------------------------------------------------------------------------------------


def gpu_hours(runs: Sequence[Shown]) -> Panel | None:
    """Where the GPU-hours went: a bar a run; of one run that had several attempts, one each."""
    bars = []
    if len(runs) == 1 and 1 < len(runs[0].facts.attempts) <= MOST:
        facts = runs[0].facts
        for attempt, spent in zip(facts.attempts, hours.by_attempt(facts), strict=False):
            bars.append(Bar(f"attempt {attempt.number}", spent.hours, _total(spent)))
    else:
        for run in runs:
            spent = hours.of(run.facts)
            bars.append(Bar(run.name if len(runs) > 1 else "", spent.hours, _total(spent)))
    bars = [bar for bar in bars if any(bar.amounts.values())]
    if not bars:
        return None
    names = {kind: kind for kind in hours.KINDS}
    return Panel(
        "gpu_hours",
        "Where the time went",
        "GPU-hours",
        partial(_bars, bars, names, WIDE),
        (),
        len(bars),
    )


def _total(spent: hours.Spent) -> str:
    queue = f" + {text.duration(spent.queue)} in the queue" if spent.queue >= 1 else ""
    return f"{text.number(spent.total)} GPU-hours{queue}"


def _worth(amounts: Mapping[str, Sequence[float]]) -> list[str]:
    whole = sum(map(sum, amounts.values()))
    return [kind for kind, each in amounts.items() if sum(each) > SMALL * whole]


def _bars(bars: Sequence[Bar], names: Mapping[str, str], letter: float, ax: Axes) -> None:
    """Bars beneath each other; ``letter`` is the part of their width that one takes."""
    amounts = {kind: [bar.amounts.get(kind, 0.0) for bar in bars] for kind in names}
    rows = range(len(bars))
    left = [0.0] * len(bars)
    for kind in _worth(amounts):
        ax.barh(rows, amounts[kind], 0.5, left=left, color=COLOURS[kind], lw=0, label=names[kind])
        left = [a + b for a, b in zip(left, amounts[kind], strict=True)]
    beside: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9}
    for row, (bar, end) in enumerate(zip(bars, left, strict=True)):
        ax.annotate(bar.after, (end, row), xytext=(5, 0), va="center", **beside)
        # Above it, for a name is longer than a margin is wide.
        ax.annotate(bar.name, (0, row - 0.25), xytext=(0, 2), va="bottom", color=SOFT, **beside)
    ax.set_yticks([])
    ax.set_ylim(len(bars) - 0.6, -0.75 if any(bar.name for bar in bars) else -0.4)
    room = (0.97 - letter * len(bar.after) for bar in bars)
    ax.set_xlim(0, max(end / part for end, part in zip(left, room, strict=True)) or 1)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.spines["left"].set_visible(False)
