"""site.yaml for a cluster that was looked at: what was found is set, what a person knows is asked.

A key that only a person can say stands as a comment with an example and the reason, so the file
loads as it is. Values are quoted where YAML would read them as something else.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beam_slurm.discover import Cluster
from beam_slurm.errors import BeamSlurmError
from beam_slurm.inventory import Partition
from beam_slurm.yamlfile import scalar

GPUS = ("h200", "b200", "b300")
"""The GPU types of the profiles that come with beam-slurm."""


@dataclass
class SiteFile:
    """The text of a site file on its way.

    Attributes:
        lines: the text.
        found: what was set, by dotted key.
        asked: (key, what it is) of what a person must still say for the large profiles.
    """

    lines: list[str] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The whole file."""
        return "\n".join(self.lines) + "\n"

    def say(self, *lines: str) -> None:
        """Comment lines."""
        self.lines += [f"# {line}".rstrip() for line in lines]

    def put(self, key: str, value: Any, note: str = "") -> None:
        """Set a key; one with a dot goes below its group, whose line must stand already."""
        self.found[key] = value
        indent = "  " * key.count(".")
        self.lines.append(f"{indent}{key.rpartition('.')[2]}: {_yaml(value)}" + _note(note))

    def ask(self, key: str, example: Any, note: str, *, needed: bool = False) -> None:
        """A commented key with an example; ``needed`` by the large profiles."""
        if needed:
            self.asked.append((key, note))
        indent = "  " * key.count(".")
        self.lines.append(f"{indent}# {key.rpartition('.')[2]}: {_yaml(example)}" + _note(note))

    def group(self, title: str) -> None:
        """An empty line and a comment above the next keys."""
        self.lines += ["", f"# {title}"]


def build(cluster: Cluster, runs: Path, partition: str | None = None) -> SiteFile:
    """The site file for ``cluster``.

    Args:
        cluster: what was found.
        runs: where run folders are to lie.
        partition: the partition to use; left out, the best one with GPUs.

    Raises:
        BeamSlurmError: there is no such partition, or none at all.
    """
    chosen = choose(cluster, partition)
    file = SiteFile()
    file.say(
        f"This cluster, as beam-slurm init saw it: Slurm {cluster.version}.",
        "Lines that begin with # are for you to fill in. All keys: docs/site.md.",
        "Then: beam-slurm doctor",
    )
    _queue(file, cluster, chosen)
    _gpus(file, cluster, chosen)
    _containers(file, cluster)
    _network(file, cluster)
    _paths(file, runs)
    return file


def choose(cluster: Cluster, name: str | None) -> Partition:
    """The partition by name; else the default if it has GPUs, else the largest that is up."""
    if name:
        return cluster.partition(name)
    if not cluster.partitions:
        raise BeamSlurmError(
            "this cluster shows no partition", remedy="ask the site which one is yours: --partition"
        )

    def worth(found: Partition) -> tuple[bool, bool, bool, int]:
        gpus = sum(node.count("") > 0 for node in cluster.nodes_of(found.name))
        return gpus > 0, found.state == "UP", found.default, gpus

    return max(cluster.partitions, key=worth)


def gpu_names(types: dict[str, int]) -> dict[str, str]:
    """Our name of a GPU type -> the cluster's, where they differ.

    Args:
        types: gres types of a partition and on how many nodes each is; "" is a gres without type.
    """
    if set(types) == {""}:
        return dict.fromkeys(GPUS, "")
    found = {}
    for gpu in GPUS:
        # Not the b200 in gb200, which is another machine, nor the h20 of h200.
        named = [t for t in types if re.search(rf"(?<![a-z0-9]){gpu}(?!\d)", t.lower())]
        if named and gpu not in named:
            found[gpu] = max(named, key=lambda name: types[name])
    return found


