"""The figure: all panels on one sheet as PNG, and each one alone as SVG for the page.

matplotlib is imported here and nowhere else, in functions and without pyplot: no display, no global
state.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from beam_slurm.errors import BeamSlurmError
from beam_slurm.metrics import History
from beam_slurm.report import bars, hours, look, panels, text
from beam_slurm.report.facts import Facts
from beam_slurm.report.look import CHECKPOINT, INK, LIGHT, RESTART, SOFT
from beam_slurm.report.overview import job_of
from beam_slurm.report.panel import Panel, Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Inches of the sheet, which is to fill a slide: of the whole, between two columns, of a panel's
# axes, and of what stands above and beneath those.
WIDTH, COLUMNS, LEFT, RIGHT, GAP = 14.0, 3, 0.62, 0.2, 0.62
HEAD, HIGH, FOOT = 0.6, 1.95, 0.45
BAR = 0.42  # of one bar with its name
ALONE, ALONE_HIGH = 5.2, 2.3  # of a panel of its own, and of its axes
MARKS = 25  # checkpoints that are marked at most: more would cover the axis


def png(runs: Sequence[Shown]) -> bytes:
    """All that there is of the runs on one sheet.

    Raises:
        BeamSlurmError: matplotlib is absent.
    """
    with drawing():
        from matplotlib.figure import Figure

        found, _ = panels.of(runs)
        cells = [panel for panel in found if _high(panel) < HIGH + BAR]
        strips = [panel for panel in found if panel not in cells]
        rows = math.ceil(len(cells) / COLUMNS)
        free = COLUMNS * rows - len(cells)
        spent = bars.gpu_hours(runs)
        beside = spent if spent and not strips and free > 1 and _high(spent) <= HIGH else None
        strips += [spent] if spent and not beside else []
        names = _legend_of(runs)
        why = 0.2 if not names and runs[0].facts.state.word != "succeeded" else 0.0
        top = 0.5 + 0.22 * max(len(names), 1) + why
        row = HEAD + HIGH + FOOT
        height = top + rows * row + sum(HEAD + _high(strip) + FOOT for strip in strips)
        figure = Figure(figsize=(WIDTH, height), dpi=140, facecolor="white")
        _title(figure, runs, names, height)

        def place(panel: Panel, down: float, column: int, span: int, high: float) -> None:
            one = (WIDTH - LEFT - RIGHT - (COLUMNS - 1) * GAP) / COLUMNS
            left, wide = LEFT + column * (one + GAP), span * one + (span - 1) * GAP
            low = height - top - down - HEAD - high
            box = (left / WIDTH, low / height, wide / WIDTH, high / height)
            _panel(figure.add_axes(box), panel, runs, span)

        for at, panel in enumerate(cells):
            place(panel, at // COLUMNS * row, at % COLUMNS, 1, HIGH)
        if beside:
            place(beside, (rows - 1) * row, COLUMNS - free, free, _high(beside))
        down = rows * row
        for strip in strips:
            place(strip, down, 0, COLUMNS, _high(strip))
            down += HEAD + _high(strip) + FOOT
        out = io.BytesIO()
        figure.savefig(out, format="png")
        return out.getvalue()


def _high(panel: Panel) -> float:
    """Inches of the axes that its bars take; 0 where it has none."""
    return BAR * panel.bars + 0.1 if panel.bars else 0.0


def svg(panel: Panel, runs: Sequence[Shown], wide: bool = False) -> str:
    """One panel for the page, ``wide`` as two: no size of its own, and the page's colours.

    Raises:
        BeamSlurmError: matplotlib is absent.
    """
    with drawing(salt=panel.name):
        from matplotlib.figure import Figure

        width = 2 * ALONE if wide else ALONE
        inner = _high(panel) or ALONE_HIGH
        figure = Figure()
        ax = figure.subplots()
        legend = _panel(ax, panel, runs)
        top, foot = 0.3 if legend else 0.08, 0.3 if panel.bars else 0.45
        left = 0.15 if panel.bars else 0.55  # half of a 0.0, or a whole value
        height = top + inner + foot
        figure.set_size_inches(width, height)
        edges = (left / width, foot / height, 1 - 0.06 / width, 1 - top / height)
        figure.subplots_adjust(*edges)
        out = io.StringIO()
        said = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=said)
        return _inline(out.getvalue(), panel)


@contextmanager
def drawing(salt: str = "") -> Iterator[None]:
    """matplotlib in the look of all our figures.

    Raises:
        BeamSlurmError: it is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise BeamSlurmError(
            "a figure needs matplotlib",
            why=str(error),
            remedy="pip install 'beam-slurm[report]'",
        ) from error
    with matplotlib.rc_context({**look.STYLE, "svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a name in any script
        yield


def _inline(drawn: str, panel: Panel) -> str:
    """matplotlib's file as an element of a page."""
    name = (
        text.printable(panel.title)
        .replace("&", "&amp;")
        .replace('"', "&quot;")
        .replace("<", "&lt;")
    )
    body = re.sub(r"<style.*?</style>", "", drawn[drawn.index("<svg") :], count=1, flags=re.S)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))
    # Names are one room for the whole page: only those that somebody points to are kept.
    body = re.sub(r' id="([^"]*)"', lambda it: it[0] if it[1] in used else "", body)
    colours = {light.lower(): f"var(--{name})" for name, light in LIGHT.items()}
    body = re.sub(r"(?<=[ :])#[0-9a-fA-F]{6}", lambda it: colours.get(it[0].lower(), it[0]), body)
    body = re.sub(r"font-family: [^;\"]*; ", "", body)  # the page's own
    box = re.search(r'viewBox="[^"]*"', body)
    head = f'<svg role="img" aria-label="{name}" {box[0] if box else ""}>'
    return re.sub(r"<svg[^>]*>", lambda _: head, body, count=1)


