"""Children that cannot get away: whatever a step started is found and ended by the step.

The caller becomes the reaper of its descendants (PR_SET_CHILD_SUBREAPER), so that a daemon that
forks twice still belongs to it, on sites whose Slurm does not track processes by cgroup too.
"""

import contextlib
import ctypes
import os
import resource
import signal
import time
from typing import Dict, List, Optional, Set

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of every orphaned descendant."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def raise_limits() -> None:
    """Open files and locked memory as far as this step may: a lower hard limit is no error."""
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK):
        _, hard = resource.getrlimit(limit)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (hard, hard))


def parents() -> Dict[int, int]:
    """Parent of every process that this one can see."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat(int(name))
            if fields:
                table[int(name)] = int(fields[1])
    return table


def stat(pid: int) -> Optional[List[str]]:
    """The fields of /proc/PID/stat behind the name (state, parent, ...); None if it is gone."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def children(pid: int) -> List[int]:
    """The children of ``pid``, those among them that have ended and were not looked at yet."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def has_ended(pid: int) -> bool:
    """Whether a process is a zombie: over, and its parent does not know yet."""
    return (stat(pid) or ["?"])[0] == "Z"


def words(pid: int) -> List[str]:
    """The command line of a process, [] if it is gone."""
    try:
        with open("/proc/%d/cmdline" % pid, errors="replace") as file:
            return file.read().split("\0")
    except OSError:
        return []


def name(pid: int) -> str:
    """The short name of a process, "" if it is gone."""
    try:
        with open("/proc/%d/comm" % pid) as file:
            return file.read().strip()
    except OSError:
        return ""


def descendants() -> Set[int]:
    """Every process below this one, zombies left out."""
    table = parents()
    found = set()  # type: Set[int]
    border = {os.getpid()}
    while border:
        border = {pid for pid, parent in table.items() if parent in border} - found
        found |= border
    return {pid for pid in found if (stat(pid) or ["Z"])[0] != "Z"}


def end_all(grace: float) -> None:
    """SIGTERM to every descendant if there is ``grace`` (seconds), then SIGKILL until none is left.

    A process may fork while it is looked at, so the kill repeats; it is bounded, since what
    survives SIGKILL for seconds hangs in the kernel and is Slurm's to report.
    """
    deadline = time.monotonic() + grace
    if grace:
        _signal(descendants(), signal.SIGTERM)
    while time.monotonic() < deadline and _reap():
        time.sleep(0.02)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        _signal(descendants(), signal.SIGKILL)
        if not _reap():
            return
        time.sleep(0.02)


def code(status: int) -> int:
    """A wait status as the shell counts: the exit code, or 128 + the signal."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def _signal(pids: Set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _reap() -> bool:
    """Collect dead children; true while any child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
