"""One writer at a time to an output folder, of however many jobs were given it."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path
from typing import IO, Any

from beam_slurm.after.errors import Problem


def take(file: IO[Any], folder: Path, who: str) -> None:
    """Lock ``file`` in ``folder`` until it is closed.

    Args:
        who: what writes there: conversion, evaluation.

    Raises:
        Problem: another one has the lock.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Problem(
            "the output folder is in use",
            where=str(folder),
            why=f"another {who} is writing to it",
            do="wait for its end, or give another folder with -o",
        ) from None
    except OSError as error:  # a file system without locks: Lustre may be mounted so
        print(f"note: {folder} cannot be locked: {error.strerror}", file=sys.stderr)
