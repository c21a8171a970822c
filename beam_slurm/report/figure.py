"""The figure: reward, held-out accuracy, response length and step time over the steps.

matplotlib is imported in ``draw`` and nowhere else, without pyplot: no display, no global state.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beam_slurm.errors import BeamSlurmError
from beam_slurm.metrics import History
from beam_slurm.report import panels, text
from beam_slurm.report.facts import Facts
from beam_slurm.report.overview import job_of
from beam_slurm.report.panels import FAINT, INK, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARK: dict[str, Any] = {
    "ls": "none",
    "marker": "D",
    "ms": 5,
    "mfc": "white",
    "mec": INK,
    "mew": 1.1,
}

RESTART: dict[str, Any] = {"ls": (0, (1, 2)), "lw": 1, "color": FAINT}

STYLE: Any = {  # Any: matplotlib's own type for this is the list of all its keys
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,  # a $ in a name is a $
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


def draw(facts: Facts, history: History, output: Path) -> None:
    """Write the PNG, whole or not at all.

    Raises:
        BeamSlurmError: matplotlib is absent, or ``output`` cannot be written.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BeamSlurmError(
            "the figure needs matplotlib",
            why=str(error),
            remedy="pip install 'beam-slurm[report]'",
        ) from error
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 7.4), dpi=160, facecolor="white")
        _draw(figure, facts, history)
        part = output.with_name(f".{output.name}.part")
        try:
            figure.savefig(part, format="png")
            part.replace(output)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise BeamSlurmError(f"cannot write {output}", why=error.strerror) from error


def _draw(figure: Figure, facts: Facts, history: History) -> None:
    axes = figure.subplots(2, 2, sharex=True)
    figure.subplots_adjust(0.07, 0.085, 0.975, 0.84, wspace=0.17, hspace=0.3)
    _title(figure, facts, history)
    panels.reward(axes[0, 0], facts, history)
    panels.accuracy(axes[0, 1], facts, history)
    panels.response_length(axes[1, 0], facts, history)
    panels.step_time(axes[1, 1], history)
    first, last = _span(history)
    for ax in axes.flat:
        ax.set_xlim(first - 0.02 * (last - first) - 0.5, last + 0.02 * (last - first) + 0.5)
        ax.xaxis.get_major_locator().set_params(integer=True)
        _marks(ax, history, restarts(facts, history))
        handles, labels = ax.get_legend_handles_labels()
        if handles:
            # Above the panel, beside its title: never on the data.
            ax.legend(handles, labels, bbox_to_anchor=(1.005, 1.005), **_legend(len(handles)))
    for ax in axes[1]:
        ax.set_xlabel("step")


def _legend(columns: int) -> dict[str, Any]:
    """One row, its lower right corner at the anchor."""
    return {
        "loc": "lower right",
        "ncols": columns,
        "borderaxespad": 0.1,
        "columnspacing": 1.2,
        "handlelength": 1.4,
        "handletextpad": 0.5,
    }


def _title(figure: Figure, facts: Facts, history: History) -> None:
    from matplotlib.lines import Line2D

    figure.text(0.07, 0.955, facts.run.id, fontsize=16, fontweight="bold", color=INK)
    parts = [
        str(facts.manifest.get("profile", "")),
        facts.state.word,
        facts.size,
        f"job {job_of(facts)}",
        text.duration(facts.seconds) if facts.seconds is not None else "",
        text.date(facts.manifest.get("created")),
    ]
    line = "  ·  ".join(part for part in parts if part)
    figure.text(0.07, 0.926, line, fontsize=10, color="#555555")
    if facts.state.word in ("failed", "cancelled") and facts.state.why:
        why = textwrap.shorten(facts.state.why, 130, placeholder=" …")
        figure.text(0.07, 0.902, why, fontsize=9.5, color=ORANGE)
    handles = []
    if history.checkpoints:
        handles.append(Line2D([], [], label="checkpoint", **MARK))
    if restarts(facts, history):
        handles.append(Line2D([], [], label="new attempt", **RESTART))
    if handles:
        figure.legend(handles=handles, bbox_to_anchor=(0.978, 0.95), **_legend(len(handles)))


def restarts(facts: Facts, history: History) -> list[int]:
    """The first step of each attempt but the first, as far as the run still has it."""
    found = []
    for attempt in facts.attempts[1:]:
        began = attempt.began
        after = [s.step for s in history.steps if began and s.time and s.time >= began]
        found += after[:1]
    return sorted(set(found))


def _marks(ax: Axes, history: History, again: Sequence[int]) -> None:
    """Checkpoints, on the axis itself; new attempts, before their first step."""
    for step in again:
        ax.axvline(step - 0.5, zorder=1, **RESTART)
    xs = [checkpoint.step for checkpoint in history.checkpoints]
    if xs:
        axis = ax.get_xaxis_transform()
        ax.plot(xs, [0] * len(xs), transform=axis, clip_on=False, zorder=5, **MARK)


def _span(history: History) -> tuple[float, float]:
    """The steps that the panels show."""
    at = [step.step for step in history.steps] + [e.step for e in history.evaluations]
    return min(at), max(at)
