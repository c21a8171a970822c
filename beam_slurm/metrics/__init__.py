"""One reader per framework; all give the same history."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from beam_slurm.metrics.demo import DemoReader
from beam_slurm.metrics.history import History
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Step

__all__ = ["Checkpoint", "Evaluation", "History", "Reader", "Step", "not_read", "reader"]


class Reader(Protocol):
    """Follows what a run measures, while it runs or afterwards."""

    history: History

    def read(self) -> bool:
        """Take in what is new since the last call; whether there was anything. Never waits."""


def reader(framework: str, output: Path) -> Reader | None:
    """The reader for a run of ``framework`` that writes to ``output``; None if there is none yet.

    Callers that get None say so to the user: see ``not_read``.
    """
    if framework == "demo":
        return DemoReader(output / "metrics.jsonl")
    return None


def not_read(framework: str, output: Path) -> str:
    """What to tell the user when ``reader`` has none for a run that writes to ``output``."""
    return (
        f"metrics of {framework} runs are not read yet; its own logs are in {output} "
        "and in beam-slurm logs"
    )
