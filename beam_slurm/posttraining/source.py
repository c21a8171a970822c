"""Which checkpoint is meant, and how the run that wrote it was launched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from beam_slurm import runs
from beam_slurm.after.folder import CONFIG
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.node import checkpoint
from beam_slurm.profiles import Resolved
from beam_slurm.records import rerun
from beam_slurm.records.record import Record
from beam_slurm.runs import Run
from beam_slurm.yamlfile import Key

Settings = Sequence[tuple[Key, str]]


@dataclass(frozen=True)
class Source:
    """What a conversion or an evaluation begins with.

    Attributes:
        resolved: the profile of the run that trained: its site, image and GPUs.
        path: the checkpoint, as the hosts see it.
        run: the run that wrote it; None of one that was named by its folder.
        step: training steps behind it; None if nobody knows.
        there: it can be looked at; else another job will make it first.
    """

    resolved: Resolved
    path: Path
    run: Run | None
    step: int | None
    there: bool = True

    @property
    def framework(self) -> str:
        """Whose checkpoint it is."""
        return self.resolved.profile.framework.name

    @property
    def name(self) -> str:
        """Of the jobs that are made of it: the run's, or the folder's."""
        return self.run.id if self.run else re.sub(r"[^A-Za-z0-9._-]", "-", self.path.name)


def find(
    name: str,
    root: Path,
    step: int | None = None,
    resolved: Resolved | None = None,
    settings: Settings = (),
) -> Source:
    """The newest whole checkpoint of a run, that of a ``step``, or one in a folder.

    Args:
        name: a run, or, with ``resolved``, the folder of a checkpoint or of several.
        root: where run folders lie.
        step: training steps behind it; left out, the newest.
        resolved: the profile of a run that would have written it.
        settings: what is to be otherwise than the run was launched.

    Raises:
        BeamSlurmError: there is none, or it is not whole.
    """
    if resolved is not None:
        if not Path(name).is_dir():
            raise runs.no_folder(name)
        return _in_folder(resolved, Path(name).absolute(), step)
    if Path(name).is_dir() and not (Path(name) / runs.MANIFEST).is_file():
        raise BeamSlurmError(
            f"{name} is no run",
            why="how its checkpoint is read and on which nodes, a profile must say",
            remedy="add --profile NAME, as it was trained with",
        )
    run = runs.find(name, root)
    resolved = rerun.restored(Record(run), settings)
    if run.checkpoints is None or "task" in run.manifest:
        raise BeamSlurmError(f"{run.id} has saved no checkpoints")
    path, found = _whole(resolved.profile.framework.name, run.checkpoints, step, f" of {run.id}")
    return Source(resolved, path, run, found)


def _in_folder(resolved: Resolved, path: Path, step: int | None) -> Source:
    if (path / CONFIG).is_file():
        raise BeamSlurmError(
            f"{path} is a Hugging Face folder already",
            remedy=f"beam-slurm evaluate {path} --profile {resolved.profile.name} scores it; "
            "--to megatron converts it back",
        )
    framework = resolved.profile.framework.name
    layout = checkpoint.LAYOUTS[framework]
    pattern = re.sub("%.*d", r"(\\d+)", layout.name)
    match = re.fullmatch(pattern, path.name)
    if match:
        found = int(match[1]) + 1 - layout.counts_from
        _refuse_other(step, found, str(path))
        _refuse_damaged(framework, path.parent, int(match[1]))
        return Source(resolved, path, None, found)
    if not checkpoint.numbered(framework, str(path)):
        example = layout.name % 20
        raise BeamSlurmError(
            "this is no checkpoint, and holds none",
            where=str(path),
            why=f"those of {framework} are folders such as {example}",
            remedy=f"name {example} or the folder that it lies in; if another framework has "
            "written it, a --profile of that",
        )
    whole, found = _whole(framework, path, step)
    return Source(resolved, whole, None, found)


def _refuse_other(wanted: int | None, step: int | None, whose: str) -> None:
    """Raise if another step is wanted than that of the one checkpoint that was named."""
    if wanted not in (None, step):
        raise BeamSlurmError(
            f"{whose} is no checkpoint of step {wanted}",
            why=f"it is of step {step}" if step is not None else "nobody knows of which it is",
            remedy="leave out --step, or name the run that has several",
        )


def _whole(framework: str, folder: Path, step: int | None, whose: str = "") -> tuple[Path, int]:
    """(the checkpoint of a step or the newest one, its steps)."""
    if step is None:
        found = checkpoint.latest(framework, str(folder))
        if found.path is None or found.step is None:
            raise BeamSlurmError(
                f"there is no whole checkpoint{whose}",
                where=str(folder),
                why="; ".join(found.problems) or "nothing has been saved there yet",
                remedy="wait until one is saved, or name another run or folder",
            )
        return Path(found.path), found.step
    number = step - 1 + checkpoint.LAYOUTS[framework].counts_from
    return _refuse_damaged(framework, folder, number), step


def _refuse_damaged(framework: str, folder: Path, number: int) -> Path:
    """The checkpoint of that number.

    Raises:
        BeamSlurmError: it is not there, or not whole.
    """
    layout = checkpoint.LAYOUTS[framework]
    there = checkpoint.numbered(framework, str(folder))
    steps = ", ".join(str(at + 1 - layout.counts_from) for at in there if at != number)
    if number not in there:
        raise BeamSlurmError(
            f"there is no checkpoint {layout.name % number}",
            where=str(folder),
            remedy=f"there are {steps or 'none'}",
        )
    if damage := layout.damage(str(folder), there[number], number):
        raise BeamSlurmError(
            "the checkpoint is not whole",
            where=there[number],
            why=damage,
            remedy=f"take that of another step: there are {steps}"
            if steps
            else "there is no other one: wait until one is saved, or name another run",
        )
    return Path(there[number])


def to_come(request: JobRequest, step: int) -> Source:
    """What a conversion will read of a step that a run is still to train: checkpoint or export.

    Raises:
        BeamSlurmError: the run saves none.
    """
    profile, launch = request.profile, request.launch
    if launch.checkpoints is None:
        raise BeamSlurmError(
            f"{profile.name} saves no checkpoints",
            remedy="--save-every N, or leave out --then",
        )
    layout = checkpoint.LAYOUTS[profile.framework.name]
    name = layout.name % (step - 1 + layout.counts_from)
    path = Path(launch.export.of(step) if launch.export else f"{launch.checkpoints}/{name}")
    return Source(request.resolved, path, Run(request.run), step, there=False)


def model(
    name: str,
    root: Path,
    step: int | None = None,
    resolved: Resolved | None = None,
    settings: Settings = (),
) -> Source:
    """A Hugging Face folder: one by its path, that of a conversion, or a run's newest one.

    Args are those of ``find``; ``name`` may be a conversion's or an evaluation's run, too.

    Raises:
        BeamSlurmError: there is none.
    """
    if resolved is not None:
        return Source(resolved, Path(name).absolute(), None, step)
    run = runs.find(name, root)
    resolved = rerun.restored(Record(run), settings)
    task = run.manifest.get("task")
    # What a conversion has made, or an evaluation has scored.
    if isinstance(task, dict) and (folder := task.get("output") or task.get("checkpoint")):
        _refuse_other(step, task.get("step"), run.id)
        trained = Run(run.path.parent / task["run"]) if task.get("run") else None
        return Source(resolved, Path(folder), trained, task.get("step"))
    there = conversions(run)
    wanted = step if step is not None else max(there, default=None)
    if wanted not in there:
        which = f"of step {step} " if step is not None else ""
        raise BeamSlurmError(
            f"no checkpoint {which}of {run.id} has been converted",
            where=str(run.converted) if run.converted else None,
            remedy=f"beam-slurm convert {run.id}"
            + (f" --step {step}" if step is not None else "")
            + " --wait, and then this again",
        )
    return Source(resolved, there[wanted], run, wanted)


def conversions(run: Run) -> dict[int, Path]:
    """The Hugging Face folders that lie where a run's conversions go, by training steps."""
    folder = run.converted
    return {
        int(match[1]): path
        for path in (folder.glob("step_*") if folder else ())
        if (match := re.fullmatch(r"step_(\d+)", path.name))
    }
