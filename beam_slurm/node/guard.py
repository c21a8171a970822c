"""Verb ``guard``: on the last node, see that the first one lives, with the supervisor on it.

With --no-kill Slurm leaves a job running whose batch script is gone with its host: all other nodes
would idle until the time limit. Whoever guards gives the job back then.
"""

import argparse
import json
import os
import time
from typing import Any, Dict, List

from beam_slurm.node import again, attempts, course, followers, notify, pulse, settle
from beam_slurm.node.attempts import Outcome

LOST = 15  # rounds without an answer: a minute, for nobody is in a hurry any more


def main(argv: List[str]) -> int:
    """Watch until the attempt is over, or its first node is gone."""
    parser = argparse.ArgumentParser(prog="node.pyz guard")
    course.options(parser)
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--batch", required=True, help="the first node's name")
    args = parser.parse_args(argv)
    with open(os.path.join(args.attempt, "address.json")) as file:
        known = json.load(file)
    if args.batch not in known["addresses"]:  # it is not fit to run, and its address not known
        return 0
    where = (known["addresses"][args.batch], known["gcs"])
    missed = -1  # it has not answered yet
    while not _settled(attempts.outcome(args.attempt)):
        began = time.monotonic()
        if pulse.ask({args.batch: where}, pulse.EVERY)[args.batch]:
            missed = 0
        elif missed >= 0:
            missed += 1
        if missed >= LOST:
            return _give_back(course.rules(args), args.attempt, args.batch)
        time.sleep(max(0.0, pulse.EVERY - (time.monotonic() - began)))
    return 0


def _settled(outcome: Outcome) -> bool:
    """Whether the attempt is over, and what follows is decided: until then its host may still die
    with the decision."""
    following = outcome.get("next") or {}
    return bool(outcome) and following.get("how") != "undecided"


def _give_back(rules: course.Rules, attempt: str, lost: str) -> int:
    """Another job takes this one's place, or Slurm runs it again; a run that is over just ends."""
    job = again.own()
    past = attempts.outcome(attempt)
    if past.get("state") in ("succeeded", "cancelled"):
        attempts.write_off(attempt, **{**past, "next": None})
        if past["state"] == "succeeded":  # Slurm will not call a cancelled job that
            for follower in followers.read(rules.run):
                again.release(follower.job)
        again.cancel(job)
        return 1
    blamed = attempts.blamed(rules.run) | {lost}
    others = again.jobs_of(rules.run) if past else []  # it may have come so far
    if others:  # but perhaps no further: see again.chain
        successor = others[0]
        again.bring_along(rules.run, successor)
    else:
        successor = again.chain(rules.script, blamed, rules.run)[0]
    how = "chain" if successor else "requeue"
    told: Dict[str, Any] = {
        "node": lost,
        "cause": "%s: it has not answered for %.0f s, and the batch script was there"
        % (lost, LOST * pulse.EVERY),
        "ended": round(time.time(), 3),
        "lost": [lost],
        "blamed": [],
        **past,
    }
    told["blamed"] = sorted({*told["blamed"], lost})
    told["next"] = {
        "how": how,
        "why": "its first node is lost",
        "job": successor or None,
        "resumes": None,
    }
    try:
        attempts.write_off(attempt, **told)
        outcome = attempts.outcome(attempt)
        line = settle.last_line(outcome, attempts.number(attempt))
        notify.tell(rules.hook, attempt, "restart", line, outcome, last=True)
    finally:  # it ends this process too; nobody else would give the nodes back
        if successor:
            again.cancel(job)
        else:
            again.requeue(job, blamed)
    return 1
