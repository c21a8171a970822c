"""How a run gets another attempt: this process becomes the script again, or Slurm runs the job
again, or another job is submitted. And what the controller knows of this job."""

import os
import re
import signal
import subprocess
import time
from typing import Dict, Iterable, List, Optional, Tuple

from beam_slurm.node import events, followers

PATIENCE = 600.0  # seconds that the controller may be silent: it may just be restarting
ANSWER = 30  # seconds for one answer
PAUSE = 5.0

# A submission's environment: nothing of the job that it comes from.
OURS = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI", "PMIX_", "RAY_", "BEAM_SLURM_")
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")

SILENT = re.compile(r"Unable to contact|timed out|Connection (?:refused|reset)|Zero Bytes")

Fields = Dict[str, str]


def task() -> Optional[str]:
    """This job as a task of its array, ARRAY_INDEX; None if it is a job of its own.

    One of the tasks has the array's own number: by that, the controller would take all of them.
    """
    array, index = (os.environ.get("SLURM_ARRAY_%s_ID" % what) for what in ("JOB", "TASK"))
    return "%s_%s" % (array, index) if array and index else None


def own() -> str:
    """This job as the controller is told of it."""
    return task() or os.environ["SLURM_JOB_ID"]


def here(script: str) -> None:
    """Become the batch script again: the same process, so Slurm's signals still arrive."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until its supervisor listens
    os.execvp("bash", ["bash", script])  # noqa: S606 - it is what a job begins with


def requeue(job: str, exclude: Iterable[str]) -> str:
    """Let Slurm run this job again without the nodes ``exclude``; why not, or "".

    Slurm then ends this process with the job.
    """
    before = patiently(job)
    code, said = _patiently(["scontrol", "requeue", job])
    if code and times(fields(job)) <= restarts():
        return said
    names = [*excluded(before), *sorted(exclude)]
    if before and names:
        words = ["scontrol", "update", "jobid=" + job, "excnodelist=" + ",".join(names)]
        code, said = _patiently(words)
        if code:
            events.say("the next attempt may get the same nodes: %s" % said)
    return ""


def chain(script: str, exclude: Iterable[str], folder: str) -> Tuple[str, str]:
    """Submit the script as another job, to follow this one; (its id, why not).

    Not on the nodes ``exclude``. A controller that falls silent may have taken it all the same: it
    is looked for by its comment before another try.
    """
    names = [*excluded(patiently(own())), *sorted(exclude)]
    options = ["--parsable", "--dependency=afterany:" + own()]
    options += ["--exclude=" + ",".join(names)] if names else []
    deadline = time.monotonic() + PATIENCE
    while True:
        code, said = _ask(["sbatch", *options, script], folder)
        match = re.search(r"^(\d+)(?:;[\w.-]+)?\s*\Z", said, re.M)
        if code == 0 and match:
            bring_along(folder, match.group(1))
            return match.group(1), ""
        if not SILENT.search(said) or time.monotonic() > deadline:
            return "", said
        time.sleep(PAUSE)
        others = jobs_of(folder)
        if others:
            bring_along(folder, others[0])
            return others[0], ""


def bring_along(folder: str, job: str) -> None:
    """What waits for this job's success waits for that of its successor."""
    for follower in followers.read(folder):
        words = ["scontrol", "update", "jobid=" + follower.job, "dependency=afterok:" + job]
        code, said = _patiently(words)
        if code:
            events.say("job %s does not wait for job %s: %s" % (follower.job, job, said))


def release(job: str) -> Tuple[int, str]:
    """Let a job wait for nothing any more but its nodes; (exit code, what was said), asked once."""
    return _ask(["scontrol", "update", "jobid=" + job, "dependency="])


def cancel(job: str) -> None:
    """End a job that was submitted in vain."""
    _patiently(["scancel", job])


def end_step(step: str) -> None:
    """End what an srun that is no more has left running."""
    _ask(["scancel", step])


def jobs_of(run: str, state: str = "") -> List[str]:
    """Other jobs of this user for the same run; of one state if it is given."""
    words = ["squeue", "--noheader", "--me", "--format=%i %k"]
    code, queue = _patiently(words + (["--states=" + state] if state else []))
    found = []
    for line in queue.splitlines() if code == 0 else []:
        job, _, comment = line.strip().partition(" ")
        if comment == "beam-slurm:" + os.path.basename(run):
            found.append(job)
    return [job for job in found if job != os.environ["SLURM_JOB_ID"]]


def fields(job: str) -> Fields:
    """What ``scontrol show job`` says; {} if it does not answer."""
    code, said = _ask(["scontrol", "show", "job", "--oneliner", job])
    return _fields(said, job) if code == 0 else {}


def patiently(job: str) -> Fields:
    """The same, asked until there is an answer."""
    code, said = _patiently(["scontrol", "show", "job", "--oneliner", job])
    return _fields(said, job) if code == 0 else {}


def _fields(said: str, job: str) -> Fields:
    """Those of the job, {} if it is over and forgotten: an array's number is its last task's too,
    and Slurm tells of all tasks then."""
    found = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in said.splitlines()]
    for fields in found:
        array = "%s_%s" % (fields.get("ArrayJobId"), fields.get("ArrayTaskId"))
        if job in (fields.get("JobId"), array):
            return fields
    return {}


def nodes(known: Fields) -> List[str]:
    """The nodes that the job still has: one that Slurm has lost is not among them any more."""
    code, said = _ask(["scontrol", "show", "hostnames", known.get("NodeList", "")])
    return said.split() if code == 0 else []


def excluded(known: Fields) -> List[str]:
    """What the job leaves out already, as Slurm spells it."""
    names = known.get("ExcNodeList", "(null)")
    return [] if names == "(null)" else [names]


def restarts() -> int:
    """How often Slurm had run this job again when this attempt began."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def times(known: Fields) -> int:
    """How often it has by now."""
    return int(known.get("Restarts") or 0)


def end_of(known: Fields) -> Optional[float]:
    """When the job ends, in epoch seconds; None if it has no end or nobody knows."""
    return _when(known.get("EndTime", ""))


def preempted(known: Fields, since: float) -> bool:
    """Whether the job is being preempted; an older mark stays when that was called off."""
    when = _when(known.get("PreemptTime", ""))
    return when is not None and when >= since - 1


def _when(text: str) -> Optional[float]:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def _patiently(words: List[str]) -> Tuple[int, str]:
    deadline = time.monotonic() + PATIENCE
    while True:
        code, said = _ask(words)
        if code == 0 or not SILENT.search(said) or time.monotonic() > deadline:
            return code, said
        events.say("Slurm's controller does not answer, asking again: %s" % said)
        time.sleep(PAUSE)


def _ask(words: List[str], folder: str = "/") -> Tuple[int, str]:
    """(exit code, what was said) of one of Slurm's commands."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not name.startswith(OURS)
    }
    # A requeue ends all processes of the job at once, and what is said after it must still be said.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=ANSWER,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, "%s timed out" % words[0]
    except OSError as problem:
        return 127, "%s: %s" % (words[0], problem.strerror)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return done.returncode, (done.stdout or done.stderr).decode(errors="replace").strip()