def write(path: Path, text: str, *, force: bool = False) -> None:
    """Write a whole file or none; what is there stays unless ``force``.

    Raises:
        BeamSlurmError: it is there already, or cannot be written.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_text(text, encoding="utf-8")
        try:
            if force:
                part.replace(path)
            else:
                os.link(part, path)  # unlike a rename it refuses what is there
        finally:
            part.unlink(missing_ok=True)
    except FileExistsError as error:
        raise BeamSlurmError(
            f"{path} is there already",
            why="init never changes a file that somebody has written",
            remedy="write another with -o, compare, or overwrite it with --force",
        ) from error
    except OSError as error:
        raise BeamSlurmError(f"cannot write {path}", why=error.strerror) from error


def _queue(file: SiteFile, cluster: Cluster, chosen: Partition) -> None:
    file.group("The queue.")
    for found in cluster.partitions:
        file.say(f"  {_describe(cluster, found)}")
    file.put("partition", chosen.name)
    accounts = [name for name in cluster.accounts if not chosen.accounts or name in chosen.accounts]
    if len(accounts) == 1:
        file.put("account", accounts[0], "the only one that you have here")
    elif accounts:
        file.ask("account", accounts[0], f"yours: {', '.join(accounts)}; left out: your default")
    else:
        allowed = f"; this partition takes {', '.join(chosen.accounts)}" if chosen.accounts else ""
        file.ask("account", "rl", f"if jobs are charged to one here{allowed}")
    qos = ", ".join(cluster.qos)
    file.ask(
        "qos", (cluster.qos or ("high",))[0], f"yours: {qos}" if qos else "if the site has qos"
    )
    file.ask("reservation", "beam", "if the site keeps nodes for you")
    features = sorted({f for node in cluster.nodes_of(chosen.name) for f in node.features})
    seen = f"features of these nodes: {', '.join(features)}" if features else "if nodes differ"
    file.ask("constraint", features[0] if features else "ib", seen)


def _gpus(file: SiteFile, cluster: Cluster, chosen: Partition) -> None:
    nodes = cluster.nodes_of(chosen.name)
    types: dict[str, int] = {}
    for node in nodes:
        for gpu in node.gpus:
            types[gpu.type] = types.get(gpu.type, 0) + 1
    file.group("GPUs.")
    cpus = sorted({node.cpus for node in nodes})
    if cpus:
        spread = str(cpus[0]) if len(cpus) == 1 else f"{cpus[0]} to {cpus[-1]}"
        file.say(f"Nodes of {chosen.name} have {spread} CPUs.")
    if not types:
        file.put("gpu_request", "none", "no gres here: nodes come whole, if they have GPUs at all")
        return
    file.put("gpu_request", "gpus-per-node", "or gres, if the site refuses --gpus-per-node")
    names = gpu_names(types)
    if set(types) == {""}:
        file.put(
            "gpu_names", names, "this cluster's gres has no type: Slurm cannot tell GPUs apart"
        )
    elif names:
        file.put("gpu_names", names, "our name: the cluster's")
    else:
        file.ask("gpu_names", {"b300": "nvidia_b300"}, "if a profile's GPU is spelled otherwise")


def _containers(file: SiteFile, cluster: Cluster) -> None:
    found = [name for name in cluster.runtimes if name != "enroot"]
    file.group("Containers.")
    if found:
        here = ", ".join(found)
        best = next(n for n in ("pyxis", "apptainer", "podman", "docker") if n in found)
        file.put("container", best, f"seen on this machine: {here}")
    else:
        file.put("container", "bare", "no runtime on this machine; if nodes have one, say which")
    file.lines.append("# images:  # what the profile names -> a file on shared storage")
    for name, image in (
        ("nemo-rl-colocated", "/shared/images/nemo-rl-beam.sqsh"),
        ("nemo-rl-async", "/shared/images/nemo-rl-beam-async.sqsh"),
        ("skyrl", "/shared/images/skyrl-beam.sqsh"),
        ("miles", "radixark/miles:beam"),
        ("evaluate", "/shared/images/vllm-beam.sqsh # for evaluations, if another has no vLLM"),
    ):
        file.lines.append(f"#   {name}: {image}")
    rdma = ["--device=/dev/infiniband", "--cap-add=IPC_LOCK"]
    file.ask("container_options", rdma, "Docker and Podman show no RDMA devices by themselves")
    file.asked.append(("images", "the framework's image, for runs in a container"))


def _network(file: SiteFile, cluster: Cluster) -> None:
    file.group("Network: left out, the address that a node's own name resolves to.")
    seen = ", ".join(f"{name} {ip}" for name, ip in cluster.interfaces) or "none"
    file.say(f"This machine has {seen}; the nodes' may be called otherwise.")
    file.lines.append("# network:")
    file.lines.append("#   interface: ib0")
    file.ask("environment", {"NCCL_SOCKET_IFNAME": "ib0"}, "what NCCL uses is NCCL's to be told")


def _paths(file: SiteFile, runs: Path) -> None:
    file.group("Folders: absolute, the same on every node.")
    file.lines.append("paths:")
    file.put("paths.runs", str(runs), "run folders; every node must see it")
    for key, example, note in (
        ("models", "/shared/models", "holds Beam/"),
        ("outputs", "/shared/me/outputs", "logs and checkpoints"),
        ("datasets", "/shared/datasets", "problems (SkyRL, Miles)"),
        ("scratch", "/scratch", "NVMe of each node, for optimizer state (SkyRL, Miles)"),
        ("nemo_rl", "/shared/me/nemo-rl", "checkout, branch beam-support"),
        ("skyrl", "/shared/me/SkyRL", "checkout, branch beam-release"),
        ("miles", "/shared/me/miles", "checkout, branch beam-image"),
    ):
        file.ask(f"paths.{key}", example, note, needed=True)


def _describe(cluster: Cluster, found: Partition) -> str:
    """``gpu: 4 nodes (3 usable), gpu h200 × 8, at most 7-00:00:00, default``."""
    nodes = cluster.nodes_of(found.name)
    usable = sum(node.usable for node in nodes)
    gpus = dict.fromkeys(f"{g.count} × {g.type or 'GPU'}" for node in nodes for g in node.gpus)
    words = [
        f"{found.nodes} nodes, {usable} usable",
        ", ".join(gpus) or "no GPU",
        *([f"at most {found.max_nodes} nodes a job"] if found.max_nodes else []),
        _longest(found.max_minutes),
        *(["default"] if found.default else []),
        *([found.state] if found.state != "UP" else []),
    ]
    return f"{found.name}: {'; '.join(words)}"


def _longest(minutes: int | None) -> str:
    if minutes is None:
        return "no time limit"
    return f"{minutes / 1440:g} days at most" if minutes >= 1440 else f"{minutes / 60:g} h at most"


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_yaml(k)}: {_yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z0-9_/.][A-Za-z0-9_/.+@=:-]*", text) and not text.endswith(":")
    return text if plain and scalar(text, "") == text and ":" not in text else json.dumps(text)


def _note(text: str) -> str:
    return f"  # {' '.join(text.split())}" if text else ""
