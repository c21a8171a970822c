"""Rules of divisibility: how a model of these shapes may be cut over these GPUs, and its batch.

Sources: SGLang 0.5.23's and vLLM's model code (heads), Megatron Bridge's Beam recipes (pipeline,
context), and what each framework checks when it starts.
"""

from __future__ import annotations

from math import ceil

from beam_slurm.plan.architecture import BEAM
from beam_slurm.plan.layout import Layout, layout, responses, rollout_gpus
from beam_slurm.plan.result import Figure, Findings, count, error, note, warning
from beam_slurm.schema import Profile, Rollout


def check(profile: Profile) -> Findings:
    """Every rule about pools, cuts and batches that applies to the profile."""
    yield from _pools(profile)
    yield from _shared(profile)
    cut = layout(profile)
    if cut:
        yield from _learner(cut)
        yield from _experts(cut)
        yield from _batch(profile, cut)
    if profile.recipe.rollout:
        yield from _engines(profile, profile.recipe.rollout)


def figures(profile: Profile) -> list[Figure]:
    """What one data-parallel copy is given of one update."""
    cut = layout(profile)
    if cut is None or not cut.legal:
        return []
    recipe = profile.recipe
    how = (
        f"{recipe.prompts_per_step} prompts × {recipe.responses_per_prompt} responses "
        f"/ {count(recipe.updates_per_step, 'update')} / DP {cut.data}: {cut} on {cut.world} GPUs"
    )
    share = responses(profile) / recipe.updates_per_step / cut.data
    return [Figure("responses a DP rank", share, None, "", how)]


def _shared(profile: Profile) -> Findings:
    """On a node that is shared, Slurm gives one CPU unless it is told how many."""
    hardware = profile.hardware
    if not hardware.exclusive and hardware.cpus_per_node is None:
        yield error(
            "shared-cpus",
            f"hardware.exclusive is false and hardware.cpus_per_node is not set: Slurm gives each "
            f"node one CPU for {hardware.gpus_per_node} GPUs",
            f"--set hardware.cpus_per_node={8 * hardware.gpus_per_node}, or what your nodes have",
        )


def _pools(profile: Profile) -> Findings:
    """Two pools add up to the allocation; one pool has no sizes of its own."""
    recipe, all_nodes = profile.recipe, profile.hardware.nodes
    if recipe.learner is None or recipe.rollout is None:
        gone = "learner" if recipe.learner is None else "rollout"
        if profile.framework.name != "demo":
            yield error(
                "pools",
                f"recipe.{gone} is not set: how are {all_nodes} nodes cut?",
                f"leave recipe.{gone} as the published profile has it",
            )
        return
    train, generate = recipe.learner.nodes, recipe.rollout.nodes
    if recipe.schedule == "colocated":
        if train or generate:
            yield error(
                "pools",
                f"colocated shares all {all_nodes} nodes, but recipe.learner.nodes is {train} and "
                f"recipe.rollout.nodes is {generate}",
                "--set recipe.learner.nodes=null --set recipe.rollout.nodes=null",
            )
    elif not train or not generate:
        yield error(
            "pools",
            f"{recipe.schedule} needs two pools, but recipe.learner.nodes is {train or 'not set'} "
            f"and recipe.rollout.nodes is {generate or 'not set'}",
            f"set both; together they are hardware.nodes, {all_nodes}",
        )
    elif train + generate != all_nodes:
        yield error(
            "pools",
            f"{train} nodes that train + {generate} that generate = {train + generate}, "
            f"but hardware.nodes is {all_nodes}",
            f"--nodes {train + generate}, or other recipe.learner.nodes and recipe.rollout.nodes",
        )


def _learner(cut: Layout) -> Findings:
    learner = cut.learner
    if BEAM.kv_heads % learner.tensor:
        yield error(
            "tensor-parallel",
            f"recipe.learner.tensor is {learner.tensor}, but Beam has {BEAM.kv_heads} groups of "
            "keys and values to divide",
            "--set recipe.learner.tensor to 1, 2, 4 or 8",
        )
    if learner.pipeline > BEAM.layers:
        yield error(
            "pipeline-parallel",
            f"recipe.learner.pipeline is {learner.pipeline}, but Beam has {BEAM.layers} layers",
            f"--set recipe.learner.pipeline to {BEAM.layers} or less",
        )
    elif BEAM.layers % learner.pipeline:
        yield note(
            "pipeline-parallel",
            f"{BEAM.layers} layers on {learner.pipeline} stages: the fullest has "
            f"{ceil(BEAM.layers / learner.pipeline)}. Megatron Bridge allows that",
        )
    if learner.context > 1:
        yield note(
            "context-parallel",
            f"context parallelism of {learner.context} works with cp_comm_type=a2a only: half of "
            "Beam's layers and more have a sliding window",
            "give the framework that setting behind --",
        )
    if cut.world % cut.model:
        yield error(
            "world",
            f"TP{learner.tensor} · PP{learner.pipeline} · CP{learner.context} = {cut.model} does "
            f"not divide the {cut.world} GPUs that train",
            f"choose recipe.learner.tensor, pipeline and context so that they divide {cut.world}, "
            f"or give training a multiple of {cut.model} GPUs",
        )


