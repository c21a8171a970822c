"""Ending a sweep, or some of its points."""

from __future__ import annotations

import contextlib

from beam_slurm import ending, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.report import text
from beam_slurm.sweep import here
from beam_slurm.sweep.folder import Folder
from beam_slurm.sweep.states import Look, Observer


def end(of: Folder) -> str:
    """End all points, in the queue and on the nodes, and submit no more; one line of what was done.

    Each array by one call; then the jobs that points have chained. Over already is no error.

    Raises:
        BeamSlurmError: Slurm does not answer.
    """
    going = [look for look in Observer().look(of) if not look.facts.state.ended]
    if not going:
        return f"{of.id} is over already"
    with of.locked():
        of.content.cancelled = True
        of.save()
        if of.local:
            here.stop(of)
    # Of a chunk without a job nobody knows whether Slurm took it: its comment tells.
    jobs = [chunk.job or slurm.find(chunk.token) for chunk in of.content.chunks]
    arrays = [job for job in jobs if job]
    for array in arrays:
        slurm.cancel(array)
    for look in going:
        if _own_job(look, of):
            with contextlib.suppress(BeamSlurmError):  # its job is over: it ends by itself
                ending.end(look.facts.run)
    what = f"job {', '.join(arrays)}" if arrays else f"process {of.content.queue}"
    return (
        f"cancelling {of.id}: {what}, {len(going)} of {text.count(len(of.content.points), of.noun)}"
    )


def stop(of: Folder, look: Look, why: str) -> str:
    """End one point early; one line of what was done."""
    with of.locked():
        of.content.stopped[look.entry.run] = why
        of.save()
    return ending.end(look.facts.run)


def _own_job(look: Look, of: Folder) -> bool:
    """Whether a point runs in a process or a job of its own, and not as its array's task."""
    if of.local:
        return bool(look.facts.run.manifest.get("pid"))
    return look.facts.job is not None and look.facts.job != of.jobs().get(look.entry.run)
