"""From a request to a job: checks, the run folder, one sbatch."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from beam_slurm import attach, checks, job, resume, runs, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.pack import after_program, node_program
from beam_slurm.records import record, surroundings
from beam_slurm.records.record import SCRIPT
from beam_slurm.records.surroundings import Surroundings
from beam_slurm.task import PROGRAM


def submit(
    request: JobRequest,
    around: Surroundings | None = None,
    *,
    after: str | None = None,
    **facts: Any,
) -> runs.Run:
    """Check, make the run folder, submit; whatever is refused leaves nothing behind.

    Args:
        request: the run.
        around: for ``prepare``, as ``facts`` are.
        after: the job that must have succeeded before; if it does not, this one goes, too.
        facts: more for the manifest.

    Raises:
        BeamSlurmError: with the cause and the remedy; nothing was submitted then, unless it
            says that nobody knows.
    """
    check(request)
    first = not request.run.parent.exists()
    run = prepare(request, around, **facts)
    try:
        if request.local:
            started: dict[str, Any] = {"pid": _start_here(run), "host": socket.gethostname()}
        else:
            started = {"job": slurm.submit(run.path / SCRIPT, request.token, *_behind(after))}
    except slurm.Uncertain as problem:  # the job may be there, and needs its folder then
        raise problem.error(request.token, run.path) from None
    except BeamSlurmError:
        discard(run.path, request)
        if first:
            with contextlib.suppress(OSError):  # somebody else's run may be in it by now
                run.path.parent.rmdir()
        raise
    run.record(**started)
    return run


def check(request: JobRequest) -> None:
    """Raise for whatever is known to be wrong with a run before its submission."""
    checks.missing(request.profile.name, request.missing)
    checks.times(request.profile)
    checks.secrets(request.profile.site)
    resume.output(request)
    if not request.local:
        checks.cluster(request)


def _behind(job: str | None) -> list[str]:
    return [f"--dependency=afterok:{job}", "--kill-on-invalid-dep=yes"] if job else []


def prepare(request: JobRequest, around: Surroundings | None = None, **facts: Any) -> runs.Run:
    """The run folder with everything that the job needs.

    Args:
        request: the run.
        around: what ``surroundings.gather`` has found; left out, it is gathered here.
        facts: more for the manifest.

    Raises:
        BeamSlurmError: it cannot be made; then nothing is left of it.
    """
    profile, task = request.profile, request.task
    files, known = record.make(request, around or surroundings.gather(request))
    run = runs.create(
        request.run,
        {
            **files,
            attach.SHELL: os.fsencode(job.shell(request)),
            "node.pyz": node_program(),
            **({PROGRAM: after_program(), **task.files} if task else {}),
        },
        {
            "profile": profile.name,
            "framework": task.name if task else profile.framework.name,
            "executor": "local" if request.local else "slurm",
            "output": request.launch.output,
            "checkpoints": request.launch.checkpoints,
            "sentinel": request.launch.sentinel,
            "nodes": profile.hardware.nodes,
            "gpus_per_node": profile.hardware.gpus_per_node,
            "steps": task.steps if task else profile.recipe.steps,
            **({"task": dict(task.facts)} if task else {}),
            **known,
            **facts,
        },
        mode=int(profile.site.run_mode, 8),
    )
    if task and task.mark:
        try:
            _mark(Path(task.mark), umask=0o777 & ~int(profile.site.run_mode, 8))
        except OSError as error:
            discard(run.path, request)
            raise BeamSlurmError(
                f"cannot write to {task.output}",
                why=error.strerror,
                remedy="-o another folder, on storage that this machine and every node mount",
            ) from error
    return run


def discard(run: Path, request: JobRequest) -> None:
    """Leave nothing of a run that was refused, nor of what was made for it."""
    shutil.rmtree(run, ignore_errors=True)
    mark = Path(request.task.mark) if request.task and request.task.mark else None
    with contextlib.suppress(OSError):
        if mark and not mark.stat().st_size:  # else an earlier task has begun to write there
            mark.unlink()
            mark.parent.rmdir()


def _mark(path: Path, umask: int) -> None:
    """Make the file by which nodes find out that they write where this machine will look."""
    before = os.umask(umask)  # the job's: what it finds has the mode of what it makes
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    finally:
        os.umask(before)


def _start_here(run: runs.Run) -> int:
    with (run.path / "job-local.log").open("ab") as log:
        child = subprocess.Popen(
            ["bash", str(run.path / SCRIPT)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=slurm.environment(),
            start_new_session=True,
        )
    return child.pid
