"""Shared storage: the model, and the checkpoints that a run leaves.

A full checkpoint has BF16 weights and the optimizer's state: 14 bytes a parameter, 7 TB. With LoRA
only the adapters are saved.
"""

from __future__ import annotations

from beam_slurm.plan.architecture import BEAM
from beam_slurm.plan.result import Figure, Findings, Room, count, error, note, warning
from beam_slurm.schema import Profile

CHECKPOINT = 14  # bytes a parameter


def checkpoint_bytes(profile: Profile) -> float:
    """Bytes of one checkpoint, of all nodes together."""
    lora = profile.recipe.lora
    if profile.recipe.training == "full" or lora is None:
        return CHECKPOINT * BEAM.parameters.total
    return CHECKPOINT * BEAM.adapters(lora.rank).total


def saved(profile: Profile) -> int:
    """How many checkpoints a whole run writes. SkyRL saves the last step too."""
    recipe = profile.recipe
    if not recipe.checkpoint.enabled:
        return 0
    whole, rest = divmod(recipe.steps, recipe.checkpoint.every)
    return whole + (1 if rest and profile.framework.name == "skyrl" else 0)


def kept(profile: Profile) -> int:
    """How many lie there at once: an old one goes only after the new one is complete."""
    keep, everything = profile.recipe.checkpoint.keep, saved(profile)
    if keep is None or profile.framework.name == "miles":  # which has no retention
        return everything
    return min(keep + 1, everything)


def check(profile: Profile, room: Room) -> Findings:
    """Whether the checkpoints fit into site.outputs_gb, or else into what was measured."""
    if profile.framework.name == "demo" or not kept(profile):
        return
    figure = _checkpoints(profile, room)
    if figure.have is None:
        yield note(
            "outputs",
            f"the checkpoints need {figure.need:.3g} TB; the room on site.paths.outputs is not "
            "known here",
            "--set site.outputs_gb=GB, or run this where that folder is mounted",
        )
    elif figure.need > figure.have:
        # A resumed run has written some of them already: how many, only the folder knows.
        say = warning if profile.recipe.checkpoint.resume else error
        yield say(
            "outputs",
            f"{figure.how} = {figure.need:.3g} TB, but site.paths.outputs has room for "
            f"{figure.have:.3g} TB",
            _fewer(profile, figure.have * 1e12),
        )


def figures(profile: Profile, room: Room) -> list[Figure]:
    """One checkpoint, all that are kept, and the model's folder."""
    if profile.framework.name == "demo":
        return []
    one, learner = checkpoint_bytes(profile), profile.recipe.learner
    nodes = (learner and learner.nodes) or profile.hardware.nodes
    whose = "adapter parameters" if profile.recipe.training == "lora" else "parameters"
    found = []
    if kept(profile):
        how = f"{CHECKPOINT} B × {one / CHECKPOINT / 1e9:.1f}e9 {whose}"
        how += f"; {one / nodes / 1e12:.2g} TB on each of {count(nodes, 'node')}"
        found.append(Figure("one checkpoint", one / 1e12, None, "TB", how))
        found.append(_checkpoints(profile, room))
    model = 2 * BEAM.parameters.total / 1e12
    how = f"2 B × {BEAM.parameters.total / 1e9:.1f}e9 parameters on site.paths.models"
    if profile.framework.name == "nemo-rl" and learner and learner.backend == "megatron":
        model, how = 2 * model, f"{how}, and as much for Megatron's converted copy"
    found.append(Figure("model folder", model, None, "TB", how))
    return found


def _checkpoints(profile: Profile, room: Room) -> Figure:
    number, one = kept(profile), checkpoint_bytes(profile) / 1e12
    gigabytes = profile.site.outputs_gb or room.outputs_gb
    have = gigabytes / 1e3 if gigabytes else None
    how = f"{count(number, 'checkpoint')} × {one:.3g} TB"
    if number < saved(profile):
        how += f" (keep {profile.recipe.checkpoint.keep}, and the one being written)"
    return Figure("checkpoints", number * one, have, "TB", how)


def _fewer(profile: Profile, room: float) -> str:
    fits = int(room // checkpoint_bytes(profile))
    if fits == 0:
        if profile.framework.name != "nemo-rl":  # whose checkpoints alone can be left out
            return "a larger folder for site.paths.outputs"
        return "a larger folder, or --set recipe.checkpoint.enabled=false"
    every = -(-profile.recipe.steps // fits)
    ways = [f"--set recipe.checkpoint.every={every} or more"]
    if fits > 1 and profile.framework.name != "miles":
        ways.insert(0, f"--set recipe.checkpoint.keep={fits - 1}")
    return ", or ".join(ways)
