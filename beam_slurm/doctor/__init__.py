"""Everything that a run needs and that can be seen before the queue, or by one short job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from beam_slurm.doctor import arithmetic, containers, folders, login, queue, subject
from beam_slurm.doctor.checks import Check, failed
from beam_slurm.doctor.subject import Subject
from beam_slurm.yamlfile import Key


@dataclass(frozen=True)
class Report:
    """The checks of this machine.

    Attributes:
        subject: what was examined.
        checks: all of them, in the order in which a job meets them.
        blocked: those that keep even a short job from the nodes.
    """

    subject: Subject
    checks: list[Check]
    blocked: list[Check]


def examine(profile: str | None, site: Path | None, settings: Sequence[tuple[Key, str]]) -> Report:
    """Examine a profile on this site from this machine; None is the site alone.

    Raises:
        BeamSlurmError: the profile or the site file cannot be read.
    """
    slurm, cluster = queue.answers()
    about, unsaid = subject.make(profile, site, settings, cluster)
    if cluster:
        slurm += queue.check(about, cluster)
    places = list(folders.check(about))
    checks = [*slurm, *unsaid, *arithmetic.check(about), *containers.check(about, cluster)]
    checks += [*places, *login.check(about)]
    needed = [*slurm, *(check for check in places if check.name == "runs folder")]
    return Report(about, checks, failed(needed))
