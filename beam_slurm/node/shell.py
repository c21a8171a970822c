"""Verb ``shell``: a person's program, which ends as soon as its step is told to.

An interactive shell ignores SIGTERM, and Slurm would wait for it at the job's end, KillWait (30 s)
long and with all of the job's nodes. It does end when its terminal hangs up.
"""

import signal
import subprocess
import sys
from types import FrameType
from typing import List, Optional

GRACE = 2  # seconds from the hang-up to SIGKILL


def main(argv: List[str]) -> int:
    """Run ``argv`` on this terminal; its exit code as a shell would say it."""
    try:
        child = subprocess.Popen(argv)
    except OSError as problem:
        print("beam-slurm: cannot start %s: %s" % (argv[0], problem.strerror), file=sys.stderr)
        return 127

    def end(number: int, frame: Optional[FrameType]) -> None:
        signal.alarm(GRACE)
        child.send_signal(signal.SIGHUP)

    signal.signal(signal.SIGALRM, lambda number, frame: child.kill())
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
    # The terminal sends these to the program too, and there they count.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    code = child.wait()
    return 128 - code if code < 0 else code
