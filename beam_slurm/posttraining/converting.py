"""The job that makes a Hugging Face folder of a checkpoint, or a checkpoint of such a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from beam_slurm import checks, frameworks
from beam_slurm.after import convert
from beam_slurm.after import output as written
from beam_slurm.after.errors import Problem
from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.launch import Missing
from beam_slurm.posttraining.source import Source
from beam_slurm.profiles import Resolved
from beam_slurm.task import Task

Target = Literal["hf", "megatron"]

FORMS: dict[Target, str] = {
    "hf": "a folder in Hugging Face's form",
    "megatron": "what its framework trains from",
}


def task(source: Source, to: Target, output: Path | None, merge_lora: bool) -> Task:
    """One conversion.

    Args:
        source: the checkpoint, or the Hugging Face folder.
        to: what is made of it.
        output: the folder to make; left out, ``hf/step_N`` beside the checkpoints, or a folder
            beside the Hugging Face one.
        merge_lora: adapters become part of the weights.

    Raises:
        BeamSlurmError: the checkpoint is not whole or of another model, the output is in use,
            there is no room for it, or no node has the memory.
    """
    beside = source.path.with_name(f"{source.path.name}-megatron")
    if to == "hf":
        beside = source.path.parent.parent / to / f"step_{source.step}"
    target = (output or beside).absolute()
    base = base_model(source.resolved)
    asked = convert.Request(
        source.framework, source.path, to, Path(base) if base else None, target, merge_lora
    )
    memory = 0
    try:
        if source.there:
            memory = convert.check(asked).memory
        else:
            written.check(target, 0)
    except Problem as problem:
        raise refusal(problem) from problem
    _refuse_small(source.resolved, memory)
    return Task(
        name="convert",
        label=to,
        about=f"{source.path} becomes {FORMS[to]}",
        reads={"--checkpoint": str(source.path), **({"--base": base} if base else {})},
        words=(
            f"--framework={source.framework}",
            f"--to={to}",
            *(["--merge-lora"] if merge_lora else []),
        ),
        output=str(target),
        steps=1,
        host_memory=memory,
        facts={**facts(source), "output": str(target)},
        mark=str(written.part_of(target) / written.MARK) if source.there else "",
    )


def _refuse_small(resolved: Resolved, memory: int) -> None:
    have = resolved.profile.hardware.host_memory_gb
    if have and have * 1e9 < memory:
        raise BeamSlurmError(
            "a node has not enough memory for the conversion",
            where=resolved.document.place(("hardware", "host_memory_gb")),
            why=f"Megatron Bridge holds the whole model of {memory / 1e9:,.0f} GB in it, "
            f"and a node has {have:,g} GB",
            remedy="--profile of larger nodes; or set hardware.host_memory_gb to what yours have",
        )


def facts(source: Source) -> dict[str, Any]:
    """What the manifest of a job says of the checkpoint that it is about."""
    return {
        "run": source.run.id if source.run else None,
        "checkpoint": str(source.path),
        "step": source.step,
        "framework": source.framework,
    }


def refusal(problem: Problem) -> BeamSlurmError:
    """What a program of the job would say of it, said before there is one."""
    return BeamSlurmError(
        problem.what,
        where=problem.where or None,
        why=problem.why or None,
        remedy=problem.do or None,
    )


def base_model(resolved: Resolved) -> str | None:
    """The Hugging Face folder that training began with, as the hosts see it; the demo has none.

    Raises:
        BeamSlurmError: the site has not said where.
    """
    missing = Missing()
    found = frameworks.launch(resolved, "/run", missing, ()).model
    if found and any(f"<{key}>" in found for key, _ in missing.items):
        checks.missing(resolved.profile.name, missing.items)
    return found
