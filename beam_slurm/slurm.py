"""Slurm's commands: build the call, parse the answer. Nothing here knows what a run is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from beam_slurm.errors import BeamSlurmError

TIMEOUT = 60  # seconds that a command may take before the controller counts as not answering

KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
LEAKS = (
    *("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "PMI", "PMIX_", "RAY_"),
    "MILES_SCRIPT_",  # each is an option of Miles' launcher
)

# What the client says when nobody knows whether the controller took the request.
_UNCERTAIN = re.compile(
    r"Socket timed out|Unable to contact|Zero Bytes|Connection (?:refused|reset)|Timeout"
)

FINAL = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
"""States that a job does not leave (a requeue gives it a new one)."""

WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
"""PENDING, and the flags that squeue and scontrol show in its place."""


@dataclass(frozen=True)
class Job:
    """One job as Slurm knows it.

    ``exit_code`` is Slurm's "code:signal"; ``start`` and ``end`` are its own text (see ``epoch``),
    while they are to come the expected times; ``reason`` is why it waits or ended; ``nodes`` is ""
    until it has some; ``restarts`` is how often it was requeued, 0 where only accounting knows it.
    """

    id: str
    state: str
    reason: str = ""
    exit_code: str = ""
    start: str = ""
    nodes: str = ""
    restarts: int = 0
    end: str = ""

    @property
    def waits(self) -> bool:
        """Whether the job is in the queue, for the first time or again."""
        return self.state in WAITING

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self.state in FINAL


class Uncertain(Exception):
    """The controller did not answer: the request may have been taken or not."""

    def error(self, token: str, folder: Path | None = None) -> BeamSlurmError:
        """The error for a submission whose job would carry the comment ``token``."""
        return BeamSlurmError(
            "nobody can say whether the job was submitted",
            where=str(folder) if folder else None,
            why=str(self),
            remedy=f"before another try, look for a job with the comment {token}: "
            "squeue --me --format='%i %k'",
        )


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a submission: without what a surrounding job, tmux or Ray left in it."""
    source = os.environ if base is None else base
    return {
        name: value
        for name, value in source.items()
        if name in KEPT or not name.startswith(LEAKS) or name.startswith("PMIX_MCA_")
    }


