"""The figure: the objective over each key that is varied, a panel a key.

matplotlib is imported in ``draw`` and nowhere else, without pyplot: no display, no global state.
"""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beam_slurm.errors import BeamSlurmError
from beam_slurm.report import text
from beam_slurm.report.figure import drawing
from beam_slurm.report.look import FAINT, INK, RUNS
from beam_slurm.runs import write_whole
from beam_slurm.sweep.folder import Folder
from beam_slurm.sweep.points import short
from beam_slurm.sweep.results import Row, value
from beam_slurm.sweep.schema import Objective
from beam_slurm.sweep.states import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE = RUNS[:2]
COLUMNS = 3
TICKS = 8  # values of a key that each have a mark on its axis
WIDE_RANGE = 20  # times: from there on a positive key is drawn on a logarithmic axis


def draw(of: Folder, rows: Sequence[Row], wanted: Objective, output: Path) -> None:
    """Write the PNG, whole or not at all. ``rows``: ranked, the best first.

    Raises:
        BeamSlurmError: matplotlib is absent, nothing is measured yet, or ``output`` cannot be
            written.
    """
    looks = sorted((look for row in rows for look in row.looks), key=lambda look: look.index)
    measured = [(look, value(look.facts.history, wanted)) for look in looks]
    known = [(look, x) for look, x in measured if x is not None and math.isfinite(x)]
    if not known:
        raise BeamSlurmError(
            f"{of.id} has not measured {wanted.metric} yet",
            remedy=f"beam-slurm sweep status {of.id}",
        )
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    columns = min(len(keys), COLUMNS)
    lines = -(-len(keys) // columns)
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(1.2 + 4.2 * columns, 1.3 + 3.4 * lines), dpi=160, facecolor="w")
        axes = figure.subplots(lines, columns, squeeze=False, sharey=True)
        best = rows[0] if rows[0].mean is not None else None
        for key, ax in zip(keys, axes.flat, strict=False):
            _panel(ax, key, known, best)
        for ax in list(axes.flat)[len(keys) :]:
            ax.set_visible(False)
        for line in axes:
            line[0].set_ylabel(f"{wanted.metric}, {wanted.over}")
        # In inches from the top, whatever the number of panels: the title, then what the marks are.
        top = figure.get_figheight()
        figure.text(0.02, 1 - 0.3 / top, _title(of, best), fontsize=11, fontweight="bold")
        handles, labels = axes[0][0].get_legend_handles_labels()
        at = (0.01, 1 - 0.36 / top)
        figure.legend(handles, labels, loc="upper left", ncols=len(labels), bbox_to_anchor=at)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.66 / top))
        _save(figure, output)


def _save(figure: Any, output: Path) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    try:
        write_whole(output, drawn.getvalue())
    except OSError as error:
        raise BeamSlurmError(f"cannot write {output}", why=error.strerror) from error


def _title(of: Folder, best: Row | None) -> str:
    if best is None or best.mean is None:
        return of.id
    values = ", ".join(f"{short(key)} {_text(x)}" for key, x in best.values.items())
    return f"{of.id}   best: {values}, {text.number(best.mean)}"


def _panel(ax: Axes, key: str, known: Sequence[tuple[Look, float]], best: Row | None) -> None:
    """Each point, and the median of those with the same value."""
    having = [(look, x) for look, x in known if key in look.entry.values]
    values = [look.entry.values[key] for look, _ in having]
    numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for x in values)
    # Words stand beside each other in the order of the file.
    places = {_text(x): at for at, x in enumerate(dict.fromkeys(map(_text, values)))}
    xs = [float(x) if numeric else float(places[_text(x)]) for x in values]
    ys = [y for _, y in having]
    over = [look.facts.state.word == "succeeded" for look, _ in having]
    for done, face, name in ((True, BLUE, "a point"), (False, "white", "running, or failed")):
        chosen = [at for at, is_over in enumerate(over) if is_over is done]
        if chosen:
            at_x, at_y = [xs[at] for at in chosen], [ys[at] for at in chosen]
            ax.scatter(at_x, at_y, s=22, color=face, edgecolors=BLUE, lw=1, label=name, zorder=3)
    done_at = [(x, y) for x, y, done in zip(xs, ys, over, strict=True) if done]
    line = [
        (x, statistics.median(y for at, y in done_at if at == x)) for x in sorted(dict(done_at))
    ]
    if line:
        ax.plot(*zip(*line, strict=True), color=FAINT, lw=1.4, label="median", zorder=2)
    if best and best.mean is not None and key in best.values:
        x = float(best.values[key]) if numeric else float(places[_text(best.values[key])])
        ax.scatter(
            [x], [best.mean], s=90, facecolors="none", edgecolors=ORANGE, lw=1.8, label="best, mean"
        )
    _axis(ax, key, xs, list(places) if not numeric else None)


def _axis(ax: Axes, key: str, xs: Sequence[float], names: Sequence[str] | None) -> None:
    ax.set_xlabel(key, color=INK)
    if names is not None:
        ax.set_xticks(range(len(names)), names)
        ax.margins(x=0.15)
    elif min(xs) > 0 and max(xs) >= WIDE_RANGE * min(xs):
        ax.set_xscale("log")
        # matplotlib spells powers of ten as mathematics, which the style leaves alone.
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        ax.xaxis.set_minor_formatter(lambda x, _: "")
    if names is None and len(places := sorted(set(xs))) <= TICKS:
        ax.set_xticks(places, [f"{x:g}" for x in places])
        ax.set_xticks([], minor=True)


def _text(found: Any) -> str:
    return f"{found:g}" if isinstance(found, float) else str(found)
