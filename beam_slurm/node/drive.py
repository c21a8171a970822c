"""Verb ``drive``: wait until Ray is exactly the nodes and GPUs asked for, then run the entry.

Runs on the head, in the container, as an overlapping step. Its exit code is the entry's.
"""

import argparse
import os
import signal
import subprocess
import time
from types import FrameType
from typing import Dict, List, Optional, Sequence

from beam_slurm.node import dashboard, events, gcs, processes

NOT_UP = 69  # EX_UNAVAILABLE: Ray never became what the job needs

PATIENCE = 8  # seconds that the entry gets to end by itself once it was told to
GRACE = 5.0  # the same for what it leaves running


class NotUp(Exception):
    """Ray is not what was asked for; ``missing`` are the nodes that are not there."""

    def __init__(self, why: str, missing: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.missing = list(missing)


def main(argv: List[str]) -> int:
    """Gate, then entry."""
    parser = argparse.ArgumentParser(prog="node.pyz drive")
    parser.add_argument("--nodes", required=True, help="all nodes of the job: a,b,c")
    parser.add_argument("--gpus", type=int, required=True, help="GPUs of all nodes together")
    parser.add_argument("--deadline", type=float, required=True, help="seconds until Ray is up")
    parser.add_argument("--dashboard", action="store_true", help="wait for Ray's dashboard too")
    parser.add_argument("--withhold", action="append", default=[], help="a variable's name")
    parser.add_argument("entry", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    entry = args.entry[1:] if args.entry[:1] == ["--"] else args.entry
    # As it is before Ray, which the gate imports, adds to it.
    environment = {k: v for k, v in os.environ.items() if k not in args.withhold}
    early = []  # type: List[int]  # warnings that came before there was an entry to hear them
    signal.signal(signal.SIGUSR1, lambda number, frame: early.append(number))
    processes.adopt_orphans()
    processes.raise_limits()
    try:
        gate(args.nodes.split(","), args.gpus, args.deadline)
        if args.dashboard:
            dashboard.wait(args.deadline)
    except (NotUp, dashboard.Silent) as problem:
        missing = problem.missing if isinstance(problem, NotUp) else []
        events.tell(events.make("gate-failed", why=str(problem), missing=missing))
        events.say(str(problem))
        return NOT_UP
    return run(entry, environment, early)


def gate(nodes: List[str], gpus: int, seconds: float) -> None:
    """Return when exactly ``nodes`` are alive in Ray and have ``gpus`` GPUs together.

    Raises:
        NotUp: after ``seconds``, naming who is missing; at once if there are more than asked.
    """
    deadline = time.monotonic() + seconds
    began = time.time()
    try:
        client = gcs.connect(seconds)
    except gcs.NoRay as problem:
        raise NotUp(str(problem)) from None
    joined = {}  # type: Dict[str, float]
    why = "Ray's head does not answer"
    while True:
        try:
            alive = gcs.alive(client)
        except Exception as error:  # the head may still be starting: the deadline decides
            why = "asking Ray for its nodes failed: %s: %s" % (type(error).__name__, error)
        else:
            for name in sorted(set(alive) - set(joined)):
                events.tell(events.make("node-up", node=name))
            joined = alive
            why = difference(nodes, gpus, joined)
            if not why:
                since = round(began, 3)
                events.tell(events.make("ray-up", nodes=len(nodes), gpus=gpus, since=since))
                events.say(
                    "Ray is up: %d node%s, %d GPU%s, %.1f s after this step began"
                    % (
                        *(len(nodes), "s" * (len(nodes) != 1)),
                        *(gpus, "s" * (gpus != 1)),
                        time.time() - began,
                    )
                )
                return
        if time.monotonic() > deadline:
            missing = [name for name in nodes if name not in joined]
            raise NotUp("%s (waited %.0f s)" % (why, seconds), missing)
        time.sleep(0.1)


def run(entry: List[str], environment: Dict[str, str], early: Sequence[int] = ()) -> int:
    """Run the entry as a child, pass signals on, and return its code as a shell would.

    ``early`` are signals that came before: it gets them at once.
    """
    try:
        child = subprocess.Popen(entry, env=environment, stdin=subprocess.DEVNULL)
    except OSError as problem:
        why = "cannot start %s: %s" % (entry[0], problem.strerror)
        events.tell(events.make("entry-failed", why=why))
        return 127

    def forward(number: int, frame: Optional[FrameType]) -> None:
        child.send_signal(number)
        if number != signal.SIGUSR1:
            signal.alarm(PATIENCE)

    def overdue(number: int, frame: Optional[FrameType]) -> None:
        child.kill()  # it hangs, or is stopped: then it does not even hear

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, forward)
    signal.signal(signal.SIGALRM, overdue)
    for warning in early:
        child.send_signal(warning)
    events.tell(events.make("entry-started", pid=child.pid))
    code = child.wait()
    code = 128 - code if code < 0 else code
    os.write(1, b"\n")  # the entry's last line may have no end
    events.tell(events.make("entry-ended", code=code))
    processes.end_all(GRACE)
    return code


def difference(nodes: List[str], gpus: int, joined: Dict[str, float]) -> str:
    """What is between Ray and what was asked for, "" if nothing."""
    extra = sorted(set(joined) - set(nodes))
    if extra:
        raise NotUp("Ray has nodes that are not this job's: " + ", ".join(extra))
    missing = [name for name in nodes if name not in joined]
    if missing:
        return "%d of %d nodes joined Ray, missing: %s" % (
            len(joined),
            len(nodes),
            ", ".join(missing),
        )
    total = sum(joined.values())
    if total != gpus:
        each = ", ".join("%s %g" % pair for pair in sorted(joined.items()))
        raise NotUp("Ray has %g GPUs, the job %d: %s" % (total, gpus, each))
    return ""
