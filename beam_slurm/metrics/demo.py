"""The demo's ``metrics.jsonl``: one JSON object a line, of type train, eval or checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from beam_slurm.metrics.jsonl import integer, number, read_json
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Record, Resumed, Step
from beam_slurm.metrics.source import Parser


class DemoParser(Parser):
    """A step before the newest one means that the run has resumed from a checkpoint.

    A line may begin with half of another one, where the run was killed and its next life wrote on.
    """

    words = (b'"type"',)

    def __init__(self, gpus: int = 0) -> None:
        """``gpus``: how many the run has; 0 if nobody knows."""
        self._gpus = gpus
        self._newest = 0

    def parse(self, line: bytes) -> Iterator[Record]:
        """The record of a line; nothing for any other line."""
        found = record(line, self._gpus)
        if isinstance(found, Step):
            if found.step < self._newest:
                yield Resumed(found.step - 1)
            self._newest = found.step
        if found:
            yield found


def record(line: bytes, gpus: int = 0) -> Step | Evaluation | Checkpoint | None:
    """The record in one line of a run on ``gpus`` GPUs; None for anything else."""
    fields = read_json(line) or read_json(line[max(line.rfind(b'{"type"'), 0) :])
    if not fields:
        return None
    step = integer(fields.get("step"))
    if step is None or step < 0:
        return None
    time = number(fields.get("time"))
    if fields.get("type") == "train":
        numbers = {name: number(fields.get(name)) for name in _NUMBERS}
        speed = number(fields.get("tokens_per_second"))
        numbers["tokens_per_second_per_gpu"] = speed / gpus if speed is not None and gpus else None
        return Step(step, integer(fields.get("steps")), time, **numbers)
    if fields.get("type") == "eval":
        return Evaluation(
            step,
            str(fields.get("set") or "held-out"),
            time,
            number(fields.get("accuracy")),
            integer(fields.get("problems")),
            integer(fields.get("responses")),
            number(fields.get("response_length")),
        )
    if fields.get("type") == "checkpoint":
        path = fields.get("path")
        return Checkpoint(step, time, path if isinstance(path, str) else None)
    return None


_NUMBERS = [name for name in Step.__dataclass_fields__ if name not in ("step", "steps", "time")]
