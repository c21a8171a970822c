"""From a request to a job: checks against the cluster, the run folder, one sbatch."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from typing import Any

import yaml

from beam_slurm import runs, slurm
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
    refuse_missing(request)
    if not request.local:
        check_cluster(request)
    first = not request.run.parent.exists()
    run = _folder(request)
    try:
        if request.local:
            run.record(pid=_start_here(run))
        else:
            run.record(job=slurm.submit(run.path / SCRIPT, request.token))
    except slurm.Uncertain as problem:  # the job may be there, and needs its folder then
        raise BeamSlurmError(
            "nobody can say whether the job was submitted",
            where=str(run.path),
            why=str(problem),
            remedy=f"before another try, look for a job with the comment {request.token}: "
            "squeue --me --format='%i %k'",
        ) from None
    except BeamSlurmError:
        shutil.rmtree(run.path, ignore_errors=True)
        if first:
            with contextlib.suppress(OSError):  # somebody else's run may be in it by now
                run.path.parent.rmdir()
        raise
    return run


def refuse_missing(request: JobRequest) -> None:
    """Raise if the site file has not said everything that the job needs."""
    if not request.missing:
        return
    lines = "".join(f"\n       {key}: ...  # {what}" for key, what in request.missing)
    raise BeamSlurmError(
        f"{request.profile.name} needs to know more about this site",
        remedy=f"say in site.yaml, or with --set:{lines}",
    )


def check_cluster(request: JobRequest) -> None:
    """What sbatch would take and then never start: too many nodes, too long a time."""
    profile = request.profile
    partition = slurm.partition(profile.site.partition)
    minutes = slurm.minutes(profile.job.time)
    most = min(partition.nodes, partition.max_nodes or partition.nodes)
    if profile.hardware.nodes > most:
        raise BeamSlurmError(
            f"{profile.name} wants {profile.hardware.nodes} nodes, "
            f"partition {partition.name} gives at most {most}",
            remedy="choose another with --set site.partition=..., or fewer with --nodes",
        )
    if partition.max_minutes is not None and minutes > partition.max_minutes:
        raise BeamSlurmError(
            f"job.time {profile.job.time} is over partition {partition.name}'s limit "
            f"of {_time(partition.max_minutes)}",
            remedy=f"--set job.time={_time(partition.max_minutes)}, or another partition",
        )
    _check_directives(request)
    if request.launch.container and profile.site.container == "pyxis":
        _check_pyxis(request)


def _check_directives(request: JobRequest) -> None:
    """Options of the site that this Slurm does not have, or that do not fit the nodes."""
    directives = request.profile.site.directives
    known = slurm.ask("sbatch", "--help") if directives else ""
    for option in directives:
        if not re.search(rf"--{option}\b", known):
            raise BeamSlurmError(
                f"this sbatch has no option --{option}",
                why=f"it is {slurm.ask('sbatch', '--version').strip()}",
                remedy=f"leave out site.directives.{option}",
            )
    segment = directives.get("segment")
    nodes = request.profile.hardware.nodes
    if isinstance(segment, int) and nodes % segment:
        raise BeamSlurmError(
            f"{nodes} nodes cannot be cut into segments of {segment}",
            remedy="set site.directives.segment to a divisor of hardware.nodes",
        )


def _check_pyxis(request: JobRequest) -> None:
    if "--container-image" not in slurm.ask("srun", "--help"):
        raise BeamSlurmError(
            "this srun has no --container-image",
            why="the pyxis plugin is not installed on this machine",
            remedy="ask the site for pyxis",
        )
    image = request.launch.container or ""
    if image.startswith("/") and not os.path.exists(image):  # noqa: PTH110
        raise BeamSlurmError(
            f"the image {image} is not there",
            why="neither here nor, if it is on shared storage, on the nodes",
            remedy="set site.images to the path of a .sqsh file on shared storage",
        )


def _folder(request: JobRequest) -> runs.Run:
    profile = request.profile
    resolved: dict[str, Any] = json.loads(profile.model_dump_json())
    return runs.create(
        request.run,
        {
            SCRIPT: os.fsencode(str(request)),
            "node.pyz": node_program(),
            "profile.yaml": yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True),
        },
        {
            "profile": profile.name,
            "framework": profile.framework.name,
            "executor": "local" if request.local else "slurm",
            "output": request.launch.output,
            "nodes": profile.hardware.nodes,
            "gpus_per_node": profile.hardware.gpus_per_node,
            "steps": profile.recipe.steps,
        },
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


def _time(minutes: int) -> str:
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02}:{rest % 60:02}:00"
