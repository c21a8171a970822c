"""What a run would go on from, or destroy: its output folder, looked at before the submission."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from beam_slurm import checks, runs
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.node import checkpoint
from beam_slurm.runs import Run


def output(request: JobRequest, known: Iterable[Run] | None = None) -> None:
    """Raise unless the output folder holds what the run is to go on from, or nothing.

    Frameworks decide this by themselves, hours later, and some of them without a word: SkyRL and
    Miles start from scratch where a small file is missing, NeMo RL goes on without being asked.
    A folder that this machine does not see is left to the job's first node.

    Args:
        request: the run.
        known: the runs that may write into the same folder; left out, all beside this one.

    Raises:
        BeamSlurmError: with what lies there, whole or not.
    """
    known = runs.all_runs(request.run.parent) if known is None else known
    if request.task:
        _refuse_in_use(request, known)
        return
    profile, folder = request.profile, request.launch.checkpoints
    resume = profile.recipe.checkpoint.resume
    if resume and not profile.recipe.checkpoint.enabled:
        raise BeamSlurmError(
            "a run without checkpoints cannot resume",
            why="recipe.checkpoint.resume is true, recipe.checkpoint.enabled is false",
            remedy="--set recipe.checkpoint.enabled=true",
        )
    _refuse_in_use(request, known)
    if folder is None:
        return
    root = Path(profile.site.paths.outputs or request.run.parent)
    if not checks.seen(Path(folder)) and not checks.seen(root):
        return
    found = checkpoint.latest(profile.framework.name, folder)
    if resume:
        _check_resume(request, folder, found)
    elif found.newest is not None:
        what = "a checkpoint" if found.step is not None else "something like a checkpoint"
        raise BeamSlurmError(
            f"{folder} holds {what} of step {found.step or found.newest}",
            why="; ".join(found.problems) or None,
            remedy="add --resume, or another --output-dir"
            if found.step is not None
            else "another --output-dir, or move away what lies there",
        )


def _check_resume(request: JobRequest, folder: str, found: checkpoint.Found) -> None:
    recipe = request.profile.recipe
    newest = found.newest or 0
    if found.step is None:
        raise BeamSlurmError(
            f"there is no whole checkpoint in {folder} to resume from",
            why="; ".join(found.problems) or "it holds none at all: the run would start at step 1",
            remedy="name the first run's folder with --output-dir, or leave out --resume",
        )
    if request.profile.framework.name == "skyrl" and newest - found.step > recipe.checkpoint.every:
        raise BeamSlurmError(
            f"SkyRL would refuse to resume from {folder}",
            why=f"its newest folder is of step {newest}, more than {recipe.checkpoint.every} "
            f"(recipe.checkpoint.every) beyond step {found.step} of its tracker file",
            remedy="; ".join(found.problems) + "; move it away",
        )
    _check_topology(request)
    if recipe.steps <= found.step:
        raise BeamSlurmError(
            f"{found.path} has {found.step} steps behind it already",
            why=f"recipe.steps is {recipe.steps}, those before a resume included: "
            "the run would end at once",
            remedy=f"--set recipe.steps={found.step + recipe.checkpoint.every}, for example",
        )


def _refuse_in_use(request: JobRequest, known: Iterable[Run]) -> None:
    """Raise if a run that is not over writes into the request's output folder, or will do so."""
    own = os.path.realpath(request.run)
    task, output = request.task, request.launch.output
    what, option = ("files", "-o") if task else ("checkpoints", "--output-dir")
    if task:
        output = task.output
    for run in runs.writers(Path(output), known):
        # What is made of a run's checkpoints lies beside them, and is in nobody's way.
        beside = "task" in run.manifest and not task
        if beside or os.path.realpath(run.path) == own:
            continue
        state = run.state()
        if not state.ended:
            job = run.manifest.get("job")
            raise BeamSlurmError(
                f"{output} is the output folder of {run.id}, which is {state.word}"
                + (f" as job {job}" if job else ""),
                why=f"both would write the same {what}",
                remedy=f"wait for its end, beam-slurm cancel {run.id}, or another {option}",
            )


def _check_topology(request: JobRequest) -> None:
    """Raise if Miles would be asked to cut streamed optimizer state anew, which it cannot."""
    recipe = request.profile.recipe
    if request.profile.framework.name != "miles" or recipe.optimizer.state != "nvme":
        return
    last = runs.marked(Path(request.launch.output))
    if last is None or not last.profile:
        return  # nobody knows
    old, new = _topology(last.profile), _topology(json.loads(request.profile.model_dump_json()))
    changed = [key for key in new if new[key] != old[key]]
    if changed:
        raise BeamSlurmError(
            f"Miles cannot resume {last.id} with "
            + ", ".join(f"{key} {new[key]} instead of {old[key]}" for key in changed),
            why="optimizer state on NVMe is saved as it was cut over the GPUs (recipe.optimizer)",
            remedy="set these as they were, or begin anew with another --output-dir",
        )


def _topology(profile: dict[str, Any]) -> dict[str, Any]:
    """What a resume may not change there, by dotted key; None for what is not said."""
    keys = [
        *("hardware.nodes", "hardware.gpus_per_node", "recipe.optimizer.state"),
        *(f"recipe.learner.{name}" for name in ("nodes", "tensor", "pipeline", "context")),
        *("recipe.learner.expert", "recipe.learner.expert_tensor"),
    ]
    found = {}
    for key in keys:
        value: Any = profile
        for word in key.split("."):
            value = value.get(word) if isinstance(value, dict) else None
        found[key] = value
    return found
