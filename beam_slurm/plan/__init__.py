"""A profile's arithmetic before it waits in a queue: cuts, memory, storage, GPU-hours.

Pure: it reads a profile and what the caller has measured, and touches neither files nor Slurm.
"""

from __future__ import annotations

from beam_slurm.plan import course, frameworks, memory, node, parallel, storage
from beam_slurm.plan.result import Figure, Finding, Plan, Room
from beam_slurm.schema import Profile

__all__ = ["Figure", "Finding", "Plan", "Room", "make"]

ORDER = {"error": 0, "warning": 1, "note": 2}


def make(profile: Profile, *, limit_minutes: int, room: Room | None = None) -> Plan:
    """Everything that arithmetic can say about a run.

    Args:
        profile: the whole launch.
        limit_minutes: how long it may run, over all its jobs, in minutes as Slurm reads it.
        room: what the caller has measured; ``site.outputs_gb`` wins over it.
    """
    measured = room or Room()
    findings = [
        *parallel.check(profile),
        *frameworks.check(profile),
        *memory.check(profile),
        *node.check(profile),
        *storage.check(profile, measured),
        *course.check(profile),
    ]
    figures = (
        *parallel.figures(profile),
        *memory.figures(profile),
        *node.figures(profile),
        *storage.figures(profile, measured),
        *course.figures(profile, limit_minutes),
    )
    findings.sort(key=lambda finding: ORDER[finding.severity])
    return Plan(profile.name, tuple(findings), figures)
