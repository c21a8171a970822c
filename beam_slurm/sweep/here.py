"""The process that starts a sweep's points on this machine, where there is no Slurm."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from beam_slurm.sweep.folder import Folder


def start(of: Folder) -> None:
    """Start it, unless it is there already.

    Raises:
        BeamSlurmError: somebody else does so now.
    """
    with of.locked():
        if lives(of):
            return
        with (of.path / "queue.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "beam_slurm.sweep.queue", str(of.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        of.content.queue = child.pid
        of.save()


def stop(of: Folder) -> None:
    """Let it begin no more points; those that run are left alone."""
    if lives(of):
        with contextlib.suppress(ProcessLookupError):
            os.kill(of.content.queue or 0, signal.SIGTERM)


def lives(of: Folder) -> bool:
    """Whether it is there."""
    pid = of.content.queue
    if not pid:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    # Its words are not there yet while it becomes Python, and no more when it is over.
    return state != "Z" and (words == [b""] or str(of.path).encode() in words)
