"""Memory of one GPU: while it trains, and while it generates.

Bytes of a parameter (Megatron, BF16 training): weight 2, gradient 4 (FP32), and 12 of optimizer
state (FP32 master weight, two moments), which the distributed optimizer shares among the copies.
FSDP2 as NeMo RL uses it keeps FP32 weights, which are the master weights: weight 4, gradient 4,
moments 8, all shared by all GPUs. MXFP8 training is taken to keep BF16 weights and two quantized
copies (by rows and by columns) of what is quantized, each one byte and a 32nd for the scales.

Activations are an estimate: micro-batches of one longest sequence, layers recomputed, logits and
their gradient in FP32. ``RESERVE`` is a flat allowance for what no formula knows.
"""

from __future__ import annotations

from math import ceil

from beam_slurm.plan.architecture import BEAM, Count
from beam_slurm.plan.layout import Layout, layout, responses
from beam_slurm.plan.result import Figure, Findings, error, note, parts, warning
from beam_slurm.schema import Profile, Rollout

WEIGHT = 2
GRADIENT = 4
MASTER = 4
STATE = 12
QUANTIZED = 1 + 1 / 32

RESERVE = 10e9
"""Bytes of a GPU for CUDA, NCCL, workspaces, gathered parameters, fragments, a sleeping engine."""

TIGHT = 0.1
"""What part of a GPU's memory should be left over by an estimate."""

LARGEST = {"h200": 141, "b200": 192, "b300": 288}
"""Memory of the largest of a type, in 10^9 bytes, as NVIDIA's datasheets round it."""


def held(cut: Layout) -> Count:
    """Parameters that the fullest GPU holds while it trains."""
    if cut.sharded:
        whole = BEAM.parameters
        return Count(whole.others / cut.world, whole.experts / cut.world)
    return _shared(BEAM.stage(cut.learner.pipeline), cut)


def trained(profile: Profile, cut: Layout) -> Count:
    """Those of them that are trained: all, or the adapters."""
    lora = profile.recipe.lora
    if profile.recipe.training == "full" or lora is None:
        return held(cut)
    if cut.sharded:
        whole = BEAM.adapters(lora.rank)
        return Count(whole.others / cut.world, whole.experts / cut.world)
    return _shared(BEAM.adapters(lora.rank, cut.learner.pipeline), cut)


def training(profile: Profile, cut: Layout) -> dict[str, float]:
    """Bytes of the fullest GPU while it trains, by what they are for."""
    own, learning = held(cut), trained(profile, cut)
    full = profile.recipe.training == "full"
    quantized = 2 * QUANTIZED * BEAM.linear / BEAM.parameters.total
    extra = quantized if cut.learner.precision == "mxfp8" else 0
    if cut.sharded:  # the FP32 weights that it trains are their own master
        weight, state, copies = MASTER if full else WEIGHT, STATE - MASTER, Count(1, 1)
    else:
        weight, state = WEIGHT, STATE
        copies = Count(
            cut.world / (cut.learner.tensor * cut.learner.pipeline), cut.world / cut.expert_model
        )
    shared = learning.others / copies.others + learning.experts / copies.experts
    adapters = 0.0 if full else learning.total * (MASTER if cut.sharded else WEIGHT)
    return {
        "weights": own.total * (weight + extra),
        "adapters": adapters,
        "gradients": learning.total * GRADIENT,
        "optimizer": shared * state * on_gpu(profile),
        "activations": _activations(profile, cut),
        "reserve": RESERVE,
    }


def on_gpu(profile: Profile) -> float:
    """Which part of the optimizer's state stays on the GPUs."""
    optimizer = profile.recipe.optimizer
    return 1.0 if optimizer.state == "gpu" else 1 - optimizer.offloaded


def generation(profile: Profile, rollout: Rollout) -> dict[str, float]:
    """Bytes of one GPU of an engine while it generates, all its responses at once."""
    whole = BEAM.parameters.total
    weights = WEIGHT * whole
    if rollout.precision == "mxfp8":
        weights -= (WEIGHT - QUANTIZED) * BEAM.linear
    lora = profile.recipe.lora
    adapters = WEIGHT * BEAM.adapters(lora.rank).total if lora else 0.0
    return {
        "weights": weights / rollout.gpus_per_engine,
        "adapters": adapters / rollout.gpus_per_engine,
        "KV cache": sequences(profile, rollout) * sequence_bytes(profile, rollout),
        "reserve": RESERVE,
    }


def sequences(profile: Profile, rollout: Rollout) -> int:
    """Responses of one step that one engine generates."""
    return ceil(responses(profile) / rollout.engines)


def sequence_bytes(profile: Profile, rollout: Rollout) -> float:
    """Keys and values of one longest sequence on one GPU of an engine; 0 if no length is known.

    Beyond as many ways as there are groups of keys and values, tensor parallelism repeats them.
    """
    each = 2 if rollout.kv_cache == "bf16" else 1
    ways = min(rollout.tensor_size, BEAM.kv_heads) * rollout.pipeline
    return BEAM.kv_bytes(tokens(profile), each) / ways


