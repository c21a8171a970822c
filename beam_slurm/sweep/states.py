"""Where all points of a sweep are: Slurm is asked once an array, the folders are read."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from beam_slurm import attempts, metrics, slurm, state
from beam_slurm.errors import BeamSlurmError
from beam_slurm.report.facts import Facts
from beam_slurm.slurm import Job
from beam_slurm.state import State
from beam_slurm.sweep import here
from beam_slurm.sweep.folder import Entry, Folder

STOPPED = "stopped early"


@dataclass(frozen=True)
class Look:
    """A point now. ``facts`` are those of its run, without the profile."""

    index: int
    entry: Entry
    facts: Facts

    @property
    def stopped(self) -> bool:
        """Whether the sweep itself has ended it."""
        return self.facts.state.why.startswith(STOPPED)

    @property
    def failed(self) -> bool:
        """Whether it is over without success, and nobody wanted that."""
        word = self.facts.state.word
        return word == "failed" or (word == "unknown" and self.facts.state.ended)

    @property
    def cancelled(self) -> bool:
        """Whether a user has ended it, on a node or in the queue: it begins by itself no more."""
        submitted = self.facts.job or self.facts.manifest.get("pid")
        return self.facts.state.word == "cancelled" and bool(submitted) and not self.stopped


class Observer:
    """Looks at a sweep again and again; of a run that is over, or has said nothing new, little is
    read anew."""

    def __init__(self) -> None:
        self.note = ""  # why the states may be old, "" if they are not
        self._readers: dict[str, metrics.Reader | None] = {}
        self._over: dict[str, Look] = {}

    def look(self, of: Folder) -> list[Look]:
        """All points, in their order."""
        known = self._known(of)
        jobs = of.jobs()
        return [
            self._over.get(entry.run) or self._look(of, at, jobs.get(entry.run), known)
            for at, entry in enumerate(of.content.points)
        ]

    def _look(self, of: Folder, at: int, task: str | None, known: dict[str, Job]) -> Look:
        entry, run = of.content.points[at], of.run(at)
        manifest = run.manifest
        found = self._state(of, at, task, known)
        if why := of.content.stopped.get(entry.run):
            found = replace(found, why=f"{STOPPED}: {why}")
        if entry.run not in self._readers:
            self._readers[entry.run] = metrics.reader(run)
        reader = self._readers[entry.run]
        if reader and found.word != "pending":
            reader.read()
        facts = Facts(
            run=run,
            manifest=manifest,
            profile={},
            state=found,
            attempts=run.attempts,
            history=reader.history if reader else None,
        )
        look = Look(at, entry, facts)
        if found.ended and found.witnessed:
            self._over[entry.run] = look
        return look

    def _state(self, of: Folder, at: int, task: str | None, known: dict[str, Job]) -> State:
        run = of.run(at)
        if of.local:
            found = run.state()
            if found.word == "pending" and of.content.cancelled:
                return State("cancelled", "it had not begun")
            if found.word == "pending" and not here.lives(of):
                return State("unknown", f"nobody starts it: beam-slurm sweep {of.id} --resume")
            return found
        if task is None:
            if run.id in of.undecided():
                how = f"beam-slurm sweep {of.id} --resume"
                return State("pending", f"nobody knows whether Slurm took it: {how}")
            word = "cancelled" if of.content.cancelled else "pending"
            return State(word, "it was not submitted" + ("" if word == "cancelled" else " yet"))
        past = run.attempts
        counts = attempts.job(past, task) or task
        job = known.get(counts)
        if counts != task and job is None and not self.note:
            job = slurm.job(counts)  # a run that has chained another job: few do
        if self.note and job is None:
            return state.of_files(past) or State("unknown", self.note)
        return state.of_job(run.attempts, job, run.log, time.time())

    def _known(self, of: Folder) -> dict[str, Job]:
        """What Slurm says of all tasks."""
        self.note = ""
        found: dict[str, Job] = {}
        over = set(self._over)
        try:
            for chunk in of.content.chunks:
                if chunk.job is None or set(chunk.runs) <= over:
                    continue
                tasks = slurm.tasks(chunk.job)
                if len(tasks) < len(chunk.runs):
                    tasks = {**slurm.accounted(chunk.job), **tasks}
                found.update(tasks)
        except BeamSlurmError as error:
            self.note = error.what + (f": {error.why.splitlines()[-1]}" if error.why else "")
        return found