def _experts(cut: Layout) -> Findings:
    learner = cut.learner
    if BEAM.experts % learner.expert:
        yield error(
            "expert-parallel",
            f"recipe.learner.expert is {learner.expert}, which does not divide "
            f"{BEAM.experts} experts",
            "--set recipe.learner.expert to a power of two up to 256",
        )
    if BEAM.expert_width % learner.expert_tensor:
        yield error(
            "expert-tensor-parallel",
            f"recipe.learner.expert_tensor is {learner.expert_tensor}, which does not divide an "
            f"expert's width, {BEAM.expert_width}",
            "--set recipe.learner.expert_tensor=1",
        )
    if cut.world % cut.expert_model:
        if cut.sharded:
            product = f"EP{learner.expert}"
        else:
            product = f"PP{learner.pipeline} · EP{learner.expert} · ETP{learner.expert_tensor}"
            product += f" = {cut.expert_model}"
        yield error(
            "expert-world",
            f"{product} does not divide the {cut.world} GPUs that train",
            f"--set recipe.learner.expert to a divisor of "
            f"{cut.world // (1 if cut.sharded else learner.pipeline)}, or more nodes",
        )


def _batch(profile: Profile, cut: Layout) -> Findings:
    recipe = profile.recipe
    skyrl = profile.framework.name == "skyrl"
    whole = recipe.prompts_per_step if skyrl else responses(profile)
    what = "prompts" if skyrl else "responses"
    if whole % recipe.updates_per_step:
        yield error(
            "updates",
            f"{whole} {what} of a step are not divisible by recipe.updates_per_step, "
            f"{recipe.updates_per_step}",
            "--set recipe.prompts_per_step to a multiple of recipe.updates_per_step",
        )
        return
    if cut.world % cut.model:
        return
    update = responses(profile) // recipe.updates_per_step
    if update % cut.data == 0:
        return
    text = (
        f"{recipe.prompts_per_step} prompts × {recipe.responses_per_prompt} responses / "
        f"{count(recipe.updates_per_step, 'update')} = {update} do not divide over DP {cut.data} "
        f"({cut.world} GPUs / {cut.model})"
    )
    remedy = (
        "--set recipe.prompts_per_step or recipe.responses_per_prompt so that an update has a "
        f"multiple of {cut.data} responses"
    )
    if profile.framework.name == "miles" and update > cut.data:
        yield warning("batch", f"{text}: Miles takes that only with dynamic batches", remedy)
    else:
        yield error("batch", text, remedy)


def _engines(profile: Profile, rollout: Rollout) -> Findings:
    pool = rollout_gpus(profile)
    engine = rollout.gpus_per_engine
    if rollout.engines * engine != pool:
        if pool % engine == 0:
            remedy = f"--set recipe.rollout.engines={pool // engine}"
        else:
            remedy = f"--set recipe.rollout.gpus_per_engine to a divisor of {pool}"
        yield error(
            "engines",
            f"{count(rollout.engines, 'engine')} × {engine} GPUs = {rollout.engines * engine}, "
            f"but {pool} GPUs generate",
            remedy,
        )
    tensor = rollout.tensor_size
    if tensor * rollout.pipeline != engine:
        yield error(
            "engine-cut",
            f"TP{tensor} · PP{rollout.pipeline} = {tensor * rollout.pipeline}, but "
            f"recipe.rollout.gpus_per_engine is {engine}",
            "--set recipe.rollout.tensor and recipe.rollout.pipeline to match",
        )
    if tensor not in engine_tensors():
        name = "SGLang" if rollout.backend == "sglang" else "vLLM"
        legal = ", ".join(map(str, engine_tensors()))
        yield error(
            "engine-tensor",
            f"an engine's tensor parallelism is {tensor}, but {name} must divide Beam's "
            f"{BEAM.heads} heads and divide or multiply its {BEAM.kv_heads} groups: {legal}",
            "--set recipe.rollout.tensor to one of them, recipe.rollout.pipeline for the rest",
        )


def engine_tensors() -> list[int]:
    """Tensor parallelism that SGLang and vLLM take: keys and values may be repeated, not cut."""
    heads, groups = BEAM.heads, BEAM.kv_heads
    divisors = [ways for ways in range(1, heads + 1) if heads % ways == 0]
    return [ways for ways in divisors if groups % ways == 0 or ways % groups == 0]
