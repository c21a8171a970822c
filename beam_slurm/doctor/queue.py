"""Slurm: whether it answers, and whether it would ever start this job.

sbatch takes much that then waits for ever: a closed partition, a time over the limit, an account
that the partition refuses. So the partition's own words are compared first; ``sbatch --test-only``
with the very script decides about the rest.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from beam_slurm import discover, inventory, sitefile, slurm
from beam_slurm.discover import Cluster
from beam_slurm.doctor.checks import Check, passed
from beam_slurm.doctor.subject import Subject
from beam_slurm.errors import BeamSlurmError
from beam_slurm.inventory import Node, Partition

COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
OLDEST = (22, 5)
"""The oldest Slurm that is tested: its srun no longer takes over the job's CPUs by itself."""


def answers() -> tuple[list[Check], Cluster | None]:
    """Whether there is a Slurm that answers, and what it says of itself."""
    absent = [name for name in COMMANDS if not shutil.which(name)]
    if absent:
        remedy = "log in to the cluster, or load the site's Slurm module"
        return [Check("commands", "fail", f"not on PATH: {', '.join(absent)}", "", remedy)], None
    found = [passed("commands", "Slurm's commands are on PATH")]
    try:
        said = slurm.ask("scontrol", "ping")
        if not re.search(r"is UP\b", said):
            raise BeamSlurmError(said.strip() or "scontrol ping says nothing")
        cluster = discover.look()
    except BeamSlurmError as error:
        why = (error.why or error.what).splitlines()[0]
        remedy = error.remedy or "is it this cluster's SLURM_CONF? then tell the operators"
        return [
            *found,
            Check("controller", "fail", why, "Slurm's controller answers", remedy),
        ], None
    found.append(passed("controller", "answers"))
    return [*found, _version(cluster.version)], cluster


def check(subject: Subject, cluster: Cluster) -> Iterator[Check]:
    """Whether the cluster has what the job asks for and lets this user have it."""
    try:
        chosen = cluster.partition(subject.site.partition)
    except BeamSlurmError as error:
        yield Check("partition", "fail", error.what, "", error.remedy or "")
    else:
        yield _open(chosen)
        yield from _hardware(subject, cluster, chosen)
        yield _time(subject, chosen)
        yield from _allowed(subject, cluster, chosen)
    if subject.request:
        yield _accepted(str(subject.request))


def _version(number: str) -> Check:
    if inventory.release(number) >= OLDEST:
        return passed("Slurm version", number)
    need = "22.05 or newer"
    return Check("Slurm version", "warn", number, need, "untested: watch the first run closely")


def _open(chosen: Partition) -> Check:
    if chosen.state == "UP":
        return passed("partition", f"{chosen.name} is up, {chosen.nodes} nodes")
    return Check(
        "partition",
        "fail",
        f"{chosen.name} is {chosen.state}: jobs wait in it until it is up again",
        "UP",
        "ask the site, or take another one: --set site.partition=...",
    )


def _hardware(subject: Subject, cluster: Cluster, chosen: Partition) -> Iterator[Check]:
    site, hardware = subject.site, subject.profile.hardware
    nodes = cluster.nodes_of(chosen.name)
    if site.gpu_request != "none":
        kind = site.gpu_names.get(hardware.gpu, hardware.gpu)
        typed = _type(kind, hardware.gpu, nodes, cluster, chosen)
        yield typed
        if typed.verdict == "fail":
            return
        most = max(node.count(kind) for node in nodes)
        if most < hardware.gpus_per_node:
            yield Check(
                "GPUs a node",
                "fail",
                f"at most {most} {kind or 'GPUs'} in a node of {chosen.name}",
                f"{hardware.gpus_per_node} a node",
                f"--set hardware.gpus_per_node={most} and a layout that fits; or another partition",
            )
            return
        yield passed("GPUs a node", f"{most} {kind}".rstrip())
        nodes = tuple(node for node in nodes if node.count(kind) >= hardware.gpus_per_node)
    yield _enough(subject, nodes, chosen)


def _type(
    kind: str, gpu: str, nodes: tuple[Node, ...], cluster: Cluster, chosen: Partition
) -> Check:
    types: dict[str, int] = {}
    for node in nodes:
        for found in node.gpus:
            types[found.type] = types.get(found.type, 0) + 1
    if kind in types or (types and not kind):
        return passed("GPU type", kind or "not told apart by this cluster's gres")
    if not types:
        have = f"no node of {chosen.name} has GPUs in its gres"
        remedy = "--set site.partition=...; where nodes come whole: --set site.gpu_request=none"
        return Check("GPU type", "fail", have, kind or "GPUs", remedy)
    here = ", ".join(name or "GPUs without a type" for name in types)
    elsewhere = {n.partition for n in cluster.nodes if kind and n.count(kind)}
    spelled = sitefile.gpu_names(types).get(gpu)
    if spelled is not None:
        remedy = f"say gpu_names: {{{gpu}: {spelled or chr(34) * 2}}} in the site file"
    elif elsewhere:
        remedy = f"--set site.partition={sorted(elsewhere)[0]}"
    else:
        remedy = "choose a profile for these GPUs: beam-slurm profiles list"
    return Check("GPU type", "fail", f"{chosen.name} has {here}", kind, remedy)


