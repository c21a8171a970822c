"""A run again: its request from its record, and what is no more as it was."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm import job, profiles, runs
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.profiles import Resolved
from beam_slurm.records import compare, image
from beam_slurm.records.record import ORIGINS, SCRIPT, Record
from beam_slurm.records.surroundings import TITLES, Surroundings
from beam_slurm.runs import PROFILE
from beam_slurm.yamlfile import Key


@dataclass(frozen=True)
class Drift:
    """What has changed since a run was submitted.

    Attributes:
        script: a unified diff of its script to what this version would write for it today.
        changes: what makes it another run, a sentence each.
        notes: what may, or is good to know.
    """

    script: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def request(
    record: Record, root: Path | None = None, settings: Sequence[tuple[Key, str]] = ()
) -> JobRequest:
    """The same request under a new id.

    Args:
        record: the run.
        root: where the new run's folder will lie; left out, the site's ``paths.runs``.
        settings: what is to be otherwise.

    Raises:
        BeamSlurmError: the record does not hold all that it takes; with what is missing.
    """
    if "task" in record.manifest:
        kind = record.manifest.get("framework")
        raise BeamSlurmError(
            f"{record.run.id} is no training",
            remedy=f"beam-slurm {kind} does it again; beam-slurm status {record.run.id}: of what",
        )
    resolved = restored(record, settings)
    return job.make_request(
        resolved, overrides=record.overrides or (), local=_local(record), root=root
    )


def drift(record: Record, now: Surroundings) -> Drift:
    """What is no more as it was when the run was submitted."""
    _check(record)
    script = _script(record)
    changes: list[str] = []
    notes: list[str] = []
    if script:
        changes.append(f"{SCRIPT} would be another: this beam-slurm, or this machine, is")
    for name, source in now.sources.items():
        told = record.sources.get(name) or {}
        same = TITLES[name], told, source.facts(), (record.patch(name), source.patch)
        # What beam-slurm does to a run is its script, and that is compared as such.
        (notes if name == "beam_slurm" else changes).extend(_source(*same))
        strays = [" ".join(compare.untracked(it)) or "none" for it in (told, source.facts())]
        if strays[0] != strays[1]:
            notes.append(f"{TITLES[name]}: not in git: {strays[0]} then, {strays[1]} now")
        if unknown := told.get("why") or source.why:
            notes.append(f"{TITLES[name]}: not all is known, {unknown}")
    changed, doubt = _image(record.image, now.image or {})
    changes += changed
    notes += doubt
    if lacking := sorted(set(record.secrets) - set(now.secrets)):
        changes.append(f"{', '.join(lacking)}: given then, and not set in this shell")
    if more := sorted(set(now.secrets) - set(record.secrets)):
        notes.append(f"{', '.join(more)}: set in this shell, and not then")
    for name, title in (("beam_slurm", "beam-slurm"), ("python", "Python"), ("slurm", "Slurm")):
        then, today = record.versions.get(name), now.versions.get(name)
        if then != today:
            notes.append(f"{title}: {then or 'none'} then, {today or 'none'} now")
    return Drift(tuple(script), tuple(changes), tuple(notes))


def _check(record: Record) -> None:
    """Raise unless the record holds all that a run is made of."""
    run = record.run
    if damage := run.damage:
        raise BeamSlurmError(
            f"{run.id} cannot be run again",
            why=damage,
            remedy=f"its script is there still: {run.path / SCRIPT}",
        )
    if record.version > runs.VERSION:
        raise BeamSlurmError(
            f"{run.id} cannot be run again by this beam-slurm",
            why=f"a newer one has recorded it (manifest version {record.version}, "
            f"this one knows {runs.VERSION})",
            remedy=f"use beam-slurm {record.versions.get('beam_slurm') or 'of that version'}",
        )
    lacking = [
        what
        for what, there in (
            (f"its profile's values ({PROFILE})", run.profile),
            ("the words behind -- (overrides)", record.overrides is not None),
            (f"the shipped profile that it changes ({ORIGINS})", record.shipped),
        )
        if not there
    ]
    if lacking:
        older = record.version < runs.VERSION
        raise BeamSlurmError(
            f"{run.id} cannot be run again",
            why=f"its record lacks {', '.join(lacking)}"
            + (": an older beam-slurm has written it" if older else ""),
            remedy=f"beam-slurm submit --profile {record.manifest.get('profile') or 'NAME'} "
            f"--dry-run -o new.sbatch, and compare with {run.path / SCRIPT}",
        )


def restored(record: Record, settings: Sequence[tuple[Key, str]] = ()) -> Resolved:
    """The profile that a run was submitted with.

    Args:
        record: the run.
        settings: what is to be otherwise.

    Raises:
        BeamSlurmError: the record does not hold it, or not as this version reads it.
    """
    _check(record)
    folder = record.run.path
    try:
        return profiles.restore(folder / PROFILE, record.shipped, record.places, settings)
    except BeamSlurmError as error:
        told = record.versions.get("beam_slurm")
        raise BeamSlurmError(
            f"{record.run.id} cannot be run again by this beam-slurm: {error.what}",
            where=error.where,
            why=f"its {PROFILE} and {ORIGINS} were written by {told or 'another version'}",
            remedy=error.remedy,
        ) from error


def _local(record: Record) -> bool:
    return record.manifest.get("executor") == "local"


def _script(record: Record) -> list[str]:
    """The diff from the script as it was to the one of the same run today; [] if there is none."""
    folder, name = compare.place(record)
    today = str(
        job.make_request(
            restored(record),
            overrides=record.overrides or (),
            local=_local(record),
            run_id=name,
            root=folder.parent,
        )
    )
    if hashlib.sha256(os.fsencode(today)).hexdigest() == record.manifest.get("script_sha256"):
        return []
    names = (f"{record.run.id}/{SCRIPT}", "today")
    found = compare.diff(record.script or "", today, names)
    return found or ["the script in the run's folder was changed after it was submitted"]


def _source(
    title: str, then: Mapping[str, Any], now: Mapping[str, Any], patches: tuple[str, str]
) -> list[str]:
    old, new = then.get("commit"), now.get("commit")
    if not old or not new:
        return []
    if old != new:
        back = f"git -C {now['path']} checkout {old[:12]}"
        return [f"{title}: commit {old[:12]} then, {new[:12]} now; back: {back}"]
    if then.get("dirty") is None or now.get("dirty") is None:
        return []
    was, is_now = compare.changes(then, patches[0]), compare.changes(now, patches[1])
    if was != is_now:
        return [f"{title}: changed files: {was or 'none'} then, {is_now or 'none'} now"]
    return []


def _image(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What is certain, and what nobody can tell."""
    if not then or not now:
        return [], []
    old, new = then.get("digest"), now.get("digest")
    if old and new and old != new:
        return [f"the image: {old[:19]} then, {new[:19]} now"], []
    if image.sure(then) and image.sure(now):
        return [], []
    facts = [[it.get(key) for key in compare.FILE] for it in (then, now)]
    if facts[0] != facts[1]:
        return [f"the image: {then.get('name')} was written anew since"], []
    if facts[0] == [None, None]:
        why = now.get("why") or then.get("why")
        return [], [f"the image: nobody can say whether it is the same: {why}"]
    return [], []
