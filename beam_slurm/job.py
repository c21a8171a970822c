"""The request and its text. ``str(request)`` is the script: what dry-run prints is submitted."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beam_slurm import (
    conflicts,
    containers,
    frameworks,
    images,
    mounts,
    needs,
    runs,
    script,
    secret,
    slurm,
)
from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.launch import Launch, Missing
from beam_slurm.node.checkpoint import EVALUATION
from beam_slurm.profiles import Resolved
from beam_slurm.schema import NAME, Profile
from beam_slurm.script import Raw
from beam_slurm.task import Task
from beam_slurm.yamlfile import dotted

# What templates/ray_address.j2 exports.
_RAY_VARIABLES = (
    *("MASTER_ADDR", "RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_MODE"),
    "BEAM_SLURM_ATTEMPT",
)
_RAY_TOKEN = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - a variable's name


@dataclass(frozen=True)
class JobRequest:
    """Everything about one submission: typed, frozen, complete.

    Attributes:
        resolved: the profile, with its origins.
        launch: what the framework needs.
        run: absolute path of the run folder; its name is the run's id and the job's comment.
        overrides: words behind --, which stand at the end of the entry's argv.
        missing: what the site file must still say, as (key, what it is).
        local: run on this machine without Slurm.
        task: what is done with a checkpoint in place of training.
    """

    resolved: Resolved
    launch: Launch
    run: Path
    overrides: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    local: bool = False
    task: Task | None = None

    @property
    def profile(self) -> Profile:
        """The resolved profile."""
        return self.resolved.profile

    @property
    def token(self) -> str:
        """The job's comment, by which it can be found again."""
        return f"beam-slurm:{self.run.name}"

    def __str__(self) -> str:
        return render(self)


def make_request(
    resolved: Resolved,
    *,
    overrides: Sequence[str] = (),
    local: bool = False,
    run_id: str | None = None,
    root: Path | None = None,
) -> JobRequest:
    """The request for a profile.

    Args:
        resolved: the profile.
        overrides: words for the end of the entry's argv, as they are.
        local: run on this machine without Slurm.
        run_id: the run's name; left out, one that nobody else has.
        root: where its folder will lie; left out, the site's ``paths.runs``.

    Raises:
        BeamSlurmError: if the profile cannot be launched in the way asked for.
    """
    profile = resolved.profile
    for word in overrides:
        if "\0" in word:
            raise BeamSlurmError("an override contains a zero byte", why="no program can take it")
    secret.refuse("the overrides", overrides, names=profile.site.secret_names)
    if not NAME.fullmatch(profile.job_name):
        raise BeamSlurmError(
            f"{profile.job_name!r} cannot name a job",
            why="a name is 1 to 64 of A-Z a-z 0-9 . _ -",
            remedy="rename the profile's file, or set job.name",
        )
    if local and profile.hardware.nodes != 1:
        raise BeamSlurmError(
            f"{profile.name} wants {profile.hardware.nodes} nodes, without Slurm there is one",
            remedy="add --nodes 1, or submit to a Slurm cluster",
        )
    root = (root or runs.root(profile.site.paths.runs)).absolute()
    run = root / (run_id or runs.new_id(profile.job_name))
    missing = Missing()
    launch = frameworks.launch(resolved, str(run), missing, overrides)
    contained = launch.container is not None
    conflicts.refuse(resolved, launch.mounts, launch.settings, contained)
    if local and contained:
        raise BeamSlurmError(
            f"{profile.name} runs in a container, and without Slurm there is none",
            remedy="--set site.container=bare, in an environment that has the framework",
        )
    mounts.itself(str(run), "the run folder", "set site.paths.runs to another folder")
    return JobRequest(resolved, launch, run, tuple(overrides), tuple(missing.items), local)


def instead(request: JobRequest, task: Task) -> JobRequest:
    """The request of a job that does ``task`` where ``request`` would train.

    Raises:
        BeamSlurmError: the site's image for evaluations is spelled as only another runtime does.
    """
    site, key = request.profile.site, ("site", "images", EVALUATION)
    contained = request.launch.container is not None
    image = site.images.get(EVALUATION) if contained and task.name == EVALUATION else None
    if image:
        place = request.resolved.document.places.get(key, dotted(key))
        image = images.spell(image, site.container, place)
    return replace(request, launch=task.launch(request.launch, str(request.run), image), task=task)


def render(request: JobRequest) -> str:
    """The whole script of a request."""
    return _render(request, "local.sh.j2" if request.local else "job.sbatch.j2")


def shell(request: JobRequest) -> str:
    """The script that opens a shell beside the request's run, in its environment and container."""
    return _render(request, "shell.sh.j2")


