"""What ``ray start`` says about itself: whether it came up, and what died."""

import glob
import os
import re
import signal
from typing import List

STARTED = "Ray runtime started."
# What daemons write while all is well: dumps of their state, and lines of level I.
CHATTER = re.compile(r"\[state-dump\]|^\s*\[[-\d]+ [:,\d]+ I ")

BEGIN = "$ ray start"  # the line by which our own log begins each start
TAIL = 12  # lines of a log that are worth a place in an error

# How ``ray start --block`` names a dead process: "  raylet [exit code=-9]".
DEAD = re.compile(r"^\s*(\w+) \[exit code=(-?\d+)\]")


def has_started(lines: List[str]) -> bool:
    """Whether ``ray start`` finished its work here."""
    return any(STARTED in line for line in lines)


def was_slow(lines: List[str]) -> bool:
    """Whether Ray gave up on its own raylet: it has 30 s, whatever the storage or the load.

    Another try finds in the page cache what the first one had to read.
    """
    return any("timed out during startup" in line for line in lines)


def cause(lines: List[str], code: int) -> str:
    """Why Ray ended on this node although nobody asked it to; ``code`` is its exit code."""
    if not has_started(lines):
        last = ": " + lines[-1].strip() if len(lines) > 1 else ""
        return "ray start failed with exit code %d%s" % (code, last)
    dead = [DEAD.search(line) for line in lines]
    said = ["%s %s" % (m.group(1), how(int(m.group(2)))) for m in dead if m]
    return "Ray's " + ", ".join(said) if said else "Ray ended by itself"


def read(log: str) -> List[str]:
    """The lines of the last ``ray start`` that say something; dumps of state do not."""
    try:
        with open(log, errors="replace") as file:
            text = file.read()
    except OSError:
        return []
    lines = text[max(text.rfind(BEGIN), 0) :].splitlines()
    return [line for line in lines if line.strip() and not CHATTER.search(line)]


def last_words(temp: str, daemon: str) -> List[str]:
    """The end of what a daemon wrote itself; ``temp`` is the job's folder on this node."""
    found = []  # type: List[str]
    for kind in ("out", "err"):
        logs = os.path.join(glob.escape(temp), "ray", "session_2*", "logs")
        for path in sorted(glob.glob(os.path.join(logs, "%s.%s" % (daemon, kind)))):
            found = read(path)[-TAIL:] or found
    return found


def how(code: int) -> str:
    """An exit code in words; negative or above 128 is a signal."""
    number = -code if code < 0 else code - 128
    if number <= 0:
        return "exited with code %d" % code
    try:
        return "was ended by signal %d (%s)" % (number, signal.Signals(number).name)
    except ValueError:
        return "exited with code %d" % code
