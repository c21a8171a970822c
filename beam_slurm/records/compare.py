"""What two runs do not share, in the order in which it matters."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beam_slurm.errors import BeamSlurmError
from beam_slurm.records import git, image
from beam_slurm.records.record import Record
from beam_slurm.records.surroundings import TITLES
from beam_slurm.runs import PROFILE

# Section -> the first words of its keys in the profile. What decides the result comes first, what
# decides only where and how fast it is reached last.
SECTIONS: dict[str, tuple[str, ...]] = {
    "recipe": ("recipe", "framework"),
    "overrides": (),
    "code": (),
    "image": (),
    "hardware": ("hardware",),
    "job": ("job", "ray"),
    "site": ("site",),
    "secrets": (),
    "versions": (),
}

FILE = ("size", "modified")  # what tells an image from another where no digest does

Differences = dict[str, dict[str, tuple[Any, Any]]]
"""Section -> key -> its values in both; None is one that says nothing."""


def compare(first: Record, second: Record) -> Differences:
    """Everything in which two runs differ; sections and keys without difference are absent.

    Raises:
        BeamSlurmError: a run's values are not to be read.
    """
    for record in (first, second):
        if not record.run.profile:
            raise BeamSlurmError(
                f"{record.run.id} cannot be compared",
                where=str(record.run.path / PROFILE),
                why="it is missing, or cannot be read",
                remedy=f"beam-slurm runs show {record.run.id} shows what there is",
            )
    found: Differences = {}
    for section, words in SECTIONS.items():
        pair = [
            _of_profile(record, words) if words else _ELSEWHERE[section](record)
            for record in (first, second)
        ]
        keys = dict.fromkeys([*pair[0], *pair[1]])
        rows = {key: (pair[0].get(key), pair[1].get(key)) for key in keys}
        if rows := {key: both for key, both in rows.items() if both[0] != both[1]}:
            found[section] = rows
    return found


def scripts(first: Record, second: Record) -> list[str]:
    """The two scripts as a unified diff; their own folders and names are no difference."""
    return diff(
        neutral(first.script or "", *place(first)),
        neutral(second.script or "", *place(second)),
        (f"{first.run.id}/script.sbatch", f"{second.run.id}/script.sbatch"),
    )


def diff(before: str, after: str, names: tuple[str, str]) -> list[str]:
    """The lines of a unified diff; none if the texts are the same."""
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm=""))


def neutral(script: str, folder: Path, name: str) -> str:
    """A script without the folder and the name of its run."""
    text = script.replace(str(folder), "<run folder>")
    return re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "<run>", text)


def place(record: Record) -> tuple[Path, str]:
    """The folder and the id that a run was submitted with."""
    folder = record.run.told("folder") or record.run.path
    return folder, str(record.manifest.get("id") or folder.name)


def _of_profile(record: Record, words: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in record.values.items() if key.split(".")[0] in words}


def _overrides(record: Record) -> dict[str, Any]:
    """By their keys where each is KEY=VALUE and said once; else the whole line."""
    words = record.overrides or []
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    if len(pairs) == len(words):
        return dict(pairs)
    return {"--": shlex.join(words)}


def _code(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, source in record.sources.items():
        found[f"{name}.commit"] = source.get("commit") or source.get("why")
        found[f"{name}.changes"] = changes(source, record.patch(name))
        found[f"{name}.untracked"] = " ".join(untracked(source)) or None
    found["beam_slurm.version"] = record.versions.get("beam_slurm")
    return found


def changes(source: Mapping[str, Any], patch: str) -> str | None:
    """What was changed since the commit: a mark that differs where the patch does."""
    if source.get("commit") and source.get("dirty") is None:
        return f"not known: {source.get('why')}"
    if not source.get("dirty"):
        return None
    told = source.get("digest") or (git.digest(os.fsencode(patch)) if patch else "not kept")
    names = source.get("changed") or []
    return f"{len(names)} file{'s' * (len(names) != 1)} ({str(told)[:8]})"


def untracked(source: Mapping[str, Any]) -> tuple[str, ...]:
    """Files and folders that git does not know: code may be among them."""
    found = source.get("untracked")
    return tuple(sorted(map(str, found))) if isinstance(found, list) else ()


def doubts(first: Record, second: Record) -> list[str]:
    """Where nobody can say whether the code differs, a sentence each."""
    found = []
    for name in TITLES:
        for record in (first, second):
            source = record.sources.get(name, {})
            # A package that lies in no repository has its version.
            if source.get("why") and (source.get("commit") or name != "beam_slurm"):
                found.append(f"{record.run.id}: {TITLES[name]}: not all is known, {source['why']}")
    return found


def _image(record: Record) -> dict[str, Any]:
    known = ("name", "digest") if image.sure(record.image) else ("name", "digest", *FILE)
    return {key: record.image.get(key) for key in known}


def _secrets(record: Record) -> dict[str, Any]:
    return dict.fromkeys(record.secrets, "given")


def _versions(record: Record) -> dict[str, Any]:
    return {key: record.versions.get(key) for key in ("python", "slurm")}


_ELSEWHERE = {
    "overrides": _overrides,
    "code": _code,
    "image": _image,
    "secrets": _secrets,
    "versions": _versions,
}