def _enough(subject: Subject, nodes: tuple[Node, ...], chosen: Partition) -> Check:
    wanted = subject.profile.hardware.nodes
    most = chosen.max_nodes
    if most is not None and most < wanted:
        have = f"{chosen.name} gives at most {most} nodes to a job"
        return Check("nodes", "fail", have, f"{wanted} nodes", "--set site.partition=...")
    fit = [node for node in nodes if _fits(node, subject.site.constraint)]
    barred = set(_expand(subject.site.exclude))
    fit = [node for node in fit if node.name not in barred]
    usable = [node for node in fit if node.usable]
    have = f"{len(usable)} usable of {len(fit)} that fit in {chosen.name}"
    if len(usable) >= wanted:
        return passed("nodes", have)
    broken = ", ".join(f"{node.name} {node.state}" for node in fit if not node.usable)
    why = f"out of use: {broken}; reasons: sinfo --list-reasons; " if broken else ""
    return Check("nodes", "fail", have, f"{wanted} nodes", f"{why}--nodes for fewer, or wait")


def _fits(node: Node, constraint: str | None) -> bool:
    """Whether it has all of ``a&b``; about richer constraints sbatch decides."""
    if not constraint or not re.fullmatch(r"[\w.&-]+", constraint):
        return True
    return set(constraint.split("&")) <= set(node.features)


def _expand(nodes: str | None) -> list[str]:
    return slurm.ask("scontrol", "show", "hostnames", nodes).split() if nodes else []


def _time(subject: Subject, chosen: Partition) -> Check:
    wanted = subject.profile.job.time
    if chosen.max_minutes is None or slurm.minutes(wanted) <= chosen.max_minutes:
        return passed("time limit", wanted)
    limit = slurm.spelled(chosen.max_minutes)
    have = f"{chosen.name} allows {limit}; a longer job waits for ever"
    return Check("time limit", "fail", have, wanted, f"--set job.time={limit}")


def _allowed(subject: Subject, cluster: Cluster, chosen: Partition) -> Iterator[Check]:
    site = subject.site
    for what, given, own, taken, refused in (
        ("account", site.account, cluster.accounts, chosen.accounts, chosen.refused_accounts),
        ("qos", site.qos, cluster.qos, chosen.qos, chosen.refused_qos),
    ):
        if taken or refused:
            yield _listed(what, given, own, taken, refused, chosen.name)


def _listed(  # noqa: PLR0913 - one line of a table
    what: str,
    given: str | None,
    own: tuple[str, ...],
    taken: tuple[str, ...],
    refused: tuple[str, ...],
    partition: str,
) -> Check:
    """Whether the partition's list lets the job in: sbatch takes it anyway, and it never starts."""
    mine = (given,) if given else own
    good = [name for name in mine if (not taken or name in taken) and name not in refused]
    need = f"one of {', '.join(taken)}" if taken else f"none of {', '.join(refused)}"
    if good and not given and len(good) < len(own):
        remedy = f"set site.{what}={good[0]}: your default may be another"
        return Check(what, "warn", f"you have {', '.join(own)}", need, remedy)
    if good and (own or what == "qos"):
        return passed(what, ", ".join(good))
    if good:
        have = f"{given}, of which Slurm's accounting tells nothing here"
        return Check(
            what, "warn", have, need, f"if the job waits: does {given} exist? ask the site"
        )
    have = f"partition {partition} does not take {', '.join(mine)}" if mine else f"no {what} is set"
    if not mine and not taken:
        return passed(what, f"{partition} refuses only {', '.join(refused)}")
    return Check(what, "fail", have, need, f"--set site.{what}=..., one that you may use")


def _accepted(script: str) -> Check:
    with tempfile.TemporaryDirectory(prefix="beam-doctor-") as folder:
        path = Path(folder, "script.sbatch")
        path.write_text(script, encoding="utf-8")
        try:
            slurm.ask("sbatch", "--test-only", str(path))
        except BeamSlurmError as error:
            said = (error.why or error.what).strip().splitlines()[-1]
            remedy = error.remedy or "compare the directives: beam-slurm submit --dry-run"
            return Check("sbatch", "fail", said, "Slurm takes the job's script", remedy)
    return passed("sbatch", "takes the script (--test-only)")
