"""What an attempt came to: who failed first, where and why, and the job's exit code."""

import signal
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from beam_slurm.node import again, attempts, diagnose
from beam_slurm.node.drive import NOT_UP
from beam_slurm.node.raylog import how

if TYPE_CHECKING:
    from beam_slurm.node.supervise import Supervisor

CANCELLED = 128 + signal.SIGTERM
BY_WARNING = 128 + signal.SIGUSR1  # it does not know the signal yet
UNFINISHED = 70  # EX_SOFTWARE: it says that all is well, and it is not done
OUT_OF_TIME = 75  # EX_TEMPFAIL: it could go on
TAIL = 20  # lines of a log that are worth a place in an outcome

# Slurm's own words on why it ends a job, and ours.
BY_SLURM = {
    "TIME LIMIT": "time",
    "PREEMPTION": "preempted",
    "JOB REQUEUE": "requeued",
    "NODE FAILURE": "node",
}


def of(attempt: "Supervisor") -> Dict[str, Any]:
    """The outcome of an attempt that is over, as outcome.json has it; what follows is missing."""
    steps, progress = attempt.steps, attempt.progress
    code = shell_code(steps.driver.returncode)
    found = {
        **of_nothing(attempt.began, attempt.job, attempt.restart),
        "component": "entry",
        "exit_code": code,
        "nodes": attempt.nodes,
        "entered": "entry-started" in attempt.said,
        "steps": {"first": progress.first, "last": progress.last},
    }
    by_slurm = _by_slurm(attempt, code)
    by_itself = attempt.first == "driver"
    if by_itself and code == 0 and (attempt.complete() or progress.last is None):
        if progress.last is None and attempt.stopping.began:
            found.update(_out_of_time(attempt))
        else:
            found.update(state="succeeded", cause="the entry finished")
    elif by_slurm:
        found.update(by_slurm)
    elif attempt.stopping.done or (by_itself and _early(attempt, code)):
        found.update(_out_of_time(attempt))
    else:
        found.update(_failed(attempt, code))
    found["lost"] = sorted(attempt.steps.lost)
    found["blamed"] = [*attempts.found_unfit(attempt.attempt), *_blamed(attempt, found)]
    found["lines"] = [_masked(attempt, line) for line in found["lines"][-TAIL:]]
    found["cause"] = _masked(attempt, found["cause"])
    return found


def of_bug(attempt: "Supervisor", problem: Exception) -> Dict[str, Any]:
    """The outcome where we have failed ourselves."""
    return {
        **of_nothing(attempt.began, attempt.job, attempt.restart),
        "class": "storage" if isinstance(problem, OSError) else "framework",
        "component": "slurm",
        "exit_code": NOT_UP,
        "cause": "beam-slurm itself failed: %s: %s" % (type(problem).__name__, problem),
        "do": "see the traceback in the log; it is a bug unless the storage is full or gone",
        "nodes": attempt.nodes,
        "entered": True,
        "steps": {"first": attempt.progress.first, "last": attempt.progress.last},
    }


def of_nothing(began: float, job: str, restart: int) -> Dict[str, Any]:
    """What every outcome has."""
    return {
        "state": "failed",
        "class": "",
        "component": "preflight",
        "node": None,
        "exit_code": 1,
        "cause": "",
        "do": "",
        "log": None,
        "lines": [],
        "began": round(began, 3),
        "ended": round(time.time(), 3),
        "job": job,
        "task": again.task(),
        "restart": restart,
        "nodes": [],
        "entered": False,
        "steps": {"first": None, "last": None},
        "lost": [],
        "blamed": [],
    }


def shell_code(code: Optional[int]) -> int:
    """A process's return code as a shell says it; of one that could not be ended, SIGKILL's."""
    if code is None:
        return 128 + signal.SIGKILL
    return 128 - code if code < 0 else code


def _by_slurm(attempt: "Supervisor", code: int) -> Dict[str, Any]:
    """What Slurm ended it for; {} if it did not."""
    steps = attempt.steps
    # In a preemption's grace time only the steps get SIGTERM, and Slurm says no more than that.
    ended = attempt.cancelled or (
        not attempt.stuck
        and not attempt.stopping.done
        and (steps.failure is None or steps.guessed)
        and (attempt.first == "ray" or code == CANCELLED)
    )
    known = attempt.known() if ended else {}
    word = BY_SLURM.get(steps.by_slurm, "") if ended else ""
    word = word or reason(known, attempt.restart, attempt.began)
    if not word and attempt.cancelled and time.time() > attempt.ends - 5:
        word = "time"
    if attempt.preempted and (ended or attempt.stopping.done or _early(attempt, code)):
        word = "preempted"
    if word == "time":
        return _out_of_time(attempt)
    if word == "node":
        return _node_failure(known, attempt)
    if word in ("preempted", "requeued"):
        return taken(word, known, attempt.restart)
    return cancelled() if attempt.cancelled else {}


def reason(known: again.Fields, restart: int, began: float) -> str:
    """Why Slurm ends the job, by what the controller says: requeued, preempted, or ""."""
    if again.times(known) > restart:
        return "requeued"
    return "preempted" if again.preempted(known, began) else ""


