"""The attempts of a run: numbered over all its jobs, each in a folder of its own.

What a later attempt must know of the earlier ones is in their outcome.json: how far they came, how
they ended, and which nodes are not to be used again.
"""

import contextlib
import json
import os
import re
import time
from typing import Any, Dict, List, Set

from beam_slurm.node import events

FOLDER = re.compile(r"attempt-(\d+)")
PARDON = 24 * 3600.0  # seconds

Outcome = Dict[str, Any]


def begin(run: str) -> str:
    """Make the next attempt's folder; its path.

    An attempt before it that has left no outcome gets one: nobody was there any more to write it.
    """
    for folder in folders(run):
        if not outcome(folder):
            write_off(folder)
    while True:
        folder = os.path.join(run, "attempt-%d" % (1 + max(map(number, folders(run)), default=-1)))
        try:
            os.mkdir(folder)
        except FileExistsError:  # two jobs of one run, by somebody's hand
            continue
        os.mkdir(os.path.join(folder, "ray"))
        return folder


def token(attempt: str) -> str:
    """Where an attempt's Ray token lies: in a folder that is nobody else's to list."""
    run, name = os.path.split(attempt)
    return os.path.join(run, "private", name + ".token")


def number(attempt: str) -> int:
    """An attempt's number, by its folder."""
    match = FOLDER.fullmatch(os.path.basename(attempt))
    assert match is not None
    return int(match.group(1))


def folders(run: str) -> List[str]:
    """The attempts' folders, oldest first."""
    found = [name for name in os.listdir(run) if FOLDER.fullmatch(name)]
    return [os.path.join(run, name) for name in sorted(found, key=lambda name: int(name[8:]))]


def names_before(attempt: str) -> List[str]:
    """What earlier attempts of this run are called on the nodes: JOB-ATTEMPT, as in their paths."""
    earlier = [folder for folder in folders(os.path.dirname(attempt)) if folder != attempt]
    return ["%s-%d" % (outcome(folder).get("job"), number(folder)) for folder in earlier]


def history(run: str, but: str = "") -> List[Outcome]:
    """The outcomes of all attempts that are over, oldest first; not of the attempt ``but``."""
    found = [outcome(folder) for folder in folders(run) if folder != but]
    return [past for past in found if past]


def outcome(attempt: str) -> Outcome:
    """An attempt's outcome.json; {} while there is none."""
    try:
        with open(os.path.join(attempt, "outcome.json")) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def blamed(run: str) -> Set[str]:
    """Nodes that this run does not use again: for a day, since somebody may mend them."""
    recent = [past for past in history(run) if past["ended"] > time.time() - PARDON]
    return {node for past in recent for node in past["blamed"]}


def found_unfit(attempt: str) -> List[str]:
    """Nodes that this attempt's own preflight has found unfit and blames for it."""
    return [event["node"] for event in told(attempt) if event["beam-slurm"] == "blamed"]


def told(attempt: str) -> List[Dict[str, Any]]:
    """An attempt's events, oldest first."""
    try:
        with open(os.path.join(attempt, "events.jsonl"), errors="replace") as file:
            found = [events.parse(line) for line in file]
    except OSError:
        return []
    return [event for event in found if event]


def write_off(attempt: str, **known: Any) -> None:
    """Write the outcome of an attempt that has not left one itself; ``known`` of it, or a guess."""
    with contextlib.suppress(OSError):
        os.unlink(token(attempt))
    said = told(attempt)
    times = [event["time"] for event in said] or [os.stat(attempt).st_mtime]
    steps = [event["step"] for event in said if event["beam-slurm"] == "step"]
    kinds = {event["beam-slurm"]: event for event in said}
    began = kinds.get("batch-started", {})
    lost = {
        "state": "failed",
        "class": "node",
        "component": "slurm",
        "node": None,
        "exit_code": 69,
        "cause": "it ended without a word: its first node was lost, or Slurm ended the job at once",
        "do": "",
        "log": None,
        "lines": [],
        "began": times[0],
        "ended": times[-1],
        "job": began.get("job"),
        "task": began.get("task"),
        "restart": began.get("restart", 0),
        "nodes": began.get("nodes", []),
        "entered": "entry-started" in kinds,
        "steps": {"first": min(steps, default=None), "last": max(steps, default=None)},
        "lost": [],
        "blamed": found_unfit(attempt),
        "next": {
            "how": "slurm",
            "why": "Slurm has started the job again",
            "job": None,
            "resumes": None,
        },
        "stopped": "",
    }
    text = json.dumps({**lost, **known}, indent=1) + "\n"
    events.write_file(os.path.join(attempt, "outcome.json"), text, 0o666)