# --- one panel ----------------------------------------------------------------------------------


def _panel(ax: Axes, panel: Panel, runs: Sequence[Shown], columns: int = 0) -> bool:
    """Draw it; whether it has a legend, which stands above it: never on the data.

    ``columns``: how many of the sheet's it has, and so how much room its title; 0 draws none.
    """
    panel.draw(ax)
    _plain(ax.xaxis if panel.bars else ax.yaxis)
    if not panel.bars:
        _steps(ax, runs)
    handles, labels = ax.get_legend_handles_labels()
    if columns:
        full = len(panel.title) + len(panel.unit) + 12 * len(handles) > 50 * columns
        pad = 23 if handles and full else 9  # then the legend lies beneath the title
        head = ax.set_title(panel.title, loc="left", pad=pad, fontsize=11, fontweight="bold")
        beside: dict[str, Any] = {"xycoords": head, "textcoords": "offset points"}
        ax.annotate(panel.unit, (1, 0), xytext=(5, 0), va="bottom", color=SOFT, **beside)
    if handles:
        above = _legend(len(handles), "right")
        if len(handles) > 3:
            above |= {"fontsize": 8, "columnspacing": 1.0, "handlelength": 1.1}
        ax.legend(handles, labels, bbox_to_anchor=(1.005, 1.0), **above)
    return bool(handles)


def _steps(ax: Axes, runs: Sequence[Shown]) -> None:
    """An x axis of the steps that the runs have done."""
    at = [step.step for run in runs for step in run.history.steps]
    at += [e.step for run in runs for e in run.history.evaluations]
    at += [it.step for run in runs for it in run.common if it.step is not None]
    first, last = min(at, default=0), max(at, default=0)
    margin = 0.02 * (last - first) + 0.5
    ax.set_xlim(first - margin, last + margin)
    ax.locator_params("x", integer=True)
    ax.ticklabel_format(axis="x", style="plain")
    ax.set_xlabel("step", color=SOFT, labelpad=2)
    if len(runs) == 1:
        _marks(ax, runs[0].history, restarts(runs[0].facts))


def _plain(axis: Axis) -> None:
    """Each value with its own power of ten, where matplotlib would write one beside the title."""
    largest = max(map(abs, axis.get_view_interval()))
    if not 1e-4 <= largest < 1e6:
        axis.set_major_formatter(lambda x, _: f"{x:.4g}")