def _node_failure(known: again.Fields, attempt: "Supervisor") -> Dict[str, Any]:
    """The outcome where Slurm ends the job for a node, before we have noticed."""
    by_itself = again.times(known) > attempt.restart or attempt.rules.again == "requeue"
    return {
        "class": "node",
        "component": "slurm",
        "exit_code": NOT_UP,
        "cause": "Slurm ended the job: one of its nodes has failed",
        **({"slurm": "Slurm requeues a job that loses a node"} if by_itself else {}),
    }


def taken(word: str, known: again.Fields, restart: int) -> Dict[str, Any]:
    """The outcome of an attempt whose nodes Slurm has taken away."""
    return {
        "state": "preempted",
        "class": "preempted",
        "component": "slurm",
        "exit_code": CANCELLED,
        "cause": "a job of a higher priority took its nodes"
        if word == "preempted"
        else "the job was requeued",
        **({"slurm": "Slurm has requeued the job"} if again.times(known) > restart else {}),
    }


def cancelled() -> Dict[str, Any]:
    """The outcome of an attempt that somebody has ended."""
    return {
        "state": "cancelled",
        "class": "cancelled",
        "component": "slurm",
        "exit_code": CANCELLED,
        "cause": "the job was ended",
    }


def _early(attempt: "Supervisor", code: int) -> bool:
    """Whether the entry ended because its time was up: with 0 too, and by the signal itself."""
    told = attempt.stopping.began or attempt.progress.stopped_early
    return code in (0, BY_WARNING) and told


def _out_of_time(attempt: "Supervisor") -> Dict[str, Any]:
    last, steps = attempt.progress.last, attempt.rules.steps
    where = "after step %d of %d" % (last, steps) if last is not None else "before its first step"
    return {
        "class": "time",
        "component": "slurm",
        "exit_code": OUT_OF_TIME,
        "cause": "its time was up " + where,
        "do": "submit again with --resume and the same --output-dir, or with --total-time",
    }


def _failed(attempt: "Supervisor", code: int) -> Dict[str, Any]:
    component, node, why, lines, log, exit_code = _first(attempt, code)
    told = diagnose.diagnose(component, exit_code, lines, why)
    return {
        "class": told.cls,
        "component": component,
        "node": node,
        "exit_code": exit_code,
        "cause": told.cause,
        "do": told.do,
        "log": log,
        "lines": lines,
    }


def _first(attempt: "Supervisor", code: int) -> Tuple[str, Any, str, List[str], Any, int]:
    """(component, node, why, lines, log, exit code) of what failed first."""
    steps, said, lines = attempt.steps, attempt.said, list(attempt.progress.lines)
    failure = steps.failure
    if attempt.stuck:
        return "watchdog", None, "stuck: " + attempt.stuck, lines, None, NOT_UP
    if failure:
        # The driver's own code if it ended by itself; srun's if we ended it means nothing.
        own = code if attempt.first == "driver" and code else NOT_UP
        why = "%s: %s" % (failure.get("node"), failure.get("why"))
        last = failure.get("lines") or []
        return "ray", failure.get("node"), why, last, failure.get("log"), own
    if attempt.first == "ray":
        why = "the Ray step ended (srun's exit code %s)" % steps.ray.returncode
        return "ray", None, why, [], None, NOT_UP
    if "gate-failed" in said:
        return "gate", None, said["gate-failed"]["why"], lines, None, code
    if "entry-failed" in said:
        return "entry", None, said["entry-failed"]["why"], lines, None, code
    if "entry-ended" in said and code == 0:
        # A pipe or a trailing command hides the code of what has failed.
        last, steps_of_all = attempt.progress.last, attempt.rules.steps
        why = "the entry ended with 0 after step %s of %d" % (last, steps_of_all)
        return "entry", None, why, lines, None, UNFINISHED
    if "entry-ended" in said:
        return "entry", None, "the entry " + how(code), lines, None, code
    return "slurm", None, "the driver step " + how(code), lines, None, code


def _blamed(attempt: "Supervisor", found: Dict[str, Any]) -> List[str]:
    """Nodes that later attempts leave out: lost ones, those that never joined Ray, sick ones at
    once; the others when they fail for the second time."""
    # A switch that was silent for a while is back by now.
    lost = sorted(node for node in attempt.steps.lost if not attempt.answers(node))
    if found["component"] == "gate":
        missing = list(attempt.said["gate-failed"].get("missing") or [])
        # Where many are missing, it is the image or the network.
        return missing if len(missing) <= max(1, len(attempt.nodes) // 4) else []
    node = found["node"]
    if node is None or node in lost:
        return lost
    before = any(past.get("node") == node for past in attempt.history)
    sick = found["class"] == "node" and found["component"] == "ray"
    return [*lost, node] if before or sick else lost


def _masked(attempt: "Supervisor", text: str) -> str:
    return attempt.mask.whole(text.encode(errors="replace")).decode(errors="replace")
