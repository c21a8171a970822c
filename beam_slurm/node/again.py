"""How a run gets another attempt: this process becomes the script again, or Slurm runs the job
again, or another job is submitted. And what the controller knows of this job."""

import os
import re
import signal
import subprocess
import time
from typing import Dict, Iterable, List, Tuple

from beam_slurm.node import events

PATIENCE = 600.0  # seconds that the controller may be silent: it may just be restarting
ANSWER = 30  # seconds for one answer
PAUSE = 5.0

# A submission's environment: nothing of the job that it comes from.
OURS = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI", "PMIX_", "RAY_", "BEAM_SLURM_")
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")

SILENT = re.compile(r"Unable to contact|timed out|Connection (?:refused|reset)|Zero Bytes")


def here(script: str) -> None:
    """Become the batch script again: the same process, so Slurm's signals still arrive."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until its supervisor listens
    os.execvp("bash", ["bash", script])  # noqa: S606 - it is what a job begins with


def requeue(job: str, exclude: Iterable[str]) -> str:
    """Let Slurm run this job again without the nodes ``exclude``; why not, or "".

    Slurm then ends this process with the job.
    """
    before = fields(job).get("ExcNodeList", "(null)")
    code, said = _patiently(["scontrol", "requeue", job])
    if code:
        return said
    names = [*([] if before == "(null)" else [before]), *sorted(exclude)]
    if names:
        code, said = _patiently(
            ["scontrol", "update", "jobid=" + job, "excnodelist=" + ",".join(names)]
        )
        if code:
            events.say("the next attempt may get the same nodes: %s" % said)
    return ""


def chain(script: str, exclude: Iterable[str], folder: str) -> Tuple[str, str]:
    """Submit the script as another job without the nodes ``exclude``; (its id, why not).

    A controller that falls silent may have taken it all the same: it is looked for by its comment
    before another try.
    """
    own = os.environ["SLURM_JOB_ID"]
    known = fields(own)
    names = [name for name in (known.get("ExcNodeList"), *sorted(exclude)) if name]
    without = ["--exclude=" + ",".join(name for name in names if name != "(null)")]
    words = ["sbatch", "--parsable", *(without if without != ["--exclude="] else []), script]
    deadline = time.monotonic() + PATIENCE
    while True:
        code, said = _ask(words, folder)
        match = re.search(r"^(\d+)(?:;[\w.-]+)?\s*\Z", said, re.M)
        if code == 0 and match:
            return match.group(1), ""
        if not SILENT.search(said) or time.monotonic() > deadline:
            return "", said
        time.sleep(PAUSE)
        _, queue = _patiently(["squeue", "--noheader", "--me", "--format=%i %k"])
        for line in queue.splitlines():
            job, _, comment = line.strip().partition(" ")
            if comment == known.get("Comment") and job != own:
                return job, ""


def fields(job: str) -> Dict[str, str]:
    """What ``scontrol show job`` says; {} if it does not answer."""
    code, said = _ask(["scontrol", "show", "job", "--oneliner", job])
    return dict(re.findall(r"(\w+)=(\S*)", said)) if code == 0 else {}


def restarts() -> int:
    """How often Slurm has run this job again."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def end_of(known: Dict[str, str]) -> float:
    """When the job ends, in epoch seconds; 0 if it has no end or nobody knows."""
    try:
        return time.mktime(time.strptime(known.get("EndTime", ""), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return 0.0


def _patiently(words: List[str], folder: str = "/") -> Tuple[int, str]:
    deadline = time.monotonic() + PATIENCE
    while True:
        code, said = _ask(words, folder)
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
    return done.returncode, (done.stdout or done.stderr).decode(errors="replace").strip()
