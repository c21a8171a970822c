"""From a request to a job: checks, the run folder, one sbatch."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from typing import Any

import yaml

from beam_slurm import attach, checks, job, resume, runs, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.pack import node_program

SCRIPT = "script.sbatch"


def submit(request: JobRequest) -> runs.Run:
    """Check, make the run folder, submit; whatever is refused leaves nothing behind.

    Raises:
        BeamSlurmError: with the cause and the remedy; nothing was submitted then, unless it
            says that nobody knows.
    """
    checks.missing(request.profile.name, request.missing)
    checks.times(request.profile)
    checks.secrets(request.profile.site)
    resume.output(request)
    if not request.local:
        checks.cluster(request)
    first = not request.run.parent.exists()
    run = prepare(request)
    try:
        if request.local:
            run.record(pid=_start_here(run))
        else:
            run.record(job=slurm.submit(run.path / SCRIPT, request.token))
    except slurm.Uncertain as problem:  # the job may be there, and needs its folder then
        raise problem.error(request.token, run.path) from None
    except BeamSlurmError:
        shutil.rmtree(run.path, ignore_errors=True)
        if first:
            with contextlib.suppress(OSError):  # somebody else's run may be in it by now
                run.path.parent.rmdir()
        raise
    return run


def prepare(request: JobRequest, **facts: Any) -> runs.Run:
    """The run folder with everything that the job needs; ``facts`` go into its manifest.

    Raises:
        BeamSlurmError: it cannot be made; then nothing is left of it.
    """
    profile = request.profile
    resolved: dict[str, Any] = json.loads(profile.model_dump_json())
    return runs.create(
        request.run,
        {
            SCRIPT: os.fsencode(str(request)),
            attach.SHELL: os.fsencode(job.shell(request)),
            "node.pyz": node_program(),
            "profile.yaml": yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True),
        },
        {
            "profile": profile.name,
            "framework": profile.framework.name,
            "executor": "local" if request.local else "slurm",
            "output": request.launch.output,
            "checkpoints": request.launch.checkpoints,
            "sentinel": request.launch.sentinel,
            "nodes": profile.hardware.nodes,
            "gpus_per_node": profile.hardware.gpus_per_node,
            "steps": profile.recipe.steps,
            **facts,
        },
        mode=int(profile.site.run_mode, 8),
    )


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
