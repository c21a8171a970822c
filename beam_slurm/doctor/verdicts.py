"""What the nodes' facts mean for the profile: one list of checks for each node."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from beam_slurm.doctor.checks import Check, passed
from beam_slurm.doctor.subject import Subject

FILES = 65536  # open files that Ray asks for on large clusters
MEMORY = ("tmpfs", "ramfs")


def judge(
    subject: Subject,
    ask: Mapping[str, Any],
    mine: Mapping[str, str | None],
    answers: Mapping[str, Mapping[str, Any]],
) -> dict[str, list[Check]]:
    """Checks by node.

    Args:
        subject: what is examined.
        ask: what the nodes were asked.
        mine: fingerprints of the same paths on this machine.
        answers: each node's facts, see ``node.examine``.
    """
    wanted = {name: mine[name] or _most(answers, name) for name in ask["paths"]}
    addresses = Counter(facts["address"] for facts in answers.values() if facts["address"])
    return {
        node: [
            *_paths(ask, wanted, facts),
            *_writable(ask, facts),
            *_commands(facts),
            *_disks(subject, ask, facts),
            *_gpus(subject, facts),
            *_limits(subject, facts),
            _address(facts, addresses),
            passed("python3", facts["python"]),
        ]
        for node, facts in sorted(answers.items())
    }


def _most(answers: Mapping[str, Mapping[str, Any]], name: str) -> str | None:
    """What most nodes see where this machine sees nothing."""
    seen = Counter(facts["paths"][name] for facts in answers.values() if facts["paths"][name])
    return seen.most_common(1)[0][0] if seen else None


def _paths(
    ask: Mapping[str, Any], wanted: Mapping[str, str | None], facts: Mapping[str, Any]
) -> Iterator[Check]:
    for name, path in ask["paths"].items():
        seen = facts["paths"][name]
        if seen is None:
            remedy = "it must be on storage that this node mounts"
            yield Check(name, "fail", f"{path} is not there", "", remedy)
        elif seen != wanted[name]:
            have = f"{path} holds something else than on the other machines"
            remedy = "use one shared folder, or the same copy on every node"
            yield Check(name, "fail", have, "the same everywhere", remedy)
        else:
            yield passed(name, path)


def _writable(ask: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Check]:
    for name, path in ask["writable"].items():
        problem = facts["writable"][name]
        remedy = f"set site.paths.{name} to a folder that you can write on every node"
        if problem:
            yield Check(name, "fail", f"{path}: {problem}", "writable", remedy)
        elif not facts["seen"].get(name, True):
            have = f"{path} is not the same folder as on this machine"
            yield Check(name, "fail", have, "one shared folder", remedy)
        else:
            yield passed(name, path)


def _commands(facts: Mapping[str, Any]) -> Iterator[Check]:
    for name, path in facts["commands"].items():
        if path:
            yield passed(name, path)
        else:
            remedy = "ask the site to install it, or choose another site.container"
            # pyxis brings its own way to enroot: only a container's start proves it.
            yield Check(name, "warn" if name == "enroot" else "fail", "not on PATH", "", remedy)


def _disks(subject: Subject, ask: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Check]:
    need = (subject.profile.recipe.storage.nvme_gb or 0) * 1e9
    for name, path in ask["disks"].items():
        about = facts["disks"][name]
        remedy = f"set site.paths.{name} to the nodes' own NVMe"
        if about is None:
            yield Check(name, "fail", f"{path} is not there", "", remedy)
        elif about["type"] in MEMORY:
            have = f"{path} is {about['type']}: the node's memory, no disk"
            yield Check(name, "fail", have, "NVMe", remedy)
        elif about["free"] < need:
            have = f"{path} has {about['free'] / 1e9:.0f} GB free"
            yield Check(name, "fail", have, f"{need / 1e9:.0f} GB", f"{remedy}; or free some room")
        else:
            yield passed(name, f"{path}: {about['type']}, {about['free'] / 1e9:.0f} GB free")


def _gpus(subject: Subject, facts: Mapping[str, Any]) -> Iterator[Check]:
    hardware = subject.profile.hardware
    names: list[str] = facts["gpu_names"]
    visible = facts["visible_gpus"]
    count = len(names) if visible is None and names else visible
    need = f"{hardware.gpus_per_node} {hardware.gpu}"
    if count is None:
        remedy = "does Slurm give GPUs here? see site.gpu_request"
        yield Check("GPUs", "fail", "none: neither Slurm nor nvidia-smi names one", need, remedy)
    elif count < hardware.gpus_per_node:
        remedy = "a GPU is missing or not given to the job: drain the node, or site.exclude"
        yield Check("GPUs", "fail", f"{count} to be seen", need, remedy)
    elif names and not all(hardware.gpu in name.lower() for name in names):
        remedy = "another partition, or a profile for these GPUs"
        yield Check("GPUs", "warn", ", ".join(sorted(set(names))), need, remedy)
    else:
        yield passed("GPUs", f"{count} {names[0] if names else ''}".rstrip())


def _limits(subject: Subject, facts: Mapping[str, Any]) -> Iterator[Check]:
    memlock, nofile = facts["memlock"], facts["nofile"]
    if memlock == resource.RLIM_INFINITY:
        yield passed("memlock", "unlimited")
    else:
        have = f"at most {memlock / 1e6:.1f} MB may be locked"
        remedy = "ask the site: LimitMEMLOCK=infinity for slurmd, memlock out of "
        remedy += "PropagateResourceLimits; RDMA needs it"
        yield Check("memlock", "warn", have, "unlimited", remedy)
    if nofile == resource.RLIM_INFINITY or nofile >= FILES:
        yield passed("nofile", "unlimited" if nofile == resource.RLIM_INFINITY else str(nofile))
    else:
        remedy = "ask the site: LimitNOFILE=1048576 for slurmd"
        yield Check("nofile", "warn", f"at most {nofile} open files", f"{FILES}", remedy)
    wanted = (subject.profile.ray.object_store_gb or 0) * 1e9
    have = f"{facts['shm_free'] / 1e9:.0f} GB free in /dev/shm"
    if facts["shm_free"] < wanted:
        remedy = "a smaller ray.object_store_gb, or a larger /dev/shm"
        yield Check("shm", "fail", have, f"{wanted / 1e9:.0f} GB", remedy)
    else:
        yield passed("shm", have)


def _address(facts: Mapping[str, Any], known: Mapping[str, int]) -> Check:
    remedy = "set site.network.interface or site.network.prefix to the nodes' fabric"
    if facts["address_problem"]:
        return Check("address", "fail", facts["address_problem"], "", remedy)
    if known[facts["address"]] > 1:
        have = f"{facts['address']}, as {known[facts['address']] - 1} other nodes have"
        return Check("address", "fail", have, "an address of its own", remedy)
    return passed("address", facts["address"])
