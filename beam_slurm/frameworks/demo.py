"""The digit-sum GRPO of examples/grpo_digits: no container, no data, any machine."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path, PurePosixPath

from beam_slurm.frameworks.changes import changes
from beam_slurm.frameworks.launch import Launch, Missing
from beam_slurm.frameworks.preparation import Preparation
from beam_slurm.profiles import Resolved
from beam_slurm.schema import Demo

PATHS: tuple[str, ...] = ()

EXAMPLES = Path(str(files("beam_slurm"))) / "data" / "examples"


# What train.py can be told; all of it is said, so that the script shows it.
KNOWN = frozenset(
    {
        ("schedule",),
        ("steps",),
        ("prompts_per_step",),
        ("responses_per_prompt",),
        ("learning_rate",),
        ("seed",),
        ("evaluation", "every"),
        ("checkpoint", "enabled"),
        ("checkpoint", "every"),
    }
)


def launch(resolved: Resolved, run: str, missing: Missing, overrides: Sequence[str] = ()) -> Launch:
    """``python train.py`` with every setting of the recipe as a flag."""
    profile = resolved.profile
    assert isinstance(profile.framework, Demo)
    folder = (EXAMPLES / "grpo_digits").resolve()
    recipe = profile.recipe
    changes(resolved, KNOWN, "train.py --help lists what else it takes, behind --")
    # Beside the runs, so that the next one finds it; a run's own output lies in its folder.
    given = profile.job.output_dir
    output = str(PurePosixPath(run).parent / given) if given else f"{run}/output"
    entry = [
        "python",
        str(folder / "train.py"),
        f"--output-dir={output}",
        f"--mode={recipe.schedule}",
        f"--steps={recipe.steps}",
        f"--prompts-per-step={recipe.prompts_per_step}",
        f"--responses-per-prompt={recipe.responses_per_prompt}",
        *([f"--learning-rate={recipe.learning_rate:g}"] if recipe.learning_rate else []),
        f"--eval-every={recipe.evaluation.every}",
        f"--save-every={recipe.checkpoint.every if recipe.checkpoint.enabled else 0}",
        *([f"--seed={recipe.seed}"] if recipe.seed is not None else []),
        *(["--resume"] if recipe.checkpoint.resume else []),
    ]
    return Launch(
        title="demo GRPO",
        entry=(*(profile.framework.entry or entry), *overrides),
        workdir=run,
        output=output,
        checkpoints=f"{output}/checkpoints" if recipe.checkpoint.enabled else None,
        stop="signal",
        resume=() if profile.framework.entry or recipe.checkpoint.resume else ("--resume",),
        # All hosts of the embedded Slurm share few cores: one thread each.
        environment={"OMP_NUM_THREADS": "1"},
    )


def prepare(resolved: Resolved, missing: Missing) -> Preparation:
    """Nothing: its model is made as it starts and its problems are drawn as they are needed."""
    return Preparation(title="demo GRPO", framework="demo")
