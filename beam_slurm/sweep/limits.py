"""How many jobs this cluster takes: in one array, and of this user at a time."""

from __future__ import annotations

import getpass
import re
from dataclasses import dataclass

from beam_slurm import slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.schema import Site

SLURMS_OWN = 1001  # MaxArraySize where slurm.conf does not say


@dataclass(frozen=True)
class Limits:
    """What may be submitted now.

    Attributes:
        array: tasks of one array. Slurm caps the highest index, at MaxArraySize - 1, and ours
            begin at 0.
        jobs: jobs that the user may have in the queue, tasks of arrays each counted; None if
            nobody has said so.
        queued: jobs that the user has there now; 0 where ``jobs`` is None.
    """

    array: int = SLURMS_OWN
    jobs: int | None = None
    queued: int = 0

    @property
    def room(self) -> int:
        """How many tasks the next array may have."""
        return self.array if self.jobs is None else min(self.array, max(self.jobs - self.queued, 0))


def ask(site: Site) -> Limits:
    """What the controller and, where there is one, accounting say.

    Raises:
        BeamSlurmError: there is no Slurm here, it does not answer, or it takes no arrays.
    """
    array = _array(slurm.ask("scontrol", "show", "config"))
    if array < 1:
        raise BeamSlurmError(
            "this Slurm takes no arrays",
            why="its MaxArraySize is 0",
            remedy="ask the site for arrays, or submit the points one by one",
        )
    jobs = _jobs(site)
    if jobs is None:
        return Limits(array)
    queued = slurm.ask("squeue", "--noheader", "--me", "--array", "--format=%i")
    return Limits(array, jobs, len(queued.split()))


def _array(config: str) -> int:
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.M)
    return int(found[1]) if found else SLURMS_OWN


def _jobs(site: Site) -> int | None:
    """The smallest limit on this user's jobs; None without accounting, which is normal."""
    try:
        user = slurm.ask(
            *("sacctmgr", "--noheader", "--parsable2", "show", "associations"),
            *(f"user={getpass.getuser()}", "format=Account,MaxSubmitJobs"),
        )
        qos = slurm.ask(
            *("sacctmgr", "--noheader", "--parsable2", "show", "qos"),
            "format=Name,MaxSubmitJobsPerUser",
        )
    except BeamSlurmError:
        return None
    found = [*_named(user, site.account), *(_named(qos, site.qos) if site.qos else ())]
    return min(found, default=None)


def _named(text: str, name: str | None) -> list[int]:
    """The limits in lines ``name|limit``; of all names if none is given."""
    pairs = [line.partition("|")[::2] for line in text.splitlines()]
    return [int(limit) for key, limit in pairs if limit.isdigit() and (name is None or key == name)]
