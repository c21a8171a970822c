"""A plan with what this machine can measure: how much is free where the checkpoints go."""

from __future__ import annotations

import os

from beam_slurm import plan, slurm
from beam_slurm.schema import Profile


def planned(profile: Profile) -> plan.Plan:
    """The plan of a profile on this site."""
    time = profile.job.total_time or profile.job.time
    return plan.make(profile, limit_minutes=slurm.minutes(time), room=_room(profile))


def _room(profile: Profile) -> plan.Room:
    outputs = profile.site.paths.outputs
    if outputs is None:
        return plan.Room()
    try:
        found = os.statvfs(outputs)
    except OSError:  # not mounted here
        return plan.Room()
    return plan.Room(outputs_gb=found.f_bavail * found.f_frsize / 1e9)
