"""What Slurm has: partitions, nodes and their GPUs, a user's accounts.

Everything here is a function over text, except ``ask``, which gets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from beam_slurm import slurm
from beam_slurm.errors import BeamSlurmError

NODES = "%N|%R|%G|%c|%m|%f|%T"
"""sinfo's format that ``nodes`` reads: one line for each node and partition."""

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


def ask() -> tuple[Partition, ...]:
    """This cluster's partitions.

    Raises:
        BeamSlurmError: there is no Slurm here, or its controller does not answer.
    """
    return partitions(slurm.ask("scontrol", "show", "partition", "--oneliner"))


def choose(found: Iterable[Partition], name: str | None) -> Partition:
    """The partition ``name``, or the default one; of several (``a,b``) the one that allows most.

    Slurm starts a job in the first of them that can.

    Raises:
        BeamSlurmError: there is none, with those that there are.
    """
    known = {partition.name: partition for partition in found}
    names = name.split(",") if name else [p.name for p in known.values() if p.default]
    unknown = [each for each in names if each not in known]
    if unknown or not names:
        what = "this cluster has no default partition"
        if unknown:
            what = f"partition {unknown[0]!r} is unknown"
        raise BeamSlurmError(what, remedy=f"set site.partition to one of {', '.join(known)}")
    endless = float("inf")
    return max(
        (known[each] for each in names),
        key=lambda p: (min(p.nodes, p.max_nodes or p.nodes), p.max_minutes or endless),
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


def _names(text: str) -> tuple[str, ...]:
    return () if text in ("", "ALL", "(null)", "N/A") else tuple(text.split(","))


def _number(text: str) -> int:
    return int(text.rstrip("+")) if text.rstrip("+").isdigit() else 0
