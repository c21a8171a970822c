"""The keyboard, key by key, and the signals that a program on the whole screen must hear."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import termios
import tty
from types import FrameType
from typing import Any

SUSPEND = b"\x1a"  # Ctrl-Z
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HEARD = (*ENDS, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)

_KEY = re.compile(rb"\x1b[\[O][0-9;]*([A-Za-z~])|\x1b|([^\x1b])", re.S)
_ARROWS = {b"A": "up", b"B": "down"}


class Terminal:
    """A terminal that gives each key at once, without showing it, and notices signals.

    As a context it takes the terminal, and gives it back as it was on every way out.

    Attributes:
        ended: the signal that asks for the end, None if none has come.
        suspended: Ctrl-Z has been pressed since ``wait`` was called.
    """

    def __init__(self, file: int) -> None:
        self.ended: int | None = None
        self.suspended = False
        self._file = file
        self._modes: list[Any] = termios.tcgetattr(file)
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._waker, False)
        self._before: dict[int, Any] = {}
        self._fd_before = -1

    def __enter__(self) -> Terminal:
        self._before = {number: signal.signal(number, self._hear) for number in HEARD}
        # A signal writes to the pipe, so that waiting for a key notices it.
        self._fd_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wake(self) -> None:
        """Let ``wait`` return; from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"\0")

    def wait(self, seconds: float) -> list[str]:
        """The keys that are pressed, [] if there was something else or nothing for so long.

        A key is its letter, or "up", "down". Where the terminal is gone, that is an end.
        """
        ready, _, _ = select.select([self._file, self._wake], [], [], seconds)
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if self._file not in ready:
            return []
        try:
            data = os.read(self._file, 1024)
        except OSError:
            data = b""
        if not data:
            self.ended = self.ended or signal.SIGHUP
        self.suspended = self.suspended or SUSPEND in data
        return [
            _ARROWS.get(key[1] or b"", "") if key[2] is None else key[2].decode("latin-1")
            for key in _KEY.finditer(data)
            if key[2] != SUSPEND
        ]

    def suspend(self) -> None:
        """Stop as Ctrl-Z does, the terminal given back; returns when the shell goes on with us."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._hear)
        self.suspended = False
        self._take()

    def _take(self) -> None:
        tty.setcbreak(self._file, termios.TCSADRAIN)
        modes = termios.tcgetattr(self._file)
        # Ctrl-Z as a key: as a signal it would reach a command of Slurm's between fork and exec
        # too, and the thread that starts it could not be stopped with us.
        modes[6][termios.VSUSP] = bytes([os.fpathconf(self._file, "PC_VDISABLE")])
        termios.tcsetattr(self._file, termios.TCSADRAIN, modes)

    def _give_back(self) -> None:
        with contextlib.suppress(termios.error):  # it may be gone
            termios.tcsetattr(self._file, termios.TCSAFLUSH, self._modes)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number in ENDS:
            self.ended = self.ended or number
        elif number == signal.SIGTSTP:
            self.suspended = True
        elif number == signal.SIGCONT:  # of a stop that nobody can hear: kill -STOP
            with contextlib.suppress(termios.error):
                self._take()
