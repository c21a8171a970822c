"""RadixArk's Miles: a launcher with flags of its own that submits a Ray job.

The launchers, their commands and --no-async-training, --resume, --num-rollout, --optimizer-disk-dir
and --output-dir are the cookbook's; the launchers' folder and the mount targets are assumptions,
since the published text has lost its commands. Other flags are those of Miles' main branch.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from beam_slurm.frameworks.changes import changes, hydra_value
from beam_slurm.frameworks.folders import Folders
from beam_slurm.frameworks.launch import Launch, Missing, Scratch
from beam_slurm.frameworks.preparation import MODEL_ID, Preparation, Step
from beam_slurm.profiles import Resolved
from beam_slurm.schema import Miles, Recipe, Site
from beam_slurm.yamlfile import Key

PATHS: tuple[str, ...] = ("miles", "models", "datasets", "outputs")

# Flags of the trainer, handed through the launcher by --extra-args: the last one wins.
FLAGS: dict[Key, str] = {
    ("prompts_per_step",): "--rollout-batch-size",
    ("responses_per_prompt",): "--n-samples-per-prompt",
    ("learning_rate",): "--lr",
    ("seed",): "--seed",
    ("evaluation", "every"): "--eval-interval",
    ("evaluation", "responses_per_problem"): "--n-samples-per-eval-prompt",
    ("checkpoint", "every"): "--save-interval",
    ("learner", "tensor"): "--tensor-model-parallel-size",
    ("learner", "pipeline"): "--pipeline-model-parallel-size",
    ("learner", "context"): "--context-parallel-size",
    ("learner", "expert"): "--expert-model-parallel-size",
    ("learner", "expert_tensor"): "--expert-tensor-parallel-size",
    ("rollout", "gpus_per_engine"): "--rollout-num-gpus-per-engine",
}

# Told by the launcher's own flags, or as a whole below. engines follows from gpus_per_engine.
OWN: frozenset[Key] = frozenset(
    {
        ("steps",),
        ("schedule",),
        ("learner", "nodes"),
        ("rollout", "nodes"),
        ("rollout", "engines"),
        ("updates_per_step",),
    }
)

KEY = "WANDB_API_KEY"

IMAGE = "radixark/miles:beam, or a file made of it"


def launch(resolved: Resolved, run: str, missing: Missing, overrides: Sequence[str] = ()) -> Launch:
    """The recipe's launcher with its flags; the trainer's own go into one --extra-args."""
    profile = resolved.profile
    framework, recipe, hardware = profile.framework, profile.recipe, profile.hardware
    assert isinstance(framework, Miles)
    run_id = PurePosixPath(run).name
    folders = Folders(resolved, missing, {"miles": "/root/miles"})
    checkout = folders.inside("miles")
    output, output_inside = folders.output(run_id)
    sentinel = "save-now"
    flags = [
        f"--num-nodes={hardware.nodes}",
        f"--num-gpus-per-node={hardware.gpus_per_node}",
        f"--model-dir={folders.inside('models')}",
        f"--data-dir={folders.inside('datasets')}",
        f"--output-dir={output_inside}",
        f"--num-rollout={recipe.steps}",
    ]
    scratch = None
    environment = {
        "MILES_SCRIPT_EXTERNAL_RAY": "1",  # or it would stop this job's Ray and start its own
        "PYTHONNOUSERSITE": "1",
    }
    if recipe.training == "full" and recipe.optimizer.state == "nvme":
        need = int((recipe.storage.nvme_gb or 0) * 1e9)
        scratch = Scratch(f"{folders.inside('scratch')}/{run_id}", need)
        flags.append(f"--optimizer-disk-dir={scratch.path}/optimizer")
        environment["SCRATCH"] = scratch.path  # an offloaded trainer goes there too
    if recipe.schedule == "turns":
        flags.append("--no-async-training")
    if recipe.checkpoint.resume:
        flags.append("--resume")
    words, extra = _take_extra(overrides)
    trainer = [
        *_pools(resolved),
        *_differs(resolved),
        *_wandb(framework, resolved.profile.site, run_id),
        f"--save-trigger-sentinel={output_inside}/{sentinel}",
    ]
    flags.append(f"--extra-args={' '.join([shlex.join(trainer), *extra])}")
    return Launch(
        title="Miles",
        entry=("python", framework.script, framework.command, *flags, *words),
        workdir=checkout,
        output=output,
        model=f"{folders.host('models')}/{PurePosixPath(MODEL_ID).name}",
        environment=environment,
        settings={"SCRATCH": "site.paths.scratch"},
        secrets=(KEY, "HF_TOKEN"),
        # The launcher would write it into its log, its Ray job's arguments and W&B's own config.
        withheld=(KEY,),
        container=folders.image(framework.image, IMAGE),
        mounts=folders.mounts,
        dashboard=True,
        scratch=scratch,
        checkpoints=f"{output}/{framework.checkpoints}" if recipe.checkpoint.enabled else None,
        sentinel=f"{output}/{sentinel}",
        stop="sentinel",
        resume=() if recipe.checkpoint.resume else ("--resume",),
    )


def prepare(resolved: Resolved, missing: Missing) -> Preparation:
    """Model and problems by the launcher's own command.

    The cookbook says that one call downloads Beam, DAPO-Math-17K and AIME2025. Its words and the
    names of what it writes are those of Miles' main branch, an assumption: the model goes to
    MODEL_DIR/NAME, a set to DATA_DIR/NAME/NAME.jsonl.
    """
    framework = resolved.profile.framework
    assert isinstance(framework, Miles)
    folders = Folders(resolved, missing, {"miles": "/root/miles"})
    argv = (
        *("python", framework.prepare_script, "prepare"),
        f"--model-dir={folders.inside('models')}",
        f"--data-dir={folders.inside('datasets')}",
    )
    return Preparation(
        title="Miles",
        framework="miles",
        workdir=folders.inside("miles"),
        steps=(Step("download the model and the problems", argv, ("model", "datasets")),),
        model=f"{folders.host('models')}/{PurePosixPath(MODEL_ID).name}",
        datasets=folders.host("datasets"),
        environment={
            "MILES_SCRIPT_EXTERNAL_RAY": "1",  # or it would stop somebody's Ray and start its own
            "PYTHONNOUSERSITE": "1",
        },
        container=folders.image(framework.image, IMAGE),
        mounts=folders.mounts,
    )


def _wandb(framework: Miles, site: Site, run_id: str) -> list[str]:
    """What the launcher would say to the trainer if it saw the key, less the key.

    The trainer finds that in its raylet's environment. Whether there will be one only the site can
    say: with these words and without a key the trainer fails.
    """
    if KEY not in site.secrets:
        return []
    project = f"miles-{PurePosixPath(framework.script).stem}"
    group = f"--wandb-group={run_id}"
    return ["--use-wandb", f"--wandb-project={project}", group, "--disable-wandb-random-suffix"]


def _pools(resolved: Resolved) -> list[str]:
    """Whose GPUs are whose, where training and generation have their own."""
    hardware, recipe = resolved.profile.hardware, resolved.profile.recipe
    learner, rollout = recipe.learner, recipe.rollout
    if not (learner and learner.nodes and rollout and rollout.nodes):
        return []
    return [
        f"--actor-num-nodes={learner.nodes}",
        f"--actor-num-gpus-per-node={hardware.gpus_per_node}",
        f"--rollout-num-gpus={rollout.nodes * hardware.gpus_per_node}",
    ]


def _differs(resolved: Resolved) -> list[str]:
    hint = "give the trainer its own flag: beam-slurm submit ... -- --extra-args='--some-flag 1'"
    found = changes(resolved, {*FLAGS, *OWN}, hint)
    words = [f"{FLAGS[key]}={hydra_value(found[key])}" for key in found if key in FLAGS]
    if {("prompts_per_step",), ("responses_per_prompt",), ("updates_per_step",)} & set(found):
        words.append(f"--global-batch-size={_update(resolved.profile.recipe)}")
    return words


def _update(recipe: Recipe) -> int:
    """Responses of one optimizer update."""
    return recipe.prompts_per_step * recipe.responses_per_prompt // recipe.updates_per_step


def _take_extra(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """(other words, values of --extra-args): the launcher takes one, so ours and theirs join."""
    words: list[str] = []
    extra: list[str] = []
    rest = iter(overrides)
    for word in rest:
        if word == "--extra-args":
            extra.append(next(rest, ""))
        elif word.startswith("--extra-args="):
            extra.append(word.partition("=")[2])
        else:
            words.append(word)
    return words, extra
