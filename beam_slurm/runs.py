"""The run folder: what one submission leaves on shared storage, and how it is read again.

    <runs>/<run id>/
      script.sbatch  shell.sh  node.pyz                         written before sbatch
      profile.yaml  origins.json  manifest.json  *.patch        the same: see ``records``
      private/                                                  Ray's tokens, always mode 0700
      job-<job id>.log                                          Slurm's log, the driver's output
      attempt-<k>/                                              written on the nodes: ``attempts``
      output/                                                   the entry's own, where it has none
      notified/                                                 what the webhook was told
      metrics.json                                              read once: ``metrics.kept``

A sweep's runs lie one level deeper, in the folder of their sweep: ``sweep.folder``.

Only files, no daemon: whoever sees the folder sees the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from beam_slurm import attempts, slurm, state
from beam_slurm.attempts import Attempt
from beam_slurm.errors import BeamSlurmError
from beam_slurm.node.claim import MARKER
from beam_slurm.state import State

MANIFEST = "manifest.json"
PROFILE = "profile.yaml"
VERSION = 2  # of the manifest; 1 had no number, nor what a run is run again from
PRIVATE = "private"
SWEEP = "sweep.json"
"""What makes a folder a sweep's."""


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path

    @property
    def id(self) -> str:
        """The run's name: the folder's."""
        return self.path.name

    @property
    def manifest(self) -> dict[str, Any]:
        """What was submitted, when, as which job."""
        return attempts.read_json(self.path / MANIFEST)

    @property
    def damage(self) -> str:
        """Why the manifest says nothing; "" if it is well."""
        try:
            found = json.loads((self.path / MANIFEST).read_text())
        except OSError as error:
            return f"cannot read {self.path / MANIFEST}: {error.strerror}"
        except ValueError as error:
            return f"{self.path / MANIFEST} is not whole: {error}"
        return "" if isinstance(found, dict) else f"{self.path / MANIFEST} holds no keys"

    @property
    def created(self) -> float | None:
        """When it was submitted, in epoch seconds; None if the manifest does not say."""
        found = self.manifest.get("created")
        # Nothing that no clock shows, such as 1e30.
        return float(found) if isinstance(found, int | float) and 0 <= found < 1e11 else None

    @cached_property
    def profile(self) -> dict[str, Any]:
        """The resolved profile as plain values; {} where it is not to be read."""
        try:
            found = yaml.safe_load((self.path / PROFILE).read_text())
        except (OSError, ValueError, yaml.YAMLError):
            return {}
        return found if isinstance(found, dict) else {}

    def told(self, name: str) -> Path | None:
        """A path in the manifest; None where it has none that a file could have."""
        return _path(self.manifest.get(name))

    @property
    def moved(self) -> Path | None:
        """Where the folder was when the run was submitted, if that is not where it is now."""
        told = self.told("folder")
        if not told:
            return None
        try:
            return None if told.samefile(self.path) else told
        except OSError:
            return told

    def here(self, recorded: str | Path) -> Path:
        """A path that the run has told: if it was in its folder, where that is now."""
        path, told = Path(recorded), self.told("folder")
        if told and path.is_relative_to(told):
            return self.path / path.relative_to(told)
        return path

    @property
    def output(self) -> Path:
        """Where the framework writes."""
        return self.here(self.told("output") or self.path / "output")

    @property
    def checkpoints(self) -> Path | None:
        """Where the framework writes its checkpoints; None where it writes none."""
        found = self.told("checkpoints")
        return self.here(found) if found else None

    @property
    def converted(self) -> Path | None:
        """Where conversions of its checkpoints go unless they are told otherwise, as ``step_N``."""
        return self.checkpoints.parent / "hf" if self.checkpoints else None

    @cached_property
    def writes(self) -> tuple[Path, ...]:
        """The folders that the run writes into, wherever links lead."""
        task = self.manifest.get("task")
        made = _path(task.get("output")) if isinstance(task, dict) else None  # by a conversion
        places = (self.output, self.checkpoints, made and self.here(made))
        return tuple(Path(os.path.realpath(at)) for at in places if at)

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts in order, each with its outcome as it is now."""
        return attempts.read(self.path)

    @property
    def attempt(self) -> Path | None:
        """The newest attempt's folder; None before the batch script has begun."""
        found = self.attempts
        return found[-1].path if found else None

    @property
    def job(self) -> str | None:
        """The job that counts now: a chained one takes over from the one that was submitted."""
        return attempts.job(self.attempts, self.manifest.get("job"))

    @property
    def jobs(self) -> list[str]:
        """All its jobs in order."""
        return attempts.jobs(self.attempts, self.manifest.get("job"))

    @property
    def logs(self) -> list[Path]:
        """Slurm's logs with the driver's output: one a job, in order."""
        found = list(self.path.glob("job-*.log"))
        return sorted(found, key=lambda path: (len(path.name), path.name))  # ids only grow

    @property
    def log(self) -> Path | None:
        """The newest of ``logs``."""
        return self.logs[-1] if self.logs else None

    @property
    def outcome(self) -> dict[str, Any]:
        """The supervisor's last word on the newest attempt; {} while there is none."""
        found = self.attempts
        return found[-1].outcome if found else {}

    def events(self) -> list[dict[str, Any]]:
        """The newest attempt's events, oldest first: see ``node.events``."""
        found = self.attempts
        return found[-1].events if found else []

    def record(self, **facts: Any) -> None:
        """Write facts into the manifest, whole or not at all.

        Raises:
            BeamSlurmError: there is one that cannot be read: what it may hold is left as it is.
        """
        path = self.path / MANIFEST
        if path.exists() and (damage := self.damage):
            raise BeamSlurmError(
                f"{self.id} cannot be recorded", why=damage, remedy="put it right, or move it away"
            )
        text = json.dumps({**self.manifest, **facts}, indent=1) + "\n"
        write_whole(path, text.encode(), self.path.stat().st_mode)

    def state(self) -> State:
        """Slurm's word on the job that counts and the newest attempt's, see ``state``.

        Raises:
            BeamSlurmError: Slurm does not answer.
        """
        manifest = self.manifest
        if manifest.get("executor") == "local":
            host = manifest.get("host")
            if host and host != socket.gethostname():
                elsewhere = State("unknown", f"it was started on {host}, which alone can tell")
                return state.of_files(self.attempts) or elsewhere
            pid = manifest.get("pid")
            if not pid and manifest.get("sweep"):
                return State("pending", "its sweep has not come to it yet")
            if not pid and not self.attempts:
                return State("unknown", "it was never started, or nobody could say so")
            alive = bool(pid) and Path(f"/proc/{pid}").exists()
            return state.of_process(self.attempts, alive)
        job_id = self.job
        while job_id:
            job = slurm.job(job_id)
            found = self.attempts
            newest = attempts.job(found, job_id)
            if newest == job_id:
                before = str(manifest.get("follows") or "")
                return state.of_job(found, job, self.log, time.time(), before)
            job_id = newest  # it was chained in this very moment
        return State("unknown", self.damage or "it was never submitted, or nobody could say so")


