"""What is shown, gathered in threads: the controller or the file system may hang for minutes."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from beam_slurm.errors import BeamSlurmError
from beam_slurm.logs import ending, ray_log
from beam_slurm.progress import PAUSE, Watcher
from beam_slurm.report.facts import Facts
from beam_slurm.runs import Run

LINES = 200  # of a log: more than any terminal has


@dataclass(frozen=True)
class Look:
    """The run as it was at ``time`` (monotonic seconds), with the names of its job's nodes."""

    facts: Facts
    nodes: tuple[str, ...] = ()
    note: str = ""
    time: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Log:
    """The end of a log: of the driver, or of Ray on ``node``."""

    node: str | None = None
    title: str = ""
    lines: tuple[str, ...] = ()


class Gathering:
    """The newest ``look`` and ``log`` of a run.

    Attributes:
        look: None before the run's files have been read for the first time.
        log: of what ``follow`` has asked for, a moment later.
        problem: what has ended the gathering; None while it goes on.
    """

    def __init__(self, run: Run, news: Callable[[], object]) -> None:
        """``news`` is called in these threads whenever something has changed."""
        self.run = run
        self.look: Look | None = None
        self.log = Log()
        self.problem: BeamSlurmError | None = None
        self._news = news
        self._node: str | None = None
        self._over = threading.Event()
        self._asked = threading.Event()  # another log than before is wanted
        for work in (self._look, self._read):
            threading.Thread(target=work, daemon=True).start()

    def follow(self, node: str | None) -> None:
        """Read this node's Ray log; None is the driver's."""
        self._node = node
        self._asked.set()

    def stop(self) -> None:
        """Read no more. What hangs is left behind: these threads keep nobody."""
        self._over.set()
        self._asked.set()

    def _look(self) -> None:
        try:
            watcher = Watcher(self.run, time.monotonic)
            self._show(Look(watcher.glance()))
            while not self._over.is_set():
                facts = watcher.look()
                self._show(Look(facts, tuple(watcher.nodes), watcher.note))
                if facts.state.ended:
                    return
                self._over.wait(PAUSE)
        except BeamSlurmError as problem:
            self.problem = problem
        except Exception as problem:  # the screen must not stand still without a word
            self.problem = BeamSlurmError(
                f"{self.run.id} cannot be watched any longer",
                why=f"{type(problem).__name__}: {problem}",
                remedy=f"the job is not touched; beam-slurm status {self.run.id}",
                exit_code=1,
            )
        self._news()

    def _show(self, look: Look) -> None:
        # The reader goes on with its own history while this one is drawn in another thread.
        history = copy.copy(look.facts.history)
        self.look = replace(look, facts=replace(look.facts, history=history))
        self._news()

    def _read(self) -> None:
        while not self._over.is_set():
            self._asked.clear()
            found = self._end_of(self._node)
            if found != self.log:
                self.log = found
                self._news()
            self._asked.wait(PAUSE)

    def _end_of(self, node: str | None) -> Log:
        try:
            path = ray_log(self.run, node) if node else self.run.log
            if path is None:
                return Log(node, "there is no log yet")
            return Log(node, str(path.relative_to(self.run.path)), tuple(ending(path, LINES)))
        except (BeamSlurmError, OSError) as problem:
            why = problem.why or problem.what if isinstance(problem, BeamSlurmError) else problem
            return Log(node, f"there is no log of it yet: {why}")
