"""NeMo RL: what its driver prints, a value a line, in blocks behind the header of each step.

Of its files none is read: per-sample records are too large, and TensorBoard is off in the recipes.
So the gradient norm and, with asynchronous training, the response length are not known. The mean
log-probability difference is not either; its own measure of the same is ``rollout_kl``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from beam_slurm.metrics.jsonl import integer
from beam_slurm.metrics.known import Known
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Record, Resumed, Step
from beam_slurm.metrics.source import COUNT, NUMBER, LogParser

# The name before the colon -> the field, of the step whose header came last.
STEP = {
    "Loss": "loss",
    "Generation KL Error": "rollout_kl",
    "Avg Reward": "reward",
    "Avg Total Reward": "reward",  # with dynamic sampling: before those of one kind are left out
    "Mean Generation Length": "response_length",
    "Total step time": "step_time",
    "generation": "generation_time",
    "exposed_generation": "generation_time",  # what training waited for
    "policy_and_reference_logprobs": "logprob_time",
    "policy_training": "training_time",
    "prepare_for_generation/total": "transfer_time",
    "weight_sync": "transfer_time",
    "E2E (Tokens/sec/gpu)": "tokens_per_second_per_gpu",
    "Generation Worker Group (Tokens/sec/gpu)": "generation_throughput",
}

_HEADER = re.compile(rf"=+ (Epoch|Step) {COUNT}/{COUNT} =+")
_VALUE = re.compile(rf"[•-] ([^:]+): {NUMBER}", re.IGNORECASE)
_VALIDATES = re.compile(rf"\u25b6 Starting validation at step {COUNT}\.\.\.")
_SAVES = re.compile(rf"Saving checkpoint for step {COUNT}\.\.\.")


class NemoRLParser(LogParser):
    """Steps are counted over all epochs, from 1, as its checkpoints are.

    Without asynchronous training its own count starts anew with each epoch. The total is known
    only where there is one epoch.
    """

    own = (
        b"= Step ",
        b"= Epoch ",
        "  • ".encode(),
        b"Tokens/sec/gpu): ",
        b"Starting validation at step ",
        b"Saving checkpoint for step ",
    )

    def __init__(self, known: Known) -> None:
        super().__init__()
        self._known = known
        self._set = "+".join(known.sets) or "validation"
        self._epochs = 1
        self._before = 0  # steps of earlier epochs
        self._running = 0  # the header's number, in its epoch
        self._steps: int | None = None
        self._evaluated: int | None = None
        self._saved: int | None = None
        self._anew = True

    def begins(self, after: int) -> None:
        """The next header says where."""
        self._anew = True
        self._before = self._running = 0
        self._evaluated = self._saved = None

    def said(self, text: str) -> Iterator[Record]:
        """What a line says."""
        if header := _HEADER.match(text):
            yield from self._header(header[1], int(header[2]), int(header[3]))
        elif value := _VALUE.match(text):
            yield from self._value(value[1], float(value[2]))
        elif validates := _VALIDATES.match(text):
            self._evaluated = int(validates[1])
        elif saves := _SAVES.match(text):
            self._saved = int(saves[1])
            if self._running:
                self._before = self._saved - self._running  # its own word on the count

    def _header(self, kind: str, n: int, of: int) -> Iterator[Record]:
        if kind == "Epoch":
            if n > 1:
                self._before = -n  # how long an epoch is says the next step
            self._epochs = of
            return
        if self._before < 0:
            self._before = (-self._before - 1) * of
        self._running = n
        self._steps = of if self._epochs == 1 else None
        if self._anew:  # what a life redoes, an earlier one has done in vain
            self._anew = False
            yield Resumed(self._before + n - 1)

    def _value(self, name: str, value: float) -> Iterator[Record]:
        if self._evaluated is not None:
            at, set_, problems = self._evaluated, self._set, self._known.problems or None
            if name == "Accuracy":
                yield Evaluation(at, set_, accuracy=value, problems=problems)
            elif name == "Average response length":
                yield Evaluation(at, set_, response_length=value)
            elif name == "Samples processed" and (samples := integer(value)) is not None:
                # Where its batch is larger than the set it scores nothing, and calls that 0.
                none = None if samples else math.nan
                yield Evaluation(at, set_, accuracy=none, responses=samples)
        if name in STEP and self._running:
            step = self._before + self._running
            if self._saved is not None:  # it goes on when the checkpoint is written
                yield Checkpoint(self._saved, path=self._path(self._saved))
                self._saved = None
            yield Step(step, self._steps, **{STEP[name]: value})

    def _path(self, step: int) -> str | None:
        folder = self._known.checkpoints
        return str(folder / f"step_{step}") if folder else None
