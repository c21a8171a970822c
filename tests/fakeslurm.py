"""A stand-in for Slurm's commands where a real one cannot be made to: a limit of 1001 tasks with
thousands of points, a controller that takes a job and then does not answer, no room in the queue.

``install`` puts the commands into a folder for PATH; ``Fake`` sets what they say and reads what
they were told. It schedules nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "squeue", "scontrol", "sacct", "sacctmgr", "scancel", "srun")
SILENT = "error: Socket timed out on send/recv operation"
PARTITION = "PartitionName=gpu Default=YES TotalNodes=8 MaxNodes=UNLIMITED MaxTime=UNLIMITED"


class Fake:
    """What the stand-in knows, in a file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "slurm.json"

    def set(self, **facts: Any) -> None:
        """array: MaxArraySize; jobs: MaxSubmitJobs. How often still: lost (sbatch does not answer
        though it took the job), dropped (neither), deaf (squeue does not answer)."""
        self.path.write_text(json.dumps({**self.facts, **facts}))

    @property
    def facts(self) -> dict[str, Any]:
        start = {"jobs": None, "array": 1001, "lost": 0, "dropped": 0, "deaf": 0, "submitted": []}
        return json.loads(self.path.read_text()) if self.path.exists() else start

    @property
    def submitted(self) -> list[dict[str, Any]]:
        """Every job that was taken: id, comment, tasks, parallel, options, script, state."""
        return list(self.facts["submitted"])

    def once(self, name: str) -> bool:
        """Whether something happens this time, and once less from now on."""
        left = self.facts[name]
        if left:
            self.set(**{name: left - 1})
        return bool(left)


def install(folder: Path) -> Fake:
    """The commands in ``folder/bin``."""
    (folder / "bin").mkdir()
    for name in COMMANDS:
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {folder} {name} "$@"\n')
        path.chmod(0o755)
    fake = Fake(folder)
    fake.set()
    return fake


def sbatch(fake: Fake, words: list[str]) -> str:
    text = Path(words[-1]).read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", text, re.M))
    options = {name: value.strip("'") for name, value in options.items()}
    options.update(re.findall(r"--([\w-]+)=(\S+)", " ".join(words[:-1])))
    array = re.fullmatch(r"0-(\d+)%(\d+)", options.get("array", "0-0%1"))
    assert array, options
    tasks = int(array[1]) + 1
    if int(array[1]) > fake.facts["array"] - 1:
        sys.exit("sbatch: error: Batch job submission failed: Invalid job array specification")
    queued = sum(job["tasks"] for job in fake.submitted if job["state"] == "PENDING")
    if fake.facts["jobs"] is not None and queued + tasks > fake.facts["jobs"]:
        sys.exit("sbatch: error: AssocMaxSubmitJobLimit")
    if fake.once("dropped"):
        sys.exit(f"sbatch: {SILENT}")
    job = {
        "id": str(100 + len(fake.submitted)),
        "comment": options["comment"],
        "tasks": tasks,
        "parallel": int(array[2]),
        "options": options,
        "script": words[-1],
        "state": "PENDING",
    }
    fake.set(submitted=[*fake.submitted, job])
    if fake.once("lost"):
        sys.exit(f"sbatch: {SILENT}")
    return job["id"]


def squeue(fake: Fake, words: list[str]) -> str:
    if fake.once("deaf"):
        sys.exit(f"squeue: {SILENT}")
    if "--format=%T %k" in words:
        return "\n".join(f"{job['state']} {job['comment']}" for job in fake.submitted)
    waiting = [job for job in fake.submitted if job["state"] == "PENDING"]
    if "--array" in words:
        return "\n".join(f"{job['id']}_{at}" for job in waiting for at in range(job["tasks"]))
    return "\n".join(
        f"{job['id']}_[0-{job['tasks'] - 1}%{job['parallel']}] {job['comment']}" for job in waiting
    )


def scontrol(fake: Fake, words: list[str]) -> str:
    if words[1] == "config":
        return f"MaxArraySize            = {fake.facts['array']}\n"
    if words[1] == "partition":
        return PARTITION
    for job in fake.submitted:
        if job["id"] == words[-1].partition("_")[0]:
            array = f"ArrayJobId={job['id']} ArrayTaskId=0-{job['tasks'] - 1}%2 "
            return (
                f"JobId={job['id']} {array if 'array' in job['options'] else ''}"
                f"JobState={job['state']} Reason=Resources Restarts=0 ExitCode=0:0"
            )
    sys.exit("slurm_load_jobs error: Invalid job id specified")


def sacctmgr(fake: Fake, words: list[str]) -> str:
    if fake.facts["jobs"] is None:
        sys.exit("sacctmgr: You are not running a supported accounting_storage plugin")
    return f"lab|{fake.facts['jobs']}" if "associations" in words else "normal|"


def scancel(fake: Fake, words: list[str]) -> str:
    ended = [{**job, "state": "CANCELLED"} if job["id"] in words else job for job in fake.submitted]
    fake.set(submitted=ended)
    return ""


def main() -> None:
    fake, name, words = Fake(Path(sys.argv[1])), sys.argv[2], sys.argv[3:]
    known = {f.__name__: f for f in (sbatch, squeue, scontrol, sacctmgr, scancel)}
    if name not in known:
        sys.exit(f"{name}: not here")
    print(known[name](fake, words))


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
