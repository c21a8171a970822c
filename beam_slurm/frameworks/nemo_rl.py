"""NVIDIA NeMo RL: Hydra overrides on the published recipe files.

Entry, YAML names, image layout and the two variables are the cookbook's
(recipes/customization/rl/nemo-rl); keys of overrides are those of NeMo RL's main branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from beam_slurm import mounts
from beam_slurm.frameworks.changes import changes, hydra
from beam_slurm.frameworks.folders import Folders
from beam_slurm.frameworks.launch import Launch, Missing
from beam_slurm.frameworks.preparation import Preparation, Step, download_model
from beam_slurm.node import assets
from beam_slurm.profiles import Resolved
from beam_slurm.schema import NemoRL, Recipe
from beam_slurm.yamlfile import Key

PATHS: tuple[str, ...] = ("nemo_rl", "models", "outputs")

OVERRIDES: dict[Key, str] = {
    ("steps",): "grpo.max_num_steps",
    ("prompts_per_step",): "grpo.num_prompts_per_step",
    ("responses_per_prompt",): "grpo.num_generations_per_prompt",
    ("seed",): "grpo.seed",
    ("evaluation", "every"): "grpo.val_period",
    ("checkpoint", "enabled"): "checkpointing.enabled",
    ("checkpoint", "every"): "checkpointing.save_period",
    ("checkpoint", "keep"): "checkpointing.keep_top_k",
}

LEARNING_RATE = {
    "automodel-fsdp2": "policy.optimizer.kwargs.lr",
    "megatron": "policy.megatron_cfg.optimizer.lr",
}

# Pools are told as a whole, below; the number of engines follows from their GPUs.
POOLS: frozenset[Key] = frozenset(
    {("learner", "nodes"), ("rollout", "nodes"), ("rollout", "engines")}
)

# A layout's own keys are not the same in all of its branches: the profile describes for the plan
# what the words behind -- then say.
LAYOUT: frozenset[Key] = frozenset(
    {
        *(
            ("learner", name)
            for name in ("tensor", "pipeline", "context", "expert", "expert_tensor")
        ),
        *(("rollout", name) for name in ("gpus_per_engine", "tensor", "pipeline")),
    }
)

CHECKPOINTS = "checkpoints"

IMAGE = "NeMo RL image with Beam support: nobody publishes one, see its guide"

# In the folder of models: what prepare downloads and a run converts is found by the next run.
HF_HOME = "huggingface"

# What its recipes load, at Hugging Face.
DATASETS = assets.NEMO_RL


def launch(resolved: Resolved, run: str, missing: Missing, overrides: Sequence[str] = ()) -> Launch:
    """The recipe's command, and what differs from the published recipe as Hydra overrides."""
    profile = resolved.profile
    framework = profile.framework
    assert isinstance(framework, NemoRL)
    folders = Folders(resolved, missing, {"nemo_rl": "/workspace/nemo-rl"})
    checkout = folders.inside("nemo_rl")
    models = folders.inside("models")
    output, output_inside = folders.output(PurePosixPath(run).name)
    return Launch(
        title="NeMo RL",
        entry=(
            *("python", "examples/run_grpo.py", "--config", framework.config),
            *_pools(resolved),
            *_differs(resolved, described=bool(overrides)),
            *overrides,
        ),
        workdir=checkout,
        output=output,
        model=f"{folders.host('models')}/Beam",
        environment={
            "BEAM_CHECKPOINT": f"{models}/Beam",
            "BEAM_LOG_DIR": output_inside,
            # What prepare downloads and converts is found by the runs. Both are large and shared.
            "HF_HOME": f"{models}/{HF_HOME}",
            "NRL_MEGATRON_CHECKPOINT_DIR": f"{models}/nemo-rl-megatron",
            "OMP_NUM_THREADS": "16",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # workers take the image's Python as it is
        },
        settings={"BEAM_CHECKPOINT": "site.paths.models", "BEAM_LOG_DIR": "job.output_dir"},
        secrets=("WANDB_API_KEY", "HF_TOKEN"),
        container=folders.image(framework.image, IMAGE),
        mounts=folders.mounts,
        # Its placement asks for these on every node of a cluster that Slurm started.
        resources={
            "worker_units": profile.hardware.gpus_per_node,
            "slurm_managed_ray_cluster": 1,
        },
        checkpoints=f"{output}/{CHECKPOINTS}" if profile.recipe.checkpoint.enabled else None,
        stop="deadline",
        save_by="++checkpointing.checkpoint_must_save_by"
        if profile.recipe.checkpoint.enabled
        else "",
    )


