"""What is refused before a submission, because it would fail or wait for ever after it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from beam_slurm import inventory, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.node import checkpoint
from beam_slurm.schema import Profile


def missing(name: str, items: Sequence[tuple[str, str]]) -> None:
    """Raise if the site file has not said everything that the profile ``name`` needs.

    Args:
        name: the profile's.
        items: (key, what it is) of what it must still say.
    """
    if not items:
        return
    lines = "".join(f"\n       {key}: ...  # {what}" for key, what in items)
    raise BeamSlurmError(
        f"{name} needs to know more about this site",
        remedy=f"say in site.yaml (beam-slurm init writes one), or with --set:{lines}",
    )


def cluster(request: JobRequest) -> None:
    """What sbatch would take and then never start, and what the nodes could not run."""
    profile = request.profile
    folders(request)
    partition(profile, profile.hardware.nodes)
    options(profile)
    segment, nodes = profile.site.directives.get("segment"), profile.hardware.nodes
    if isinstance(segment, int) and nodes % segment:
        raise BeamSlurmError(
            f"{nodes} nodes cannot be cut into segments of {segment}",
            remedy="set site.directives.segment to a divisor of hardware.nodes",
        )
    if request.launch.container:
        image(profile.site.container, request.launch.container)


def folders(request: JobRequest) -> None:
    """Raise for a folder of the site that is missing although what is around it is seen here."""
    launch, scratch = request.launch, request.profile.site.paths.scratch
    sources = {mount.source for mount in launch.mounts} - {scratch}
    if launch.container is None:
        made = {str(request.run), str(request.run.parent)}  # by submit itself
        sources = {launch.workdir, str(Path(launch.output).parent)} - made
    for path in sorted(map(Path, sources)):
        if _is_there(path.parent) and not _is_there(path):
            raise BeamSlurmError(
                f"{path} is not there",
                why="a job would find that out only after the queue",
                remedy="make it, or correct site.paths (beam-slurm doctor looks at all of them)",
            )


def partition(profile: Profile, nodes: int) -> None:
    """Raise for too many nodes or too long a time: such a job would wait for ever."""
    found = inventory.choose(inventory.ask(), profile.site.partition)
    minutes = slurm.minutes(profile.job.time)
    most = min(found.nodes, found.max_nodes or found.nodes)
    if nodes > most:
        raise BeamSlurmError(
            f"{profile.name} wants {nodes} nodes, partition {found.name} gives at most {most}",
            remedy="choose another with --set site.partition=..., or fewer with --nodes",
        )
    if found.max_minutes is not None and minutes > found.max_minutes:
        raise BeamSlurmError(
            f"job.time {profile.job.time} is over partition {found.name}'s limit "
            f"of {slurm.spelled(found.max_minutes)}",
            remedy=f"--set job.time={slurm.spelled(found.max_minutes)}, or another partition",
        )


def output(request: JobRequest) -> None:
    """Raise unless the output folder holds what the run is to go on from, or nothing.

    Frameworks decide this by themselves, hours later, and some of them without a word: SkyRL and
    Miles start from scratch where a small file is missing, NeMo RL goes on without being asked.
    A folder that this machine does not see is left to the job's first node.

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
    if not _is_there(Path(folder)) and not _is_there(root):
        return
    found = checkpoint.latest(profile.framework.name, folder)
    if resume:
        _check_resume(request, folder, found)
    elif found.newest is not None:
        what = "a checkpoint" if found.step is not None else "something like a checkpoint"
        raise BeamSlurmError(
            f"{folder} holds {what} of step {found.step or found.newest}",
            why="; ".join(found.problems) or None,
            remedy="add --resume, or another --output-dir"
            if found.step is not None
            else "another --output-dir, or move away what lies there",
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


def options(profile: Profile) -> None:
    """Raise for an option of the site that this Slurm does not have."""
    directives = profile.site.directives
    known = slurm.ask("sbatch", "--help") if directives else ""
    for option in directives:
        if not re.search(rf"--{option}\b", known):
            raise BeamSlurmError(
                f"this sbatch has no option --{option}",
                why=f"it is {slurm.ask('sbatch', '--version').strip()}",
                remedy=f"leave out site.directives.{option}",
            )


def image(runtime: str, spelled: str) -> None:
    """Raise if the site's runtime or the image's file cannot be there.

    Docker, Podman and Apptainer are a matter of the nodes: a login node need not have them.
    """
    if runtime == "pyxis" and "--container-image" not in slurm.ask("srun", "--help"):
        raise BeamSlurmError(
            "this srun has no --container-image",
            why="the pyxis plugin is not installed on this machine",
            remedy="ask the site for pyxis, or set site.container to what it has",
        )
    if spelled.startswith("/") and not _is_there(Path(spelled)):
        raise BeamSlurmError(
            f"the image {spelled} is not there",
            why="neither here nor, if it is on shared storage, on the nodes",
            remedy="set site.images to a file on shared storage; "
            f"to make it: beam-slurm image import IMAGE -o {spelled}",
        )


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # the job would have no more luck than we
        raise BeamSlurmError(f"cannot look at {path}", why=error.strerror) from error
    return True
