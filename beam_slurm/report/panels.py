"""The panels of the figure: what each shows of the runs, drawn into axes that it is given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from beam_slurm.after.problems import COMMON
from beam_slurm.metrics import METRICS, Evaluation, Series, same_set, series
from beam_slurm.report import bars, common, look, published, text
from beam_slurm.report.common import Scored
from beam_slurm.report.courses import by_set
from beam_slurm.report.look import INK, PAPER
from beam_slurm.report.panel import Panel, Shown, finite
from beam_slurm.report.published import Published

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY = 15  # evaluations; more than that, and bars become a band
WINDOW = 20  # a mean is over twice this part of the steps; fewer steps get none
TRAINED = {
    "reward": "Reward",
    "response_length": "Response length, training",
    "logprob_diff": "Log-prob difference, rollout to training",
    "rollout_kl": "KL, rollout to training",
    "step_time": "Step time",
    "throughput": "Throughput",
    "generation_throughput": "Generation throughput",
}
RARE = ("rollout_kl", "generation_throughput")  # not missed where a framework does not tell them
OWN = (
    "Each framework scores itself in its own way: this cannot be compared between frameworks. "
    "beam-slurm evaluate scores all alike."
)
UNITS = {"throughput": "tokens/s per GPU", "generation_throughput": "tokens/s per GPU"}


def of(runs: Sequence[Shown]) -> tuple[list[Panel], list[str]]:
    """The panels that have something to show, and what none of the runs has measured."""
    found: list[Panel] = []
    absent = []
    sets = sets_of(runs)
    alike = _alike(runs)
    for name in _in_order((*sets, *alike)):
        found += alike.get(name, [])
        found += _evaluated(runs, "accuracy", name, sets, beside=name in alike)
    if not found:
        absent.append("accuracy")
    for name in sets:
        found += _evaluated(runs, "evaluation_length", name, sets)
    timed = bars.step_time(runs)
    for metric, title in TRAINED.items():
        panel = timed if metric == "step_time" else _trained(runs, metric, title)
        if panel:
            found.append(panel)
        elif metric not in RARE:
            absent.append(METRICS[metric].text)
    return found, absent


def sets_of(runs: Sequence[Shown]) -> list[str]:
    """The sets that the runs have evaluated themselves: AIME2025 first, then as they come."""
    return _in_order(name for run in runs for name in by_set(run.history))


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(dict.fromkeys(names), key=lambda name: not same_set(name, COMMON))


def titled(name: str) -> str:
    """A set's name as a title begins with it."""
    label = text.printable(name)
    if label.lower().startswith("aime"):
        return label.upper()
    return label[:1].upper() + label[1:]


def _alike(runs: Sequence[Shown]) -> dict[str, list[Panel]]:
    """The panels of common evaluations, by set: as a framework names it, if one evaluates on it.

    One way of asking has one panel: what was asked in another way is not comparable.
    """
    if len(runs) == 1 and runs[0].facts.evaluates:
        return {}  # a table says it all
    sets = sets_of(runs)
    trained = {it.folder for run in runs if not run.facts.evaluates for it in run.common}
    once = [
        [it for it in run.common if not (run.facts.evaluates and it.folder in trained)]
        for run in runs
    ]
    found: dict[str, list[Panel]] = {}
    ways = common.lines(once)
    for asked, score in ways.items():
        several = sum(it.set == asked.set for it in ways) > 1
        name = next((it for it in sets if same_set(it, asked.set)), asked.set)
        points = [(run, common.along(its, asked)) for run, its in zip(runs, once, strict=True)]
        panel = Panel(
            f"common/{asked.set}/{score}",
            f"{titled(asked.set)}, common{'' if several else ' evaluation'} ({score})",
            "%",
            partial(_common, points),
            tuple(common.notes([it for _, line in points for it in line], asked)),
        )
        found.setdefault(name, []).append(panel)
    return found