def _legend(columns: int, side: str) -> dict[str, Any]:
    """One row, its lower corner at the anchor."""
    return {
        "loc": f"lower {side}",
        "ncols": columns,
        "borderaxespad": 0.1,
        "columnspacing": 1.2,
        "handlelength": 1.4,
        "handletextpad": 0.5,
    }


def restarts(facts: Facts) -> list[int]:
    """The first step of each attempt but the first, as far as the run still has it."""
    firsts = {min(steps) for it in facts.attempts[1:] if (steps := hours.steps_of(facts, it))}
    kept = {step.step for step in facts.history.steps} if facts.history else set()
    return sorted(firsts & kept)


def marked(history: History) -> tuple[list[int], str]:
    """The steps of the checkpoints that are marked, the last one's too, and what a mark means."""
    steps = [checkpoint.step for checkpoint in history.checkpoints]
    each = max(math.ceil(len(steps) / MARKS), 1)
    what = "checkpoint" if each == 1 else f"one of every {each} checkpoints"
    return steps[::-1][::each][::-1], what


def _marks(ax: Axes, history: History, again: Sequence[int]) -> None:
    """Checkpoints, on the axis itself; new attempts, before their first step."""
    for step in again:
        ax.axvline(step - 0.5, zorder=1, **RESTART)
    if xs := marked(history)[0]:
        axis = ax.get_xaxis_transform()
        ax.plot(xs, [0] * len(xs), transform=axis, clip_on=False, zorder=5, **CHECKPOINT)


# --- the sheet's head ---------------------------------------------------------------------------


def _legend_of(runs: Sequence[Shown]) -> list[Sequence[Shown]]:
    """The runs by the rows of the legend that tells them apart; one run alone needs none."""
    if len(runs) == 1:
        return []
    columns = max(1, 160 // (8 + max(len(run.name) for run in runs)))
    return [runs[at : at + columns] for at in range(0, len(runs), columns)]


def _title(
    figure: Figure, runs: Sequence[Shown], names: Sequence[Sequence[Shown]], height: float
) -> None:
    from matplotlib.lines import Line2D

    left = LEFT / WIDTH
    one = runs[0]
    name = textwrap.shorten(one.name, 90, placeholder=" …") if not names else f"{len(runs)} runs"
    figure.text(left, 1 - 0.36 / height, name, fontsize=16, fontweight="bold", color=INK)
    if names:
        lines = [
            Line2D([], [], color=run.colour, marker=run.marker, ms=5, lw=2.2, label=run.name)
            for run in runs
        ]
        above = {**_legend(len(names[0]), "left"), "loc": "upper left"}
        anchor = (left - 0.004, 1 - 0.48 / height)
        figure.legend(handles=lines, bbox_to_anchor=anchor, **above)
        return
    facts = one.facts
    parts = [
        one.profile,
        facts.state.word,
        facts.size,
        f"job {job_of(facts)}",
        text.duration(facts.seconds) if facts.seconds is not None else "",
        text.date(facts.run.created),
    ]
    line = "  ·  ".join(part for part in parts if part)
    figure.text(left, 1 - 0.6 / height, line, fontsize=10, color=SOFT)
    if facts.state.word != "succeeded" and facts.state.why:
        why = textwrap.shorten(text.printable(facts.state.why), 150, placeholder=" …")
        colour = look.RUNS[1] if facts.state.ended else SOFT
        figure.text(left, 1 - 0.81 / height, why, fontsize=9.5, color=colour)
    marks = []
    if one.history.checkpoints:
        marks.append(Line2D([], [], label=marked(one.history)[1], **CHECKPOINT))
    if restarts(facts):
        marks.append(Line2D([], [], label="new attempt", **RESTART))
    if marks:
        anchor = (1 - RIGHT / WIDTH, 1 - 0.42 / height)
        figure.legend(handles=marks, bbox_to_anchor=anchor, **_legend(len(marks), "right"))
