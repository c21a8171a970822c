"""The state of a run: the word of its newest attempt and Slurm's, put together.

The attempt knows why it ended and whether the run goes on. Slurm knows whether the job that is to
go on waits, runs or is over. Neither alone is enough: 0:0 is no success, and an outcome that
promises another attempt is no proof that one will come.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm import slurm
from beam_slurm.attempts import Attempt
from beam_slurm.slurm import Job

# An NFS client may believe for a minute (acdirmax) that a file is absent which it has looked for.
STRAGGLER = 75.0  # seconds after the job's end that its outcome may still come into sight

# What it means that Slurm itself ended the job, in the words of outcome.json's class.
VERDICTS = {
    "BOOT_FAIL": "node",
    "DEADLINE": "time",
    "NODE_FAIL": "node",
    "OUT_OF_MEMORY": "oom",
    "PREEMPTED": "preempted",
    "TIMEOUT": "time",
}


NEVER = "DependencyNeverSatisfied"  # what the job waited for will not come
NO_LOG = "0:53"  # Slurm's exit code where it cannot write a job's log
CANCELLED = 128 + signal.SIGTERM  # the exit code of a run that was ended before it could say so


@dataclass(frozen=True)
class State:
    """What is known of a run now.

    ``word`` is one of submitted, pending, starting, running, succeeded, failed, cancelled,
    unknown. ``exit_code`` is None while the run goes on or when nobody can say. ``kind`` is the
    class of outcome.json, or "". ``witnessed``: the run itself has told this end.
    """

    word: str
    why: str = ""
    exit_code: int | None = None
    job: Job | None = None
    kind: str = ""
    witnessed: bool = False

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.word in ("succeeded", "failed", "cancelled", "unknown")

    @property
    def label(self) -> str:
        """The word, with the class of a failure behind it."""
        return labelled(self.word, self.kind)


def labelled(word: str, kind: str) -> str:
    """``failed (oom)``; a class that says no more than the word is left out."""
    return f"{word} ({kind})" if kind and kind != word else word


def of_job(
    attempts: Sequence[Attempt], job: Job | None, log: Path | None, now: float, before: str = ""
) -> State:
    """The state of a run under Slurm.

    Args:
        attempts: all of them, read after Slurm was asked: an outcome is there before its job ends.
        job: the one that counts now, see ``attempts.job``; None if Slurm has forgotten it.
        log: the newest log.
        now: epoch seconds.
        before: the run that this one was to follow.
    """
    last = attempts[-1] if attempts else None
    if last and last.outcome and not last.next and not (job and _new_life(last, job)):
        if last.undecided and job and not job.ended:
            return _under_way(last, job)
        return _last_word(last.outcome, job)
    if job is None:
        left = "and it left no outcome.json"
        if last and last.next:
            left = f"before {_following(last)} began"
        return State("unknown", f"Slurm has forgotten the job, {left}")
    if job.waits or (last and _leaves(last, job)):
        which = f"{_following(last)} waits: " if last else ""
        return State("pending", f"{which}{job.reason}".removesuffix(": "), None, job)
    if not job.ended:
        return _under_way(last, job)
    end = slurm.epoch(job.end)
    if end is not None and abs(now - end) < STRAGGLER and may_still_tell(job):
        return awaited(job, attempts)
    word, kind = "failed", VERDICTS.get(job.state, "")
    if job.state == "CANCELLED":
        word = kind = "cancelled"
    elif last and not kind:
        kind = last.outcome.get("class", "")
    why = _unwitnessed(job, last, log)
    if job.reason == NEVER:
        why = f"the run before it{before and f', {before},'} failed or was cancelled"
    return State(word, why, _exit_code(job), job, kind)


def of_process(attempts: Sequence[Attempt], alive: bool) -> State:
    """The state of a run on this machine, whose batch script lives or does not."""
    last = attempts[-1] if attempts else None
    if last and last.outcome and not last.next and not (alive and last.undecided):
        return _last_word(last.outcome, None)
    if alive:
        return _under_way(last, None)
    gone = "the process is gone"
    if last and last.next:
        return State("failed", f"{gone}, before {_following(last)} began", 1)
    return State("failed", f"{gone} and left no outcome.json", 1)


def of_files(attempts: Sequence[Attempt]) -> State | None:
    """What the run itself says where Slurm is silent; None while an attempt is under way."""
    last = attempts[-1] if attempts else None
    if not last or not last.outcome:
        return None
    if last.undecided:
        return _under_way(last, None)
    if not last.next:
        return _last_word(last.outcome, None)
    if last.next.get("how") == "here":
        return _under_way(last, None)
    return State("pending", f"{_following(last)} waits: {last.next.get('why')}")


def may_still_tell(job: Job) -> bool:
    """Whether the script of a job that is over has begun: it may have said how it ended."""
    return bool(job.nodes) and job.exit_code != NO_LOG


def awaited(job: Job | None, attempts: Sequence[Attempt]) -> State:
    """The state after a job's end while its last word may come into sight."""
    ended = attempts[-1].ended if attempts else {}
    said = f"it ended with exit code {ended.get('code')}, " if ended else "the job is over, "
    return State("running", f"{said}its outcome is awaited", None, job)