def _evaluated(
    runs: Sequence[Shown], metric: str, name: str, sets: Sequence[str], beside: bool = False
) -> Iterator[Panel]:
    """What the frameworks have evaluated; ``beside``: next to the common evaluation of the set."""
    points = [(run, finite(series(run.history, f"{metric}/{name}"))) for run in runs]
    if not any(found for _, found in points):
        return
    results = _results(runs, metric, name, only=len(sets) == 1)
    label = titled(name)
    if metric == "accuracy":
        evaluations = [by_set(run.history).get(name, []) for run in runs]
        responses = next((n for each in evaluations for e in each if (n := _count(e))), 0)
        spans = [[(e.step, i) for e in each if (i := e.interval())] for each in evaluations]
        whose = {run.facts.manifest.get("framework") for run, its in points if its}
        own = "each framework's own" if len(whose) > 1 else "own evaluation"
        yield Panel(
            f"accuracy/{name}",
            f"{label}, {own}" if beside else f"{label} accuracy",
            "%",
            partial(_accuracy, points, spans, results, responses),
            (
                *([OWN] if beside or len(whose) > 1 else []),
                *_few(evaluations),
                *_about(results, metric),
            ),
        )
        return
    yield Panel(
        f"{metric}/{name}",
        f"{label} response length",
        "tokens",
        partial(_dots, points, results),
        tuple(_about(results, metric)),
    )


def _trained(runs: Sequence[Shown], metric: str, title: str) -> Panel | None:
    points = [(run, series(run.history, metric)) for run in runs]
    if not any(finite(found) for _, found in points):
        return None
    results = _results(runs, metric)
    unit = UNITS.get(metric, METRICS[metric].unit)
    notes = [note for run, found in points if (note := _odd(run, found, len(runs) > 1))]
    draw = partial(_curves, points, results)
    return Panel(metric, title, unit, draw, (*notes, *_about(results, metric)))


# --- drawing ------------------------------------------------------------------------------------

Points = Sequence[tuple[Shown, Series]]
Span = Sequence[tuple[int, tuple[float, float]]]  # (step, interval)
Spans = Sequence[Span]  # a run's each
Results = Sequence[tuple[Published, Shown]]  # with the first run whose profile carries it


