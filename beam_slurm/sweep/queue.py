"""Without Slurm: starts the points of a sweep on this machine, so many at a time as it may.

    python -m beam_slurm.sweep.queue FOLDER

A process of its own, which outlives the shell that began it; each point is a job of submitit's
LocalExecutor. SIGTERM: it begins no more points; those that run are left alone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from submitit import Job, LocalExecutor

from beam_slurm.runs import Run
from beam_slurm.sweep import folder, task
from beam_slurm.sweep.folder import Folder

FOR_EVER = 366 * 24 * 60  # minutes: a run ends by itself, or its time limit ends it
LOOK = 0.5  # seconds


def main(path: Path) -> None:
    """Run every point that has not begun yet, and those that are added meanwhile."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    of = folder.open_folder(path)
    executor = LocalExecutor(of.arrays)
    executor.update_parameters(timeout_min=FOR_EVER)
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    begun: set[str] = set()
    running: list[Job[None]] = []
    while (waiting := _waiting(of, begun)) or running:
        running = [one for one in running if not one.done()]
        for run in waiting[: (of.content.max_parallel or 1) - len(running)]:
            begun.add(run.id)
            running.append(executor.submit(task.start_here, str(run.path), gpus))
        time.sleep(LOOK)
        of.reload()


def _waiting(of: Folder, begun: set[str]) -> list[Run]:
    """The points that nobody has begun, in their order."""
    all_of_them = (of.run(at) for at in range(len(of.content.points)))
    return [run for run in all_of_them if run.id not in begun and not run.manifest.get("pid")]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
