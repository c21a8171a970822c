"""The end of an attempt: its outcome.json, and what follows from it."""

import contextlib
import json
import os
import time
from typing import Callable, List, Optional, Set

from beam_slurm.node import again, attempts, checkpoint, course, events
from beam_slurm.node.attempts import Outcome
from beam_slurm.node.course import Next, Rules

KILLED = 120.0  # seconds until Slurm must have ended a job that it requeues


def settle(
    rules: Rules, attempt: str, outcome: Outcome, must_end: Callable[[], bool] = lambda: False
) -> int:
    """Decide what follows, write it down, say it, and do it; the job's exit code.

    Does not return where the script begins again in this job. ``must_end`` says whether somebody
    has asked for the job's end meanwhile: then nothing follows.
    """
    run, script, job = rules.run, rules.script, os.environ["SLURM_JOB_ID"]
    history = [*attempts.history(run), outcome]
    blamed = attempts.blamed(run) | set(outcome["blamed"])
    if outcome.get("slurm"):  # Slurm has started it again already
        following = Next("slurm", outcome.pop("slurm"))
    elif must_end():
        following = Next("", "the job was ended meanwhile")
    else:
        following = _decide(rules, history, len(set(rules.allocated) - blamed), job)
    if following.how == "chain":
        successor, problem = again.chain(script, blamed, run)
        following = following if successor else Next("", "no other job can be had: " + problem)
        _go_on(outcome, following, successor or None)
    else:
        _go_on(outcome, following, None)
    if following.how in ("here", "requeue") and must_end():
        _go_on(outcome, Next("", "the job was ended meanwhile"), None)
        following = Next("", "")
    _finish(attempt, outcome)
    if following.how == "requeue":
        problem = again.requeue(job, blamed)
        if not problem:
            time.sleep(KILLED)
        _instead_of_requeue(attempt, outcome, problem, script, blamed)
    if following.how == "here":
        again.here(script)
    return int(outcome["exit_code"])


def _decide(rules: Rules, history: List[Outcome], fit: int, job: str) -> Next:
    if history[-1]["state"] in ("succeeded", "cancelled"):
        return Next("", "")
    left = course.ends(rules, job, history) - time.time()
    return course.after(rules, history, mended(rules), fit, left)


def mended(rules: Rules) -> checkpoint.Found:
    """What the run can go on from, after what it has left half done is set aside."""
    if not rules.checkpoints:
        return checkpoint.NOTHING
    found, done = checkpoint.mend(rules.framework, rules.checkpoints)
    for line in done:
        events.say(line)
    return found


def _go_on(outcome: Outcome, following: Next, successor: Optional[str]) -> None:
    outcome.update({"next": None, "stopped": ""})
    if following.how:
        outcome["next"] = {"how": following.how, "why": following.why, "job": successor}
    else:
        outcome["stopped"] = following.why


def _instead_of_requeue(
    attempt: str, outcome: Outcome, problem: str, script: str, blamed: Set[str]
) -> None:
    """Slurm does not run this job again: then another one does, where the site allows that."""
    run = os.path.dirname(attempt)
    events.say("Slurm does not requeue this job: %s" % (problem or "it did not end it"))
    successor, why = again.chain(script, blamed, run)
    _go_on(
        outcome,
        Next("chain", "Slurm does not requeue jobs here")
        if successor
        else Next("", "Slurm neither requeues this job nor takes another: " + why),
        successor or None,
    )
    _finish(attempt, outcome)


def _finish(attempt: str, outcome: Outcome) -> None:
    text = json.dumps(outcome, indent=1) + "\n"
    events.write_file(os.path.join(attempt, "outcome.json"), text, 0o666)
    with contextlib.suppress(OSError):
        os.unlink(token(attempt))
    events.record(attempt, events.make("ended", code=outcome["exit_code"]))
    events.say(last_line(outcome, attempts.number(attempt)))


def token(attempt: str) -> str:
    """Where an attempt's Ray token lies: in a folder that is nobody else's to list."""
    run, name = os.path.split(attempt)
    return os.path.join(run, "private", name + ".token")


def last_line(outcome: Outcome, number: int) -> str:
    """One line: what came of it, where and why, and what happens now or is to be done."""
    kind = " (%s)" % outcome["class"] if outcome["class"] else ""
    text = "%s%s: %s (exit code %d)" % (
        outcome["state"],
        kind,
        outcome["cause"],
        outcome["exit_code"],
    )
    following = outcome["next"]
    if following:
        how = {
            "here": "goes on in this job",
            "requeue": "goes on when Slurm runs the job again",
            "slurm": "goes on when Slurm runs the job again",
            "chain": "goes on in job %s" % following["job"],
        }
        return "%s; %s, as attempt %d: %s" % (
            text,
            how[following["how"]],
            number + 1,
            following["why"],
        )
    stopped = "; it does not go on: " + outcome["stopped"] if outcome["stopped"] else ""
    return text + stopped + ("; do: " + outcome["do"] if outcome["do"] else "")
