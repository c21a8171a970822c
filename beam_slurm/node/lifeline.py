"""The end of a container whose task on the host is gone without a word.

``contain`` holds the writing end of the container's standard input and never writes. Where the
whole step is killed, the client of the runtime with it, that end closes: the program in the
container then ends as if it had been told to, and its container with it. A signal says so
(SIGIO), not a thread: ``ray`` forks.
"""

import fcntl
import os
import signal
from types import FrameType
from typing import Optional

from beam_slurm.node import processes

VARIABLE = "BEAM_SLURM_LIFELINE"  # set by contain: standard input is the line
GRACE = 10  # seconds to tidy up


def watch() -> None:
    """End this process and all below it once the other end of standard input has closed."""
    if os.environ.pop(VARIABLE, None) is None:
        return
    signal.signal(signal.SIGIO, _look)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
    _look(signal.SIGIO, None)  # it may have closed before


def _look(number: int, frame: Optional[FrameType]) -> None:
    try:
        if os.read(0, 512):
            return
    except BlockingIOError:
        return
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(GRACE)
    os.kill(os.getpid(), signal.SIGTERM)


def _end(number: int, frame: Optional[FrameType]) -> None:
    processes.end_all(0)
    os._exit(128 + signal.SIGKILL)
