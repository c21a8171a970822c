"""Old runs and the room they take: which may go, and how they go.

Only what is this user's and surely over, only what lies in the folder of runs, and nothing that a
link leads to. A run goes file by file with its manifest last: where that was interrupted, it is
listed still.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm import runs, slurm
from beam_slurm.attempts import read_json
from beam_slurm.errors import BeamSlurmError
from beam_slurm.node.claim import MARKER
from beam_slurm.records.record import ORIGINS, SCRIPT
from beam_slurm.records.surroundings import PATCHES
from beam_slurm.runs import PROFILE, Run
from beam_slurm.state import State

# What show, diff and rerun read, in the run folder and in its attempts.
RECORD = frozenset({runs.MANIFEST, PROFILE, ORIGINS, SCRIPT, *PATCHES.values()})
LAST_WORDS = frozenset({"outcome.json", "preflight.json"})


@dataclass(frozen=True)
class Candidate:
    """A run that might go.

    Attributes:
        run: it.
        state: its state.
        ended: when anybody last heard of it, in epoch seconds.
        size: bytes that would be free.
        stays: why it stays; "" if it goes.
        outside: its output folder where that is not in the run folder: it is left alone.
    """

    run: Run
    state: State
    ended: float
    size: int
    stays: str = ""
    outside: Path | None = None


def ours(run: Run) -> bool:
    """Whether a run is this user's; another one's is left out."""
    return run.path.lstat().st_uid == os.geteuid()


def candidates(
    found: Sequence[Run], root: Path, before: float | None, keep: int, record: bool
) -> list[Candidate]:
    """What would become of each run of this user's, newest first.

    Args:
        found: the runs that are meant, newest first.
        root: the folder of runs.
        before: epoch seconds: runs that ended later are not meant; None leaves that open.
        keep: so many of the newest are not meant.
        record: leave the record of each run.

    Raises:
        BeamSlurmError: Slurm does not answer: nobody knows then what is over.
    """
    everyone = list(runs.all_runs(root))
    meant = [run for run in found if ours(run)][keep:]
    with ThreadPoolExecutor(max_workers=4) as pool:
        states = list(pool.map(_state, meant))
    old = []
    for run, (state, lives) in zip(meant, states, strict=True):
        ended = _ended(run, state)
        if before is None or ended < before:
            old.append((run, state, lives or _foreign(run, root), ended))
    going = {os.path.realpath(run.path) for run, _, held, _ in old if not held}
    made = []
    for run, state, held, ended in old:
        files = list(_files(run.path, record))
        marked = [path.parent for path, _ in files if path.name == MARKER]
        stays = held or _used(run, marked, everyone, going)
        free = sum(size for _, size in files)
        if record and not free and not stays:
            continue
        inside = run.writes[0].is_relative_to(os.path.realpath(run.path))
        outside = None if inside else run.output
        made.append(Candidate(run, state, ended, free, stays, outside))
    return made


def remove(candidate: Candidate, record: bool) -> None:
    """Remove a run's folder, or all of it but its record. Outputs elsewhere are not touched.

    With the last run of a sweep goes what the sweep itself has written.

    Raises:
        BeamSlurmError: it has begun to live again, or a file cannot be removed.
    """
    run = candidate.run
    stays = candidate.stays or _state(run)[1]
    if stays:
        raise BeamSlurmError(f"{run.id} stays", why=stays)
    try:
        # What cannot be looked into stops it before anything is gone.
        for path, _ in list(_files(run.path, record, _stop)):
            path.unlink()
        for at, _, _ in os.walk(run.path, topdown=False, onerror=_stop):
            folder = Path(at)
            if folder != run.path and not (record and any(folder.iterdir())):
                folder.rmdir()
        if not record:
            (run.path / runs.MANIFEST).unlink()
            run.path.rmdir()
            _sweep_too(run.path.parent)
    except OSError as error:
        listed = ": the run is listed still" if (run.path / runs.MANIFEST).exists() else ""
        raise BeamSlurmError(
            f"{run.id} could not be removed as a whole",
            where=str(error.filename or run.path),
            why=error.strerror,
            remedy=f"put that right and prune again{listed}",
        ) from error


def _sweep_too(folder: Path) -> None:
    """With the last run of a sweep goes the sweep."""
    if (folder / runs.SWEEP).is_file() and not any(folder.glob(f"*/{runs.MANIFEST}")):
        shutil.rmtree(folder)


def _stop(error: OSError) -> None:
    raise error


def size(run: Run) -> int:
    """Bytes of everything in a run's folder."""
    return sum(size for _, size in _files(run.path, record=False))


