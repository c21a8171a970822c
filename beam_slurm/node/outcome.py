"""What an attempt came to: who failed first, where and why, and the job's exit code."""

import signal
import time
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from beam_slurm.node import again, attempts, diagnose
from beam_slurm.node.drive import NOT_UP
from beam_slurm.node.raylog import how

if TYPE_CHECKING:
    from beam_slurm.node.supervise import Supervisor

CANCELLED = 128 + signal.SIGTERM
BY_WARNING = 128 + signal.SIGUSR1  # it does not know the signal yet
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
        "state": "failed",
        "class": "",
        "component": "entry",
        "node": None,
        "exit_code": code,
        "cause": "",
        "do": "",
        "log": None,
        "lines": [],
        "began": round(attempt.began, 3),
        "ended": round(time.time(), 3),
        "job": attempt.job,
        "restart": attempt.restart,
        "nodes": attempt.nodes,
        "entered": "entry-started" in attempt.said,
        "steps": {"first": progress.first, "last": progress.last},
        "blamed": [],
    }  # type: Dict[str, Any]
    by_slurm = _by_slurm(attempt, code)
    if by_slurm:
        found.update(by_slurm)
    elif attempt.stopping.done or (_early(attempt, code) and attempt.first == "driver"):
        found.update(_out_of_time(attempt))
    elif attempt.first == "driver" and code == 0:
        found.update(state="succeeded", cause=_finished(attempt))
    else:
        found.update(_failed(attempt, code))
        found["blamed"] = _blamed(attempt, found)
    found["lines"] = [_masked(attempt, line) for line in found["lines"][-TAIL:]]
    found["cause"] = _masked(attempt, found["cause"])
    return found


def shell_code(code: int) -> int:
    """A process's return code as a shell says it."""
    return 128 - code if code < 0 else code


def _by_slurm(attempt: "Supervisor", code: int) -> Dict[str, Any]:
    """What Slurm ended it for; {} if it did not."""
    steps = attempt.steps
    word = BY_SLURM.get(steps.by_slurm, "")
    # In a preemption's grace time only the steps get SIGTERM, and Slurm says no more than that.
    ended = attempt.cancelled or (
        not attempt.stuck
        and not attempt.stopping.done
        and (steps.failure is None or steps.guessed)
        and (attempt.first == "ray" or code == CANCELLED)
    )
    known = again.fields(attempt.job) if ended and attempt.rules.again != "local" else {}
    if not word and known.get("Restarts", "0") > str(attempt.restart):
        word = "requeued"
    elif not word and known.get("PreemptTime", "None") != "None":
        word = "preempted"
    elif not word and attempt.cancelled and time.time() > attempt.ends - 5:
        word = "time"
    if word == "time":
        return _out_of_time(attempt)
    if word in ("preempted", "requeued"):
        again_already = int(known.get("Restarts") or 0) > attempt.restart
        return {
            "state": "preempted",
            "class": "preempted",
            "component": "slurm",
            "exit_code": CANCELLED,
            "cause": "a job of a higher priority took its nodes"
            if word == "preempted"
            else "the job was requeued",
            **({"slurm": "Slurm has requeued the job"} if again_already else {}),
        }
    if not attempt.cancelled:
        return {}
    return {
        "state": "cancelled",
        "class": "cancelled",
        "component": "slurm",
        "exit_code": CANCELLED,
        "cause": "the job was ended",
    }


def _early(attempt: "Supervisor", code: int) -> bool:
    """Whether the entry ended because its time was up: with 0 too, and by the signal itself."""
    progress = attempt.progress
    if code not in (0, BY_WARNING):
        return False
    if progress.finished or (progress.last or 0) >= attempt.rules.steps:
        return False
    return attempt.stopping.began or progress.stopped_early


def _finished(attempt: "Supervisor") -> str:
    last, steps = attempt.progress.last, attempt.rules.steps
    if last is None or last >= steps:
        return "the entry finished"
    return "the entry finished, after step %d of %d" % (last, steps)


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
    if "entry-ended" in said:
        return "entry", None, "the entry " + how(code), lines, None, code
    return "slurm", None, "the driver step " + how(code), lines, None, code


def _blamed(attempt: "Supervisor", found: Dict[str, Any]) -> List[str]:
    """Nodes that later attempts leave out: lost ones, those that never joined Ray, sick ones at
    once; the others when they fail for the second time."""
    failure = attempt.steps.failure or {}
    if found["component"] == "gate":
        return list(attempt.said["gate-failed"].get("missing") or [])
    node = found["node"]
    if node is None:
        return []
    before = any(past.get("node") == node for past in attempts.history(attempt.rules.run))
    sick = found["class"] in ("node", "storage", "container") and found["component"] == "ray"
    return [node] if failure.get("lost") or before or sick else []


def _masked(attempt: "Supervisor", text: str) -> str:
    return attempt.mask.whole(text.encode(errors="replace")).decode(errors="replace")
