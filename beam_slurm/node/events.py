"""What happened in an attempt, as JSON lines: the one record that status and --wait read.

The steps have no file of their own to write to: they print their events, srun carries the lines to
the supervisor, and it writes them down.
"""

import contextlib
import json
import os
import sys
import time
from typing import Any, Dict, Optional

MARK = '{"beam-slurm":'
LONGEST = 1000  # bytes of a line that Slurm carries whole


def make(event: str, **facts: Any) -> Dict[str, Any]:
    """An event now: ``{"beam-slurm": name, "time": epoch seconds, ...}``."""
    return {"beam-slurm": event, "time": round(time.time(), 3), **facts}


def record(attempt: str, event: Dict[str, Any]) -> None:
    """Append one event to ``attempt``/events.jsonl; a short line appends in one piece."""
    line = (json.dumps(event) + "\n").encode()
    try:
        # Who else may read it is the umask's to say (site.run_mode).
        handle = os.open(
            os.path.join(attempt, "events.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666
        )
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
    except OSError as problem:  # a full disk is no reason to leave the run alone
        say("an event cannot be written down: %s" % problem.strerror)


def tell(event: Dict[str, Any], voice: int = 1) -> None:
    """Print one event for the supervisor at the other end of srun; ``voice`` is standard output.

    Slurm mixes the parts of longer lines with those of other nodes. So of the ``lines`` of a log
    that an event quotes, only the last are told, as many as fit.
    """
    text = json.dumps(event)
    while len(text) > LONGEST and event.get("lines"):
        event = {**event, "lines": event["lines"][1:]}
        text = json.dumps(event)
    with contextlib.suppress(OSError):  # its host may have died
        os.write(voice, (text + "\n").encode())


def say(text: str) -> None:
    """One line for the people who read the job's log."""
    with contextlib.suppress(OSError):  # a full disk is no reason to leave the run alone
        print("beam-slurm: " + text, file=sys.stderr, flush=True)


def parse(line: str) -> Optional[Dict[str, Any]]:
    """The event in a line of a step's output, as ``make`` has it; None for any other line."""
    if not line.startswith(MARK):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event["beam-slurm"], str) and "time" in event else None


def write_file(path: str, text: str, mode: int = 0o600) -> None:
    """Write a whole small file or none: readers never see half of it.

    With ``mode`` 0o666 the umask says who else may read it (site.run_mode).
    """
    part = "%s.%d.part" % (path, os.getpid())
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