def _curves(points: Points, results: Results, ax: Axes) -> None:
    """Each step faint, a centred mean over about a tenth of the steps in front of it."""
    for run, found in points:
        known = finite(found)
        xs, ys = [x for x, _ in known], [y for _, y in known]
        odd = [x for x, y in found if not math.isfinite(y)]
        if odd:
            # What is not a number has no height: it stands on the panel's upper edge.
            edge: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False}
            cross: dict[str, Any] = {"ms": 5, "mew": 1.4, "color": run.colour, "zorder": 6}
            ax.plot(odd, [1] * len(odd), "x", **edge, **cross)
        if window := _window(known):
            faint = 0.35 if len(points) < 3 else 0.2
            ax.plot(xs, ys, lw=0.8, color=run.colour, alpha=faint, zorder=2)
            # Where colours come twice, the marker tells.
            twice = len(points) > len(look.RUNS)
            marks: dict[str, Any] = {"marker": run.marker, "markevery": len(xs) // 8 + 1, "ms": 5}
            means = _smooth(ys, window)
            ax.plot(xs, means, lw=2.1, color=run.colour, zorder=3, **(marks if twice else {}))
        elif known:
            ax.plot(xs, ys, lw=1.6, color=run.colour, marker=run.marker, ms=4, zorder=3)
    _published(ax, results, points)


def _dots(points: Points, results: Results, ax: Axes) -> None:
    """A dot each evaluation."""
    for run, found in points:
        known = finite(found)
        size = 4.5 if len(known) <= MANY else 3
        xs, ys = [x for x, _ in known], [y for _, y in known]
        look_of: dict[str, Any] = {"color": run.colour, "marker": run.marker, "ms": size}
        ax.plot(xs, ys, lw=1.6, zorder=3, clip_on=False, **look_of)  # a dot on the edge is whole
    _published(ax, results, points)


def _common(found: Sequence[tuple[Shown, list[Scored]]], ax: Axes) -> None:
    """As the frameworks' own; a model of nobody knows how many steps is a level."""
    points, spans = [], []
    for run, line in found:
        known = [(it.step, it) for it in line if it.step is not None]
        points.append((run, [(step, it.accuracy) for step, it in known]))
        spans.append([(step, i) for step, it in known if (i := it.interval())])
        for it in (it for it in line if it.step is None):
            ax.axhline(100 * it.accuracy, lw=1.6, color=run.colour, zorder=3)
            low, high = it.interval() or (it.accuracy, it.accuracy)
            ax.axhspan(100 * low, 100 * high, color=run.colour, alpha=0.08, lw=0)
    _accuracy(points, spans, [], 0, ax)


def _accuracy(points: Points, spans: Spans, results: Results, responses: int, ax: Axes) -> None:
    """Dots and their intervals; ``responses`` is how many the published ones are taken to be of."""
    scaled = [(run, [(x, 100 * y) for x, y in found]) for run, found in points]
    apart = _apart(scaled)
    for at, ((run, _), each) in enumerate(zip(scaled, spans, strict=True)):
        shift = apart * (at - (len(scaled) - 1) / 2)
        band = 0.16 if len(scaled) < 3 else 0.08
        _intervals(ax, each, run.colour, shift, band)
    _dots(scaled, [], ax)
    _published(ax, results, points, scale=100, responses=responses)
    # From 0 where that costs little; a benchmark that stays at 70 to 80 % gets its own range.
    low, high = ax.get_ylim()
    ax.set_ylim(0 if low < 0.4 * high else max(low, 0), min(high, 101.5))


def _apart(points: Points) -> float:
    """Steps between the bars of two runs, so that they do not hide each other."""
    steps = sorted({x for _, found in points for x, _ in found})
    gap = min((b - a for a, b in pairwise(steps)), default=0)
    return min(0.06 * gap, 0.3 * gap / max(len(points), 1)) if len(points) > 1 else 0.0


def _intervals(ax: Axes, known: Span, colour: str, shift: float, band: float) -> None:
    """Bars; a band where they would stand too close."""
    xs = [step + shift for step, _ in known]
    low, high = ([100 * interval[end] for _, interval in known] for end in (0, 1))
    if len(known) > MANY:
        ax.fill_between(xs, low, high, color=colour, alpha=band, lw=0)
    elif known:
        ax.vlines(xs, low, high, color=colour, lw=1.2, alpha=0.45)


def _published(
    ax: Axes, results: Results, points: Points, scale: float = 1, responses: int = 0
) -> None:
    """From the first value to the last; with a note of their own, as two levels."""
    for at, (result, run) in enumerate(results):
        colour = INK if len(results) == 1 else run.colour
        first, last = scale * result.first, scale * result.last
        label = None if at else "published"
        style = {**look.PUBLISHED, "color": colour, "label": label, "zorder": 4}
        if result.note:
            ax.axhline(first, **style)
            ax.axhline(last, **{**style, "label": None})
            continue
        # Where the authors name no steps, the run's own: from its first value to its planned end.
        own = [x for of, found in points if of is run for x, _ in found] or [0]
        x0, x1 = result.steps or (min(own), max(run.facts.steps or 0, *own))
        ends: dict[str, Any] = {"marker": "o", "ms": 5, "mfc": PAPER, "mec": colour, "mew": 1.2}
        ax.plot([x0, x1], [first, last], scalex=False, **style, **ends)
        for x, value in ((x0, result.first), (x1, result.last)):
            interval = Evaluation(0, "", accuracy=value, responses=responses).interval()
            if interval and result.metric == "accuracy":
                low, high = interval
                ax.vlines(x, scale * low, scale * high, color=colour, lw=1, alpha=0.5, zorder=3)


def _window(points: Series) -> int:
    """How many steps a mean is over; 0 for none."""
    return 2 * (len(points) // WINDOW) + 1 if len(points) >= WINDOW else 0


def _smooth(values: Sequence[float], window: int) -> list[float]:
    """Centred means; at the ends of what there is."""
    half = window // 2
    parts = (values[max(at - half, 0) : at + half + 1] for at in range(len(values)))
    return [sum(part) / len(part) for part in parts]


# --- words --------------------------------------------------------------------------------------


def _results(runs: Sequence[Shown], metric: str, name: str = "", only: bool = False) -> Results:
    """The published results beside one metric, each once."""
    found: dict[Published, Shown] = {}
    for run in runs:
        for result in published.of(run.facts):
            if result.about(metric, name, only) and not result.ratio:
                found.setdefault(result, run)
    return list(found.items())


def smoothed(runs: Sequence[Shown]) -> int:
    """Over how many steps the bold lines are means; 0 if there are none."""
    return max((_window([(s.step, 0.0) for s in run.history.steps]) for run in runs), default=0)


def ratios(runs: Sequence[Shown]) -> list[str]:
    """What was published as how many times more: no axis has a place for it."""
    found = {result: run for run in runs for result in published.of(run.facts) if result.ratio}
    return [
        f"Published for {run.profile}: {100 * (result.last - 1):+.0f} % "
        + text.printable(result.name).replace("_", " ")
        + (f" ({text.printable(result.note)})" if result.note else "")
        for result, run in found.items()
    ]


def value(metric: str, found: float) -> str:
    """One value of a metric."""
    return text.percent(found) if metric == "accuracy" else text.number(found)


def spell(metric: str, first: float, last: float, exactly: bool = False) -> str:
    """The first and the last value of a metric; what is published, as it was published."""
    scale, unit = (100, "%") if metric == "accuracy" else (1, METRICS[metric].unit)
    if exactly:
        ends = [f"{scale * value:,.6g}" for value in (first, last)]
    elif metric == "accuracy":
        ends = [f"{scale * value:.1f}" for value in (first, last)]
    else:
        ends = [text.number(value) for value in (first, last)]
    return " → ".join(ends) + (f" {unit}" if unit and unit != "/s" else "")


def _about(results: Results, metric: str) -> Iterator[str]:
    """Each published result in words."""
    for result, run in results:
        values = spell(metric, result.first, result.last, exactly=True)
        if result.note:
            after = f" ({text.printable(result.note)})"
        elif result.steps:
            after = f", from step {result.steps[0]:.0f} to step {result.steps[1]:.0f}"
        else:
            after = "; over which steps is not published"
        yield f"Dashed: published for {run.profile}, {values}{after}."


def _few(evaluations: Sequence[list[Evaluation]]) -> Iterator[str]:
    """How noisy the points are, for each number of responses that they are of."""
    widest: dict[tuple[int | None, int], float] = {}
    for evaluation in (e for found in evaluations for e in found):
        interval, count = evaluation.interval(), _count(evaluation)
        if interval and count:
            key = evaluation.problems, count
            half = 50 * (interval[1] - interval[0])
            widest[key] = max(widest.get(key, 0.0), half)
    for (problems, count), half in widest.items():
        each = count // problems if problems and count % problems == 0 else 0
        if problems and each > 1:
            whole = f"{problems} problems × {each} responses = {count}"
        else:
            whole = f"{count} responses"
        yield (
            f"95 % interval: {whole}: ± {half:.1f} points or less, so smaller steps between two "
            "points mean little."
        )


def _count(evaluation: Evaluation) -> int:
    return evaluation.responses or evaluation.problems or 0


def _odd(run: Shown, points: Series, several: bool) -> str:
    """Where a value was nan or inf; "" if it never was."""
    odd = [step for step, value in points if not math.isfinite(value)]
    if not odd:
        return ""
    steps = ", ".join(map(str, odd[:5])) + (f" and {len(odd) - 5} more" if len(odd) > 5 else "")
    whose = f" of {run.name}" if several else ""
    return f"×: not a number at step {steps}{whose}."
