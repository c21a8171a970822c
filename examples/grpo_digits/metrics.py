"""Metrics: one JSON object per line for programs, one short line on stdout for people."""

import json
import os
import time
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"


class Metrics:
    """Appends to ``metrics.jsonl``; each line is on its way to disk when a call returns."""

    def __init__(self, output_dir: Path) -> None:
        self._file = (output_dir / FILE).open("a", buffering=1)

    def train(self, step: int, steps: int, values: dict[str, float]) -> None:
        self._write("train", step=step, steps=steps, **values)
        say(
            f"step {step}/{steps} reward {values['reward']:.2f} "
            f"length {values['response_length']:.1f} loss {values['loss']:.3f} "
            f"entropy {values['entropy']:.2f} {values['step_time']:.2f} s"
        )

    def evaluation(self, step: int, accuracy: float, problems: int, response_length: float) -> None:
        self._write(
            "eval",
            step=step,
            set="held-out",
            accuracy=accuracy,
            problems=problems,
            responses=problems,  # The likeliest response to each; there is only one.
            response_length=response_length,
        )
        say(f"evaluation after step {step}: held-out accuracy {accuracy:.2f}")

    def checkpoint(self, step: int, path: Path) -> None:
        self._write("checkpoint", step=step, path=str(path))
        say(f"checkpoint {path}")

    def _write(self, kind: str, **values: Any) -> None:
        self._file.write(json.dumps({"type": kind, "time": time.time(), **values}) + "\n")


def forget(output_dir: Path, first_step: int) -> None:
    """Drop what is measured again by a run that goes on at ``first_step``.

    These are the steps from there on and the evaluation before them; so is a line that a killed run
    left half written. Readers see the old file or the new one, never a part.
    """
    path = output_dir / FILE
    if not path.exists():
        return
    shorter = path.with_name(f"tmp_{FILE}")
    with path.open("rb") as old, shorter.open("wb") as new:
        new.writelines(line for line in old if _stays(line, first_step))
        new.flush()
        os.fsync(new.fileno())
    shorter.replace(path)


def _stays(line: bytes, first_step: int) -> bool:
    try:
        record = json.loads(line)
        return bool(record["step"] < first_step - (record["type"] == "eval"))
    except (ValueError, KeyError, TypeError):
        return False


def say(line: str) -> None:
    """A line for people, at once even into a file."""
    print(line, flush=True)
