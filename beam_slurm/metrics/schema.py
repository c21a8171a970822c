"""What a training run measures, whatever framework measured it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

HUGE = 1e100
"""No measurement is larger; of what is not, sums, squares and the ends of an axis are finite."""


@dataclass(frozen=True, slots=True)
class Step:
    """One training step. None is "not said"; nan and inf are kept, for they are news.

    In a ``History`` whatever is beyond ``HUGE`` is inf, so that all else can be calculated with.

    ``step`` counts from 1; ``time`` is seconds since the epoch when the step ended. Values that are
    said one after the other come as a record each: see ``merged``.
    """

    step: int
    steps: int | None = None  # how many there will be
    time: float | None = None  # epoch seconds
    reward: float | None = None  # mean over the step's responses
    response_length: float | None = None  # tokens, mean
    loss: float | None = None
    kl: float | None = None  # to the reference policy, nats
    grad_norm: float | None = None  # before clipping
    entropy: float | None = None  # nats per token
    logprob_diff: float | None = None  # mean |rollout - training| log-probability of a token
    rollout_kl: float | None = None  # between rollout and training policy, nats per token
    step_time: float | None = None  # seconds, all of the step
    generation_time: float | None = None  # seconds of step_time
    logprob_time: float | None = None  # seconds of step_time, for log-probabilities alone
    training_time: float | None = None  # seconds of step_time
    transfer_time: float | None = None  # seconds of step_time, new weights to the engines
    tokens_per_second_per_gpu: float | None = None  # of step_time, of all the run's GPUs
    generation_throughput: float | None = None  # tokens a second and GPU that generates


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The held-out problems, answered by the policy as it was after ``step`` steps.

    ``accuracy`` is 0 to 1, over ``responses``, the number of all scored responses.
    """

    step: int
    set: str
    time: float | None = None  # epoch seconds
    accuracy: float | None = None
    problems: int | None = None
    responses: int | None = None
    response_length: float | None = None  # tokens, mean

    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95 % interval of the accuracy; None without a count.

        Binomial over responses: what sampling the same problems again would give, not what
        other problems would. Wilson's, because it stays right at 0, at 1 and for few responses.
        """
        count = self.responses or self.problems
        if not count or self.accuracy is None or not 0 <= self.accuracy <= 1:
            return None
        z = 1.959964
        centre = (self.accuracy + z * z / (2 * count)) / (1 + z * z / count)
        spread = (
            z
            * math.sqrt(self.accuracy * (1 - self.accuracy) / count + (z / (2 * count)) ** 2)
            / (1 + z * z / count)
        )
        # Rounding must not put the value itself outside.
        return min(centre - spread, self.accuracy), max(centre + spread, self.accuracy)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was written completely."""

    step: int
    time: float | None = None  # epoch seconds
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """The run goes on after ``step`` steps: what an earlier life did beyond is no part of it."""

    step: int


Record = Step | Evaluation | Checkpoint | Resumed

Measured = TypeVar("Measured", Step, Evaluation, Checkpoint)


def bounded(record: Record) -> Record:
    """The record with inf of the same sign for each value beyond ``HUGE``."""
    said = {it.name: getattr(record, it.name) for it in fields(record)}
    huge: dict[str, Any] = {
        name: math.copysign(math.inf, value)
        for name, value in said.items()
        if isinstance(value, float) and abs(value) > HUGE
    }
    return replace(record, **huge) if huge else record


def merged(before: Measured, after: Measured) -> Measured:
    """Two records of the same step: of each value the last word holds."""
    said = {it.name: getattr(after, it.name) for it in fields(after)}
    return replace(before, **{name: value for name, value in said.items() if value is not None})
