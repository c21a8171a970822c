"""Asking for a run's state again and again: seldom enough for the controller, and patiently."""

from __future__ import annotations

import time
from collections.abc import Callable

from beam_slurm import state
from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run
from beam_slurm.state import STRAGGLER, State

OFTEN, SELDOM = 1.0, 5.0  # seconds between two questions, at first and after SETTLED
SETTLED = 600.0
PATIENCE = 1800.0  # seconds that the controller may be silent: upgrades and failovers take minutes


class Watch:
    """A run's state over time.

    Args:
        run: the run.
        clock: seconds that only go up.
    """

    def __init__(self, run: Run, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self.note = ""  # why the state may be old, "" if it is not
        self._clock = clock
        self._began = self._asked = clock()
        self._heard = self._began
        self._over: float | None = None
        self._state: State | None = None
        self._told = (-1, False)

    def state(self) -> State:
        """The newest state, from Slurm only if it was not asked a moment ago.

        Raises:
            BeamSlurmError: the controller has been silent for PATIENCE seconds.
        """
        now = self._clock()
        # A new attempt or an outcome is news: it need not wait for the next turn.
        told = self._newest()
        pause = OFTEN if told != self._told else self._interval(now)
        if self._state is None or now - self._asked >= pause:
            self._told = told
            self._ask()
            self._asked = self._clock()
        assert self._state is not None
        if self._may_still_tell(self._state, now):
            return state.awaited(self._state.job, self.run.attempts)
        return self._state

    def _newest(self) -> tuple[int, bool]:
        """The newest attempt's number, and whether it has said how it ended."""
        found = self.run.attempts
        told = bool(found and found[-1].outcome and not found[-1].undecided)
        return (found[-1].number, told) if found else (-1, False)

    def _interval(self, now: float) -> float:
        part = min((now - self._began) / SETTLED, 1.0)
        return OFTEN + part * (SELDOM - OFTEN)

    def _ask(self) -> None:
        try:
            self._state = self.run.state()
        except BeamSlurmError as error:
            self._without_slurm(error)
        else:
            self._heard = self._clock()
            self.note = ""

    def _without_slurm(self, error: BeamSlurmError) -> None:
        """The run's own last word is as good; otherwise what was known still holds for a while."""
        told = state.of_files(self.run.attempts)
        if told and told.ended:
            self._state, self.note = told, ""
            return
        silent = self._clock() - self._heard
        if silent > PATIENCE:
            raise BeamSlurmError(
                f"{error.what}, for {silent / 60:.0f} minutes now",
                why=error.why,
                remedy=f"the job is not touched; come back with: beam-slurm status {self.run.id}",
                exit_code=1,
            ) from error
        self.note = f"{error.what}; asking again"
        self._state = told or self._state or State("unknown", self.note)
        if self._state.ended:  # "unknown" because nobody answers is no end
            self._state = State("submitted", self.note)

    def _may_still_tell(self, found: State, now: float) -> bool:
        """The job is over, its script had begun, and its last word is not to be seen yet.

        Counted from when that was seen: this host's clock need not be the controller's.
        """
        job = found.job
        if found.witnessed or not (found.ended or (job and job.ended)):
            self._over = None
            return False
        if self._over is None:
            self._over = now
        if job:
            begun = state.may_still_tell(job)
        else:  # Slurm has forgotten it; where no Slurm is, the files are this host's own
            begun = self.run.manifest.get("executor") != "local" and bool(self.run.attempts)
        return begun and now - self._over < STRAGGLER
