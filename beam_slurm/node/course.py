"""Whether a run goes on after an attempt, and how."""

import argparse
import time
from typing import List, NamedTuple

from beam_slurm.node import again
from beam_slurm.node.attempts import Outcome
from beam_slurm.node.checkpoint import Found

# The entry would come to the same end again if it got there before its first step.
REPEATS = ("framework", "oom", "container")


# How the run gets another job: Slurm runs this one again, or it submits the next one; or it gets
# none; local: there are no jobs here, and this process is all there is.
AGAIN = ("requeue", "chain", "none", "local")


class Rules(NamedTuple):
    """What the profile says of going on.

    Attributes:
        run: the run folder.
        script: what another attempt begins with.
        allocated: all nodes of the job.
        framework: whose checkpoint layout it is.
        steps: training steps of the whole run.
        every: steps between two checkpoints, 0 if none are saved.
        checkpoints: where they lie, as the hosts see it; "" if none are saved.
        max_restarts: how many failures are followed by another attempt.
        again: how the run gets another job, one of AGAIN.
        total: seconds that all attempts together may run; 0 is one job's time limit.
        lead: seconds before the end at which the framework is asked to save.
        startup: seconds from the entry's start to its first step, as expected.
        nodes: how many nodes train.
    """

    run: str
    script: str
    allocated: List[str]
    framework: str
    steps: int
    every: int
    checkpoints: str
    max_restarts: int
    again: str
    total: float
    lead: float
    startup: float
    nodes: int


class Next(NamedTuple):
    """What becomes of the run: ``how`` is here, requeue, chain, or "" for its end."""

    how: str
    why: str


def options(parser: argparse.ArgumentParser) -> None:
    """The words by which a script tells its rules; the same for all verbs."""
    parser.add_argument("--run", required=True)
    parser.add_argument("--script", required=True, help="what another attempt begins with")
    parser.add_argument("--allocated", required=True, help="all nodes of the job: a,b,c")
    parser.add_argument("--nodes", type=int, required=True, help="how many of them train")
    parser.add_argument("--framework", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--checkpoints", default="")
    parser.add_argument("--max-restarts", type=int, default=0)
    parser.add_argument("--again", choices=AGAIN, default="none")
    parser.add_argument("--total-time", type=float, default=0, help="seconds")
    parser.add_argument("--lead", type=float, default=0, help="seconds")
    parser.add_argument("--startup", type=float, default=0, help="seconds")


def rules(args: argparse.Namespace) -> Rules:
    """The rules of a command line with ``options``."""
    return Rules(
        run=args.run,
        script=args.script,
        allocated=args.allocated.split(","),
        framework=args.framework,
        steps=args.steps,
        every=args.save_every,
        checkpoints=args.checkpoints,
        max_restarts=args.max_restarts,
        again=args.again,
        total=args.total_time,
        lead=args.lead,
        startup=args.startup,
        nodes=args.nodes,
    )


def after(given: Rules, history: List[Outcome], found: Found, fit: int, left: float) -> Next:
    """What follows the last attempt of ``history``.

    Args:
        given: the profile's rules.
        history: outcomes, oldest first; the last one has no ``next`` yet.
        found: the newest checkpoint.
        fit: nodes of this job that may be used again.
        left: seconds that the job may still run.
    """
    last = history[-1]
    if last["state"] in ("succeeded", "cancelled"):
        return Next("", "")
    if last["class"] == "config":
        return Next("", "it would fail again: see its cause")
    remaining = given.total - used(history)
    if last["class"] == "time" and (given.total <= 0 or remaining <= given.lead + given.startup):
        return Next("", "its time is used up; submit it again with --resume and the same output")
    why = _in_vain(given, history) or unproven(given, history, found)
    if why:
        return Next("", why)
    return _where(given, last, fit, left)


def ends(given: Rules, job: str, history: List[Outcome]) -> float:
    """When this attempt must be over, in epoch seconds; infinite where nobody knows."""
    end = float("inf")
    if given.again != "local":
        end = again.end_of(again.fields(job)) or end
    if given.total:
        end = min(end, time.time() + given.total - used(history))
    return end


def used(history: List[Outcome]) -> float:
    """Seconds that the attempts have run."""
    return float(sum(past["ended"] - past["began"] for past in history))


def done(history: List[Outcome]) -> int:
    """The furthest step that any attempt has done."""
    return max((past["steps"]["last"] or 0 for past in history), default=0)


def unproven(given: Rules, history: List[Outcome], found: Found) -> str:
    """Why another attempt would lose what the run has done; "" if it would not."""
    steps = done(history)
    if found.step is not None:
        return ""
    if found.newest is not None:
        return "there is no whole checkpoint: " + "; ".join(found.problems)
    if steps and not given.every:
        return "it has done %d steps and saves no checkpoints: it would begin anew" % steps
    if steps > given.every:
        return "it has done %d steps, and there is no checkpoint in %s" % (steps, given.checkpoints)
    return ""


def _in_vain(given: Rules, history: List[Outcome]) -> str:
    """Why another attempt would be none the better for it; "" if it may be."""
    last = history[-1]
    idle = 0
    for index in range(len(history) - 1, -1, -1):
        if history[index]["class"] == "preempted":
            continue
        if (history[index]["steps"]["last"] or 0) > done(history[:index]):
            break
        idle += 1
    if idle >= 2:
        return "two attempts have brought no new step"
    failures = sum(past["class"] not in ("time", "preempted") for past in history)
    if failures > given.max_restarts:
        return "%d restarts are all that job.max_restarts allows" % given.max_restarts
    before = last["component"] == "entry" and last["steps"]["last"] is None
    if before and last["class"] in REPEATS:
        return "the entry failed before its first step: it would fail again"
    return ""


def _where(given: Rules, last: Outcome, fit: int, left: float) -> Next:
    enough = fit >= given.nodes
    if last["class"] not in ("time", "preempted") and enough and left > given.lead + given.startup:
        return Next("here", "%d fit nodes are left in this job" % fit)
    if given.again in ("none", "local"):
        return Next("", "it cannot get another job by itself here")
    if last["class"] in ("time", "preempted"):
        why = "its job is over, not its time"
    elif not enough:
        why = "%d of %d nodes are fit in this job, %d are needed" % (
            fit,
            max(fit + len(last["blamed"]), fit),
            given.nodes,
        )
    else:
        why = "this job ends in %.0f min" % (left / 60)
    return Next(given.again, why)
