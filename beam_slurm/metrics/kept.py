"""What a run that is over has measured, kept in its folder: gigabytes of logs are read once.

Of a few megabytes nothing is kept, for they are read as fast. What is kept holds for the very files
that it was read from, by this very version of the readers; else, and where it cannot be written,
the logs are read again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from beam_slurm.metrics.history import History
from beam_slurm.metrics.reader import Reader, sources
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Step
from beam_slurm.node import progress
from beam_slurm.runs import MANIFEST, Run, write_whole

NAME = "metrics.json"
WORTH = 8_000_000  # bytes: it takes less time to read less
KINDS = {"steps": Step, "evaluations": Evaluation, "checkpoints": Checkpoint}
READERS = [*sorted(Path(__file__).parent.glob("*.py")), Path(progress.__file__)]

Files = list[list[str | int]]
"""[path, bytes, nanoseconds of its last change] of each."""


def history(run: Run, reader: Reader) -> History:
    """All that a run has measured that is over; ``reader`` is asked where nothing was kept."""
    about = [run.path / MANIFEST, run.path / "profile.yaml", *READERS]
    now = _seen([*sources(run), *about])  # before it is read: later changes are seen later
    found = _read(run, now)
    if found is None:
        reader.read()
        found = reader.history
        _write(run, found, now)
    return found


def _read(run: Run, now: Files) -> History | None:
    """What was kept, if it holds for the files as they are ``now``."""
    try:
        found = json.loads((run.path / NAME).read_bytes())
        if found["files"] != now:
            return None
        history = History()
        for name, kind in KINDS.items():
            for record in found[name]:
                history.add(kind(**record))
    except (OSError, ValueError, LookupError, TypeError):
        return None  # not there, or not written by us
    return history


def _write(run: Run, history: History, then: Files) -> None:
    """Keep what was read of the files as they were ``then``."""
    if sum(size for _, size, _ in _seen(sources(run)) if isinstance(size, int)) < WORTH:
        return
    found = {name: [_said(it) for it in getattr(history, name)] for name in KINDS}
    with contextlib.suppress(OSError):  # somebody else's run, or a full disk
        data = json.dumps({"files": then, **found}).encode()
        write_whole(run.path / NAME, data, run.path.stat().st_mode)


def _seen(paths: Sequence[Path]) -> Files:
    found: Files = []
    for path in paths:
        with contextlib.suppress(OSError):
            about = path.stat()
            found.append([str(path), about.st_size, about.st_mtime_ns])
    return found


def _said(record: Step | Evaluation | Checkpoint) -> dict[str, object]:
    return {name: value for name, value in asdict(record).items() if value is not None}
