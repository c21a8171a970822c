"""What one task of a sweep does on its node: it becomes the script of its point.

submitit calls ``start`` as the batch job's only process (its batch script has become Python), so
that after ``exec`` the script is to Slurm what it is after ``submit``: signals, requeues and exit
code are its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

SCRIPT = "script.sbatch"
CLAIM = "array"  # a link that names the array which runs this point


def start(sweep: str, runs: Sequence[str]) -> None:
    """Run the point of this task. Returns only if another array has it: then nothing is to do.

    Args:
        sweep: the sweep's folder.
        runs: names of the runs in it, by the index of the task.
    """
    run = Path(sweep) / runs[int(os.environ["SLURM_ARRAY_TASK_ID"])]
    array = os.environ["SLURM_ARRAY_JOB_ID"]
    other = claimed(run, array)
    if other != array:
        print(f"{run} is run by array {other}: Slurm has taken this submission twice")
        return
    become(run, f"job-{os.environ['SLURM_JOB_ID']}.log", os.environ)


def start_here(run: str, gpus: str | None) -> None:
    """The same on this machine without Slurm; ``gpus`` is CUDA_VISIBLE_DEVICES as it was."""
    from beam_slurm import slurm
    from beam_slurm.runs import Run

    found = Run(Path(run))
    found.record(pid=os.getpid())
    environment = slurm.environment()
    environment.pop("CUDA_VISIBLE_DEVICES", None)  # submitit has put its own there
    own = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
    become(found.path, "job-local.log", {**environment, **own})


def claimed(run: Path, array: str) -> str:
    """The array that runs this point: the first one that asks, for ever."""
    try:
        (run / CLAIM).symlink_to(array)  # made and written in one go, on every file system
    except FileExistsError:
        return str((run / CLAIM).readlink())
    return array


def become(run: Path, log: str, environment: Mapping[str, str]) -> NoReturn:
    """Become the run's script, as Slurm would have started it."""
    target = os.open(run / log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    os.chdir(run)
    clean = {name: value for name, value in environment.items() if not name.startswith("SUBMITIT_")}
    os.execvpe("bash", ["bash", str(run / SCRIPT)], clean)  # noqa: S606 - as Slurm does
