"""The four panels of the figure: each draws one quantity into axes that it is given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from beam_slurm.metrics import Evaluation, History, Step
from beam_slurm.report import text
from beam_slurm.report.courses import by_set
from beam_slurm.report.facts import Facts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours: told apart by colour-blind readers. Print keeps the order of lightness.
BLUE, ORANGE, GREEN, SKY = "#0072B2", "#D55E00", "#009E73", "#56B4E9"
SETS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), ("#CC79A7", "D"))  # an evaluation set each
INK, FAINT = "#222222", "#8A8A8A"


def reward(ax: Axes, facts: Facts, history: History) -> None:
    _head(ax, "Reward")
    _raw_and_mean(ax, _series(history.steps, "reward"), BLUE)
    _references(ax, facts, "reward")


def accuracy(ax: Axes, facts: Facts, history: History) -> None:
    _head(ax, "Held-out accuracy", "%")
    sets = by_set(history)
    for at, (name, evaluations) in enumerate(sets.items()):
        known = [e for e in evaluations if e.accuracy is not None and math.isfinite(e.accuracy)]
        xs, ys = [e.step for e in known], [100 * (e.accuracy or 0) for e in known]
        colour, marker = SETS[at % len(SETS)]
        ax.plot(
            xs,
            ys,
            marker=marker,
            ms=4.5 if len(xs) <= 15 else 3,
            lw=1.6,
            color=colour,
            label=name,
            zorder=3,
        )
        _intervals(ax, known, colour, "95 % interval" if at == len(sets) - 1 else None)
    _references(ax, facts, "accuracy")
    if sets:
        # From 0 where that costs little; a benchmark that stays at 70 to 80 % gets its own range.
        low, high = ax.get_ylim()
        ax.set_ylim(0 if low < 0.4 * high else max(low, 0), min(high, 101.5))
    else:
        _nothing(ax, "no evaluation yet")


def _intervals(ax: Axes, known: Sequence[Evaluation], colour: str, label: str | None) -> None:
    """Bars; a band where they would stand too close."""
    found = [(e.step, 100 * (e.accuracy or 0), i) for e in known if (i := e.interval())]
    if not found:
        return
    xs, ys = [x for x, _, _ in found], [y for _, y, _ in found]
    low, high = ([100 * interval[end] for _, _, interval in found] for end in (0, 1))
    if len(found) > 15:
        ax.fill_between(xs, low, high, color=colour, alpha=0.18, lw=0, label=label)
        return
    spread = [
        [y - edge for y, edge in zip(ys, low, strict=True)],
        [edge - y for y, edge in zip(ys, high, strict=True)],
    ]
    bars: dict[str, Any] = {"fmt": "none", "elinewidth": 1, "capsize": 2.5, "alpha": 0.55}
    ax.errorbar(xs, ys, yerr=spread, ecolor=colour, label=label, **bars)


def response_length(ax: Axes, facts: Facts, history: History) -> None:
    _head(ax, "Response length", "tokens")
    _raw_and_mean(ax, _series(history.steps, "response_length"), GREEN)
    _references(ax, facts, "length")


def step_time(ax: Axes, history: History) -> None:
    _head(ax, "Step time", "s")
    steps = [s for s in history.steps if s.step_time is not None and math.isfinite(s.step_time)]
    if not steps:
        _nothing(ax, "not reported")
        return
    xs = [step.step for step in steps]
    whole = [step.step_time or 0.0 for step in steps]
    if any(step.generation_time is not None for step in steps):
        generation = [_part(step.generation_time) for step in steps]
        training = [_part(step.training_time) for step in steps]
        pairs = zip(whole, generation, training, strict=True)
        rest = [max(all_ - made - learnt, 0.0) for all_, made, learnt in pairs]
        parts = [("generation", generation, SKY), ("training", training, BLUE)]
        if sum(rest) > 0.02 * sum(whole):
            parts.append(("other", rest, "#D0D0D0"))
        edges = [xs[0] - 0.5] + [x + 0.5 for x in xs]
        below = [0.0] * len(xs)
        for name, values, colour in parts:
            above = [a + b for a, b in zip(below, values, strict=True)]
            ax.stairs(above, edges, baseline=below, fill=True, color=colour, lw=0, label=name)
            below = above
    else:
        ax.plot(xs, whole, lw=1.4, color=BLUE, marker="o" if len(xs) == 1 else None)
    _cap(ax, xs, whole)


def _part(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0


def _cap(ax: Axes, xs: Sequence[int], values: Sequence[float]) -> None:
    """From 0 up; one step that took far longer than the others is named, not drawn to scale."""
    usual = sorted(values)[int(0.95 * (len(values) - 1))]
    worst = max(values)
    top = 1.35 * usual if worst > 2.5 * usual > 0 else 1.12 * worst
    ax.set_ylim(0, top or 1)
    if top < worst:
        at = xs[values.index(worst)]
        ax.annotate(
            f"↑ step {at}: {text.duration(worst)}",
            (at, 0.98 * top),
            xytext=(6 if at < sum(xs) / len(xs) else -6, 0),
            textcoords="offset points",
            ha="left" if at < sum(xs) / len(xs) else "right",
            va="top",
            fontsize=8.5,
            color=INK,
        )


def _raw_and_mean(ax: Axes, points: Sequence[tuple[int, float]], colour: str) -> None:
    """Each step faint, a centred mean over about a tenth of the steps in front of it."""
    if not points:
        _nothing(ax, "not reported")
        return
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if len(points) < 20:
        ax.plot(xs, ys, lw=1.6, color=colour, marker="o", ms=4)
        return
    window = 2 * (len(points) // 20) + 1
    ax.plot(xs, ys, lw=0.9, color=colour, alpha=0.4, label="each step")
    ax.plot(xs, _smooth(ys, window), lw=2.2, color=colour, label=f"mean of {window}")


def _smooth(values: Sequence[float], window: int) -> list[float]:
    """Centred means; at the ends of what there is."""
    half = window // 2
    parts = (values[max(at - half, 0) : at + half + 1] for at in range(len(values)))
    return [sum(part) / len(part) for part in parts]


def _references(ax: Axes, facts: Facts, kind: str) -> None:
    """Published results of the recipe: from the first to the last, as two dashed levels."""
    for name, first, last in references(facts, kind):
        # A run that does as published leaves the first level on the right, the last on the left.
        for value, when, at, side in (
            (first, "first", 0.995, "right"),
            (last, "last", 0.01, "left"),
        ):
            ax.axhline(value, ls=(0, (5, 3)), lw=1.1, color=INK, alpha=0.75)
            ax.annotate(
                f"published {name}, {when}: {text.number(value)}",
                (at, value),
                xycoords=("axes fraction", "data"),
                xytext=(0, 4),
                textcoords="offset points",
                ha=side,
                fontsize=8,
                color=INK,
                bbox={"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 0.8},
                zorder=4,
            )


def references(facts: Facts, kind: str) -> Iterator[tuple[str, float, float]]:
    """(metric, first, last) of the profile's published results that belong into one panel.

    Accuracies come in per cent, whether they were published so or as 0 to 1.
    """
    for reference in facts.profile.get("recipe", {}).get("reference") or []:
        name = str(reference["metric"])
        words = name.lower().replace("_", " ")
        if "length" in words or "tokens" in words:
            own = "length"
        else:
            own = "reward" if "reward" in words else "accuracy"
        if own == kind:
            first, last = float(reference["first"]), float(reference["last"])
            scale = 100 if kind == "accuracy" and max(first, last) <= 1 else 1
            yield name, scale * first, scale * last


def _nothing(ax: Axes, what: str) -> None:
    ax.text(0.5, 0.5, what, transform=ax.transAxes, ha="center", va="center", color=FAINT)
    ax.set_yticks([])


def _series(steps: Sequence[Step], name: str) -> list[tuple[int, float]]:
    pairs = [(step.step, getattr(step, name)) for step in steps]
    return [(step, x) for step, x in pairs if x is not None and math.isfinite(x)]


def _head(ax: Axes, what: str, unit: str = "") -> None:
    """A panel's title in bold and its unit beside it."""
    title = ax.set_title(what)
    if unit:
        ax.annotate(
            unit,
            (1, 0),
            xycoords=title,
            xytext=(5, 0),
            textcoords="offset points",
            va="bottom",
            color="#555555",
        )
