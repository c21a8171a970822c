"""What is refused before a submission, because it would fail or wait for ever after it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from beam_slurm import inventory, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.node import notify, secretfile
from beam_slurm.node.checkpoint import EVALUATION
from beam_slurm.schema import Profile, Site

LONGEST_LEAD = 65535  # seconds, of sbatch --signal


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
    partition(profile, profile.hardware.nodes, profile.job.spares)
    options(profile)
    segment = profile.site.directives.get("segment")
    nodes = profile.hardware.nodes + profile.job.spares
    if isinstance(segment, int) and nodes % segment:
        spares = " and job.spares" if profile.job.spares else ""
        raise BeamSlurmError(
            f"{nodes} nodes cannot be cut into segments of {segment}",
            remedy=f"set site.directives.segment to a divisor of hardware.nodes{spares}",
        )
    if request.launch.container:
        image(profile.site.container, request.launch.container)


def folders(request: JobRequest) -> None:
    """Raise for a folder of the site that is missing although what is around it is seen here."""
    output(request)
    for path in sorted(map(Path, _needed(request))):
        if _missing(path):
            raise BeamSlurmError(
                f"{path} is not there",
                why="a job would find that out only after the queue",
                remedy="make it, or correct site.paths (beam-slurm doctor looks at all of them)",
            )


def output(request: JobRequest) -> None:
    """Raise if a task's output goes into a folder that must be there, and is not."""
    if request.task is None:
        return
    folder = Path(request.task.output).parent
    if str(folder) in _needed(request) and _missing(folder):
        raise BeamSlurmError(
            f"{folder} is not there",
            why=f"{request.task.output} would be made in it",
            remedy="make it, or give another folder with -o",
        )


def _missing(path: Path) -> bool:
    return seen(path.parent) and not seen(path)


def _needed(request: JobRequest) -> set[str]:
    """The folders of hosts that must be there before the job."""
    launch, scratch = request.launch, request.profile.site.paths.scratch
    sources = {mount.source for mount in launch.mounts} - {scratch}
    if launch.container is None:
        made = {str(request.run), str(request.run.parent)}  # by submit itself
        sources = {launch.workdir, str(Path(launch.output).parent)} - made
    if request.task:  # what it reads was looked at, or the job before it makes that
        sources -= {str(Path(path).parent) for path in request.task.reads.values()}
    return sources


def partition(profile: Profile, nodes: int, spares: int = 0) -> None:
    """Raise for too many nodes or too long a time: such a job would wait for ever."""
    found = inventory.choose(inventory.ask(), profile.site.partition)
    minutes = slurm.minutes(profile.job.time)
    most = min(found.nodes, found.max_nodes or found.nodes)
    if nodes + spares > most:
        wanted = f"{nodes} nodes" + (f" and {spares} spare{'s' * (spares > 1)}" if spares else "")
        fewer = f"--spares {most - nodes}" if spares and most >= nodes else "fewer with --nodes"
        raise BeamSlurmError(
            f"{profile.name} wants {wanted}, partition {found.name} gives at most {most}",
            remedy=f"choose another with --set site.partition=..., or {fewer}",
        )
    if found.max_minutes is not None and minutes > found.max_minutes:
        raise BeamSlurmError(
            f"job.time {profile.job.time} is over partition {found.name}'s limit "
            f"of {slurm.spelled(found.max_minutes)}",
            remedy=f"--set job.time={slurm.spelled(found.max_minutes)}, or another partition",
        )


def times(profile: Profile) -> None:
    """Raise for times that cannot be kept together."""
    job = profile.job
    limit = slurm.seconds(job.time)
    if job.lead_s is not None and job.lead_s >= limit:
        raise BeamSlurmError(
            f"job.lead_s {job.lead_s} is not shorter than job.time {job.time} ({limit} s)",
            why="the run would be asked to save before it has begun",
            remedy="leave out job.lead_s, or raise job.time",
        )
    if job.lead_s is not None and job.lead_s > LONGEST_LEAD:
        raise BeamSlurmError(
            f"job.lead_s {job.lead_s} is longer than Slurm's {LONGEST_LEAD} s",
            why="sbatch --signal takes no more",
            remedy=f"--set job.lead_s={LONGEST_LEAD}, or less",
        )
    if job.total_time is None:
        return
    total = slurm.seconds(job.total_time)
    if total < limit:
        raise BeamSlurmError(
            f"job.total_time {job.total_time} is shorter than job.time {job.time}",
            why="that is the limit of each of its jobs",
            remedy=f"--set job.time={job.total_time}, or a longer --total-time",
        )
    if total > limit and not profile.recipe.checkpoint.enabled:
        raise BeamSlurmError(
            f"job.total_time {job.total_time} is longer than job.time {job.time}, "
            "and recipe.checkpoint.enabled is false",
            why="the second job would have nothing to go on from",
            remedy="--save-every N, or leave out --total-time",
        )


