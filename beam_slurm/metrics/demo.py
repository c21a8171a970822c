"""Reads the demo's ``metrics.jsonl``: one JSON object a line, of type train, eval or checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from beam_slurm.metrics.history import History
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Record, Step

LONGEST = 64 * 1024  # bytes of a line; more is no record of ours


class DemoReader:
    """Follows one ``metrics.jsonl`` as it grows.

    Each ``read`` goes on where the last one ended and holds one line in memory. The file may not
    be there yet, may end in half a line (the rest comes with the next read) or hold half a line
    inside, where the run was killed and its next life wrote on.
    """

    def __init__(self, path: Path, gpus: int = 0) -> None:
        """``gpus``: how many the run has; 0 if nobody knows."""
        self.path = path
        self.gpus = gpus
        self.history = History()
        self._offset = 0
        self._inode = 0

    def read(self) -> bool:
        """Take in what is new; whether there was anything."""
        found = False
        try:
            with self.path.open("rb") as file:
                self._start_over_if_replaced(file.fileno())
                file.seek(self._offset)
                while line := file.readline(LONGEST):
                    if not line.endswith(b"\n") and len(line) < LONGEST:
                        break
                    self._offset += len(line)
                    record = parse(line, self.gpus)
                    if record:
                        self.history.add(record)
                        found = True
        except OSError:
            pass  # not there yet, or shared storage hiccups: the next read will tell
        return found

    def _start_over_if_replaced(self, handle: int) -> None:
        about = os.fstat(handle)
        if about.st_size < self._offset or about.st_ino != self._inode != 0:
            self.history, self._offset = History(), 0
        self._inode = about.st_ino


def parse(line: bytes, gpus: int = 0) -> Record | None:
    """The record in one line of a run on ``gpus`` GPUs; None for anything else."""
    fields = _json(line) or _json(line[max(line.rfind(b'{"type"'), 0) :])
    if not fields:
        return None
    step = _integer(fields.get("step"))
    if step is None or step < 0:
        return None
    time = _number(fields.get("time"))
    if fields.get("type") == "train":
        numbers = {name: _number(fields.get(name)) for name in _NUMBERS}
        speed = _number(fields.get("tokens_per_second"))
        numbers["tokens_per_second_per_gpu"] = speed / gpus if speed is not None and gpus else None
        return Step(step, _integer(fields.get("steps")), time, **numbers)
    if fields.get("type") == "eval":
        return Evaluation(
            step,
            str(fields.get("set") or "held-out"),
            time,
            _number(fields.get("accuracy")),
            _integer(fields.get("problems")),
            _integer(fields.get("responses")),
            _number(fields.get("response_length")),
        )
    if fields.get("type") == "checkpoint":
        path = fields.get("path")
        return Checkpoint(step, time, path if isinstance(path, str) else None)
    return None


_NUMBERS = [name for name in Step.__dataclass_fields__ if name not in ("step", "steps", "time")]


def _json(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _number(value: Any) -> float | None:
    """JSON's numbers, and Python's nan and inf; a huge integer is inf as it would be in C."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _integer(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None
