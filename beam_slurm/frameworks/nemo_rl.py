"""NVIDIA NeMo RL: ``examples/run_grpo.py`` in the checkout's root, plain ``python``.

Source: Reflection's cookbook recipe for NeMo RL (commands, mounts, variables); the Ray resources
and the uv switch are read from NeMo RL's own launcher, ray.sub, and its distributed package.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.launch import Launch, Missing
from beam_slurm.profiles import Resolved
from beam_slurm.schema import NemoRL
from beam_slurm.yamlfile import dotted

CHECKOUT, MODELS, OUTPUTS = "/workspace/nemo-rl", "/root/models", "/root/shared_data"

# Settings of a recipe that have a name in NeMo RL's configuration. The published values stand in
# its own YAML; only what differs from them is handed on.
OVERRIDES = {
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
    image = missing.need(
        site.images.get(framework.image),
        f"site.images.{framework.image}",
        "NeMo RL image with Beam support: nobody publishes one, its guide tells how to build it",
    )
    return Launch(
        title="NeMo RL",
        entry=("python", "examples/run_grpo.py", "--config", framework.config, *_differs(resolved)),
        workdir=CHECKOUT,
        environment={
            "BEAM_CHECKPOINT": f"{MODELS}/Beam",
            "BEAM_LOG_DIR": f"{OUTPUTS}/{run_id}",
            "OMP_NUM_THREADS": "16",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # workers take the image's Python as it is
        },
        container=image,
        mounts=(f"{checkout}:{CHECKOUT}", f"{models}:{MODELS}", f"{outputs}:{OUTPUTS}"),
        # Its placement asks for these on every node of a cluster that Slurm started.
        resources={
            "worker_units": profile.hardware.gpus_per_node,
            "slurm_managed_ray_cluster": 1,
        },
    )


def _differs(resolved: Resolved) -> list[str]:
    """Hydra overrides for what is not as published.

    Raises:
        BeamSlurmError: for a setting that this framework has no name for.
    """
    published = _flat(resolved.published.model_dump())
    wanted = _flat(resolved.profile.recipe.model_dump())
    words = []
    for key in sorted(set(published) | set(wanted)):
        if published.get(key) == wanted.get(key):
            continue
        name = OVERRIDES.get(key)
        if not name:
            full = ("recipe", *key)
            raise BeamSlurmError(
                f"{dotted(full)} cannot be changed for NeMo RL by this name",
                where=resolved.document.place(full),
                why=f"its own YAML decides: {resolved.profile.framework.name} takes overrides",
                remedy="give NeMo RL's own key behind --, for example: -- policy.optimizer...=",
            )
        words.append(f"{name}={_hydra(wanted.get(key))}")
    if "checkpointing.enabled=true" in words:
        words.append("checkpointing.checkpoint_dir=${oc.env:BEAM_LOG_DIR}/checkpoints")
    return words


def _flat(tree: dict[str, Any], at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for word, value in tree.items():
        if isinstance(value, dict):
            found.update(_flat(value, (*at, word)))
        else:
            found[(*at, word)] = value
    return found


def _hydra(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