def secrets(site: Site) -> None:
    """Raise unless this shell or the site's file has every secret that the site names.

    A file that this machine does not see is left to the job, which looks at it in any case.
    """
    found = held(site)
    lacking = [name for name in site.secrets if found is not None and name not in found]
    if lacking:
        also = f" nor in {site.secrets_file}" if site.secrets_file else ""
        raise BeamSlurmError(
            f"{', '.join(lacking)} of site.secrets is not set in this shell{also}",
            why="the job inherits secrets from the shell that submits it",
            remedy=f"export {lacking[0]}=..., or leave it out of site.secrets",
        )
    hook = site.notify.webhook
    if found is not None and hook and (why := notify.unfit(found.get(hook, ""))):
        raise BeamSlurmError(
            f"nothing can be sent to the webhook of {hook}",
            why=why,
            remedy=f"export {hook}=https://..., or leave out site.notify.webhook",
        )


def held(site: Site) -> dict[str, str] | None:
    """What this shell or the site's file has; None if this machine does not see the file.

    Raises:
        BeamSlurmError: the file may not be used.
    """
    found = {name: value for name, value in os.environ.items() if value}
    path = site.secrets_file
    if path is None:
        return found
    if not seen(Path(path)) and not seen(Path(path).parent):
        return None
    try:
        return found | secretfile.read(path)
    except secretfile.Refused as problem:
        raise BeamSlurmError(
            f"site.secrets_file {path} cannot be used", why=str(problem), remedy=problem.remedy
        ) from None
    except OSError as error:
        raise BeamSlurmError(
            f"cannot read site.secrets_file {path}",
            why=error.strerror,
            remedy="make it, chmod 600, or leave out site.secrets_file",
        ) from error


def unused(request: JobRequest) -> str | None:
    """What this shell has and the run will not use, as one line; None if nothing."""
    names = set(request.launch.withheld) - set(request.profile.site.secrets)
    found = sorted(name for name in names if os.environ.get(name))
    if not found:
        return None
    return (
        f"{request.launch.title} is not told of {', '.join(found)}, which it would repeat in its "
        f"log: to have it used by the workers alone, --set site.secrets=[{', '.join(found)}]"
    )


def mailless(request: JobRequest) -> str | None:
    """That nobody will get the mail that the profile asks for, as one line; None if they will."""
    if not (request.local and request.profile.job.mail_type):
        return None
    return "job.mail_type is left out: it is Slurm that sends mail, and this run does without"


def engineless(request: JobRequest, recorded: bool = True) -> str | None:
    """That the image may have no vLLM to evaluate with, as one line; None if it should have it.

    Args:
        request: of an evaluation, or any other.
        recorded: if it is of a run, then of one whose record says of which site.
    """
    task, rollout = request.task, request.profile.recipe.rollout
    if task is None or task.name != EVALUATION or request.launch.container is None:
        return None
    if rollout is None or rollout.backend == "vllm" or EVALUATION in request.profile.site.images:
        return None
    again = ", for evaluate FOLDER --profile NAME: a run keeps the site of its submission"
    return (
        f"it is vLLM that scores, and {request.profile.name} generates with {rollout.backend}: if "
        "its image has no vLLM the evaluation fails; name one that has it by site.images.evaluate"
        + (again if recorded and task.facts["run"] else "")
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
    if spelled.startswith("/") and not seen(Path(spelled)):
        raise BeamSlurmError(
            f"the image {spelled} is not there",
            why="neither here nor, if it is on shared storage, on the nodes",
            remedy="set site.images to a file on shared storage; "
            f"to make it: beam-slurm image import IMAGE -o {spelled}",
        )


def seen(path: Path) -> bool:
    """Whether this machine sees ``path``.

    Raises:
        BeamSlurmError: it cannot be looked at.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # the job would have no more luck than we
        raise BeamSlurmError(f"cannot look at {path}", why=error.strerror) from error
    return True
