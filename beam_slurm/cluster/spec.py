"""What a cluster is asked to be: its size, its GPUs, and the name it goes by."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from beam_slurm.errors import BeamSlurmError

CONTROLLER = "ctl"
DEFAULT_NAME = "demo"


@dataclass(frozen=True)
class ClusterSpec:
    """The size of a cluster; two specs are equal when ``up`` has nothing to change.

    Args:
        hosts: number of compute hosts, named node1 to nodeN.
        gpus: GPUs of each host; 0 for a cluster without GPUs.
        gpu_type: the type as jobs spell it in ``--gres gpu:TYPE:N``.
        cpus: CPUs that each host claims to have; more than the machine's is fine.
        memory_mb: memory in MiB that each host claims to have; nothing enforces it.
        extra_conf: further lines of slurm.conf, such as another partition.
        shared: folders that the hosts see although they lie below /tmp or /dev/shm, of which
            each host has its own; every other folder is the machine's anyway.
    """

    hosts: int = 4
    gpus: int = 8
    gpu_type: str = "h200"
    cpus: int = 16
    memory_mb: int = 2_000_000
    extra_conf: tuple[str, ...] = ()
    shared: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for what, value, low, high in (
            ("hosts", self.hosts, 1, 64),
            ("gpus", self.gpus, 0, 64),
            ("cpus", self.cpus, 1, 1024),
            ("memory_mb", self.memory_mb, 1, 2**40),
        ):
            if not low <= value <= high:
                raise BeamSlurmError(
                    f"a cluster cannot have {what}={value}", remedy=f"choose {low} to {high}"
                )
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,31}", self.gpu_type):
            raise BeamSlurmError(
                f"{self.gpu_type!r} is no GPU type that Slurm can spell",
                remedy="use a short word such as h200, b200 or b300",
            )

    @property
    def nodes(self) -> list[str]:
        """The names of the compute hosts, in order."""
        return [f"node{i}" for i in range(1, self.hosts + 1)]

    def describe(self) -> str:
        """One short phrase for people: ``4 hosts of 8 h200``."""
        gpus = f"{self.gpus} {self.gpu_type}" if self.gpus else "no GPU"
        text = f"{self.hosts} host{'s' * (self.hosts != 1)} of {gpus}, {self.cpus} CPUs"
        return text + f", {len(self.extra_conf)} extra lines" * bool(self.extra_conf)

    def to_json(self) -> dict[str, Any]:
        """The spec as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ClusterSpec:
        """The spec that `to_json` wrote."""
        lists = ("extra_conf", "shared")
        return cls(**{**data, **{name: tuple(data.get(name, ())) for name in lists}})


def check_name(name: str) -> str:
    """Return ``name`` if a cluster may be called so; it becomes a folder and a ClusterName.

    Raises:
        BeamSlurmError: the name is empty, too long or has characters that Slurm refuses.
    """
    # 32 characters keep the path of the munge socket below the kernel's 108.
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", name):
        raise BeamSlurmError(
            f"{name!r} cannot be the name of a cluster",
            remedy="use up to 32 small letters, digits, '-' and '_', such as demo",
        )
    return name
