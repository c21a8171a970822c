"""All that a run has measured so far, in the order of its steps."""

from __future__ import annotations

from beam_slurm.metrics.schema import Checkpoint, Evaluation, Record, Step


class History:
    """Steps, evaluations and checkpoints; what is said twice, the last word holds.

    A step at or before the newest one means that the run has resumed from a checkpoint: what an
    earlier life did after that step is no part of the run any more, and is forgotten.
    """

    def __init__(self) -> None:
        self._steps: dict[int, Step] = {}
        self._evaluations: dict[tuple[str, int], Evaluation] = {}
        self._checkpoints: dict[int, Checkpoint] = {}

    def __bool__(self) -> bool:
        return bool(self._steps or self._evaluations)

    def add(self, record: Record) -> None:
        """Take in the next record as the run wrote it."""
        if isinstance(record, Evaluation):
            self._evaluations[record.set, record.step] = record
        elif isinstance(record, Checkpoint):
            self._checkpoints[record.step] = record
        else:
            if self._steps and record.step < max(self._steps):
                self._forget_after(record.step)
            self._steps[record.step] = record

    @property
    def steps(self) -> list[Step]:
        """By step."""
        return sorted(self._steps.values(), key=lambda record: record.step)

    @property
    def evaluations(self) -> list[Evaluation]:
        """By step, then by set."""
        return sorted(self._evaluations.values(), key=lambda record: (record.step, record.set))

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """By step."""
        return sorted(self._checkpoints.values(), key=lambda record: record.step)

    @property
    def last(self) -> Step | None:
        """The newest step."""
        return self._steps[max(self._steps)] if self._steps else None

    @property
    def evaluation(self) -> Evaluation | None:
        """The newest evaluation."""
        return self.evaluations[-1] if self._evaluations else None

    def _forget_after(self, step: int) -> None:
        self._steps = {at: record for at, record in self._steps.items() if at < step}
        self._evaluations = {
            key: record for key, record in self._evaluations.items() if record.step <= step
        }
        self._checkpoints = {at: record for at, record in self._checkpoints.items() if at <= step}
