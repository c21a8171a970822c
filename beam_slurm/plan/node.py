"""What one node must hold beside its GPUs: host RAM, and node-local NVMe.

Of a full fine-tuning, the optimizer's state (12 bytes a parameter) lives where
``recipe.optimizer.state`` says, shared evenly by the nodes that train. Colocated, the trainer
leaves the GPUs while they generate: to host RAM, or with Miles and a streamed optimizer to NVMe.

An optimizer in host RAM (Megatron) also wants FP32 gradients there, 4 bytes. SkyRL's recipe states
about 1.7 TB a node for its CPU optimizer on 8 nodes, and no parts of it. Ours: state 752 GB +
gradients 251 GB + weights of the trainer while it generates 139 GB = 1.14 TB. ``PINNED`` closes the
gap: it is fitted to their sum, not measured. Its likely cause is that such memory is pinned, and
torch rounds pinned blocks up to powers of two. Where ours is still less, theirs counts.
"""

from __future__ import annotations

from dataclasses import replace

from beam_slurm.plan.architecture import BEAM, Count
from beam_slurm.plan.layout import Layout, layout
from beam_slurm.plan.memory import GRADIENT, MASTER, STATE, WEIGHT, on_gpu
from beam_slurm.plan.result import Figure, Findings, error, note, parts
from beam_slurm.schema import Profile

PINNED = 1.5
CPU_OPTIMIZER = 1.7e12 * 8
"""Bytes of all nodes together that SkyRL's recipe states for it."""


def host(profile: Profile, cut: Layout) -> dict[str, float]:
    """Bytes of one training node's RAM, by what they are for."""
    recipe = profile.recipe
    count = _trained(profile).total / cut.nodes
    there = 1 - on_gpu(profile) if recipe.optimizer.state == "host" else 0.0
    pinned = 1.0 if cut.sharded else PINNED
    need = {
        "optimizer": _state(cut) * there * count * pinned,
        "gradients": GRADIENT * there * count * pinned,
    }
    if recipe.schedule == "colocated" and not _trainer_on_disk(profile):
        need |= {name: size * pinned for name, size in _leaving(profile, cut).items()}
    if recipe.schedule == "colocated" and recipe.training == "lora" and recipe.rollout:
        # vLLM's sleep of level 1: the frozen model is not sent again, so each engine keeps its own.
        share = profile.hardware.gpus_per_node / recipe.rollout.gpus_per_engine
        need["engines' weights while training"] = WEIGHT * BEAM.parameters.total * share
    if profile.ray.object_store_gb:
        need["Ray's object store"] = profile.ray.object_store_gb * 1e9
    return need


def nvme(profile: Profile, cut: Layout) -> dict[str, float]:
    """Bytes of one training node's NVMe, by what they are for."""
    recipe = profile.recipe
    if recipe.optimizer.state != "nvme" or recipe.training != "full":
        return {}
    need = {"optimizer": _state(cut) * (1 - on_gpu(profile)) * _trained(profile).total / cut.nodes}
    if recipe.schedule == "colocated" and _trainer_on_disk(profile):
        need |= _leaving(profile, cut)
    return need


def check(profile: Profile) -> Findings:
    """Whether a node has what it must hold."""
    for figure, key, rule, remedy in _needs(profile):
        if figure.have is None:
            yield note(
                rule,
                f"{figure.name}: {figure.need:.0f} GB are needed; hardware.{key} is not known",
                f"--set hardware.{key}",
            )
        elif figure.need > figure.have:
            yield error(
                rule,
                f"{figure.name}: {figure.need:.0f} GB are needed, hardware.{key} is "
                f"{figure.have:g}: {figure.how}",
                remedy,
            )


def figures(profile: Profile) -> list[Figure]:
    """Host RAM and NVMe of one node that trains, where something of the run lives there."""
    return [figure for figure, *_ in _needs(profile)]


def _needs(profile: Profile) -> list[tuple[Figure, str, str, str]]:
    """(figure, key of ``hardware``, rule, remedy) of what a node must hold."""
    cut = layout(profile)
    if cut is None or not (cut.sharded or cut.legal):
        return []
    recipe, hardware = profile.recipe, profile.hardware
    found = []
    stated = (recipe.storage.host_memory_gb or 0) * 1e9
    cpu = recipe.optimizer.state == "host" and recipe.optimizer.offloaded == 1
    if profile.framework.name == "skyrl" and recipe.training == "full" and cpu:
        stated = max(stated, CPU_OPTIMIZER / cut.nodes)
    need = host(profile, cut)
    if stated or sum(need.values()):
        figure = _figure("host RAM, one node", need, stated, hardware.host_memory_gb)
        if not cut.sharded and figure.need * 1e9 > stated:
            how = f"{figure.how}; in this × {PINNED:g} for what the trainer pins"
            figure = replace(figure, how=how)
        remedy = "nodes with more RAM, or more of them"
        if cpu:
            remedy += ", or --set recipe.optimizer.state=nvme"
        found.append((figure, "host_memory_gb", "host-memory", remedy))
    need = nvme(profile, cut)
    if need:
        stated = (recipe.storage.nvme_gb or 0) * 1e9
        figure = _figure("NVMe, one node", need, stated, hardware.nvme_gb)
        remedy = "nodes with more NVMe, or more of them"
        if profile.framework.name == "skyrl":
            remedy += ", or --set recipe.optimizer.state=host"
        found.append((figure, "nvme_gb", "nvme", remedy))
    return found


def _figure(name: str, need: dict[str, float], stated: float, have: float | None) -> Figure:
    total = sum(need.values())
    how = parts(need)
    if stated > total:
        how = f"stated by the recipe's authors; we count {how or 'nothing'}"
    return Figure(name, max(total, stated) / 1e9, have, "GB", how)


def _trained(profile: Profile) -> Count:
    lora = profile.recipe.lora
    full = profile.recipe.training == "full" or lora is None
    return BEAM.parameters if full or lora is None else BEAM.adapters(lora.rank)


def _state(cut: Layout) -> int:
    """Bytes of the optimizer's state a parameter, beside the weights themselves."""
    return STATE - MASTER if cut.sharded else STATE


def _leaving(profile: Profile, cut: Layout) -> dict[str, float]:
    """What a colocated trainer takes off one node's GPUs while they generate, in bytes.

    Gradients are dropped and made anew, but Miles saves all that the trainer has allocated.
    """
    full = profile.recipe.training == "full"
    weight = MASTER if cut.sharded and full else WEIGHT
    state = _state(cut) * on_gpu(profile) * _trained(profile).total / cut.nodes
    need = {
        "trainer's weights while generating": weight * _on_node(BEAM.parameters, profile, cut),
        "trainer's optimizer while generating": state,
    }
    if profile.framework.name == "miles":
        gradients = GRADIENT * _on_node(_trained(profile), profile, cut)
        need["trainer's gradients while generating"] = gradients
    return need


def _on_node(whole: Count, profile: Profile, cut: Layout) -> float:
    """How many of these parameters a node's GPUs hold, on average, each copy counted."""
    if cut.sharded:
        return whole.total / cut.nodes
    learner = cut.learner
    gpu = whole.others / (learner.tensor * learner.pipeline) + whole.experts / cut.expert_model
    return gpu * profile.hardware.gpus_per_node


def _trainer_on_disk(profile: Profile) -> bool:
    """Miles: a streamed optimizer makes the disk the trainer's place while the GPUs generate."""
    return profile.framework.name == "miles" and profile.recipe.optimizer.state == "nvme"