def _following(last: Attempt) -> str:
    return f"attempt {last.number + 1}"


def _new_life(last: Attempt, job: Job) -> bool:
    """Whether Slurm has begun the job anew since, or will: its folder may not be there yet."""
    return job.waits or _restarted(last, job)


def _leaves(last: Attempt, job: Job) -> bool:
    """Whether the job is on its way back into the queue."""
    return job.state == "COMPLETING" and last.next.get("how") in ("requeue", "slurm")


def _restarted(last: Attempt, job: Job | None) -> bool:
    return job is not None and last.restart is not None and job.restarts > last.restart


def _last_word(outcome: dict[str, Any], job: Job | None) -> State:
    """The run's own end; Slurm's verdict counts where it ended the job from outside."""
    word, why = outcome["state"], outcome["cause"]
    kind, code = outcome.get("class", ""), int(outcome["exit_code"])
    verdict = VERDICTS.get(job.state, "") if job else ""
    # A failure that has a class of its own was diagnosed: it came before Slurm's act.
    if job and verdict and kind != verdict and not (word == "failed" and kind):
        why = f"Slurm: {job.state}" + (f", {why}" if outcome.get("node") else "")
        word, kind, code = "failed", verdict, code or 1
    if word == "preempted":  # and nothing goes on
        word, kind = "failed", "preempted"
    return State(word, why, code, job, kind, witnessed=True)


def _under_way(last: Attempt | None, job: Job | None) -> State:
    if last is None:
        return State("starting", "", None, job)
    if last.undecided and not _restarted(last, job):
        ended = f"attempt {last.number} has ended, what follows is being decided"
        return State("running", f"{ended}: {last.outcome.get('cause')}", None, job)
    if last.next:
        return State("starting", f"restarting: {last.next.get('why')}", None, job)
    if last.outcome or _restarted(last, job):
        return State("starting", "restarting: the job was requeued", None, job)
    if last.entry_started:
        return State("running", "", None, job)
    return State("starting", "" if last.started else "its nodes are inspected", None, job)


def _unwitnessed(job: Job, last: Attempt | None, log: Path | None) -> str:
    """Why a job is over that our supervisor never saw the end of."""
    if job.exit_code == NO_LOG:
        return "0:53: the log could not be written: the run folder is not on shared storage"
    if last and last.next.get("how") == "chain" and not last.next.get("job"):
        return "the job is over, and nobody knows the one that was to go on: squeue --me"
    when = f", before {_following(last)} began" if last and last.outcome else ""
    if job.state == "COMPLETED":
        return f"Slurm says COMPLETED, but the script did not come to its end{when}"
    said = f"Slurm: {job.state} {job.exit_code} {job.reason}".rstrip() + when
    if when and job.state == "CANCELLED":
        return said  # the log is of the attempt before
    lines = log.read_text(errors="replace").splitlines() if log else []
    return f"{said}; last in the log: {lines[-1]}" if lines else said


def _exit_code(job: Job) -> int:
    code, _, number = job.exit_code.partition(":")
    if number and number != "0":
        return 128 + int(number)
    return int(code or 0) or (CANCELLED if job.state == "CANCELLED" else 1)
