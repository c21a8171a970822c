"""The record in a run folder: written once, before the job is submitted, and read again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from beam_slurm import attempts, runs
from beam_slurm.job import JobRequest
from beam_slurm.profiles import Resolved
from beam_slurm.records.surroundings import PATCHES, Surroundings
from beam_slurm.runs import PROFILE, Run
from beam_slurm.yamlfile import dotted, dump

SCRIPT = "script.sbatch"
ORIGINS = "origins.json"


def make(
    request: JobRequest, around: Surroundings
) -> tuple[dict[str, str | bytes], dict[str, Any]]:
    """What a run is run again from: files by their names in its folder, facts for its manifest."""
    resolved, script = request.resolved, os.fsencode(str(request))
    assumed = {key: why for key in resolved.profile.assumed if (why := resolved.assumption(key))}
    origins = {
        "places": {dotted(key): place for key, place in resolved.document.places.items()},
        "assumed": assumed,
        "shipped": json.loads(resolved.shipped.model_dump_json()),
    }
    files: dict[str, str | bytes] = {
        SCRIPT: script,
        PROFILE: dump(json.loads(resolved.profile.model_dump_json())),
        ORIGINS: json.dumps(origins, indent=1) + "\n",
        **around.files(),
    }
    facts = {
        "overrides": list(request.overrides),
        "settings": _given(resolved),
        "script_sha256": hashlib.sha256(script).hexdigest(),
        **around.facts(),
    }
    return files, facts


def _given(resolved: Resolved) -> dict[str, Any]:
    """What was said on the command line, by dotted key."""
    found = {}
    for key, place in resolved.document.places.items():
        if place == f"--set {dotted(key)}":
            value: Any = resolved.document.data
            for word in key:
                value = value[word]
            found[dotted(key)] = value
    return found


@dataclass(frozen=True)
class Record:
    """What a run folder says of its run, of whatever version; what it does not say is None or {}.

    Nothing of it raises: a record that is old or damaged is shown as far as it goes.
    """

    run: Run

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest as it is."""
        return self.run.manifest

    @property
    def version(self) -> int:
        """The manifest's; 0 if it cannot be read."""
        if not self.manifest:
            return 0
        found = self.manifest.get("version", 1)
        return found if isinstance(found, int) else 0

    @cached_property
    def values(self) -> dict[str, Any]:
        """Every value of the profile that says something, by its dotted key."""
        tree = {
            key: value for key, value in self.run.profile.items() if key not in ("name", "assumed")
        }
        return flat(tree)

    @cached_property
    def _origins(self) -> dict[str, Any]:
        return attempts.read_json(self.run.path / ORIGINS)

    @property
    def places(self) -> dict[str, str]:
        """Dotted key -> "file:line" or "--set KEY"; a key without one is a default."""
        return self._mapping(self._origins, "places")

    @property
    def assumed(self) -> dict[str, str]:
        """Dotted key -> why its value is an assumption."""
        return self._mapping(self._origins, "assumed")

    @property
    def shipped(self) -> dict[str, Any]:
        """The profile that came with beam-slurm, before anybody changed it."""
        return self._mapping(self._origins, "shipped")

    @property
    def overrides(self) -> list[str] | None:
        """The words behind --; None where nobody has recorded them."""
        found = self.manifest.get("overrides")
        return list(map(str, found)) if isinstance(found, list) else None

    @property
    def settings(self) -> dict[str, Any]:
        """What was said on the command line, by dotted key."""
        return self._mapping(self.manifest, "settings")

    @property
    def sources(self) -> dict[str, dict[str, Any]]:
        """The source trees, as ``Source.facts`` gives them, with ``patch`` and ``masked``."""
        found = self._mapping(self.manifest, "sources")
        return {name: source for name, source in found.items() if isinstance(source, dict)}

    @property
    def image(self) -> dict[str, Any]:
        """The container image, see ``records.image``."""
        return self._mapping(self.manifest, "image")

    @property
    def versions(self) -> dict[str, str | None]:
        """Of beam-slurm, Python and Slurm."""
        return self._mapping(self.manifest, "versions")

    @property
    def secrets(self) -> list[str]:
        """Their names."""
        found = self.manifest.get("secrets")
        return list(map(str, found)) if isinstance(found, list) else []

    @property
    def script(self) -> str | None:
        """The script as it was submitted; None where it is no more."""
        return self._text(SCRIPT)

    def patch(self, source: str) -> str:
        """What was changed in a source tree, "" if nothing was, or nobody has kept it."""
        return (self._text(PATCHES[source]) if source in PATCHES else None) or ""

    @property
    def altered(self) -> bool:
        """Whether the script is another than the one that was submitted."""
        told, script = self.manifest.get("script_sha256"), self.script
        if not told or script is None:
            return False
        return bool(hashlib.sha256(os.fsencode(script)).hexdigest() != told)

    @property
    def remarks(self) -> list[str]:
        """What a reader must know before he believes the rest."""
        found = []
        if self.run.damage:
            found.append(f"{self.run.damage}; its other files are shown")
        elif self.version > runs.VERSION:
            found.append(
                f"a newer beam-slurm has written this (manifest version {self.version}, this one "
                f"knows {runs.VERSION}): there may be more than is shown"
            )
        elif self.version < runs.VERSION:
            found.append(
                f"an older beam-slurm has written this (manifest version {self.version}): origins, "
                "overrides and the state of the code are not recorded"
            )
        if not self.run.profile:
            found.append(f"{PROFILE} is missing or cannot be read: its values are not known")
        if self.altered:
            found.append(f"{SCRIPT} was changed after it was submitted")
        return found

    def _text(self, name: str) -> str | None:
        try:
            return os.fsdecode((self.run.path / name).read_bytes())
        except OSError:
            return None

    @staticmethod
    def _mapping(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
        found = tree.get(name)
        return found if isinstance(found, dict) else {}


def flat(tree: Mapping[str, Any], at: tuple[str, ...] = ()) -> dict[str, Any]:
    """The values of a tree by their dotted keys, without those that say nothing."""
    found: dict[str, Any] = {}
    for word, value in tree.items():
        key = (*at, str(word))
        if isinstance(value, dict) and value:
            found.update(flat(value, key))
        elif value not in (None, {}, []):
            found[dotted(key)] = value
    return found
