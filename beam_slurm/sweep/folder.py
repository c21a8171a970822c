"""The folder of a sweep: what was planned, what was submitted, as which arrays.

A sweep without a file is what ``evaluate`` makes of several checkpoints: each is a point.

    <runs>/<sweep id>/
      sweep.yaml                  the sweep file as it was, if there is one
      sweep.json                  points, kinds, chunks: written before each submission and after it
      submitit/                   scripts and pickles of the arrays, and their tasks' first words
      <sweep id>-0007/            the run of point 7
      <sweep id>-0007-r1/         its first repetition

A point's run is named before anything is submitted, and a chunk is a list of such names: its task
i is the run ``runs[i]``. A chunk without a job is one of which nobody knows yet whether Slurm took
it.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from beam_slurm import runs
from beam_slurm.attempts import read_json
from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run
from beam_slurm.sweep import file
from beam_slurm.sweep.file import Sweep
from beam_slurm.sweep.schema import EarlyStop, Objective

COPY = "sweep.yaml"
ARRAYS = "submitit"
VERSION = 1

Directive = tuple[str, Any]


@dataclass
class Entry:
    """A point: its values and seed, the run that counts, and which kind of job that is."""

    values: dict[str, Any]
    seed: int | None
    run: str
    kind: int


@dataclass
class Chunk:
    """One array: its comment, its runs in the order of its indices, and its job once known."""

    token: str
    runs: list[str]
    job: str | None = None


@dataclass
class Content:
    """All that sweep.json holds.

    Attributes:
        file: where the sweep file lay; None of a sweep that has none.
        sha256: of its bytes.
        executor: slurm or local.
        profile: its name; of a sweep without a file, all their names.
        created: epoch seconds.
        max_parallel: how many points may run at the same time; None is no limit.
        kinds: the #SBATCH options of the points, which an array's tasks must have in common.
        stopped: run -> why it was ended early.
        cancelled: nothing more is to be submitted.
        queue: the process that starts the points without Slurm.
    """

    file: str | None
    sha256: str | None
    executor: str
    profile: str
    created: float
    max_parallel: int | None
    points: list[Entry]
    kinds: list[list[Directive]]
    chunks: list[Chunk] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)
    cancelled: bool = False
    queue: int | None = None
    version: int = VERSION


class Folder:
    """A sweep's folder, and its content as it was read last."""

    def __init__(self, path: Path, content: Content) -> None:
        self.path = path
        self.content = content

    @property
    def id(self) -> str:
        """The sweep's name: the folder's."""
        return self.path.name

    @property
    def arrays(self) -> Path:
        """Where submitit's files are."""
        return self.path / ARRAYS

    @property
    def local(self) -> bool:
        """Whether it runs on this machine, without Slurm."""
        return self.content.executor == "local"

    def run(self, index: int) -> Run:
        """The run of a point that counts."""
        return Run(self.path / self.content.points[index].run)

    def jobs(self) -> dict[str, str]:
        """Run -> the task of an array that it was submitted as."""
        return {
            run: f"{chunk.job}_{at}"
            for chunk in self.content.chunks
            if chunk.job
            for at, run in enumerate(chunk.runs)
        }

    def left(self) -> list[Entry]:
        """The points whose run is in no chunk yet."""
        taken = {run for chunk in self.content.chunks for run in chunk.runs}
        return [entry for entry in self.content.points if entry.run not in taken]

    def undecided(self) -> set[str]:
        """The runs of which nobody knows whether Slurm took them."""
        return {run for chunk in self.content.chunks if chunk.job is None for run in chunk.runs}

    @property
    def noun(self) -> str:
        """What its points are to those who made it."""
        return "point" if self.content.file else "checkpoint"

    @property
    def objective(self) -> Objective | None:
        """What decides which point is best, if the sweep file says so. Raises as ``sweep`` does."""
        return self.sweep().file.objective if self.content.file else None

    @property
    def early_stop(self) -> EarlyStop | None:
        """By which rule points are ended early, likewise."""
        return self.sweep().file.early_stop if self.content.file else None

    def sweep(self) -> Sweep:
        """The sweep file as it was.

        Raises:
            BeamSlurmError: there is none, or the copy was changed since.
        """
        if self.content.file is None:
            raise BeamSlurmError(
                f"{self.id} has no sweep file that its points could be made of anew",
                why="beam-slurm evaluate made it, of checkpoints",
                remedy="evaluate those again that are not scored: what is done is kept",
            )
        copy = self.path / COPY
        if file.digest(copy) != self.content.sha256:
            raise BeamSlurmError(
                f"{copy} was edited after the sweep was submitted",
                why="its points would not be those that run",
                remedy=f"put it back, or submit it as a sweep of its own: beam-slurm sweep {copy}",
            )
        return file.read(copy, home=Path(self.content.file).parent)

    def save(self) -> None:
        """Write sweep.json, whole or not at all."""
        path = self.path / runs.SWEEP
        text = json.dumps(asdict(self.content)) + "\n"
        runs.write_whole(path, text.encode(), self.path.stat().st_mode)

    def reload(self) -> None:
        """Take in what others have written."""
        self.content = open_folder(self.path).content

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else submits for this sweep meanwhile; what they did before is read first.

        Raises:
            BeamSlurmError: somebody does so now.
        """
        with (self.path / ".lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BeamSlurmError(
                    f"another beam-slurm is submitting {self.id}",
                    remedy=f"wait for it; beam-slurm sweep status {self.id} shows how far it is",
                ) from None
            self.reload()
            yield


def create(path: Path, sweep: Sweep | None, content: Content) -> Folder:
    """Turn ``path``, where the points' runs lie already, into the folder of a sweep."""
    mode = path.stat().st_mode  # whatever this shell's umask
    if sweep:
        copy = path / COPY
        copy.write_bytes(sweep.path.read_bytes())
        if file.digest(copy) != content.sha256:
            raise BeamSlurmError(
                f"{sweep.path} was changed just now",
                why="it is not what was checked any more",
                remedy="submit it again",
            )
        copy.chmod(0o666 & mode)
    (path / ARRAYS).mkdir()
    (path / ARRAYS).chmod(0o777 & mode)
    folder = Folder(path, content)
    folder.save()
    return folder