def root(configured: str | None) -> Path:
    """Where run folders lie: the site's, or ./runs."""
    return Path(configured) if configured else Path.cwd() / "runs"


def new_id(name: str) -> str:
    """A run id nobody else has: it is the job's comment, and so guards against submitting twice."""
    return f"{name}-{secrets.token_hex(3)}"


def create(
    folder: Path, files: dict[str, str | bytes], manifest: dict[str, Any], mode: int = 0o700
) -> Run:
    """Make a run folder with everything that the job needs, or leave nothing.

    Args:
        folder: where; its name is the run's id.
        files: by their names in it.
        manifest: facts for everybody who reads it later.
        mode: who may look into it; its ``private/`` is this user's alone.

    Raises:
        BeamSlurmError: the folder cannot be written, or is there already.
    """
    lay_out(folder, files, mode)
    run = Run(folder)
    try:
        (folder / PRIVATE).mkdir(mode=0o700)
        facts = {"version": VERSION, "id": folder.name, "folder": str(folder)}
        run.record(**facts, created=round(time.time(), 3), **manifest)
    except OSError as error:
        raise _unwritten(folder, error) from error
    return run


def lay_out(folder: Path, files: Mapping[str, str | bytes], mode: int = 0o700) -> None:
    """Make a folder with these files, or leave nothing; ``mode`` says who may read them.

    Raises:
        BeamSlurmError: the folder cannot be written, or is there already.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except FileExistsError as error:
        raise BeamSlurmError(f"the run folder {folder} is there already") from error
    except OSError as error:
        raise BeamSlurmError(
            f"cannot make the run folder {folder}",
            why=error.strerror,
            remedy="set site.paths.runs to a folder of yours on shared storage",
        ) from error
    try:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (folder / name).write_bytes(data)
            (folder / name).chmod(0o666 & mode)
        folder.chmod(mode)  # whatever this shell's umask
    except OSError as error:
        raise _unwritten(folder, error) from error


def _unwritten(folder: Path, error: OSError) -> BeamSlurmError:
    shutil.rmtree(folder, ignore_errors=True)
    return BeamSlurmError(f"cannot write into the run folder {folder}", why=error.strerror)


def all_runs(where: Path, *, points: bool = True) -> Iterator[Run]:
    """Every run below ``where``, newest first; ``points``: those of sweeps too."""
    found = [Run(path.parent) for path in where.glob(f"*/{MANIFEST}")]
    for sweep in sweeps(where) if points else ():
        found += [Run(path.parent) for path in sweep.glob(f"*/{MANIFEST}")]
    yield from sorted(found, key=lambda run: run.created or 0, reverse=True)


def writers(folder: Path, known: Iterable[Run]) -> list[Run]:
    """The runs that write into ``folder`` or below it, or have done so, wherever links lead.

    The one whose mark lies in it comes first, of whatever folder of runs; then those of ``known``
    that say so themselves, among which may be one that still waits in the queue.
    """
    at = f"{os.path.realpath(folder)}/"  # as text: there may be a million to compare
    last = marked(folder)
    found = [last] if last else []
    return found + [run for run in known if any(f"{to}/".startswith(at) for to in run.writes)]


def marked(output: Path) -> Run | None:
    """The run whose attempt has begun to write into ``output`` last, see ``node.claim``."""
    found = _path(attempts.read_json(output / MARKER).get("run"))
    return Run(found) if found else None


def _path(found: Any) -> Path | None:
    """What a file says is a path, if it can be one."""
    if not isinstance(found, str) or not found or "\0" in found:
        return None
    try:
        os.fsencode(found)
    except UnicodeEncodeError:
        return None
    return Path(found)


def sweeps(where: Path) -> list[Path]:
    """The folders of all sweeps below ``where``."""
    return [path.parent for path in where.glob(f"*/{SWEEP}")]


def find(name: str | None, where: Path) -> Run:
    """A run by its folder, its id, the start of its id, or a job's id; None is the newest.

    The newest is none of a sweep's, of which there are many at once, and none that follows another.
    """
    name = name and (name.rstrip("/") or "/")  # as a shell completes a folder's name
    if name and (Path(name) / MANIFEST).is_file():
        return Run(Path(name).resolve())
    if name and ((Path(name) / SWEEP).is_file() or (where / name / SWEEP).is_file()):
        raise BeamSlurmError(
            f"{name} is a sweep: its points are runs",
            remedy=f"beam-slurm sweep status {name}; one of them: {Path(name).name}-0000",
        )
    known = list(all_runs(where, points=bool(name)))
    if not name and known:
        return next((run for run in known if "follows" not in run.manifest), known[0])
    if name:
        hits = [run for run in known if name in (run.id, run.manifest.get("job"))]
        hits = hits or [run for run in known if run.id.startswith(name)]
        if name.isdigit():
            hits = hits or [run for run in known if name in run.jobs]
        # What follows a run is named after it: the start of its id is the start of theirs.
        first = min(hits, key=lambda run: len(run.id), default=None)
        if first and all(run is first or run.id.startswith(f"{first.id}-") for run in hits):
            return first
        if hits:
            raise BeamSlurmError(
                f"{name!r} is the start of {len(hits)} runs",
                remedy="one of " + ", ".join(run.id for run in hits[:8]),
            )
        if "/" in name and not Path(name).exists():
            raise no_folder(name)
    raise BeamSlurmError(
        f"there is no run {name!r} in {where}" if name else f"there is no run in {where}",
        remedy="one of " + ", ".join(run.id for run in known[:8])
        if known
        else "beam-slurm submit makes one; if it is elsewhere, say where with --runs",
    )


def no_folder(name: str) -> BeamSlurmError:
    """The error of a name that is a path, at which nothing is."""
    return BeamSlurmError(
        f"there is no folder {name}", remedy="correct the path, or name a run by its id"
    )


def write_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a file whole or not at all, however many do so at once: the last one's is there.

    ``mode``: who may read and write it, as of its folder; None leaves that to the umask.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(data)
        if mode is not None:
            part.chmod(0o666 & mode)
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
