"""What a cluster says of itself: Slurm's answers, file systems, addresses and container runtimes.

Everything that reads text is a pure function over that text; ``look`` asks Slurm once for each.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from beam_slurm import slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.node import address

NODES = "%N|%R|%G|%c|%m|%f|%T"
"""sinfo's format that ``nodes`` reads: one line for each node and partition."""

RUNTIMES = ("apptainer", "docker", "enroot", "podman")

SHARED = re.compile(
    r"nfs|lustre|gpfs|beegfs|weka|ceph|panfs|pvfs|orangefs|gluster|juicefs|moosefs|mfs|daos"
    r"|quobyte|vast|afs|cifs|smb|9p"
)
"""File systems whose name holds one of these are seen by several machines."""

_UNUSABLE = re.compile(r"down|drain|fail|error|inval|unknown|future|powered_down|powering_down")


@dataclass(frozen=True)
class Gpu:
    """GPUs of one type in one node; ``type`` is "" where this cluster gives them none."""

    type: str
    count: int


@dataclass(frozen=True)
class Partition:
    """One partition. None is no limit; an empty tuple lets everybody in."""

    name: str
    state: str
    default: bool
    nodes: int
    max_nodes: int | None
    max_minutes: int | None
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    refused_accounts: tuple[str, ...] = ()
    refused_qos: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """One node in one partition; ``memory`` is in MiB, ``state`` is sinfo's long word."""

    name: str
    partition: str
    gpus: tuple[Gpu, ...]
    cpus: int
    memory: int
    features: tuple[str, ...]
    state: str

    @property
    def usable(self) -> bool:
        """Whether a job may run on it, now or when those before it are over."""
        return "*" not in self.state and not _UNUSABLE.search(self.state)

    def count(self, gpu: str) -> int:
        """Its GPUs of a type; "" counts all of them."""
        return sum(found.count for found in self.gpus if gpu in ("", found.type))


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
        for found in self.partitions:
            if found.name == name or (name is None and found.default):
                return found
        what = f"partition {name!r} is unknown" if name else "this cluster has no default partition"
        names = ", ".join(found.name for found in self.partitions)
        raise BeamSlurmError(what, remedy=f"set site.partition to one of {names}")

    def nodes_of(self, partition: str) -> tuple[Node, ...]:
        """The nodes of a partition."""
        return tuple(node for node in self.nodes if node.partition == partition)


def look() -> Cluster:
    """Ask Slurm and this machine.

    Raises:
        BeamSlurmError: there is no Slurm here, or its controller does not answer.
    """
    described = slurm.ask("scontrol", "show", "partition", "--oneliner")
    listed = slurm.ask("sinfo", "--Node", "--noheader", f"--format={NODES}")
    accounts, qos = associations(_accounting())
    return Cluster(
        version=version(slurm.ask("sinfo", "--version")),
        partitions=partitions(described),
        nodes=nodes(listed),
        accounts=accounts,
        qos=qos,
        runtimes=runtimes(slurm.ask("srun", "--help")),
        interfaces=interfaces(),
        mounts=here(),
    )


def version(text: str) -> str:
    """``23.11.4`` of ``slurm 23.11.4`` or ``slurm-wlm 22.05.8``; "" if there is no number."""
    found = re.search(r"\d+(?:\.\d+)+\S*", text)
    return found[0] if found else ""


def release(number: str) -> tuple[int, int]:
    """(23, 11) of ``23.11.4-rc1``: what compares; (0, 0) of anything else."""
    found = re.match(r"(\d+)\.(\d+)", number)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def gpus(text: str) -> tuple[Gpu, ...]:
    """The GPUs in a gres list, by type in the order of the list.

    ``gpu:h200:8``, ``gpu:nvidia_b300:8(S:0-1)``, ``gpu:8``, ``gpu:a100:no_consume:4,nvme:1``,
    ``(null)``; shards and other resources are passed over.
    """
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *words = part.strip().split(":")
        words = [word for word in words if word != "no_consume"]
        if name != "gpu":
            continue
        count = int(words.pop()) if words and words[-1].isdigit() else 1
        kind = words[0] if words else ""
        found[kind] = found.get(kind, 0) + count
    return tuple(Gpu(kind, count) for kind, count in found.items())


def partitions(text: str) -> tuple[Partition, ...]:
    """``scontrol show partition --oneliner``."""
    found = []
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        if "PartitionName" not in fields:
            continue
        most, longest = fields.get("MaxNodes", ""), fields.get("MaxTime", "UNLIMITED")
        found.append(
            Partition(
                name=fields["PartitionName"],
                state=fields.get("State", "UP"),
                default=fields.get("Default") == "YES",
                nodes=int(fields.get("TotalNodes", "0")),
                max_nodes=int(most) if most.isdigit() else None,
                max_minutes=None
                if longest in ("UNLIMITED", "INFINITE")
                else slurm.minutes(longest),
                accounts=_names(fields.get("AllowAccounts", "ALL")),
                qos=_names(fields.get("AllowQos", "ALL")),
                refused_accounts=_names(fields.get("DenyAccounts", "")),
                refused_qos=_names(fields.get("DenyQos", "")),
            )
        )
    return tuple(found)


def nodes(text: str) -> tuple[Node, ...]:
    """``sinfo --Node`` in the format ``NODES``; a line that is none (a banner) is skipped."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != NODES.count("|") + 1:
            continue
        name, partition, gres, cpus, memory, features, state = fields
        found.append(
            Node(
                name,
                partition,
                gpus(gres),
                _number(cpus),
                _number(memory),
                () if features == "(null)" else tuple(features.split(",")),
                state.lower(),
            )
        )
    return tuple(found)


def associations(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(accounts, qos) of ``sacctmgr --parsable2 show associations format=Account,QOS``."""
    accounts: dict[str, None] = {}
    qos: dict[str, None] = {}
    for line in text.splitlines():
        account, bar, names = line.partition("|")
        if bar and account:
            accounts[account] = None
            qos.update(dict.fromkeys(name for name in names.strip("|").split(",") if name))
    return tuple(accounts), tuple(qos)


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


def _names(text: str) -> tuple[str, ...]:
    return () if text in ("", "ALL", "(null)", "N/A") else tuple(text.split(","))


def _number(text: str) -> int:
    return int(text.rstrip("+")) if text.rstrip("+").isdigit() else 0
