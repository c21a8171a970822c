"""The run folder: what one submission leaves on shared storage, and how it is read again.

    <runs>/<run id>/
      script.sbatch  node.pyz  profile.yaml  manifest.json     written before sbatch
      job-<job id>.log                                          Slurm's log, the driver's output
      attempt-<k>/events.jsonl  outcome.json  ray/<node>.log    written on the nodes
      output/                                                   the entry's own, where it has none

Only files, no daemon: whoever sees the folder sees the run.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm import slurm
from beam_slurm.errors import BeamSlurmError

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class State:
    """What is known of a run now.

    ``word`` is one of submitted, pending, starting, running, succeeded, failed, cancelled,
    unknown. ``exit_code`` is None while the run goes on or when nobody can say.
    """

    word: str
    why: str = ""
    exit_code: int | None = None
    job: slurm.Job | None = None

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.word in ("succeeded", "failed", "cancelled", "unknown")


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
        return _read_json(self.path / MANIFEST)

    @property
    def output(self) -> Path:
        """Where the framework writes."""
        return Path(self.manifest.get("output") or self.path / "output")

    @property
    def attempt(self) -> Path | None:
        """The newest attempt's folder; None before the batch script has begun."""
        found = [p for p in self.path.glob("attempt-*") if p.name[8:].isdigit()]
        return max(found, key=lambda path: int(path.name[8:]), default=None)

    @property
    def log(self) -> Path | None:
        """Slurm's log with the driver's output."""
        return max(self.path.glob("job-*.log"), key=lambda p: p.stat().st_mtime, default=None)

    @property
    def outcome(self) -> dict[str, Any]:
        """The supervisor's last word on the newest attempt; {} while there is none."""
        return _read_json(self.attempt / "outcome.json") if self.attempt else {}

    def events(self) -> list[dict[str, Any]]:
        """The newest attempt's events, oldest first: see ``node.events``."""
        if not self.attempt:
            return []
        try:
            lines = (self.attempt / "events.jsonl").read_text().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # the last line may be on its way
        return found

    def record(self, **facts: Any) -> None:
        """Write facts into the manifest, whole or not at all."""
        path = self.path / MANIFEST
        part = path.with_suffix(".part")
        part.write_text(json.dumps({**self.manifest, **facts}, indent=1) + "\n")
        part.replace(path)

    def state(self) -> State:
        """Slurm's word and our own end marker together; 0:0 alone is never success."""
        manifest = self.manifest
        if manifest.get("executor") == "local":
            return self._local(manifest)
        job_id = manifest.get("job")
        if not job_id:
            return State("unknown", "it was never submitted, or nobody could say so")
        job = slurm.job(job_id)
        outcome = self.outcome  # read after Slurm was asked: it is there before the job is over
        if outcome and not (job and job.state == "PENDING"):  # then it was requeued
            return _from_outcome(outcome, job)
        if job is None:
            return State("unknown", "Slurm has forgotten the job, and it left no outcome.json")
        if not job.ended:
            return self._going_on(job)
        return State(
            "cancelled" if job.state == "CANCELLED" else "failed",
            _unwitnessed(job, self.log),
            _exit_code(job),
            job,
        )

    def _going_on(self, job: slurm.Job) -> State:
        if job.state == "PENDING":
            return State("pending", job.reason, None, job)
        started = any(event["beam-slurm"] == "entry-started" for event in self.events())
        return State("running" if started else "starting", "", None, job)

    def _local(self, manifest: dict[str, Any]) -> State:
        pid = manifest.get("pid")
        gone = not pid or not Path(f"/proc/{pid}").exists()
        if outcome := self.outcome:
            return _from_outcome(outcome, None)
        if gone:
            return State("failed", "the process is gone and left no outcome.json", 1)
        started = any(event["beam-slurm"] == "entry-started" for event in self.events())
        return State("running" if started else "starting")


def _from_outcome(outcome: dict[str, Any], job: slurm.Job | None) -> State:
    # Slurm's verdict counts where it ended the job from outside: its limit, an operator.
    if job and job.state in ("TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"):
        why = f"Slurm: {job.state}" + (f", {outcome['cause']}" if outcome.get("node") else "")
        return State("failed", why, int(outcome["exit_code"]) or 1, job)
    return State(outcome["state"], outcome["cause"], int(outcome["exit_code"]), job)


def _unwitnessed(job: slurm.Job, log: Path | None) -> str:
    """Why a job is over that our supervisor never saw the end of."""
    if job.exit_code == "0:53":
        return "0:53: the log could not be written: the run folder is not on shared storage"
    if job.state == "COMPLETED":
        return "Slurm says COMPLETED, but the script did not come to its end"
    said = f"Slurm: {job.state} {job.exit_code} {job.reason}".rstrip()
    lines = log.read_text(errors="replace").splitlines() if log else []
    return f"{said}; last in the log: {lines[-1]}" if lines else said


def _exit_code(job: slurm.Job) -> int:
    code, _, number = job.exit_code.partition(":")
    if number and number != "0":
        return 128 + int(number)
    return int(code or 0) or 1


def root(configured: str | None) -> Path:
    """Where run folders lie: the site's, or ./runs."""
    return Path(configured) if configured else Path.cwd() / "runs"


def new_id(name: str) -> str:
    """A run id nobody else has: it is the job's comment, and so guards against submitting twice."""
    return f"{name}-{secrets.token_hex(3)}"


def create(folder: Path, files: dict[str, str | bytes], manifest: dict[str, Any]) -> Run:
    """Make a run folder with everything that the job needs, or leave nothing.

    Raises:
        BeamSlurmError: the folder cannot be written, or is there already.
    """
    lay_out(folder, files)
    run = Run(folder)
    try:
        run.record(id=folder.name, created=round(time.time(), 3), **manifest)
    except OSError as error:
        raise _unwritten(folder, error) from error
    return run


def lay_out(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Make a folder of this user alone with these files, or leave nothing.

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
    except OSError as error:
        raise _unwritten(folder, error) from error


def _unwritten(folder: Path, error: OSError) -> BeamSlurmError:
    shutil.rmtree(folder, ignore_errors=True)
    return BeamSlurmError(f"cannot write into the run folder {folder}", why=error.strerror)


def all_runs(where: Path) -> Iterator[Run]:
    """Every run below ``where``, newest first."""
    found = [Run(path.parent) for path in where.glob(f"*/{MANIFEST}")]
    yield from sorted(found, key=lambda run: run.manifest.get("created", 0), reverse=True)


def find(name: str | None, where: Path) -> Run:
    """A run by its folder, its id, the start of its id, or its job's id; None is the newest."""
    if name and (Path(name) / MANIFEST).is_file():
        return Run(Path(name).resolve())
    known = list(all_runs(where))
    if not name and known:
        return known[0]
    if name:
        hits = [run for run in known if name in (run.id, run.manifest.get("job"))]
        hits = hits or [run for run in known if run.id.startswith(name)]
        if len(hits) == 1:
            return hits[0]
        if hits:
            raise BeamSlurmError(
                f"{name!r} is the start of {len(hits)} runs",
                remedy="one of " + ", ".join(run.id for run in hits[:8]),
            )
    raise BeamSlurmError(
        f"there is no run {name!r} in {where}" if name else f"there is no run in {where}",
        remedy="one of " + ", ".join(run.id for run in known[:8]) if known else None,
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
