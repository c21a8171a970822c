"""NovaSky's SkyRL: launch scripts that read variables and pass Hydra overrides through.

Variables, their defaults and the scripts' folder are the cookbook's; the scripts' names, the
model's variable and the mount targets are assumptions, since the published text has lost its
commands. Keys of overrides, the hook and the timeouts are those of SkyRL's main branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from beam_slurm.frameworks.changes import changes, hydra
from beam_slurm.frameworks.folders import Folders
from beam_slurm.frameworks.launch import Export, Launch, Missing, Scratch
from beam_slurm.frameworks.preparation import Preparation, Step, download_model
from beam_slurm.profiles import Resolved
from beam_slurm.schema import Recipe, SkyRL
from beam_slurm.yamlfile import Key

PATHS: tuple[str, ...] = ("skyrl", "models", "datasets", "outputs")

OVERRIDES: dict[Key, str] = {
    ("prompts_per_step",): "trainer.train_batch_size",
    ("responses_per_prompt",): "generator.n_samples_per_prompt",
    ("learning_rate",): "trainer.policy.optimizer_config.lr",
    ("seed",): "trainer.seed",
    ("evaluation", "every"): "trainer.eval_interval",
    ("evaluation", "responses_per_problem"): "generator.eval_n_samples_per_prompt",
    ("checkpoint", "keep"): "trainer.max_ckpts_to_keep",
    ("lora", "rank"): "trainer.policy.model.lora.rank",
    ("lora", "alpha"): "trainer.policy.model.lora.alpha",
    ("learner", "tensor"): "trainer.policy.megatron_config.tensor_model_parallel_size",
    ("learner", "pipeline"): "trainer.policy.megatron_config.pipeline_model_parallel_size",
    ("learner", "context"): "trainer.policy.megatron_config.context_parallel_size",
    ("learner", "expert"): "trainer.policy.megatron_config.expert_model_parallel_size",
    ("learner", "expert_tensor"): "trainer.policy.megatron_config.expert_tensor_parallel_size",
    ("rollout", "engines"): "generator.inference_engine.num_engines",
    ("rollout", "tensor"): "generator.inference_engine.tensor_parallel_size",
    ("rollout", "pipeline"): "generator.inference_engine.pipeline_parallel_size",
}

# Told by variables, which are always set; gpus_per_engine follows from tensor and pipeline.
VARIABLES: frozenset[Key] = frozenset(
    {
        ("steps",),
        ("checkpoint", "every"),
        ("optimizer", "state"),
        ("rollout", "kv_cache"),
        ("rollout", "gpus_per_engine"),
        ("updates_per_step",),
    }
)

# Loading 1 TB takes longer than SkyRL's own 3 to 10 minutes.
PATIENCE = {
    "SKYRL_RAY_PG_TIMEOUT_IN_S": "1800",
    "SKYRL_WORKER_NCCL_TIMEOUT_IN_S": "3600",
    "SKYRL_WAIT_UNTIL_INFERENCE_SERVER_HEALTHY_TIMEOUT_S": "3600",
    "RAY_worker_register_timeout_seconds": "600",
}

SETTINGS = {
    "DATA_DIR": "site.paths.datasets",
    "MAX_TRAINING_STEPS": "recipe.steps",
    "CKPT_PATH": "job.output_dir",
    "EXPORT_PATH": "job.output_dir",
    "CKPT_INTERVAL": "recipe.checkpoint.every",
    "RESUME_MODE": "recipe.checkpoint.resume",
    "OPTIMIZER_STATE_DISK_DIR": "recipe.optimizer.state",
    "KV_CACHE_DTYPE": "recipe.rollout.kv_cache",
}

CHECKPOINTS, EXPORTS = "checkpoints", "exports"

IMAGE = "SkyRL image with Beam's wheels"


def launch(resolved: Resolved, run: str, missing: Missing, overrides: Sequence[str] = ()) -> Launch:
    """The recipe's script, its variables, and what differs as Hydra overrides."""
    profile = resolved.profile
    framework, recipe = profile.framework, profile.recipe
    assert isinstance(framework, SkyRL)
    run_id = PurePosixPath(run).name
    folders = Folders(resolved, missing, {"skyrl": "/workspace/SkyRL"})
    checkout = folders.inside("skyrl")
    output, output_inside = folders.output(run_id)
    environment = {
        framework.model_variable: f"{folders.inside('models')}/Beam",
        "DATA_DIR": folders.inside("datasets"),
        "MAX_TRAINING_STEPS": str(recipe.steps),
        "CKPT_PATH": f"{output_inside}/{CHECKPOINTS}",
        "EXPORT_PATH": f"{output_inside}/{EXPORTS}",
        "CKPT_INTERVAL": str(recipe.checkpoint.every),
        # Only images' interactive shells set it, and without it workers lack the uv environment.
        "RAY_RUNTIME_ENV_HOOK": "ray._private.runtime_env.uv_runtime_env_hook.hook",
        **PATIENCE,
    }
    if recipe.checkpoint.enabled or recipe.training == "full":  # in a new folder it begins anew
        environment["RESUME_MODE"] = "latest"
    if recipe.rollout and recipe.rollout.kv_cache != "bf16":
        environment["KV_CACHE_DTYPE"] = recipe.rollout.kv_cache
    scratch = None
    if recipe.training == "full":
        environment["OPTIMIZER_STATE_DISK_DIR"] = ""  # empty: the optimizer in host RAM
        if recipe.optimizer.state == "nvme":
            need = int((recipe.storage.nvme_gb or 0) * 1e9)
            scratch = Scratch(f"{folders.inside('scratch')}/{run_id}", need)
            environment["OPTIMIZER_STATE_DISK_DIR"] = scratch.path
    return Launch(
        title="SkyRL",
        entry=("bash", framework.script, *_differs(resolved), *overrides),
        workdir=checkout,
        output=output,
        model=f"{folders.host('models')}/Beam",
        environment=environment,
        settings={**SETTINGS, framework.model_variable: "site.paths.models"},
        secrets=("WANDB_API_KEY", "HF_TOKEN"),
        container=folders.image(framework.image, IMAGE),
        mounts=folders.mounts,
        scratch=scratch,
        checkpoints=f"{output}/{CHECKPOINTS}" if recipe.checkpoint.enabled else None,
        # Adapters are saved a file a rank; what it exports is the whole model, with them merged.
        export=Export("trainer.hf_save_interval", f"{output}/{EXPORTS}", "global_step_%d/policy")
        if recipe.training == "lora"
        else None,
    )


