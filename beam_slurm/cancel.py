"""Ending a run, whatever it is doing: for the command, and for who watches it."""

from __future__ import annotations

import contextlib
import os
import signal

from beam_slurm import slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run


def cancel(run: Run) -> str:
    """End a run: its job, or its process; what was done, in one line. Over already is no error.

    Raises:
        BeamSlurmError: Slurm does not answer or refuses, or nobody knows yet whether it goes on.
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
