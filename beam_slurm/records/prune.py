"""Old runs and the room they take: which may go, and how they go.

Only what is over, only what lies in the folder of runs, and nothing that a link leads to. A run
goes file by file with its manifest last: where that was interrupted, it is listed still.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from beam_slurm import runs, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.records.record import ORIGINS, PROFILE, SCRIPT
from beam_slurm.records.surroundings import PATCHES
from beam_slurm.runs import Run
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
        ended: when it ended, in epoch seconds, as far as anybody can tell.
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


def candidates(
    found: Sequence[Run], root: Path, before: float | None, keep: int, record: bool
) -> list[Candidate]:
    """What would become of each run, newest first.

    Args:
        found: the runs that are meant, newest first.
        root: the folder of runs.
        before: epoch seconds: runs that ended later are not meant; None leaves that open.
        keep: so many of the newest are not meant.
        record: leave the record of each run.

    Raises:
        BeamSlurmError: Slurm does not answer: nobody knows then what is over.
    """
    outputs = [(run, run.output) for run in runs.all_runs(root)]
    meant = list(found)[keep:]
    with ThreadPoolExecutor(max_workers=4) as pool:
        states = list(pool.map(_state, meant))
    made = []
    for run, (state, lives) in zip(meant, states, strict=True):
        ended = _ended(run, state)
        if before is not None and ended >= before:
            continue
        user = next((o.id for o, at in outputs if o != run and at.is_relative_to(run.path)), None)
        stays = lives or _foreign(run, root) or (f"{user} writes into it" if user else "")
        free = sum(size for _, size in _files(run.path, record))
        if record and not free and not stays:
            continue
        outside = None if run.output.is_relative_to(run.path) else run.output
        made.append(Candidate(run, state, ended, free, stays, outside))
    return made


def remove(candidate: Candidate, record: bool) -> None:
    """Remove a run's folder, or all of it but its record. Outputs elsewhere are not touched.

    Raises:
        BeamSlurmError: it has begun to live again, or a file cannot be removed.
    """
    run = candidate.run
    stays = candidate.stays or _state(run)[1]
    if stays:
        raise BeamSlurmError(f"{run.id} stays", why=stays)
    try:
        for path, _ in list(_files(run.path, record)):
            path.unlink()
        for folder, _, _ in os.walk(run.path, topdown=False):
            if not any(Path(folder).iterdir()):
                Path(folder).rmdir()
        if not record:
            (run.path / runs.MANIFEST).unlink()
            shutil.rmtree(run.path)
    except OSError as error:
        raise BeamSlurmError(
            f"{run.id} could not be removed as a whole",
            where=str(error.filename or run.path),
            why=error.strerror,
            remedy="put that right and prune again: the run is listed still",
        ) from error


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
    state = run.state()
    if not state.ended:
        where = f" as job {state.job.id}" if state.job else ""
        return state, f"it is {state.word}{where}"
    manifest = run.manifest
    if (sweep := manifest.get("sweep")) and not run.attempts:
        return state, f"sweep {sweep.get('id')} may not have come to it yet"
    if manifest.get("executor") == "local":
        return state, state.why if state.word == "unknown" else ""
    for job_id in run.jobs:
        job = slurm.job(job_id)
        if job and not job.ended:
            return state, f"its job {job_id} is {job.state.lower()}"
    # Nobody could say whether it was submitted: its job carries its name.
    unsaid = None if run.jobs else slurm.find(f"beam-slurm:{manifest.get('id', run.id)}")
    return state, f"its job {unsaid} lives" if unsaid else ""


def _ended(run: Run, state: State) -> float:
    told = run.outcome.get("ended") or (slurm.epoch(state.job.end) if state.job else None)
    return float(told or run.created or run.path.stat().st_mtime)


def _foreign(run: Run, root: Path) -> str:
    """Why a run's folder is not one to remove here; "" if it is."""
    inside = run.path.absolute().relative_to(root.absolute())
    for depth in range(1, len(inside.parts) + 1):
        if root.joinpath(*inside.parts[:depth]).is_symlink():
            return "it is a link to another place"
    return ""


def _files(folder: Path, record: bool) -> Iterator[tuple[Path, int]]:
    """Everything in a run's folder that would go, with its bytes; links as links.

    The manifest is never among it: it goes last.
    """
    for path, folders, names in os.walk(folder):
        at = Path(path)
        for name in [*names, *(name for name in folders if (at / name).is_symlink())]:
            inside = (at / name).relative_to(folder)
            kept = name in RECORD if at == folder else name in LAST_WORDS
            attempt = len(inside.parts) == 2 and inside.parts[0].startswith("attempt-")
            if inside == Path(runs.MANIFEST) or (record and kept and (at == folder or attempt)):
                continue
            with contextlib.suppress(FileNotFoundError):  # a run that lives removes files itself
                yield at / name, (at / name).lstat().st_size