def run(*words: str, **variables: str) -> str:
    """The standard output of one of Slurm's commands, called with more environment ``variables``.

    Raises:
        BeamSlurmError: the command is absent or refuses; its own words are the cause.
        Uncertain: the controller does not answer.
    """
    if not shutil.which(words[0]):
        raise BeamSlurmError(
            f"{words[0]} is not on PATH",
            why="this machine has no Slurm, or its module is not loaded",
            remedy="log in to the cluster; or look at the script with --dry-run; "
            "or make a Slurm here with: beam-slurm cluster up",
        )
    try:
        done = subprocess.run(
            words,
            env={**environment(), **variables},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Uncertain(f"{words[0]} did not answer within {TIMEOUT} s") from None
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
    if _UNCERTAIN.search(said):
        raise Uncertain(said)
    raise BeamSlurmError(f"{words[0]} refuses", why=said, remedy=_remedy(said))


def ask(*words: str, **variables: str) -> str:
    """``run`` for questions, where no answer is an ordinary error."""
    try:
        return run(*words, **variables)
    except Uncertain as problem:
        raise BeamSlurmError(
            "Slurm's controller does not answer",
            why=str(problem),
            remedy="try scontrol ping; nothing was changed",
        ) from None


def submit(script: Path, token: str, *options: str) -> str:
    """Submit ``script`` and return the job's id. Never twice: ``token`` is the job's comment.

    ``options`` are more of sbatch's than the script has.

    Raises:
        BeamSlurmError: refused, there is no job.
        Uncertain: nobody can say whether there is one.
    """
    try:
        answer = run("sbatch", "--parsable", *options, str(script))
        # Sites print banners before the id, federations the cluster's name behind it.
        match = re.fullmatch(r"(\d+)(?:;[\w.-]+)?", answer.strip().rpartition("\n")[2])
        if match:
            return match[1]
        problem = Uncertain(f"sbatch did not answer with a job id: {answer!r}")
    except Uncertain as silence:
        problem = silence
    try:
        found = find(token)
    except BeamSlurmError:
        found = None
    if found is None:
        raise problem
    return found


def find(token: str) -> str | None:
    """The id of the user's job with the comment ``token``; an array's own, without its tasks'."""
    for line in ask("squeue", "--noheader", "--me", "--format=%i %k").splitlines():
        job, _, comment = line.strip().partition(" ")
        if comment == token:
            return job.partition("_")[0]  # 12_[3-99%2], 12_2
    return None


def running() -> set[str]:
    """The comments of the user's jobs that have nodes, or are about to give them back."""
    lines = ask("squeue", "--noheader", "--me", "--format=%T %k").splitlines()
    found = (line.strip().partition(" ") for line in lines)
    return {comment for state, _, comment in found if state != "PENDING"}


def job(job_id: str) -> Job | None:
    """What Slurm knows of a job: the controller's memory first, then accounting, else None."""
    try:
        text = ask("scontrol", "show", "job", "--oneliner", job_id)
    except BeamSlurmError as error:
        if "Invalid job id" not in (error.why or ""):
            raise
        return _accounted(job_id)
    found = [_fields(line) for line in text.splitlines()]
    own = [fields for fields in found if fields.get("JobId") == job_id]
    return _job(job_id, (own or found)[-1])  # an array's number is that of one of its tasks, too


def tasks(array_id: str) -> dict[str, Job]:
    """What Slurm knows of an array's tasks, by their ids ARRAY_INDEX, in as few calls as there are.

    The controller's memory first; where it has forgotten some, accounting. What both have forgotten
    is absent.
    """
    try:
        # Without the variable, a long list of indices ends in dots.
        text = ask("scontrol", "show", "job", "--oneliner", array_id, SLURM_BITSTR_LEN="0")
    except BeamSlurmError as error:
        if "Invalid job id" not in (error.why or ""):
            raise
        text = ""
    return {
        f"{array_id}_{index}": _job(f"{array_id}_{index}", fields)
        for fields in map(_fields, text.splitlines())
        for index in _indices(fields.get("ArrayTaskId", ""))
    }


def accounted(array_id: str) -> dict[str, Job]:
    """What accounting knows of an array's tasks that have begun or ended, by their ids."""
    found = {}
    for line in _account(array_id):
        task, _, fields = line.partition("|")
        for index in _indices(task.partition("_")[2].strip("[]")):
            found[f"{array_id}_{index}"] = _of_account(f"{array_id}_{index}", fields)
    return found


def _indices(text: str) -> list[int]:
    """The indices in ``3`` or ``5-7,9%2``."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        first, dash, last = part.partition("-")
        if first.isdigit():
            found += range(int(first), int(last if dash else first) + 1)
    return found


def _fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S*)", line))


def _job(job_id: str, fields: Mapping[str, str]) -> Job:
    return Job(
        id=job_id,
        state=fields["JobState"],
        reason="" if fields.get("Reason") == "None" else fields.get("Reason", ""),
        exit_code=fields.get("ExitCode", ""),
        start="" if fields.get("StartTime") == "Unknown" else fields.get("StartTime", ""),
        nodes="" if fields.get("NodeList") == "(null)" else fields.get("NodeList", ""),
        restarts=int(fields.get("Restarts") or 0),
        end="" if fields.get("EndTime") == "Unknown" else fields.get("EndTime", ""),
    )


def _accounted(job_id: str) -> Job | None:
    found = _account(job_id)
    return _of_account(job_id, found[-1].partition("|")[2]) if found else None


def _account(job_id: str) -> list[str]:
    """A line for each job of that id; none on the many sites that keep no accounting."""
    try:
        text = ask(
            "sacct",
            "--noheader",
            "--allocations",
            "--parsable2",
            f"--jobs={job_id}",
            "--format=JobID,State,ExitCode,Start,End,NodeList",
        )
    except BeamSlurmError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def _of_account(job_id: str, line: str) -> Job:
    state, code, start, end, nodes = line.split("|")
    nodes = "" if nodes == "None assigned" else nodes
    return Job(job_id, state.split()[0], "", code, start, nodes, end=end)


def cancel(job_id: str) -> None:
    """End a job; one that is over already is no error."""
    try:
        ask("scancel", job_id)
    except BeamSlurmError as error:
        if "Invalid job id" not in (error.why or "") and "already" not in (error.why or ""):
            raise


def minutes(text: str) -> int:
    """Slurm's spelling of a time, in whole minutes, rounded up."""
    return -(-seconds(text) // 60)


def seconds(text: str) -> int:
    """Slurm's spelling of a time, in seconds."""
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:  # d-h[:mm[:ss]]
        hours, mins, secs = [*parts, 0, 0][:3]
    elif len(parts) == 3:  # h:mm:ss
        hours, mins, secs = parts
    else:  # mm[:ss]
        hours, mins, secs = 0, *[*parts, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + mins) * 60 + secs


def epoch(text: str) -> float | None:
    """Slurm's spelling of a date, in epoch seconds; None if it is none."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def spelled(minutes: int) -> str:
    """Minutes in Slurm's spelling, d-hh:mm:ss."""
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02}:{rest % 60:02}:00"


def _remedy(said: str) -> str | None:
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, said, re.I):
            return remedy
    return None


_REMEDIES: Sequence[tuple[str, str]] = (
    (
        r"configuration source",
        "this shell does not know the cluster: set SLURM_CONF, or load the site's Slurm module; "
        'for the embedded one: eval "$(beam-slurm cluster env)"',
    ),
    (r"account", "set site.account to an account of yours: sacctmgr show associations user=$USER"),
    (r"invalid qos", "set site.qos to one that your account may use"),
    (r"invalid partition", "set site.partition: sinfo lists the partitions"),
    (
        r"gres|generic resource",
        "the GPU's type is spelled otherwise here: sinfo --format=%G shows it, "
        "site.gpu_names maps it, site.gpu_request chooses the option",
    ),
    (
        r"node configuration is not available",
        "the partition has no such nodes: sinfo --Node --long; "
        "compare hardware.gpu, gpus_per_node and cpus_per_node",
    ),
    (r"node count", "the partition has fewer nodes: sinfo; set hardware.nodes"),
    (r"time limit", "the partition's limit is shorter: set job.time"),
)
