"""Ending a run: its job, all its steps, everything on its nodes, whatever job counts now."""

from __future__ import annotations

import contextlib
import os
import signal

from beam_slurm import slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run


def end(run: Run) -> str:
    """End a run; one line of what was done. Over already is no error.

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
    return f"cancelling {run.id}: job {', '.join(done)}, {state.word}"
