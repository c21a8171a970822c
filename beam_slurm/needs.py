"""What a run needs of every node, as words of ``node.pyz inspect``: asked before Ray starts."""

from __future__ import annotations

from pathlib import PurePosixPath

from beam_slurm.frameworks.launch import Launch
from beam_slurm.schema import Profile
from beam_slurm.script import Raw
from beam_slurm.task import Task


def words(
    profile: Profile, launch: Launch, run: str, local: bool, task: Task | None = None
) -> list[str | Raw]:
    """The options; what nobody has said is not asked for.

    Args:
        profile: the resolved profile.
        launch: what its framework needs.
        run: the run folder.
        local: there is no Slurm: whatever GPUs this machine has must do.
        task: what is done in place of training, which has needs of its own.
    """
    site, storage = profile.site, profile.recipe.storage
    found: list[str | Raw] = [] if local else _gpus(profile)
    if profile.hardware.exclusive and not local:
        found.append("--exclusive")
    memory = task.host_memory if task else _bytes(storage.host_memory_gb or 0)
    if memory:
        found.append(f"--host-memory={memory}")
    if profile.ray.object_store_gb:
        found.append(f"--object-store={_bytes(profile.ray.object_store_gb)}")
    if site.paths.scratch and not task and (launch.scratch or storage.nvme_gb):
        found.append(f"--scratch={site.paths.scratch}/{PurePosixPath(run).name}")
        found.append(f"--scratch-need={_bytes(storage.nvme_gb or 0)}")
    found.append(f"--tmp={site.paths.tmp}")
    if launch.container:
        found += [f"--runtime={site.container}", f"--image={launch.container}"]
    found += [f"--path={path}" for path in _sources(profile, launch)]
    if launch.model:
        found.append(f"--same={launch.model}")
    found += [Raw('--shared="$RUN"'), f"--shared={task.shared if task else launch.output}"]
    if task and task.mark:
        found.append(f"--made={task.mark}")
    network = (("interface", site.network.interface), ("prefix", site.network.prefix))
    return [*found, *(f"--{name}={value}" for name, value in network if value)]


def severities(profile: Profile) -> Raw:
    """The site's own opinion of checks, as words of ``node.pyz preflight``."""
    text = ""
    for severity in ("fail", "warn", "off"):
        names = [name for name, word in profile.site.preflight.items() if word == severity]
        text += f" --{severity}={','.join(sorted(names))}" if names else ""
    return Raw(text)


def _gpus(profile: Profile) -> list[str | Raw]:
    hardware = profile.hardware
    found: list[str | Raw] = [f"--gpus={hardware.gpus_per_node}"]
    if profile.framework.name == "demo":  # it runs on whatever there is
        return found
    found.append(f"--gpu={hardware.gpu}")
    if hardware.gpu_memory_gb:
        found.append(f"--gpu-memory={_bytes(hardware.gpu_memory_gb)}")
    return found


def _sources(profile: Profile, launch: Launch) -> list[str]:
    """What is mounted, or used in place; the run's own folders are not there yet."""
    scratch, outputs = profile.site.paths.scratch, profile.site.paths.outputs
    if launch.container is None:
        venv = profile.site.paths.venv
        return [venv] if venv else []
    mounted = [mount.source for mount in launch.mounts]
    return [source for source in dict.fromkeys(mounted) if source not in (scratch, outputs)]


def _bytes(gigabytes: float) -> int:
    return int(gigabytes * 1e9)