def _render(request: JobRequest, template: str) -> str:
    profile, launch, task = request.profile, request.launch, request.task
    site = profile.site
    environment = {
        "PYTHONUNBUFFERED": "1",
        # One line a message and no colours: the log is read by programs too.
        "RAY_DEDUP_LOGS": "0",
        "RAY_COLOR_PREFIX": "0",
        # All attempts are one run there, too.
        **({} if task else {"WANDB_RUN_ID": request.run.name, "WANDB_RESUME": "allow"}),
        # Where a host's home is mounted, its Python packages would hide the image's.
        **({"PYTHONNOUSERSITE": "1"} if launch.container else {}),
        **launch.environment,
        **site.environment,
    }
    names = [
        *sorted(environment),
        *_RAY_VARIABLES,
        *([_RAY_TOKEN] if profile.ray.auth == "token" else []),
        "BEAM_SLURM_SECRETS",
    ]
    return script.render(
        template,
        profile=profile,
        hardware=profile.hardware,
        recipe=profile.recipe,
        launch=launch,
        local=request.local,
        task=task,
        counts=task.name if task else profile.framework.name,
        steps=task.steps if task else profile.recipe.steps,
        # A conversion tells nothing from which one could see that it is stuck.
        watched=profile.recipe.watchdog.enabled and (task is None or task.keeps),
        save_every=1 if task else profile.recipe.checkpoint.every,
        resume=profile.recipe.checkpoint.resume and not task,
        run=str(request.run),
        directives=directives(request),
        unset_directives=script.unplaced(site),
        setup=[Raw(line) for line in site.setup],
        environment=sorted(environment.items()),
        unset=sorted({*launch.settings, "PYTHONHOME", "PYTHONPATH"} - set(environment)),
        network=_network(profile),
        again=_again(request),
        guarded=guarded(request),
        total=60 * slurm.minutes(profile.job.total_time) if profile.job.total_time else 0,
        lead=lead(profile),
        notify=site.notify,
        needs=needs.words(profile, launch, str(request.run), request.local, task),
        severities=needs.severities(profile),
        # Without a token, whoever reaches the dashboard runs code: then this host alone does.
        dashboard_host=Raw('"$head_ip"') if profile.ray.auth == "token" else "127.0.0.1",
        object_store=int(profile.ray.object_store_gb * 1e9) if profile.ray.object_store_gb else 0,
        cpus=os.cpu_count() or 1,
        umask=f"{0o777 & ~int(site.run_mode, 8):03o}",
        **containers.secrets(site, launch.secrets),
        **containers.values(site, launch.container, launch.mounts, names, profile.hardware),
    )


def directives(request: JobRequest) -> list[tuple[str, Any]]:
    """The #SBATCH lines in the order in which people look for them; None is an option alone."""
    profile, site, hardware = request.profile, request.profile.site, request.profile.hardware
    gpu = site.gpu_names.get(hardware.gpu, hardware.gpu)
    gpus = f"{gpu}:{hardware.gpus_per_node}" if gpu else f"{hardware.gpus_per_node}"
    found: list[tuple[str, Any]] = [
        ("job-name", profile.job_name),
        ("comment", request.token),
        *script.placement(site),
        ("nodes", hardware.nodes + profile.job.spares),
        ("ntasks-per-node", 1),
    ]
    if site.gpu_request == "gres":
        found.append(("gres", f"gpu:{gpus}"))
    elif site.gpu_request == "gpus-per-node":
        found.append(("gpus-per-node", gpus))
    if hardware.cpus_per_node:
        found.append(("cpus-per-task", hardware.cpus_per_node))
    if hardware.exclusive:
        found += [("exclusive", None), ("mem", 0)]
    return [
        *found,
        ("time", profile.job.time),
        *_mail(profile),
        ("signal", f"B:USR1@{lead(profile)}"),
        # Where a spare can take over, a node that fails is not the end of the job.
        *([("no-kill", None)] if guarded(request) else []),
        ("requeue" if _again(request) == "requeue" else "no-requeue", None),
        ("open-mode", "append"),
        ("chdir", str(request.run)),
        ("output", f"{request.run}/job-%j.log"),
        *script.more_directives(site),
    ]


def _mail(profile: Profile) -> list[tuple[str, Any]]:
    """When Slurm sends mail, and to whom: the same for every job of the run."""
    job = profile.job
    found = [("mail-type", ",".join(job.mail_type)), ("mail-user", job.mail_user)]
    return [(option, value) for option, value in found if value]


def goes_on(profile: Profile) -> bool:
    """Whether the run may begin again by itself."""
    return profile.job.max_restarts > 0 or profile.job.total_time is not None


def guarded(request: JobRequest) -> bool:
    """Whether the job outlives its nodes: then another node watches the first one."""
    profile = request.profile
    more = profile.job.spares > 0 and profile.hardware.nodes > 1
    return more and _again(request) in ("requeue", "chain")


def lead(profile: Profile) -> int:
    """Seconds before the time limit at which the framework is asked to save."""
    return profile.job.lead_s or min(900, slurm.minutes(profile.job.time) * 6)


def _again(request: JobRequest) -> str:
    """How the run gets another job: requeue or chain; none; local: in this process alone."""
    if request.local:
        return "local"
    return request.profile.site.again if goes_on(request.profile) else "none"


def _network(profile: Profile) -> Raw:
    network = profile.site.network
    words = [
        f" --{name}={shlex.quote(value)}"
        for name, value in (("interface", network.interface), ("prefix", network.prefix))
        if value
    ]
    return Raw("".join(words))