def open_folder(path: Path) -> Folder:
    """The sweep in a folder.

    Raises:
        BeamSlurmError: there is none, or it is of another version.
    """
    found = read_json(path / runs.SWEEP)
    if not found:
        raise BeamSlurmError(
            f"{path} is no sweep",
            why=f"its {runs.SWEEP} is missing, or was cut off",
            remedy="name the folder that beam-slurm sweep made, or its id",
        )
    if found.get("version") != VERSION:
        raise BeamSlurmError(
            f"{path} is a sweep of another version of beam-slurm",
            why=f"its {runs.SWEEP} has version {found.get('version')}, this one reads {VERSION}",
            remedy="its runs are as ever: beam-slurm status RUN, for each of its folders",
        )
    found["points"] = [Entry(**entry) for entry in found["points"]]
    found["chunks"] = [Chunk(**chunk) for chunk in found["chunks"]]
    found["kinds"] = [[(name, value) for name, value in kind] for kind in found["kinds"]]
    return Folder(path, Content(**found))


def find(name: str, where: Path) -> Folder:
    """A sweep by its folder, its id, the start of its id, or the newest one of a sweep file.

    Raises:
        BeamSlurmError: there is none, or several.
    """
    found = look(name, where)
    if found:
        return found
    ids = [path.name for path in newest(where)]
    raise BeamSlurmError(
        f"there is no sweep {name!r} in {where}",
        remedy="one of " + ", ".join(ids[:8]) if ids else "beam-slurm sweep FILE makes one",
    )


def look(name: str, where: Path, *, among_runs: bool = False) -> Folder | None:
    """The same; None if there is no such sweep.

    ``among_runs``: nor if the name is also the start of a run's that is no point of a sweep.

    Raises:
        BeamSlurmError: there are several.
    """
    path = Path(name)
    if (path / runs.SWEEP).is_file():
        return open_folder(path.resolve())
    known = newest(where)
    if path.is_file():
        folders = map(open_folder, known)
        return next((it for it in folders if it.content.file == str(path.resolve())), None)
    hits = [it for it in known if it.name == name]
    if not hits:
        hits = [it for it in known if it.name.startswith(name)]
        alone = (run.id for run in runs.all_runs(where, points=False)) if among_runs else ()
        if any(run.startswith(name) for run in alone):
            return None
    if len(hits) > 1:
        raise BeamSlurmError(
            f"{name!r} is the start of {len(hits)} sweeps",
            remedy="one of " + ", ".join(path.name for path in hits[:8]),
        )
    return open_folder(hits[0].resolve()) if hits else None


def newest(where: Path) -> list[Path]:
    """The folders of all sweeps, newest first."""

    def created(path: Path) -> float:
        return float(read_json(path / runs.SWEEP).get("created") or 0)

    return sorted(runs.sweeps(where), key=created, reverse=True)


def now() -> float:
    """Epoch seconds, to the millisecond."""
    return round(time.time(), 3)
