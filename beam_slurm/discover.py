"""A cluster as its login node shows it: Slurm's inventory, file systems, addresses, containers."""

from __future__ import annotations

import getpass
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from beam_slurm import inventory, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.inventory import Node, Partition
from beam_slurm.node import address

RUNTIMES = ("apptainer", "docker", "enroot", "podman")

SHARED = re.compile(
    r"nfs|lustre|gpfs|beegfs|weka|ceph|panfs|pvfs|orangefs|gluster|juicefs|moosefs|daos"
    r"|quobyte|vast|afs|cifs|smb|9p"
)
"""File systems whose name holds one of these are seen by several machines."""


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mounts."""

    path: str
    type: str

    @property
    def shared(self) -> bool:
        """Whether other machines can see it too."""
        return SHARED.search(self.type) is not None


@dataclass(frozen=True)
class Cluster:
    """Everything that ``look`` found.

    ``qos`` and ``accounts`` are the user's, () without accounting; ``runtimes`` are the commands on
    this machine's PATH, with pyxis where srun knows --container-image; ``interfaces`` are this
    machine's (name, IPv4).
    """

    version: str
    partitions: tuple[Partition, ...]
    nodes: tuple[Node, ...]
    accounts: tuple[str, ...]
    qos: tuple[str, ...]
    runtimes: tuple[str, ...]
    interfaces: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]

    def partition(self, name: str | None) -> Partition:
        """The partition ``name``, or the default one.

        Raises:
            BeamSlurmError: there is none, with those that there are.
        """
        return inventory.choose(self.partitions, name)

    def nodes_of(self, partition: str) -> tuple[Node, ...]:
        """The nodes of a partition."""
        return tuple(node for node in self.nodes if node.partition == partition)


def look() -> Cluster:
    """Ask Slurm and this machine.

    Raises:
        BeamSlurmError: there is no Slurm here, or its controller does not answer.
    """
    listed = slurm.ask("sinfo", "--Node", "--noheader", f"--format={inventory.NODES}")
    accounts, qos = inventory.associations(_accounting())
    return Cluster(
        version=inventory.version(slurm.ask("sinfo", "--version")),
        partitions=inventory.ask(),
        nodes=inventory.nodes(listed),
        accounts=accounts,
        qos=qos,
        runtimes=runtimes(slurm.ask("srun", "--help")),
        interfaces=interfaces(),
        mounts=here(),
    )


def runtimes(srun_help: str, path: str | None = None) -> tuple[str, ...]:
    """Container runtimes: pyxis if srun knows it, and the commands on ``path``."""
    pyxis = ("pyxis",) if "--container-image" in srun_help else ()
    return (*pyxis, *(name for name in RUNTIMES if shutil.which(name, path=path)))


def mounts(text: str) -> tuple[Mount, ...]:
    """/proc/self/mounts; a path's blanks come as \\040."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 3:
            path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1])
            found.append(Mount(path, fields[2]))
    return tuple(found)


def mount_of(path: Path, known: Sequence[Mount]) -> Mount | None:
    """The mount that holds ``path``: the deepest one, and of those at one place the newest."""
    places = {str(place) for place in (path, *path.parents)}
    holding = [mount for mount in known if mount.path in places]
    return max(reversed(holding), key=lambda mount: len(mount.path), default=None)


def here() -> tuple[Mount, ...]:
    """This machine's mounts."""
    return mounts(Path("/proc/self/mounts").read_text(errors="replace"))


def interfaces() -> tuple[tuple[str, str], ...]:
    """(name, IPv4) of this machine's networks that others can reach."""
    found = address.interfaces()
    return tuple((n, ip) for n, ip in found if address.usable(ip) and not address.virtual(n))


def runs_folder(working: Path, known: Sequence[Mount]) -> Path:
    """Where run folders should lie: ./runs on shared storage, else the user's place on one."""
    shared = [mount for mount in known if mount.shared]
    for place in (working, *_own_places(shared), Path.home()):
        found = mount_of(place.resolve(), known)
        if found and found.shared and os.access(place, os.W_OK):
            return place / "runs" if place == working else place / "beam-slurm" / "runs"
    return working / "runs"


def _own_places(shared: Iterable[Mount]) -> list[Path]:
    """The user's own folders on shared file systems, parallel ones before NFS."""
    user = getpass.getuser()
    ordered = sorted(shared, key=lambda mount: mount.type.startswith("nfs"))
    inside = (user, f"users/{user}", f"home/{user}", f"scratch/{user}", f"projects/{user}")
    return [Path(mount.path, name) for mount in ordered for name in inside]


def _accounting() -> str:
    """The user's associations; "" where the site keeps no accounting, which is normal."""
    try:
        return slurm.ask(
            *("sacctmgr", "--noheader", "--parsable2", "show", "associations"),
            *(f"user={getpass.getuser()}", "format=Account,QOS"),
        )
    except BeamSlurmError:
        return ""
