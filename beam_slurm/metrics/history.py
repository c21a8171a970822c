"""All that a run has measured so far, in the order of its steps."""

from __future__ import annotations

import copy

from beam_slurm.metrics.schema import Checkpoint, Evaluation, Record, Step, bounded, merged


class History:
    """Steps, evaluations and checkpoints; what is said twice, the last word holds, value by value.

    After ``Resumed`` what an earlier life did beyond that step is forgotten.
    """

    def __init__(self) -> None:
        self._steps: dict[int, Step] = {}
        self._evaluations: dict[tuple[str, int], Evaluation] = {}
        self._checkpoints: dict[int, Checkpoint] = {}

    def __bool__(self) -> bool:
        return bool(self._steps or self._evaluations)

    def __copy__(self) -> History:
        """What has been measured so far: it stays so while a reader goes on with this one."""
        made = History()
        made._steps = dict(self._steps)
        made._evaluations = dict(self._evaluations)
        made._checkpoints = dict(self._checkpoints)
        return made

    def add(self, record: Record) -> None:
        """Take in the next record as the run wrote it, but with inf for values beyond ``HUGE``."""
        record = bounded(record)
        if isinstance(record, Step):
            at = record.step
            known = self._steps.get(at)
            self._steps[at] = merged(known, record) if known else record
        elif isinstance(record, Evaluation):
            key = record.set, record.step
            scored = self._evaluations.get(key)
            self._evaluations[key] = merged(scored, record) if scored else record
        elif isinstance(record, Checkpoint):
            saved = self._checkpoints.get(record.step)
            self._checkpoints[record.step] = merged(saved, record) if saved else record
        else:
            self._forget_after(record.step)

    def refined(self, other: History) -> History:
        """This history with the values that ``other`` has of the same steps and evaluations."""
        found = copy.copy(self)
        for step in other.steps:
            if step.step in self._steps:
                found.add(step)
        for evaluation in other.evaluations:
            if (evaluation.set, evaluation.step) in self._evaluations:
                found.add(evaluation)
        return found

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
        self._steps = {at: record for at, record in self._steps.items() if at <= step}
        self._evaluations = {
            key: record for key, record in self._evaluations.items() if record.step <= step
        }
        self._checkpoints = {at: record for at, record in self._checkpoints.items() if at <= step}