def prepare(resolved: Resolved, missing: Missing) -> Preparation:
    """The model, and the problems by SkyRL's own script.

    The cookbook says that a script writes three files into DATA_DIR. The script's name is the
    one of SkyRL's main branch, an assumption: framework.data_script. It downloads with wget and
    runs Python through uv, so its machine needs the internet.
    """
    framework = resolved.profile.framework
    assert isinstance(framework, SkyRL)
    folders = Folders(resolved, missing, {"skyrl": "/workspace/SkyRL"})
    problems = Step(
        "download and clean the problems", ("bash", framework.data_script), ("datasets",)
    )
    return Preparation(
        title="SkyRL",
        framework="skyrl",
        workdir=folders.inside("skyrl"),
        steps=(download_model(f"{folders.inside('models')}/Beam"), problems),
        model=f"{folders.host('models')}/Beam",
        datasets=folders.host("datasets"),
        environment={"DATA_DIR": folders.inside("datasets")},
        container=folders.image(framework.image, IMAGE),
        mounts=folders.mounts,
    )


def _shape(resolved: Resolved) -> list[str]:
    """Nodes, batch and engines, where the script alone cannot tell.

    One LoRA script is assumed for both published sizes; and a script knows no other number of nodes
    than its own.
    """
    profile = resolved.profile
    recipe, nodes = profile.recipe, profile.hardware.nodes
    placement = f"trainer.placement.policy_num_nodes={nodes}"
    if recipe.training == "full":
        return [] if nodes == resolved.shipped.hardware.nodes else [placement]
    return [
        placement,
        f"trainer.train_batch_size={recipe.prompts_per_step}",
        f"trainer.policy_mini_batch_size={_mini_batch(recipe)}",
        *(
            [f"generator.inference_engine.num_engines={recipe.rollout.engines}"]
            if recipe.rollout
            else []
        ),
    ]


def _differs(resolved: Resolved) -> list[str]:
    hint = "give SkyRL its own key behind --: beam-slurm submit ... -- trainer.some.key=value"
    recipe = resolved.profile.recipe
    known = {*OVERRIDES, *VARIABLES}
    if recipe.training == "lora" or recipe.optimizer.state == "gpu":
        known.remove(("optimizer", "state"))  # the scripts know NVMe and RAM, of a full optimizer
    found = changes(resolved, known, hint)
    words = hydra(OVERRIDES, {key: value for key, value in found.items() if key in OVERRIDES})
    if {("prompts_per_step",), ("updates_per_step",)} & set(found):
        words.append(f"trainer.policy_mini_batch_size={_mini_batch(recipe)}")
    said = _shape(resolved)
    return [*said, *(word for word in words if word not in said)]


def _mini_batch(recipe: Recipe) -> int:
    return recipe.prompts_per_step // recipe.updates_per_step
