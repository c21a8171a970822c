"""The types of everything that a sweep file can say; ``file`` reads and checks them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from beam_slurm import metrics
from beam_slurm.schema import Model
from beam_slurm.schema.base import Line

_MEAN = re.compile(r"mean of last (\d+)")

Pair = Annotated[list[int | float], Field(min_length=2, max_length=2)]


class Spread(Model):
    """Values between two bounds: evenly spaced ones, or with ``random`` drawn ones."""

    uniform: Pair | None = None
    """Lowest and highest value, evenly."""
    log_uniform: Pair | None = None
    """The same for the value's logarithm; both above 0."""
    points: PositiveInt | None = None
    """How many, both bounds among them; not with random, which draws."""

    @model_validator(mode="after")
    def _bounds(self) -> Spread:
        if (self.uniform is None) == (self.log_uniform is None):
            raise ValueError("give uniform or log_uniform, one of them, as [low, high]")
        low, high = self.bounds
        if not low < high:
            raise ValueError(f"{low} is not below {high}")
        if self.log_uniform and low <= 0:
            raise ValueError("the logarithm wants bounds above 0")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest."""
        low, high = self.uniform or self.log_uniform or (0, 0)
        return low, high


class Range(Model):
    """What a filter matches: values from ``min`` to ``max``, both included."""

    min: float | None = None
    """The lowest."""
    max: float | None = None
    """The highest."""


class Random(Model):
    """Points drawn at random in place of a grid."""

    points: PositiveInt
    """How many are drawn; one that was drawn already is left out."""
    seed: int = 0
    """The same seed draws the same points."""


class Objective(Model):
    """What makes one point better than another."""

    metric: Line
    """A metric: reward, accuracy/aime2025, logprob_diff."""
    goal: Literal["maximize", "minimize"] | None = None
    """Left out: the metric's own."""
    over: Line = "last"
    """Which of a run's values counts: last, best, or "mean of last N"."""

    @property
    def window(self) -> int | None:
        """How many of the last values are averaged; None if the best one counts."""
        found = _MEAN.fullmatch(self.over)
        return None if self.over == "best" else int(found[1]) if found else 1

    @property
    def sign(self) -> int:
        """1 if more is better, else -1."""
        goal = self.goal or metrics.find(self.metric)[0].goal
        return -1 if goal == "minimize" else 1


class EarlyStop(Model):
    """When a point is ended that does not promise enough, by one of Optuna's pruners."""

    rule: Literal["median", "halving"]
    """median: it is worse than half of the points that are over were at this step; halving: it is
    not among the best at 1, 4, 16, ... times min_steps."""
    min_steps: PositiveInt = 1
    """No point is ended before this step."""
    min_points: PositiveInt = 4
    """median: nor before so many points are over."""


class SweepFile(Model):
    """One sweep."""

    profile: Line
    """A name (see profiles list), or the path of a YAML file, from this file's folder."""
    fixed: dict[str, Any] = Field(default={}, alias="set")
    """Keys of the profile -> value, the same for all points."""
    overrides: list[Line] = []
    """Words for the end of the entry's command line, the same for all points."""
    over: dict[str, Any] = {}
    """What is varied: a list of values, {uniform: [low, high], points: N} or log_uniform."""
    random: Random | None = None
    """Draws points from what over says, in place of all combinations."""
    points: list[dict[str, Any]] = []
    """The combinations one by one, in place of over."""
    seeds: list[int] = []
    """Each combination is run once with each of them as recipe.seed."""
    excluded: list[dict[str, Any]] = Field(default=[], alias="except")
    """Combinations to leave out: those that match all of an entry's keys, by a value, a list of
    values, or {min, max}."""
    only: list[dict[str, Any]] = []
    """If given, combinations that match none of these are left out."""
    objective: Objective | None = None
    """What makes one point better than another."""
    max_parallel: PositiveInt | None = None
    """How many points may run at the same time."""
    max_gpu_hours: PositiveFloat | None = None
    """How much all points together may cost at most, each over its whole job.time."""
    early_stop: EarlyStop | None = None
    """Ends points that do not promise enough, while somebody waits for the sweep (--wait)."""
