"""Which of all runs ``status`` lists: the newest, and what somebody must not overlook.

What follows a run stands behind it in the queue, a dozen jobs maybe: the line of that run speaks
for them, unless one runs or has failed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from beam_slurm import slurm, state
from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run

NEWEST = 20


@dataclass(frozen=True)
class Listing:
    """The runs that are listed, newest first, and how many are not.

    Attributes:
        shown: those that are listed.
        older: how many are not because they are older.
        behind: how many are not because they follow another one.
    """

    shown: list[Run]
    older: int = 0
    behind: int = 0

    @property
    def more(self) -> str:
        """What is not listed, in words; "" if all are."""
        parts = [f"{self.older} older ones"] if self.older else []
        parts += [f"{self.behind} that follow others"] if self.behind else []
        return " and ".join(parts)


def newest(known: Sequence[Run]) -> Listing:
    """The newest of ``known`` runs, newest first, and whatever runs now."""
    first = [run for run in known if "follows" not in run.manifest]
    listed = {run.id for run in first[:NEWEST]}
    since = first[NEWEST - 1].created or 0 if len(first) > NEWEST else 0
    running = _running() if len(known) > len(listed) else set()
    shown, older, behind = [], 0, 0
    for run in known:
        follows = "follows" in run.manifest
        if run.id in listed or _runs(run, running) or (follows and _failed(run, since)):
            shown.append(run)
        elif follows:
            behind += 1
        else:
            older += 1
    return Listing(shown, older, behind)


def _running() -> set[str]:
    """The comments of jobs that run; none where Slurm does not answer, which others will say."""
    try:
        return slurm.running()
    except BeamSlurmError:
        return set()


def _runs(run: Run, running: Collection[str]) -> bool:
    if run.manifest.get("executor") == "local":
        return run.state().word in ("starting", "running")
    return f"beam-slurm:{run.manifest.get('id', run.id)}" in running


def _failed(run: Run, since: float) -> bool:
    """Whether it has begun and come to nothing, as its own files tell it, not longer ago."""
    if (run.created or 0) < since:
        return False
    told = state.of_files(run.attempts)
    return told.word == "failed" if told else bool(run.attempts)
