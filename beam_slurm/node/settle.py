"""The end of an attempt: its outcome.json, and what follows from it."""

import contextlib
import json
import os
import time
from typing import Callable, List, Set

from beam_slurm.node import again, attempts, checkpoint, course, events, notify
from beam_slurm.node.attempts import Outcome
from beam_slurm.node.course import Next, Rules

KILLED = 120.0  # seconds until Slurm must have ended a job that it requeues
ENDED = Next("", "the job was ended meanwhile")


def settle(
    rules: Rules,
    attempt: str,
    outcome: Outcome,
    must_end: Callable[[], bool],
) -> int:
    """Decide what follows, write it down, say it, and do it; the job's exit code.

    Does not return where the script begins again in this job.

    Args:
        rules: what the profile says of going on.
        attempt: its folder.
        outcome: what it came to.
        must_end: whether somebody has asked for the job's end since: then nothing follows.
    """
    # What follows may take long to find out, and Slurm is not patient: the outcome comes first.
    _go_on(outcome, Next("undecided", "what follows is being decided"))
    _write(attempt, outcome)
    following = _follow(rules, attempt, outcome, must_end)
    if must_end() and following.how in ("here", "requeue", "chain"):
        if following.job:
            again.cancel(following.job)
        following = ENDED
    _finish(rules, attempt, outcome, following)
    if following.how == "requeue":
        following = _requeue(rules, following, outcome, must_end)
        if following.how != "requeue":
            _finish(rules, attempt, outcome, following)
    if following.how == "here" and not must_end():
        again.here(rules.script)
    return int(outcome["exit_code"])


def _follow(rules: Rules, attempt: str, outcome: Outcome, must_end: Callable[[], bool]) -> Next:
    """What follows; another job is submitted by then."""
    if outcome.get("slurm"):  # Slurm has started it again already
        return Next("slurm", outcome.pop("slurm"))
    if outcome["state"] in ("succeeded", "cancelled"):
        return Next("", "")
    if must_end():
        return ENDED
    following = _decide(rules, attempt, outcome)
    # A job that has lost a node is not put back whole: until Slurm itself has given the node up it
    # loses count of the GPUs (seen with 22.05).
    lost = following.how == "requeue" and outcome.get("lost")
    if following.how == "chain" or lost:
        chained = ENDED if must_end() else _chain(rules, following, _blamed(rules, outcome))
        return following if lost and not chained.job else chained
    return following


def _decide(rules: Rules, attempt: str, outcome: Outcome) -> Next:
    job = again.own()
    history = [*attempts.history(rules.run, but=attempt), outcome]
    known = again.patiently(job) if rules.again != "local" else {}
    fit = len(set(left(rules, known)) - _blamed(rules, outcome))
    until = course.ends(rules, known, history) - time.time()
    # Near its end a job has no time to wait until a network file system is up to date.
    patience = 0.0 if outcome["class"] in ("time", "preempted") else checkpoint.PATIENCE
    return course.after(rules, history, lambda: mended(rules, patience), fit, until)


def left(rules: Rules, known: again.Fields) -> List[str]:
    """The nodes that the job still has, in its own order."""
    still = again.nodes(known) if known else []
    return [node for node in rules.allocated if node in still] if still else rules.allocated


def mended(rules: Rules, patience: float = checkpoint.PATIENCE) -> checkpoint.Found:
    """What the run can go on from, after what it has left half done is set aside."""
    if not rules.checkpoints:
        return checkpoint.NOTHING
    found, done = checkpoint.mend(rules.framework, rules.checkpoints, patience)
    for line in done:
        events.say(line)
    return found


def _blamed(rules: Rules, outcome: Outcome) -> Set[str]:
    return attempts.blamed(rules.run) | set(outcome["blamed"])


def _chain(rules: Rules, following: Next, blamed: Set[str]) -> Next:
    successor, problem = again.chain(rules.script, blamed, rules.run)
    if successor:
        return following._replace(how="chain", job=successor)
    return Next("", "no other job can be had: " + problem)


def _requeue(rules: Rules, following: Next, outcome: Outcome, must_end: Callable[[], bool]) -> Next:
    """Let Slurm run the job again, and wait for it to end this one."""
    job = again.own()
    blamed = _blamed(rules, outcome)
    problem = again.requeue(job, blamed)
    deadline = time.monotonic() + KILLED
    while not problem:
        if must_end() or again.times(again.fields(job)) > again.restarts():
            return following
        if time.monotonic() > deadline:
            problem = "it has not ended it"
        time.sleep(1)
    if must_end():
        return ENDED
    events.say("Slurm does not requeue this job: %s" % problem)
    return _chain(rules, following._replace(why="Slurm does not requeue jobs here"), blamed)


def _go_on(outcome: Outcome, following: Next) -> None:
    outcome.update({"next": None, "stopped": ""})
    if following.how:
        outcome["next"] = {
            "how": following.how,
            "why": following.why,
            "job": following.job,
            "resumes": following.resumes,
        }
    else:
        outcome["stopped"] = following.why


def _finish(rules: Rules, attempt: str, outcome: Outcome, following: Next) -> None:
    _go_on(outcome, following)
    _write(attempt, outcome)
    with contextlib.suppress(OSError):
        os.unlink(attempts.token(attempt))
    events.record(attempt, events.make("ended", code=outcome["exit_code"]))
    line = last_line(outcome, attempts.number(attempt))
    events.say(line)
    well = outcome["state"] in ("succeeded", "cancelled")
    event = "restart" if following.how else "end" if well else "failure"
    notify.tell(rules.hook, attempt, event, line, outcome, last=following.how != "here")


def _write(attempt: str, outcome: Outcome) -> None:
    text = json.dumps(outcome, indent=1) + "\n"
    try:
        events.write_file(os.path.join(attempt, "outcome.json"), text, 0o666)
    except OSError as problem:  # a full disk must not keep the run from going on
        events.say("outcome.json cannot be written: %s" % problem.strerror)


def last_line(outcome: Outcome, number: int) -> str:
    """One line: what came of it, where and why, and what happens now or is to be done.

    As far as the outcome says: one that another process has left may say less, or nothing.
    """
    state, kind = outcome.get("state"), outcome.get("class")
    text = "%s%s: %s (exit code %s)" % (
        state,
        " (%s)" % kind if kind and kind != state else "",
        outcome.get("cause"),
        outcome.get("exit_code"),
    )
    following = outcome.get("next")
    if following:
        how = {
            "here": "goes on in this job",
            "requeue": "goes on when Slurm runs the job again",
            "slurm": "goes on when Slurm runs the job again",
            "chain": "goes on in job %s" % following.get("job"),
        }
        way = how.get(following.get("how"), "may go on")
        return "%s; %s, as attempt %d: %s" % (text, way, number + 1, following.get("why"))
    stopped, do = outcome.get("stopped"), outcome.get("do")
    return "".join(
        [text, "; it does not go on: " + stopped if stopped else "", "; do: " + do if do else ""]
    )
