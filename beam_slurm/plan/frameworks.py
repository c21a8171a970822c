"""What a framework refuses, needs or silently ignores.

Each rule is one that the framework's own code, its documentation or the recipe states; they are
checked there minutes after the job has started, or never.
"""

from __future__ import annotations

from beam_slurm.plan.result import Findings, error
from beam_slurm.schema import Miles, Profile

MX_GPUS = ("b200", "b300", "gb200", "gb300")
"""GPU types with tensor cores for MXFP8."""


def check(profile: Profile) -> Findings:
    """The rules of all frameworks, then those of the profile's own."""
    yield from _training(profile)
    yield from _precision(profile)
    yield from _schedules(profile)
    own = {"nemo-rl": _nemo_rl, "skyrl": _skyrl, "miles": _miles}.get(profile.framework.name)
    if own:
        yield from own(profile)


def _training(profile: Profile) -> Findings:
    recipe = profile.recipe
    if recipe.training == "lora" and recipe.lora is None:
        yield error(
            "lora",
            "recipe.training is lora, but recipe.lora does not say rank and alpha",
            "--set 'recipe.lora={rank: 64, alpha: 64}'",
        )
    if recipe.training == "full" and recipe.lora is not None:
        yield error(
            "lora",
            f"recipe.training is full, but recipe.lora has rank {recipe.lora.rank}",
            "--set recipe.lora=null, or --set recipe.training=lora",
        )
    streamed = recipe.optimizer.state == "nvme"
    if recipe.training == "lora" and streamed:
        yield error(
            "lora-streamed",
            "recipe.training is lora, and recipe.optimizer.state is nvme: adapters cannot be "
            "trained with a streamed optimizer",
            "--set recipe.optimizer.state=gpu: the adapters' state is small",
        )
    if streamed and not recipe.optimizer.name.lower().startswith("adam"):
        yield error(
            "optimizer",
            f"recipe.optimizer.name is {recipe.optimizer.name}, but only Adam's state can be "
            "streamed from NVMe",
            "--set recipe.optimizer.name=adamw",
        )


def _precision(profile: Profile) -> Findings:
    recipe, gpu = profile.recipe, profile.hardware.gpu.lower()
    wanted = {
        f"recipe.{name}.precision": part.precision
        for name, part in (("learner", recipe.learner), ("rollout", recipe.rollout))
        if part
    }
    keys = [key for key, precision in wanted.items() if precision == "mxfp8"]
    if keys and gpu not in MX_GPUS:
        yield error(
            "precision",
            f"{' and '.join(keys)}: mxfp8, but hardware.gpu is {gpu}: MXFP8 needs B200 or B300",
            "use such nodes, or " + " ".join(f"--set {key}=bf16" for key in keys),
        )


def _schedules(profile: Profile) -> Findings:
    schedule, name = profile.recipe.schedule, profile.framework.name
    if schedule == "turns" and name != "miles":
        yield error(
            "schedule",
            f"recipe.schedule is turns, which only Miles has; this is {name}",
            "--set recipe.schedule=colocated",
        )
    elif name == "skyrl" and schedule != "colocated":
        yield error(
            "schedule",
            f"recipe.schedule is {schedule}, but SkyRL's Beam recipes are colocated only",
            "--set recipe.schedule=colocated, or a NeMo RL or Miles profile",
        )


def _nemo_rl(profile: Profile) -> Findings:
    recipe, hardware = profile.recipe, profile.hardware
    if recipe.schedule == "async":
        if recipe.rollout and recipe.rollout.backend == "sglang":
            yield error(
                "async-backend",
                "recipe.schedule is async, and recipe.rollout.backend is sglang: NeMo RL cannot "
                "train asynchronously with SGLang",
                "--set recipe.rollout.backend=vllm with the async image, or profile h200-async",
            )
        if recipe.overlong_penalty:
            yield error(
                "async-penalty",
                "recipe.schedule is async, and recipe.overlong_penalty is true: NeMo RL refuses "
                "reward shaping there",
                "--set recipe.overlong_penalty=false",
            )
    need = 2 * hardware.gpus_per_node
    if hardware.cpus_per_node and hardware.cpus_per_node < need:
        yield error(
            "cpus",
            f"hardware.cpus_per_node is {hardware.cpus_per_node}, but NeMo RL takes two for each "
            f"of a node's {hardware.gpus_per_node} GPUs: {need}",
            f"--set hardware.cpus_per_node={need} or more",
        )


def _skyrl(profile: Profile) -> Findings:
    rollout = profile.recipe.rollout
    learner = profile.recipe.learner
    if rollout and rollout.backend != "vllm":
        yield error(
            "backend",
            f"recipe.rollout.backend is {rollout.backend}, but SkyRL trains Beam with Megatron, "
            "which takes vLLM only",
            "--set recipe.rollout.backend=vllm",
        )
    if rollout and rollout.routing_replay and learner and learner.backend != "megatron":
        yield error(
            "routing-replay",
            f"recipe.rollout.routing_replay is on, but recipe.learner.backend is "
            f"{learner.backend}: only Megatron replays routes",
            "--set recipe.learner.backend=megatron, or --set recipe.rollout.routing_replay=false",
        )


def _miles(profile: Profile) -> Findings:
    recipe, framework = profile.recipe, profile.framework
    assert isinstance(framework, Miles)
    colocated = recipe.schedule == "colocated"
    fits = "execute-colocate" if colocated else "execute"
    if framework.command != fits:
        yield error(
            "command",
            f"framework.command is {framework.command}, but recipe.schedule is {recipe.schedule}: "
            f"that is {fits}",
            f"--set framework.command={fits}, or another recipe.schedule",
        )
    if not profile.ray.dashboard:
        yield error(
            "dashboard",
            "ray.dashboard is false, but Miles submits its training through the dashboard's port",
            "--set ray.dashboard=true",
        )
    if not profile.hardware.exclusive:
        yield error(
            "exclusive",
            "hardware.exclusive is false, but Miles' launcher kills every sglang, miles and redis "
            "on its host, of other jobs too",
            "--set hardware.exclusive=true",
        )
