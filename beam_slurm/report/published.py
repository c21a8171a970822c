"""The results that a recipe's authors have published, and beside which measurement each belongs.

Profiles name them in words of their own (``aime2025/accuracy``, ``logprob_difference``), and so do
users: a name is understood by what occurs in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from beam_slurm.metrics import same_set
from beam_slurm.report.facts import Facts

# What occurs in a name, and the metric it means; the first that fits. Else it is an accuracy.
WORDS = (
    (r"accuracy", "accuracy"),
    (r"log.?prob", "logprob_diff"),
    (r"throughput|tokens.?per.?second|tokens/s", "generation_throughput"),
    (r"length|tokens", "response_length"),
    (r"reward", "reward"),
)


@dataclass(frozen=True)
class Published:
    """One published result, first to last, in the unit of its metric.

    ``metric`` is a name of ``metrics.METRICS``; ``set`` the evaluated set that the authors name, or
    "". ``steps`` are those of the two values, if published. With a ``note`` the two are not a run's
    first and last value but what the note says.
    """

    name: str
    metric: str
    set: str
    first: float
    last: float
    note: str = ""
    steps: tuple[float, float] | None = None

    @property
    def ratio(self) -> bool:
        """Whether it says how many times more, which has no place on an axis."""
        return self.metric == "generation_throughput" and self.first == 1

    def about(self, metric: str, evaluated: str = "", only: bool = False) -> bool:
        """Whether it belongs beside ``metric``, of the set ``evaluated``.

        One that names no set belongs to the ``only`` set that there is.
        """
        if metric != self.metric:
            return False
        if not evaluated:
            return True
        if not self.set and only:
            return True
        return same_set(evaluated, self.set or re.sub(r"(?i)accuracy", "", self.name))


def of(facts: Facts) -> list[Published]:
    """What the run's profile carries."""
    recipe = facts.profile.get("recipe")
    entries = recipe.get("reference") if isinstance(recipe, dict) else None
    return list(read(entries or []))


def read(entries: Iterable[Mapping[str, Any]]) -> Iterator[Published]:
    """What a profile's ``recipe.reference`` says; what nobody can read of it is passed over."""
    for entry in entries:
        try:
            name = str(entry["metric"])
            first, last = float(entry["first"]), float(entry["last"])
            steps = entry.get("steps")
            between = (float(steps[0]), float(steps[1])) if steps else None
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            continue  # of an older version, or by hand
        head = name.rpartition("/")[0]
        metric = next(
            (found for words, found in WORDS if re.search(words, name.lower())), "accuracy"
        )
        if metric == "response_length" and head:
            metric = "evaluation_length"
        # Published in per cent, or as 0 to 1: measured is 0 to 1.
        scale = 100 if metric == "accuracy" and max(first, last) > 1 else 1
        note = str(entry.get("note") or "")
        yield Published(name, metric, head, first / scale, last / scale, note, between)