def prepare(resolved: Resolved, missing: Missing) -> Preparation:
    """The model by the cookbook's own command; the problems into Hugging Face's cache.

    The cookbook leaves the problems to the run, which downloads them on the head; fetching them
    beforehand, by their names on NeMo RL's main branch, shows a missing licence or network early.
    """
    framework = resolved.profile.framework
    assert isinstance(framework, NemoRL)
    folders = Folders(resolved, missing, {})
    host, inside = folders.host("models"), folders.inside("models")
    site = resolved.profile.site
    site_mounts = map(mounts.parse, site.mounts)
    home = site.environment.get("HF_HOME", f"{inside}/{HF_HOME}")  # the site's own wins in runs too
    problems = [
        Step(f"download {name}", ("hf", "download", "--repo-type", "dataset", name), ("datasets",))
        for name in DATASETS
    ]
    return Preparation(
        title="NeMo RL",
        framework="nemo-rl",
        steps=(download_model(f"{inside}/Beam"), *problems),
        model=f"{host}/Beam",
        datasets=home if folders.bare else _on_host(home, [*folders.mounts, *site_mounts]),
        workdir=inside,
        environment={"HF_HOME": home},
        container=folders.image(framework.image, IMAGE),
        mounts=folders.mounts,
    )


def _on_host(path: str, mounted: Sequence[mounts.Mount]) -> str:
    """Where a path of the container lies on the hosts; the same where no mount holds it."""
    for mount in sorted(mounted, key=lambda mount: len(mount.target), reverse=True):
        if PurePosixPath(path).is_relative_to(mount.target):
            return str(mount.source / PurePosixPath(path).relative_to(mount.target))
    return path


def _pools(resolved: Resolved) -> list[str]:
    """Whose nodes are whose, where training and generation have their own; other nodes as such."""
    hardware, rollout = resolved.profile.hardware, resolved.profile.recipe.rollout
    published = resolved.shipped.hardware
    same = (hardware.nodes, hardware.gpus_per_node) == (published.nodes, published.gpus_per_node)
    whole = [
        f"cluster.num_nodes={hardware.nodes}",
        f"cluster.gpus_per_node={hardware.gpus_per_node}",
    ]
    if rollout is None or rollout.nodes is None:
        return [] if same else whole
    return [
        *whole,
        f"policy.generation.colocated.resources.num_nodes={rollout.nodes}",
        f"policy.generation.colocated.resources.gpus_per_node={hardware.gpus_per_node}",
    ]


def _differs(resolved: Resolved, described: bool) -> list[str]:
    """Hydra overrides for what is not as published; a layout only if words behind -- say it."""
    learner = resolved.profile.recipe.learner
    names = dict(OVERRIDES)
    if learner:
        names["learning_rate",] = LEARNING_RATE[learner.backend]
    hint = "give NeMo RL its own key behind --: beam-slurm submit ... -- policy.some.key=value"
    known = {*names, *POOLS, *(LAYOUT if described else ())}
    found = changes(resolved, known, hint)
    words = hydra(names, {key: value for key, value in found.items() if key in names})
    if found.get(("checkpoint", "enabled")):
        words += _checkpointing(resolved.profile.recipe, told=("checkpoint", "every") in found)
    return words


def _checkpointing(recipe: Recipe, told: bool) -> list[str]:
    """The rest of the cookbook's block: while checkpoints are off, the recipes' files lack it."""
    return [
        f"checkpointing.checkpoint_dir=${{oc.env:BEAM_LOG_DIR}}/{CHECKPOINTS}",
        *([] if told else [f"checkpointing.save_period={recipe.checkpoint.every}"]),
        "++checkpointing.save_optimizer=true",
    ]