def tokens(profile: Profile) -> int:
    """Tokens of the longest sequence; 0 if the profile does not say."""
    recipe = profile.recipe
    return (recipe.prompt_tokens or 0) + (recipe.response_tokens or 0)


def check(profile: Profile) -> Findings:
    """Whether both fit into ``hardware.gpu_memory_gb``."""
    memory = profile.hardware.gpu_memory_gb
    cut, rollout = layout(profile), profile.recipe.rollout
    unknown = [
        f"recipe.{name}"
        for name in ("prompt_tokens", "response_tokens")
        if getattr(profile.recipe, name) is None
    ]
    if unknown and (cut or rollout):
        yield note(
            "tokens",
            f"{' and '.join(unknown)} not known: activations and KV cache are counted without",
            " ".join(f"--set {key}=N" for key in unknown),
        )
    if memory is None:
        if cut or rollout:
            yield note(
                "gpu-memory",
                "hardware.gpu_memory_gb is not known: nobody checks that the model fits",
                "--set hardware.gpu_memory_gb",
            )
        return
    largest = LARGEST.get(profile.hardware.gpu.lower())
    if largest and memory > 1.1 * largest:  # drivers count some per cent more than datasheets
        yield error(
            "gpu-type",
            f"hardware.gpu_memory_gb is {memory:g}, but hardware.gpu is {profile.hardware.gpu}: "
            f"such a GPU has {largest}",
            f"--set hardware.gpu_memory_gb={largest}, or another hardware.gpu",
        )
    if cut and (cut.sharded or cut.legal):
        need = training(profile, cut)
        total = sum(need.values())
        if total > memory * 1e9:
            yield error(
                "training-memory",
                f"training needs {total / 1e9:.0f} GB of each GPU, and one has {memory:g}: "
                f"{parts(need)}",
                _lighter(profile, cut),
            )
        elif total > (1 - TIGHT) * memory * 1e9:
            yield warning(
                "training-memory",
                f"training needs {total / 1e9:.0f} of the {memory:g} GB of each GPU: activations "
                "and fragments are estimates, so it may not fit",
                _lighter(profile, cut),
            )
    if rollout:
        yield from _generation_fits(profile, rollout, memory * 1e9)


def _generation_fits(profile: Profile, rollout: Rollout, memory: float) -> Findings:
    need = generation(profile, rollout)
    cache, one = need["KV cache"], sequence_bytes(profile, rollout)
    fixed = sum(need.values()) - cache
    if fixed + one > memory:
        yield error(
            "generation-memory",
            f"generation needs {(fixed + one) / 1e9:.0f} GB of each GPU for one sequence, and one "
            f"has {memory / 1e9:g}: {parts({**need, 'KV cache': one})}",
            "more GPUs an engine: --set recipe.rollout.gpus_per_engine, with fewer engines",
        )
    elif fixed + cache > memory:
        at_once = int((memory - fixed) / one)
        yield warning(
            "kv-cache",
            f"an engine has room for {at_once} of its {sequences(profile, rollout)} responses of "
            f"{tokens(profile)} tokens at once ({cache / 1e9:.0f} GB of KV cache on a GPU, "
            f"{(memory - fixed) / 1e9:.0f} free): the others wait",
            "--set recipe.rollout.kv_cache=fp8_e4m3, fewer prompts_per_step, or more engines",
        )


def figures(profile: Profile) -> list[Figure]:
    """The two needs beside ``hardware.gpu_memory_gb``."""
    found = []
    memory, cut, rollout = profile.hardware.gpu_memory_gb, layout(profile), profile.recipe.rollout
    if cut and (cut.sharded or cut.legal):
        need = training(profile, cut)
        found.append(
            Figure("training, one GPU", sum(need.values()) / 1e9, memory, "GB", parts(need))
        )
    if rollout:
        need = generation(profile, rollout)
        how = f"{parts(need)} ({sequences(profile, rollout)} × {tokens(profile)} tokens an engine)"
        found.append(Figure("generation, one GPU", sum(need.values()) / 1e9, memory, "GB", how))
    return found


def _shared(stage: Count, cut: Layout) -> Count:
    learner = cut.learner
    return Count(
        stage.others / learner.tensor, stage.experts / (learner.expert * learner.expert_tensor)
    )


def _activations(profile: Profile, cut: Layout) -> float:
    """Inputs of all layers that are in flight, one layer anew, logits with gradient and softmax."""
    own = tokens(profile) / (cut.learner.tensor * cut.learner.context)
    inputs = BEAM.layers * own * BEAM.hidden * 2
    # Dispatched tokens in and out, and the experts' widths; forward and backward, twice for skew.
    routed = own * BEAM.experts_per_token
    layer = routed * (2 * BEAM.hidden + 3 * BEAM.expert_width) * 2 * 2 * 2
    return inputs + layer + own * BEAM.vocabulary * 4 * 3


def _lighter(profile: Profile, cut: Layout) -> str:
    ways = [f"more nodes than {cut.nodes}", "GPUs with more memory"]
    if on_gpu(profile) > 0 and profile.recipe.training == "full" and not cut.sharded:
        ways.append("the optimizer off the GPUs (--set recipe.optimizer.state=host)")
    return ", or ".join(ways)
