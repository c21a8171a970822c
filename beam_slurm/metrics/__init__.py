"""One reader per framework; all give the same history."""

from __future__ import annotations

from typing import Protocol

from beam_slurm.metrics.demo import DemoReader
from beam_slurm.metrics.history import History
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Step
from beam_slurm.metrics.series import METRICS, Metric, Series, find, series
from beam_slurm.runs import Run

__all__ = [
    "METRICS",
    "Checkpoint",
    "Evaluation",
    "History",
    "Metric",
    "Reader",
    "Series",
    "Step",
    "find",
    "not_read",
    "reader",
    "series",
]


class Reader(Protocol):
    """Follows what a run measures, while it runs or afterwards."""

    history: History

    def read(self) -> bool:
        """Take in what is new since the last call; whether there was anything. Never waits."""


def reader(run: Run) -> Reader | None:
    """The reader of a run; None if there is none for its framework.

    Callers that get None say so to the user: see ``not_read``.
    """
    manifest = run.manifest
    if manifest.get("framework") == "demo":
        gpus = int(manifest.get("nodes") or 0) * int(manifest.get("gpus_per_node") or 0)
        return DemoReader(run.output / "metrics.jsonl", gpus)
    return None


def not_read(run: Run) -> str:
    """What to tell the user when ``reader`` has none for a run."""
    return (
        f"metrics of {run.manifest.get('framework')} runs are not read yet; its own logs are in "
        f"{run.output} and in beam-slurm logs"
    )
