"""Verb ``left``: how long a framework may train that is told so at its start.

NeMo RL counts from its first step (checkpointing.checkpoint_must_save_by, "DD:HH:MM:SS"), so what
it needs until then is left out, and the lead too, in which it saves.
"""

import argparse
import os
import time
from typing import List

from beam_slurm.node import attempts, course

LONGEST = 99 * 24 * 3600  # seconds: it has no end that anybody knows


def main(argv: List[str]) -> int:
    """Print the time."""
    parser = argparse.ArgumentParser(prog="node.pyz left")
    course.options(parser)
    rules = course.rules(parser.parse_args(argv))
    left = course.ends(rules, os.environ["SLURM_JOB_ID"], attempts.history(rules.run)) - time.time()
    print(spelled(max(min(left - rules.lead - rules.startup, LONGEST), 0)))
    return 0


def spelled(seconds: float) -> str:
    """Seconds as DD:HH:MM:SS."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return "%02d:%02d:%02d:%02d" % (days, hours, minutes, rest)
