"""NVIDIA NeMo RL: ``examples/run_grpo.py`` in the checkout's root, plain ``python``.

Source: Reflection's cookbook recipe for NeMo RL (commands, mounts, variables); the Ray resources
and the uv switch are read from NeMo RL's own launcher, ray.sub, and its distributed package.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from beam_slurm.frameworks.changes import changes
from beam_slurm.frameworks.launch import Launch, Missing
from beam_slurm.profiles import Resolved
from beam_slurm.schema import NemoRL
from beam_slurm.yamlfile import Key

CHECKOUT, MODELS, OUTPUTS = "/workspace/nemo-rl", "/root/models", "/root/shared_data"

# Settings of a recipe that have a name in NeMo RL's configuration. The published values stand in
# its own YAML; only what differs from them is handed on.
OVERRIDES: dict[Key, str] = {
    ("steps",): "grpo.max_num_steps",
    ("prompts_per_step",): "grpo.num_prompts_per_step",
    ("responses_per_prompt",): "grpo.num_generations_per_prompt",
    ("evaluation", "every"): "grpo.val_period",
    ("checkpoint", "enabled"): "checkpointing.enabled",
    ("checkpoint", "every"): "checkpointing.save_period",
    ("seed",): "grpo.seed",
}


def launch(resolved: Resolved, run: str, missing: Missing) -> Launch:
    """The recipe's command, and what differs from the published recipe as Hydra overrides."""
    profile = resolved.profile
    site, framework = profile.site, profile.framework
    assert isinstance(framework, NemoRL)
    run_id = PurePosixPath(run).name
    checkout = missing.need(
        site.paths.nemo_rl, "site.paths.nemo_rl", "checkout of NeMo RL's beam-support branch"
    )
    models = missing.need(site.paths.models, "site.paths.models", "folder that holds Beam/")
    outputs = missing.need(
        site.paths.outputs, "site.paths.outputs", "shared folder for logs and checkpoints"
    )
    mounts = {checkout: CHECKOUT, models: MODELS, outputs: OUTPUTS}
    image = None
    if site.container == "bare":  # the same folders, by the names that the hosts have for them
        mounts = {path: path for path in mounts}
    else:
        image = missing.need(
            site.images.get(framework.image),
            f"site.images.{framework.image}",
            "NeMo RL image with Beam support: nobody publishes one, see its guide",
        )
    return Launch(
        title="NeMo RL",
        entry=("python", "examples/run_grpo.py", "--config", framework.config, *_differs(resolved)),
        workdir=mounts[checkout],
        environment={
            "BEAM_CHECKPOINT": f"{mounts[models]}/Beam",
            "BEAM_LOG_DIR": f"{mounts[outputs]}/{run_id}",
            "OMP_NUM_THREADS": "16",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # workers take the image's Python as it is
        },
        container=image,
        mounts=tuple(f"{source}:{target}" for source, target in mounts.items()),
        # Its placement asks for these on every node of a cluster that Slurm started.
        resources={
            "worker_units": profile.hardware.gpus_per_node,
            "slurm_managed_ray_cluster": 1,
        },
    )


def _differs(resolved: Resolved) -> list[str]:
    """Hydra overrides for what is not as published."""
    hint = "give NeMo RL its own key behind --: beam-slurm submit ... -- policy.some.key=value"
    found = changes(resolved, OVERRIDES, hint)
    words = [f"{OVERRIDES[key]}={_hydra(value)}" for key, value in found.items()]
    if "checkpointing.enabled=true" in words:
        words.append("checkpointing.checkpoint_dir=${oc.env:BEAM_LOG_DIR}/checkpoints")
    return words


def _hydra(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
