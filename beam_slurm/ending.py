"""Ending a run: its job, all its steps, everything on its nodes, whatever job counts now."""

from __future__ import annotations

import contextlib
import os
import signal

from beam_slurm import slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.node import followers
from beam_slurm.runs import Run


def end(run: Run) -> str:
    """End a run; one line of what was done. Over already is no error.

    What waits for its success or its checkpoints goes with it, by Slurm's own hand. A conversion
    that has been released has its checkpoint, and goes on.

    Raises:
        BeamSlurmError: whether another job goes on, nobody can say yet; or Slurm does not answer.
    """
    state = run.state()
    if state.ended:
        return f"{run.id} is over already"
    if state.job and state.job.ended:  # whether another job goes on, its outcome will say
        raise BeamSlurmError(
            f"{run.id} cannot be cancelled yet",
            why=state.why,
            remedy=f"in a minute: beam-slurm cancel {run.id}",
        )
    manifest = run.manifest
    if manifest.get("executor") == "local":
        with contextlib.suppress(ProcessLookupError):  # it has ended in this very moment
            os.kill(manifest["pid"], signal.SIGTERM)
        return f"cancelling {run.id}: process {manifest['pid']}, {state.word}"
    done: list[str] = []
    # Once more after the first: the job may have chained another one in this very moment.
    while (job := run.job) and job not in done:
        slurm.cancel(job)
        done.append(job)
    said = f"cancelling {run.id}: job {', '.join(done)}, {state.word}"
    released = ", ".join(each.id for each in _released(run))
    return said + (f"; of saved checkpoints, these go on: {released}" if released else "")


def _released(run: Run) -> list[Run]:
    """What followed a saved checkpoint of the run, and is not over: see ``submit --then``."""
    if not (run.path / followers.FILE).exists():
        return []
    bound = {it.job for it in followers.read(str(run.path))}
    free = []
    for name in run.manifest.get("then") or []:
        behind = Run(run.path.parent / name)
        if behind.job in bound or behind.manifest.get("follows") in bound:
            bound.add(name)
        elif not _over(behind):
            free.append(behind)
    return free


def _over(run: Run) -> bool:
    try:
        return run.state().ended
    except BeamSlurmError:  # nobody knows: then it may go on
        return False
