"""How a script puts its programs into a container: what templates/containers/*.j2 want to know."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from beam_slurm import mounts, script
from beam_slurm.mounts import Mount
from beam_slurm.schema import Hardware, Site
from beam_slurm.script import Raw

# What beam_slurm/node reads of Slurm inside a container. pyxis hands all of Slurm's own on.
SLURM_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_CPUS_PER_NODE", "SLURMD_NODENAME")

# How "all GPUs of this node" is said to each runtime, by site.container_gpus.
_ALL_GPUS = {
    ("docker", "nvidia"): "--gpus=all",
    ("docker", "cdi"): "--device=nvidia.com/gpu=all",
    ("podman", "nvidia"): "--device=nvidia.com/gpu=all",
    ("podman", "cdi"): "--device=nvidia.com/gpu=all",
    ("apptainer", "nvidia"): "--nv",
    ("apptainer", "cdi"): "--nv",
}


def values(
    site: Site,
    image: str | None,
    needed: Sequence[Mount],
    variables: Sequence[str],
    hardware: Hardware | None = None,
) -> dict[str, Any]:
    """Values for the templates.

    Args:
        site: the runtime, its options, and more mounts.
        image: as the runtime takes it; None where the programs need no container.
        needed: mounts of the framework.
        variables: names that go into the container with the values that they have in the job.
        hardware: whose GPUs go in; None if none do.
    """
    runtime = "bare" if image is None else site.container
    bare = runtime == "bare"
    return {
        "container": runtime,
        "image": image,
        "gpus": _gpus(site, hardware, runtime),
        "all_gpus": _all_gpus(site, hardware, runtime),
        "options": Raw("".join(f" {script.quote(word)}" for word in site.container_options)),
        "mounts": list(dict.fromkeys([*needed, *map(mounts.parse, site.mounts)])),
        # Images have values of their own: the job's win only where the runtime is told their names.
        "forwarded": [
            *variables,
            *(() if runtime == "pyxis" else SLURM_VARIABLES),
            # It counts within the step's own devices, which only Apptainer shares.
            *(["CUDA_VISIBLE_DEVICES"] if runtime == "apptainer" else []),
        ],
        "venv": (site.paths.venv or sys.prefix) if bare else None,
        "tmp": site.paths.tmp,
    }


def secrets(site: Site, names: Sequence[str]) -> dict[str, Any]:
    """Values for templates/environment.j2.

    Args:
        site: names of its own, and a file of more.
        names: those that the framework uses itself.
    """
    return {
        "secrets": list(dict.fromkeys([*names, *site.secret_names])),
        "secrets_file": site.secrets_file,
        "webhook": site.notify.webhook,
    }


def _gpus(site: Site, hardware: Hardware | None, runtime: str) -> Raw:
    """What `contain` is told about GPUs: how many, and how to hand them over on shared nodes."""
    if hardware is None or site.container_gpus == "none":
        return Raw("")
    words = f" --gpus={hardware.gpus_per_node}"
    if runtime in ("docker", "podman") and not hardware.exclusive:
        # A daemon's containers are in no cgroup of the step: they would see everybody's GPUs.
        way = "nvidia" if (runtime, site.container_gpus) == ("docker", "nvidia") else "cdi"
        words += f" --assign={way}"
    return Raw(words)


def _all_gpus(site: Site, hardware: Hardware | None, runtime: str) -> Raw:
    """The runtime's own words for all GPUs, where the job may have them all."""
    word = _ALL_GPUS.get((runtime, site.container_gpus))
    if hardware is None or word is None or (not hardware.exclusive and runtime != "apptainer"):
        return Raw("")
    return Raw(f" {word}")
