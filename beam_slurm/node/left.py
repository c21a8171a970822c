"""Verb ``left``: how long a framework may train that is told so at its start.

NeMo RL counts from its first step (checkpointing.checkpoint_must_save_by, "DD:HH:MM:SS"), so what
it needs until then is left out, and the lead too, in which it saves.
"""

import argparse
import time
from typing import Dict, List

from beam_slurm.node import again, attempts, course

LONGEST = 99 * 24 * 3600  # seconds: it has no end that anybody knows


def main(argv: List[str]) -> int:
    """Print the time."""
    parser = argparse.ArgumentParser(prog="node.pyz left")
    course.options(parser)
    rules = course.rules(parser.parse_args(argv))
    known = again.patiently(again.own()) if rules.again != "local" else {}
    left = course.ends(rules, known, attempts.history(rules.run)) - time.time()
    startup = max([rules.startup, *map(startup_of, attempts.folders(rules.run))])
    print(spelled(max(min(left - rules.lead - startup, LONGEST), 0)))
    return 0


def startup_of(attempt: str) -> float:
    """Seconds that an attempt has taken from its entry's start to its first step, 0 if unknown."""
    first: Dict[str, float] = {}
    for event in attempts.told(attempt):
        first.setdefault(event["beam-slurm"], event["time"])
    return (
        max(first.get("step", 0.0) - first["entry-started"], 0) if "entry-started" in first else 0
    )


def spelled(seconds: float) -> str:
    """Seconds as DD:HH:MM:SS."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return "%02d:%02d:%02d:%02d" % (days, hours, minutes, rest)
