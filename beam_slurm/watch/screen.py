"""The loop between the run, the keyboard and the screen."""

from __future__ import annotations

import signal
import sys
import threading
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from beam_slurm import ending, progress
from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run
from beam_slurm.watch import frame
from beam_slurm.watch.gathering import Gathering
from beam_slurm.watch.terminal import Terminal

TICK = 1.0  # seconds until times that go on are shown anew
REMARK = 8.0  # seconds that an answer stays


class Screen:
    """One run on the whole screen, until the user leaves."""

    def __init__(self, run: Run, console: Console) -> None:
        self.run = run
        self.console = console
        self.terminal = Terminal(sys.stdin.fileno())
        self.gathering = Gathering(run, self.terminal.wake)
        self.node: str | None = None  # whose log is followed; None is the driver's
        self.asks = False  # whether to cancel the run
        self.helps = False
        self._remark = ("", 0.0)  # an answer, and until when it stays
        self._cancelled = ""  # what has been done to end the run
        self._canceller: threading.Thread | None = None
        self._over = False

    def show(self) -> int:
        """Until the user leaves; the exit code. See ``watch.watch``."""
        try:
            with self.terminal:
                while not self._left:
                    self._on_the_screen()
                    if self.terminal.suspended:
                        self.terminal.suspend()
        finally:
            self.gathering.stop()
        return self._end()

    @property
    def _left(self) -> bool:
        return bool(self._over or self.terminal.ended or self.gathering.problem)

    def _on_the_screen(self) -> None:
        """Until it is left, for good or by Ctrl-Z."""
        live = Live(
            console=self.console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with live:
            while not self._left and not self.terminal.suspended:
                live.update(self._frame(), refresh=True)
                for key in self.terminal.wait(TICK):
                    self._press(key)
                    if self.asks:  # whoever pastes a text has not answered
                        break

    def _frame(self) -> frame.Frame:
        said, until = self._remark
        return frame.Frame(
            run=self.run.id,
            look=self.gathering.look,
            log=self.gathering.log,
            followed=self.node,
            question=f"cancel {self.run.id}?  y / n" if self.asks else "",
            remark=said if time.monotonic() < until else "",
            helps=self.helps,
            now=time.time(),
            monotonic=time.monotonic(),
        )

    def _press(self, key: str) -> None:
        if self.asks:
            self.asks = False
            if key in ("y", "Y"):
                self._say("asking Slurm to cancel it")
                self._canceller = threading.Thread(target=self._cancel, daemon=True)
                self._canceller.start()
            else:
                self._say("not cancelled")
        elif key in ("q", "Q"):
            self._over = True
        elif key == "?":
            self.helps = not self.helps
        elif key == "c":
            self.asks = True
        elif key in ("down", "n", "up", "l"):
            self.helps = False
            self._follow({"down": 1, "n": 1, "up": -1, "l": 0}[key])

    def _follow(self, by: int) -> None:
        """The next log or the one before: the driver's, then each node's, then the driver's."""
        look = self.gathering.look
        known: list[str | None] = [None, *(frame.names(look) if look else ())]
        at = known.index(self.node) if self.node in known else 0
        self.node = known[(at + by) % len(known)] if by else None
        self.gathering.follow(self.node)

    def _cancel(self) -> None:
        """In a thread of its own: the controller may let it wait."""
        try:
            self._cancelled = ending.end(self.run)
            self._say(self._cancelled)
        except BeamSlurmError as error:
            self._say(f"{error.what}: {error.why}" if error.why else error.what)
        except Exception as error:  # a traceback would be written across the screen
            self._say(f"it cannot be cancelled: {error}")

    def _say(self, text: str) -> None:
        self._remark = (text, time.monotonic() + REMARK)
        self.terminal.wake()

    def _end(self) -> int:
        """What stays on the terminal, and the exit code."""
        if self.gathering.problem:
            raise self.gathering.problem
        look = self.gathering.look
        if look and look.facts.state.ended and not self.terminal.ended:
            return progress.end(look.facts, self.console)
        if self._canceller and self.terminal.ended != signal.SIGHUP:
            self._until_cancelled(self._canceller)
        if self.terminal.ended != signal.SIGHUP:  # else nobody is there to read it
            progress.leave(self.run, self.console, self._cancelled)
        return 128 + self.terminal.ended if self.terminal.ended else 0

    def _until_cancelled(self, canceller: threading.Thread) -> None:
        """Whoever cancels and leaves at once has cancelled all the same."""
        if canceller.is_alive():
            self.console.print("Slurm has not answered yet that it cancels; Ctrl-C leaves")
            canceller.join()
        if not self._cancelled:
            self.console.print(Text(self._remark[0]), soft_wrap=True)
