"""One spelling of a container image for all runtimes: ``[registry/]name[:tag][@sha256:...]``.

A site writes a reference as ``docker pull`` takes it, or the absolute path of a file that its
runtime starts: ``.sqsh`` (pyxis) or ``.sif`` (Apptainer). `spell` turns a reference into what the
runtime at hand wants to hear. Each runtime's own spelling is understood only in order to say how
it is written here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from beam_slurm.errors import BeamSlurmError

HUB = "docker.io"

FILES = {"pyxis": ".sqsh", "apptainer": ".sif"}
"""Runtime -> ending of the image files that it starts."""

# A registry has a dot or a port, or is localhost: else the first part is a name on Docker Hub.
# https://github.com/distribution/reference
_REGISTRY = r"(?:(?:[\w-]+\.)+[\w-]+(?::\d+)?|[\w-]+:\d+|localhost)"
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:(?P<registry>{_REGISTRY})/)?(?P<name>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Reference:
    """An image in a registry. ``registry`` is "" for Docker Hub, ``tag`` and ``digest`` if unsaid.

    ``str()`` is the spelling of ``docker pull``.
    """

    name: str
    registry: str = ""
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        registry = f"{self.registry}/" if self.registry else ""
        return f"{registry}{self.name}{self._version}"

    @property
    def _version(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return tag + (f"@{self.digest}" if self.digest else "")

    @property
    def full(self) -> str:
        """With the registry stated: Podman has no terminal on which to ask for it."""
        name = self.name if self.registry or "/" in self.name else f"library/{self.name}"
        return f"{self.registry or HUB}/{name}{self._version}"

    @property
    def enroot(self) -> str:
        """As enroot and pyxis want it: ``registry#name:tag``, Docker Hub's without a registry."""
        return (f"{self.registry}#" if self.registry else "") + self.name + self._version


def spell(text: str, runtime: str, key: str = "site.images") -> str:
    """The image ``text`` of the site file as ``runtime`` takes it; ``key`` is where it stands.

    A placeholder (``<site.images.x>``) stays as it is.

    Raises:
        BeamSlurmError: the runtime cannot start such an image; with the right spelling if any.
    """
    if text.startswith("<"):
        return text
    if text.startswith(("/", ".", "~")) or text.endswith(tuple(FILES.values())):
        return _file(text, runtime, key)
    reference = parse(text, key)
    if runtime == "pyxis":
        if reference.digest:
            raise BeamSlurmError(
                f"pyxis cannot start {text} by its digest",
                where=key,
                why="enroot 3 takes a tag only, later ones a digest",
                remedy="name a tag, or the path of a .sqsh file",
            )
        return reference.enroot
    if runtime == "podman":
        return reference.full
    if runtime == "apptainer":
        if reference.tag and reference.digest:
            raise BeamSlurmError(
                f"apptainer takes no tag together with a digest: {text}",
                where=key,
                remedy=f"{Reference(reference.name, reference.registry, '', reference.digest)}",
            )
        return f"docker://{reference}"
    return str(reference)


def parse(text: str, key: str = "site.images") -> Reference:
    """The reference that ``text`` spells.

    Raises:
        BeamSlurmError: it is spelled as only one runtime does, or is no reference at all.
    """
    plain = re.sub(r"^[a-z]+://", "", text)
    if "#" in plain:  # enroot's way to tell the registry
        registry, _, name = plain.partition("#")
        plain = f"{registry.rpartition('@')[2]}/{name}"
    match = _REFERENCE.fullmatch(plain)
    if match is None:
        raise BeamSlurmError(
            f"{text!r} is no image",
            where=key,
            remedy="write it as for docker pull, registry/name:tag, "
            "or as the absolute path of a .sqsh (pyxis) or .sif file (apptainer)",
        )
    if plain != text:
        raise BeamSlurmError(
            f"{text!r} is spelled for one runtime only",
            where=key,
            why="a reference is written the same way for all of them",
            remedy=f"write {plain}",
        )
    parts = match.groupdict("")
    registry = "" if parts["registry"] == HUB else parts["registry"]
    return Reference(parts["name"], registry, parts["tag"], parts["digest"])


def _file(text: str, runtime: str, key: str) -> str:
    wanted = FILES.get(runtime)
    if wanted is None:
        raise BeamSlurmError(
            f"{runtime} cannot start the file {text}",
            where=key,
            why=f"{runtime} starts images of its own store or of a registry",
            remedy="write registry/name:tag; or load the file into the store of every node "
            f"({runtime} load) and write the image's name",
        )
    if not text.endswith(wanted):
        other = next((name for name, ending in FILES.items() if text.endswith(ending)), None)
        raise BeamSlurmError(
            f"{runtime} cannot start {text}",
            where=key,
            why=f"that is a file for {other}" if other else f"its files end in {wanted}",
            remedy=f"make a {wanted} file: beam-slurm image import IMAGE -o FILE{wanted}"
            + (f"; or set site.container: {other}" if other else ""),
        )
    if not text.startswith("/"):
        raise BeamSlurmError(
            f"the image {text} is not an absolute path",
            where=key,
            why="every node must find the same file",
            remedy="the absolute path of a file on shared storage",
        )
    return text
