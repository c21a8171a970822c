"""Whether a run goes on after an attempt, and how."""

import argparse
import time
from typing import Callable, List, NamedTuple, Optional

from beam_slurm.node import again, notify
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
        hook: who is told.
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
    hook: notify.Hook = notify.Hook()


class Next(NamedTuple):
    """What becomes of the run.

    Attributes:
        how: here, requeue, chain; slurm: it was requeued already; "": it has ended.
        why: in one line.
        job: the other job, if one was submitted.
        resumes: the step that it goes on after, None from the first one on.
    """

    how: str
    why: str
    job: Optional[str] = None
    resumes: Optional[int] = None


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
    notify.options(parser)


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
        hook=notify.hook(args),
    )


def after(
    given: Rules, history: List[Outcome], look: Callable[[], Found], fit: int, left: float
) -> Next:
    """What follows the last attempt of ``history``, which has failed.

    Args:
        given: the profile's rules.
        history: outcomes, oldest first; the last one has no ``next`` yet.
        look: finds the newest checkpoint, and sets aside what is broken; called if it matters.
        fit: nodes of this job that may be used again.
        left: seconds that the job may still run.
    """
    last = history[-1]
    if last["class"] == "config":
        return Next("", "it would fail again: see its cause")
    alike = last["component"] == "preflight" and last["class"] != "node" and not last["blamed"]
    if alike and not any(past["entered"] for past in history):
        return Next("", "its nodes are alike in it, so it is a setting or the storage")
    if _used_up(given, history):
        return Next("", "its time is used up")
    why = in_vain(given, history)
    if why:
        return Next("", why)
    found = look()
    why = unproven(given, history, found)
    if why:
        return Next("", why)
    return _where(given, last, fit, left)._replace(resumes=found.step)


def ends(given: Rules, known: again.Fields, history: List[Outcome]) -> float:
    """When this attempt must be over, in epoch seconds; infinite where nobody knows.

    Args:
        given: the profile's rules.
        known: what the controller says of the job.
        history: the outcomes of earlier attempts.
    """
    end = again.end_of(known) or float("inf")
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


def _used_up(given: Rules, history: List[Outcome]) -> bool:
    """Whether there is no time left that would be worth another bring-up."""
    if not given.total:
        return bool(history[-1]["class"] == "time")
    return given.total - used(history) <= given.lead + given.startup


def in_vain(given: Rules, history: List[Outcome]) -> str:
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
        return "job.max_restarts is %d" % given.max_restarts
    before = last["component"] == "entry" and last["steps"]["last"] is None
    if before and last["class"] in REPEATS:
        return "the entry failed before its first step: it would fail again"
    return ""


def _where(given: Rules, last: Outcome, fit: int, left: float) -> Next:
    enough = fit >= given.nodes
    over = last["class"] in ("time", "preempted")
    # A preflight is not the batch script's own process: it cannot become the script again.
    before = last["component"] == "preflight"
    if enough and not over and not before and left > given.lead + given.startup:
        return Next("here", "%d of its nodes are fit, %d are needed" % (fit, given.nodes))
    if given.again in ("none", "local"):
        return Next("", "it cannot get another job by itself here")
    if over:
        return Next(given.again, "its job is over, not its time")
    if not enough:
        why = "%d of %d nodes are fit, %d are needed" % (fit, len(given.allocated), given.nodes)
        return Next(given.again, why)
    if before:
        return Next(given.again, "no node was found to be the cause")
    return Next(given.again, "this job ends in %.0f min" % (left / 60))
