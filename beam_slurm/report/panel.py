"""What a figure is made of: runs, each with a look of its own, and panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beam_slurm.metrics import History, Series
from beam_slurm.report import look, text
from beam_slurm.report.common import Scored
from beam_slurm.report.facts import Facts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Shown:
    """One run as it is drawn: its look is the same in every panel."""

    facts: Facts
    colour: str
    marker: str

    @property
    def history(self) -> History:
        """Empty where nothing was measured, or nothing reads it."""
        return self.facts.history or History()

    @property
    def common(self) -> Sequence[Scored]:
        """The common evaluations of its checkpoints."""
        return self.facts.common or ()

    @property
    def name(self) -> str:
        """Its id as text that can be drawn."""
        return text.printable(self.facts.run.id)

    @property
    def profile(self) -> str:
        """Its profile's name as text that can be drawn."""
        return text.printable(self.facts.manifest.get("profile", "–"))


@dataclass(frozen=True)
class Panel:
    """One quantity: ``draw`` fills the axes, ``notes`` are what there is to say beneath.

    ``bars`` is the number of bars that lie one above the other; 0 where the x axis is the steps.
    """

    name: str
    title: str
    unit: str
    draw: Callable[[Axes], None]
    notes: tuple[str, ...] = ()
    bars: int = 0


def shown(found: Sequence[Facts]) -> list[Shown]:
    """The runs with their looks."""
    return [Shown(facts, *look.of_run(at)) for at, facts in enumerate(found)]


def finite(points: Series) -> Series:
    """Without nan and inf."""
    return [(step, value) for step, value in points if math.isfinite(value)]
