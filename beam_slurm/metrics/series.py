"""What can be asked for by name of any run: one number a step, whatever framework measured it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from beam_slurm.errors import BeamSlurmError
from beam_slurm.metrics.history import History

Goal = Literal["maximize", "minimize"]
Series = list[tuple[int, float]]
"""(step, value), by step; a value may be nan or inf, which is news."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the schema.

    ``field`` is the attribute of the record that has it: of an Evaluation if ``evaluated``, else of
    a Step. ``goal`` is None where neither direction is better.
    """

    name: str
    text: str  # for a table's head, an axis
    field: str
    unit: str = ""
    goal: Goal | None = None
    evaluated: bool = False


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("reward", "reward", "reward", goal="maximize"),
        Metric("accuracy", "accuracy", "accuracy", goal="maximize", evaluated=True),
        Metric("response_length", "response length", "response_length", "tokens"),
        Metric(
            "evaluation_length",
            "response length, evaluated",
            "response_length",
            "tokens",
            evaluated=True,
        ),
        Metric("logprob_diff", "log-prob difference", "logprob_diff", "nats", "minimize"),
        Metric("rollout_kl", "KL rollout/training", "rollout_kl", "nats", "minimize"),
        Metric("loss", "loss", "loss", goal="minimize"),
        Metric("kl", "KL", "kl", "nats", "minimize"),
        Metric("entropy", "entropy", "entropy", "nats"),
        Metric("grad_norm", "gradient norm", "grad_norm", goal="minimize"),
        Metric("step_time", "step time", "step_time", "s", "minimize"),
        Metric("throughput", "tokens/s per GPU", "tokens_per_second_per_gpu", "/s", "maximize"),
        Metric(
            "generation_throughput",
            "generated tokens/s per GPU",
            "generation_throughput",
            "/s",
            "maximize",
        ),
    )
}


def find(name: str) -> tuple[Metric, str | None]:
    """The metric ``name``, and the evaluated set in it: "accuracy/aime2025" has one.

    Raises:
        BeamSlurmError: there is none; the error lists them.
    """
    head, slash, which = name.partition("/")
    metric = METRICS.get(head)
    if metric is None or (slash and not (metric.evaluated and which)):
        raise BeamSlurmError(
            f"there is no metric {name!r}",
            remedy="one of " + ", ".join(METRICS) + "; accuracy/SET and evaluation_length/SET too",
        )
    return metric, which or None


def series(history: History, name: str) -> Series:
    """The values of a metric, by step. Without a set, an evaluated one is of the first set.

    Raises:
        BeamSlurmError: there is no such metric.
    """
    metric, which = find(name)
    read: Callable[[object], float | None] = lambda record: getattr(record, metric.field)  # noqa: E731
    if not metric.evaluated:
        pairs = [(record.step, read(record)) for record in history.steps]
    else:
        which = which or next((record.set for record in history.evaluations), None)
        pairs = [(it.step, read(it)) for it in history.evaluations if it.set == which]
    return [(step, value) for step, value in pairs if value is not None]
