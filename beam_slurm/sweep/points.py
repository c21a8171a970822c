"""The points of a sweep: a grid, draws or a list, through the filters, once for each seed."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.changes import hydra_value
from beam_slurm.sweep.file import HOLE, SEED, Sweep, split
from beam_slurm.sweep.schema import Range, Spread
from beam_slurm.yamlfile import Key

MOST = 100_000  # points of one sweep: more is a slip of the pen
DIGITS = 6  # significant digits of a value that was computed: others can type it

Values = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """One point.

    Attributes:
        index: its number, from 0.
        values: by the keys of the sweep file.
        seed: its recipe.seed; None if the sweep has no seeds.
        origin: where in the sweep file its values stand: by the key, ``("over", key)`` say.
    """

    index: int
    values: Values
    seed: int | None
    origin: dict[str, Key]

    @property
    def label(self) -> str:
        """Its values in one line."""
        seed = {"seed": self.seed} if self.seed is not None else {}
        return ", ".join(f"{short(key)}={value}" for key, value in {**self.values, **seed}.items())


def short(key: str) -> str:
    """The last word of a key, for tables and axes: learning_rate, lr."""
    return key.removesuffix(f"={HOLE}").rpartition(".")[2].lstrip("-") or key


def expand(sweep: Sweep) -> list[Point]:
    """All points in order: the first key varies slowest, seeds fastest.

    Raises:
        BeamSlurmError: none is left, or there are far too many.
    """
    combinations = list(_combinations(sweep))
    kept = [(values, origin) for values, origin in combinations if _kept(sweep, values)]
    if not kept:
        raise BeamSlurmError(
            "no point is left of the sweep",
            where=sweep.place("only") if sweep.file.only else sweep.place("except"),
            why=f"the filters leave out all {len(combinations)} combinations",
            remedy="loosen except or only",
        )
    seeds: Sequence[int | None] = sweep.file.seeds or [None]
    pairs = itertools.product(kept, seeds)
    return [Point(at, values, seed, origin) for at, ((values, origin), seed) in enumerate(pairs)]


def settings(sweep: Sweep, point: Point) -> list[tuple[Key, Any, str]]:
    """The keys of the profile that the point sets, each with its value and its place."""
    found = [
        (split(key), value, sweep.place(*point.origin[key]))
        for key, value in point.values.items()
        if HOLE not in key
    ]
    if point.seed is not None:
        found.append((split(SEED), point.seed, sweep.place("seeds")))
    return found


def words(sweep: Sweep, point: Point) -> list[str]:
    """The words for the entry: those of all points, then the point's own."""
    own = [key.replace(HOLE, _spelled(v)) for key, v in point.values.items() if HOLE in key]
    return [*sweep.file.overrides, *own]


def _spelled(value: Any) -> str:
    """A value for a command line: all digits of a number, true and null as Hydra writes them."""
    return repr(value) if isinstance(value, float) else hydra_value(value)


def _combinations(sweep: Sweep) -> Iterator[tuple[Values, dict[str, Key]]]:
    """Every combination of values, each once, with their places."""
    file = sweep.file
    if file.points:
        for at, values in enumerate(file.points):
            yield values, {key: ("points", at, key) for key in values}
        return
    origin: dict[str, Key] = {key: ("over", key) for key in file.over}
    if file.random:
        _bounded(sweep, file.random.points, "random")
        for values in _draws(sweep):
            yield values, origin
        return
    axes = [
        _even(sweep.spreads[key]) if key in sweep.spreads else given
        for key, given in file.over.items()
    ]
    _bounded(sweep, math.prod(map(len, axes)), "over")
    for chosen in itertools.product(*axes):
        yield dict(zip(file.over, chosen, strict=True)), origin


def _bounded(sweep: Sweep, count: int, key: str) -> None:
    count *= max(len(sweep.file.seeds), 1)
    if count > MOST:
        raise BeamSlurmError(
            f"the sweep has {count:,} points, more than {MOST:,}",
            where=sweep.place(key),
            remedy="fewer values, or random: {points: 100}",
        )


def _draws(sweep: Sweep) -> Iterator[Values]:
    drawn = sweep.file.random
    assert drawn
    source = random.Random(drawn.seed)  # noqa: S311 - the same points again, not a secret
    seen: list[Values] = []
    for _ in range(drawn.points):
        values = {
            key: _between(sweep.spreads[key], source.random())
            if key in sweep.spreads
            else source.choice(given)
            for key, given in sweep.file.over.items()
        }
        if values not in seen:
            seen.append(values)
            yield values


def _even(spread: Spread) -> list[float]:
    """Evenly spaced values, the bounds among them; whole numbers that coincide are one."""
    count = spread.points or 1
    parts = [at / (count - 1) for at in range(count)] if count > 1 else [0.5]
    return list(dict.fromkeys(_between(spread, part) for part in parts))


def _between(spread: Spread, part: float) -> float:
    """The value at a ``part`` of the way; between two whole numbers a whole number."""
    low, high = spread.bounds
    if spread.log_uniform:
        found = math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
    else:
        found = low + part * (high - low)
    if isinstance(low, int) and isinstance(high, int):
        return round(found)
    return float(f"{found:.{DIGITS}g}")


def _kept(sweep: Sweep, values: Values) -> bool:
    only = sweep.file.only
    if only and not any(_matches(entry, values) for entry in only):
        return False
    return not any(_matches(entry, values) for entry in sweep.file.excluded)


def _matches(entry: Values, values: Values) -> bool:
    """Whether a combination has all that a filter names."""
    return all(key in values and _is(wanted, values[key]) for key, wanted in entry.items())


def _is(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, dict):
        limits = Range.model_validate(wanted)
        low = -math.inf if limits.min is None else limits.min
        high = math.inf if limits.max is None else limits.max
        return isinstance(value, int | float) and low <= value <= high
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)
