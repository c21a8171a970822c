"""From a request to a job: checks against the cluster, the run folder, one sbatch."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from beam_slurm import inventory, runs, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.node import checkpoint
from beam_slurm.pack import node_program
from beam_slurm.schema import Profile

SCRIPT = "script.sbatch"


def submit(request: JobRequest) -> runs.Run:
    """Check, make the run folder, submit; whatever is refused leaves nothing behind.

    Raises:
        BeamSlurmError: with the cause and the remedy; nothing was submitted then, unless it
            says that nobody knows.
    """
    refuse_missing(request.profile.name, request.missing)
    check_output(request)
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
        raise uncertain(run.path, request.token, problem) from None
    except BeamSlurmError:
        shutil.rmtree(run.path, ignore_errors=True)
        if first:
            with contextlib.suppress(OSError):  # somebody else's run may be in it by now
                run.path.parent.rmdir()
        raise
    return run


def uncertain(folder: Path, token: str, problem: slurm.Uncertain) -> BeamSlurmError:
    """The error for a submission of which nobody can say whether it was taken."""
    return BeamSlurmError(
        "nobody can say whether the job was submitted",
        where=str(folder),
        why=str(problem),
        remedy=f"before another try, look for a job with the comment {token}: "
        "squeue --me --format='%i %k'",
    )


def refuse_missing(name: str, missing: Sequence[tuple[str, str]]) -> None:
    """Raise if the site file has not said everything that the profile ``name`` needs."""
    if not missing:
        return
    lines = "".join(f"\n       {key}: ...  # {what}" for key, what in missing)
    raise BeamSlurmError(
        f"{name} needs to know more about this site",
        remedy=f"say in site.yaml, or with --set:{lines}",
    )


def check_cluster(request: JobRequest) -> None:
    """What sbatch would take and then never start, and what the nodes could not run."""
    profile = request.profile
    check_partition(profile, profile.hardware.nodes)
    if request.launch.container and profile.site.container == "pyxis":
        _check_pyxis(request)


def check_partition(profile: Profile, nodes: int) -> None:
    """Raise for too many nodes or too long a time: such a job would wait for ever."""
    partition = inventory.choose(inventory.ask(), profile.site.partition)
    minutes = slurm.minutes(profile.job.time)
    most = min(partition.nodes, partition.max_nodes or partition.nodes)
    if nodes > most:
        raise BeamSlurmError(
            f"{profile.name} wants {nodes} nodes, partition {partition.name} gives at most {most}",
            remedy="choose another with --set site.partition=..., or fewer with --nodes",
        )
    if partition.max_minutes is not None and minutes > partition.max_minutes:
        raise BeamSlurmError(
            f"job.time {profile.job.time} is over partition {partition.name}'s limit "
            f"of {_time(partition.max_minutes)}",
            remedy=f"--set job.time={_time(partition.max_minutes)}, or another partition",
        )
    _check_directives(profile, nodes)


def check_output(request: JobRequest) -> None:
    """Whether the output folder holds what the run is to go on from, or nothing.

    Frameworks decide this by themselves, hours later, and some of them without a word: SkyRL and
    Miles start from scratch where a small file is missing, NeMo RL goes on without being asked.
    A folder that this machine does not see is left to the nodes.

    Raises:
        BeamSlurmError: with what lies there, whole or not.
    """
    profile, folder = request.profile, request.launch.checkpoints
    resume = profile.recipe.checkpoint.resume
    if resume and not profile.recipe.checkpoint.enabled:
        raise BeamSlurmError(
            "a run without checkpoints cannot resume",
            why="recipe.checkpoint.resume is true, recipe.checkpoint.enabled is false",
            remedy="--set recipe.checkpoint.enabled=true",
        )
    if folder is None:
        return
    root = Path(profile.site.paths.outputs or request.run.parent)
    if not Path(folder).is_dir() and not root.is_dir():
        return
    found = checkpoint.latest(profile.framework.name, folder)
    if resume:
        _check_resume(request, folder, found)
    elif found.newest is not None:
        what = "a checkpoint" if found.step is not None else "something like a checkpoint"
        raise BeamSlurmError(
            f"{folder} holds {what} of step {found.step or found.newest}",
            why="; ".join(found.problems) or None,
            remedy="add --resume, or another --output-dir",
        )


def _check_resume(request: JobRequest, folder: str, found: checkpoint.Found) -> None:
    recipe = request.profile.recipe
    newest = found.newest or 0
    if found.step is None:
        raise BeamSlurmError(
            f"there is no whole checkpoint in {folder} to resume from",
            why="; ".join(found.problems) or "it holds none at all: the run would start at step 1",
            remedy="name the first run's folder with --output-dir, or leave out --resume",
        )
    if request.profile.framework.name == "skyrl" and newest - found.step > recipe.checkpoint.every:
        raise BeamSlurmError(
            f"SkyRL would refuse to resume from {folder}",
            why=f"its newest folder is of step {newest}, more than {recipe.checkpoint.every} "
            f"(recipe.checkpoint.every) beyond step {found.step} of its tracker file",
            remedy="; ".join(found.problems) + "; move it away",
        )
    if recipe.steps <= found.step:
        raise BeamSlurmError(
            f"{found.path} has {found.step} steps behind it already",
            why=f"recipe.steps is {recipe.steps}, those before a resume included: "
            "the run would end at once",
            remedy=f"--set recipe.steps={found.step + recipe.checkpoint.every}, for example",
        )


def _check_directives(profile: Profile, nodes: int) -> None:
    """Options of the site that this Slurm does not have, or that do not fit the nodes."""
    directives = profile.site.directives
    known = slurm.ask("sbatch", "--help") if directives else ""
    for option in directives:
        if not re.search(rf"--{option}\b", known):
            raise BeamSlurmError(
                f"this sbatch has no option --{option}",
                why=f"it is {slurm.ask('sbatch', '--version').strip()}",
                remedy=f"leave out site.directives.{option}",
            )
    segment = directives.get("segment")
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
