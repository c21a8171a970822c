"""Several checkpoints scored by one array: a sweep without a file, a checkpoint each point.

    names × steps ── find ──▶ sources ── plan ──▶ points ── sweep.submission ──▶ array

Each is a run in the sweep's folder, as it would be by itself beside it. Checkpoints whose jobs ask
Slurm for different things, say other numbers of nodes, are in arrays of their own, as in any sweep.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from beam_slurm import checks, posttraining, profiles, runs, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.posttraining import evaluating, source
from beam_slurm.posttraining.evaluating import Settings
from beam_slurm.posttraining.source import Source
from beam_slurm.profiles import Resolved
from beam_slurm.sweep.planning import Planned
from beam_slurm.sweep.points import Point
from beam_slurm.yamlfile import Key


def find(
    names: Sequence[str], root: Path, steps: Sequence[int] | None, resolved: Resolved | None
) -> list[Source]:
    """The Hugging Face folders that are meant: of each run those of all ``steps``, each folder.

    Args:
        names: runs and, with ``resolved``, Hugging Face folders.
        root: where run folders lie.
        steps: training steps behind them, () for the newest of each run, None for every
            converted one.
        resolved: the profile that says how the folders are launched.

    Raises:
        BeamSlurmError: one is not there, or nobody knows how it is launched.
    """
    folders = [name for name in names if _is_folder(name, root)]
    for name in folders:
        if not Path(name).is_dir():
            raise runs.no_folder(name)
    if folders and resolved is None:
        raise BeamSlurmError(
            f"{folders[0]} is no run",
            why="on which nodes and in which image it is evaluated, a profile must say",
            remedy="add --profile NAME",
        )
    if resolved is not None and not folders:
        raise BeamSlurmError(
            f"--profile is for a folder, and {names[0]} is none",
            remedy="leave it out: a run's checkpoints are launched as the run was",
        )
    if folders and (steps is None or len(steps) > 1):
        raise BeamSlurmError(
            f"{folders[0]} is one checkpoint: it has no steps to choose from",
            why="--step all, or more than one --step, is for runs",
            remedy="leave out --step, or name runs and folders in two commands",
        )
    found = []
    for name in names:
        if name in folders:
            found.append(source.model(name, root, steps[0] if steps else None, resolved))
        else:
            found += [source.model(name, root, step) for step in _wanted(name, root, steps)]
    return found


def _is_folder(name: str, root: Path) -> bool:
    """Whether a name is a folder's, and no run's."""
    if (Path(name) / runs.MANIFEST).is_file() or (root / name / runs.MANIFEST).is_file():
        return False
    return "/" in name or Path(name).is_dir()


def _wanted(name: str, root: Path, steps: Sequence[int] | None) -> Sequence[int | None]:
    """The steps of a run that are meant; None is the newest one, or why there is none."""
    if steps is None:
        steps = sorted(source.conversions(runs.find(name, root)))
    return steps or (None,)


def plan(
    sources: Sequence[Source],
    settings: Settings,
    output: Path | None,
    *,
    root: Path,
    local: bool = False,
) -> list[Planned]:
    """The points of the sweep; nothing is written and Slurm is not asked.

    Args:
        sources: the Hugging Face folders.
        settings: how the models are asked.
        output: a folder that is there, in which each gets its own; left out, beside each model.
        root: where run folders lie.
        local: on this machine, without Slurm.

    Raises:
        BeamSlurmError: a model or the problems are not whole, two are one, or ``output`` is not
            there.
    """
    tasks = [
        evaluating.task(each, settings, output / label(each) if output else None)
        for each in sources
    ]
    _outputs_differ(sources, [task.output for task in tasks])
    if output and checks.seen(output.absolute().parent) and not checks.seen(output):
        raise BeamSlurmError(
            f"{output} is not there",
            why="-o of several checkpoints is a folder that is there: each gets its own in it",
            remedy="make it, or leave out -o: responses and scores lie beside each model then",
        )
    name = f"evaluate-{settings.set}"[:64]
    sweep = runs.new_id(name)
    planned = []
    for at, (each, task) in enumerate(zip(sources, tasks, strict=True)):
        request = posttraining.request(
            _silent(each),
            task,
            name=name,
            run_id=f"{sweep}/{sweep}-{at:04}",
            local=local,
            root=root,
        )
        hardware, time = request.profile.hardware, request.profile.job.time
        hours = hardware.nodes * hardware.gpus_per_node * slurm.minutes(time) / 60
        planned.append(Planned(Point(at, {"checkpoint": _shown(each)}, None, {}), request, hours))
    return planned


def label(source: Source) -> str:
    """A folder's name for what is made of a checkpoint beside others."""
    step = f"-step_{source.step}" if source.run and source.step is not None else ""
    return f"{source.name}{step}"


def _shown(source: Source) -> str:
    """A checkpoint for people."""
    if source.run is None:
        return str(source.path)
    return source.run.id + (f" step {source.step}" if source.step is not None else "")


def _silent(source: Source) -> Source:
    """The same, of whose job the site's webhook hears nothing, as of a sweep's points."""
    silent: tuple[Key, Any, str] = (("site", "notify", "on"), [], "one of several evaluations")
    return replace(source, resolved=profiles.changed(source.resolved, [silent]))


def _outputs_differ(sources: Sequence[Source], outputs: Sequence[str]) -> None:
    """Raise if two evaluations would write into one folder."""
    seen: dict[str, Source] = {}
    for each, output in zip(sources, outputs, strict=True):
        other = seen.setdefault(os.path.realpath(output), each)
        if other is each:
            continue
        if os.path.realpath(other.path) == os.path.realpath(each.path):
            raise BeamSlurmError(
                f"{_shown(each)} is named twice", where=str(each.path), remedy="name it once"
            )
        raise BeamSlurmError(
            f"{_shown(other)} and {_shown(each)} would both write into {output}",
            why="-o has a folder for each, and these two have the same name",
            remedy="leave out -o: responses and scores lie beside each model then",
        )