def _state(run: Run) -> tuple[State, str]:
    """A run's state, and why it may not go; "" if it may.

    Raises:
        BeamSlurmError: Slurm does not answer.
    """
    if damage := run.damage:
        return State("unknown", damage), "its manifest cannot be read: look, and remove it by hand"
    state, sweep = run.state(), run.manifest.get("sweep")
    if sweep and not (state.job or run.attempts or run.manifest.get("pid")):
        if read_json(run.path.parent / runs.SWEEP).get("cancelled"):
            return State("cancelled", "its sweep was, before it began"), ""
        name = f" {sweep.get('id')}" if isinstance(sweep, dict) else ""
        return state, f"sweep{name} may not have come to it yet"
    if not state.ended:
        where = f" as job {state.job.id}" if state.job else ""
        return state, f"it is {state.word}{where}"
    # Its job may be another cluster's, or on its way to sbatch.
    if state.word == "unknown":
        return state, f"nobody can say whether it is over: {state.why}"
    if run.manifest.get("executor") != "local":
        for job_id in run.jobs:
            job = slurm.job(job_id)
            if job and not job.ended:
                return state, f"its job {job_id} is {job.state.lower()}"
    return state, ""


def _ended(run: Run, state: State) -> float:
    """The latest time that an attempt, a log or Slurm knows of."""
    told: list[Any] = [slurm.epoch(state.job.end) if state.job else None]
    for attempt in run.attempts:
        told += [attempt.outcome.get("ended"), *(event.get("time") for event in attempt.events)]
    for log in run.logs:
        with contextlib.suppress(FileNotFoundError):
            told.append(log.stat().st_mtime)
    known = [float(time) for time in told if isinstance(time, int | float)]
    return max(known, default=run.created or run.path.stat().st_mtime)


def _used(run: Run, marked: Sequence[Path], everyone: Sequence[Run], going: Container[str]) -> str:
    """Which other run has its output in a run's folder, or in one of those ``marked`` in there;
    one of those that are ``going``, too, is not asked."""
    own = os.path.realpath(run.path)
    for folder in (run.path, *marked):
        for other in runs.writers(folder, everyone):
            at = os.path.realpath(other.path)
            if at != own and at not in going and other.path.is_dir():
                return f"{other.id} writes into it"
    return ""


def _foreign(run: Run, root: Path) -> str:
    """Why a run's folder is not one to remove here; "" if it is."""
    inside = run.path.absolute().relative_to(root.absolute())
    for depth in range(1, len(inside.parts) + 1):
        if root.joinpath(*inside.parts[:depth]).is_symlink():
            return "it is a link to another place"
    return ""


def _files(
    folder: Path, record: bool, unread: Callable[[OSError], None] | None = None
) -> Iterator[tuple[Path, int]]:
    """Everything in a run's folder that would go, with its bytes; links as links.

    The manifest is never among it: it goes last. ``unread`` is told of folders that cannot be read.
    """
    for path, folders, names in os.walk(folder, onerror=unread):
        at = Path(path)
        for name in [*names, *(name for name in folders if (at / name).is_symlink())]:
            inside = (at / name).relative_to(folder)
            kept = name in RECORD if at == folder else name in LAST_WORDS
            attempt = len(inside.parts) == 2 and inside.parts[0].startswith("attempt-")
            if inside == Path(runs.MANIFEST) or (record and kept and (at == folder or attempt)):
                continue
            with contextlib.suppress(FileNotFoundError):  # a run that lives removes files itself
                yield at / name, (at / name).lstat().st_size
