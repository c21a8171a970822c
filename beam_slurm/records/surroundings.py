"""What a run depends on besides its profile: code, image, versions, names of secrets.

It costs a few calls of other programs, and is gathered once for points that have it in common.
"""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm import __version__, frameworks, inventory, secret, slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.node import secretfile
from beam_slurm.records import git, image
from beam_slurm.records.git import Source
from beam_slurm.schema import Site

HERE = Path(__file__).resolve().parents[2]  # the folder that holds the package

# A source's name in the manifest -> the file of the run folder that holds its patch.
PATCHES = {"beam_slurm": "beam-slurm.patch", "checkout": "checkout.patch"}
TITLES = {"checkout": "checkout", "beam_slurm": "beam-slurm"}  # the same, for people


@dataclass(frozen=True)
class Surroundings:
    """What was there when a run was submitted.

    Attributes:
        sources: ``beam_slurm``, and ``checkout`` where the framework has one; their patches have no
            secrets any more.
        masked: how many places of a source's patch were hidden: then it does not apply as it is.
        image: see ``image.identify``; None where the run needs no container.
        versions: ``beam_slurm``, ``python`` and ``slurm``, which is None where there is none.
        secrets: names of the secrets that the run was given.
    """

    sources: Mapping[str, Source]
    masked: Mapping[str, int]
    image: Mapping[str, Any] | None
    versions: Mapping[str, str | None]
    secrets: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        sources: dict[str, Any] = {}
        for name, source in self.sources.items():
            kept = {"patch": PATCHES[name] if source.patch else None, "masked": self.masked[name]}
            sources[name] = {**source.facts(), **kept}
        return {
            "versions": dict(self.versions),
            "sources": sources,
            "image": dict(self.image) if self.image else None,
            "secrets": list(self.secrets),
        }

    def files(self) -> dict[str, bytes]:
        """For the run folder: the patches."""
        return {
            PATCHES[name]: os.fsencode(source.patch)
            for name, source in self.sources.items()
            if source.patch
        }


def gather(request: JobRequest) -> Surroundings:
    """Look around, from the machine that submits. Never fails: what is not known says why."""
    site = request.profile.site
    folders = {"beam_slurm": HERE}
    if checkout := _checkout(request):
        folders["checkout"] = Path(checkout)
    with ThreadPoolExecutor(max_workers=4) as pool:  # each of these waits for other programs
        sources = pool.map(git.look, folders.values())
        container = request.launch.container
        identified = pool.submit(image.identify, site.container, container) if container else None
        version = pool.submit(_slurm) if not request.local else None
    shown, masked = {}, {}
    held, names = _secrets(request)
    for name, source in zip(folders, sources, strict=True):
        patch, masked[name] = secret.masked(source.patch, held, names)
        # What is hidden can be guessed and tried: only what is shown may have a digest.
        digest = git.digest(os.fsencode(patch)) if patch else source.digest
        shown[name] = dataclasses.replace(source, patch=patch, digest=digest)
    return Surroundings(
        sources=shown,
        masked=masked,
        image=identified.result() if identified else None,
        versions={
            "beam_slurm": __version__,
            "python": platform.python_version(),
            "slurm": version.result() if version else None,
        },
        secrets=secrets(request),
    )


def gather_all(requests: Sequence[JobRequest]) -> list[Surroundings]:
    """The same for each of many requests; for those with the same image and code in one look."""
    seen: dict[tuple[object, ...], Surroundings] = {}
    found = []
    for request in requests:
        launch, site = request.launch, request.profile.site
        secret_ones = (*launch.secrets, *site.secret_names, site.secrets_file)
        alike = (site.container, launch.container, _checkout(request), secret_ones)
        if alike not in seen:
            seen[alike] = gather(request)
        found.append(seen[alike])
    return found


def secrets(request: JobRequest) -> tuple[str, ...]:
    """Names of the secrets that a run gets now, from this shell or the site's file."""
    held, names = _secrets(request)
    return tuple(sorted(name for name in names if held.get(name)))


def _secrets(request: JobRequest) -> tuple[dict[str, str], set[str]]:
    """All variables of this shell and the site's file; names of those that are secret."""
    site = request.profile.site
    filed = _filed(site)
    names = {*request.launch.secrets, *site.secret_names, *filed}
    return {**os.environ, **filed}, names


def _checkout(request: JobRequest) -> str | None:
    """The framework's checkout as this machine sees it; None where it has none."""
    name = request.profile.framework.name
    key = name.replace("-", "_")
    found = getattr(request.profile.site.paths, key) if key in frameworks.paths(name) else None
    return str(found) if found else None


def _filed(site: Site) -> dict[str, str]:
    """The variables of the site's file; none where it cannot be read, which ``checks`` has told."""
    try:
        return dict(secretfile.read(site.secrets_file)) if site.secrets_file else {}
    except (OSError, secretfile.Refused):
        return {}


def _slurm() -> str | None:
    try:
        return inventory.version(slurm.ask("sinfo", "--version")) or None
    except BeamSlurmError:
        return None
