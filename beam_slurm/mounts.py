"""One spelling of a bind mount for all runtimes: ``/source:/target`` or ``/source:/target:ro``."""

from __future__ import annotations

from dataclasses import dataclass

from beam_slurm.errors import BeamSlurmError


@dataclass(frozen=True)
class Mount:
    """A folder of the host, and where a container sees it.

    ``str()`` is the spelling that pyxis, Docker, Podman and Apptainer share.
    """

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}" + (":ro" if self.read_only else "")


def itself(path: str, what: str, remedy: str) -> Mount:
    """The mount of a folder at its own place.

    Args:
        path: the folder.
        what: it, for people.
        remedy: what to do if that is no mount.

    Raises:
        BeamSlurmError: its name is none that every container runtime could take.
    """
    why = "container runtimes cut mounts at commas, colons and quotation marks"
    try:
        if path != "/":
            return parse(f"{path}:{path}")
        why = "a container has a root of its own"
    except ValueError:
        pass
    raise BeamSlurmError(f"{what} {path} cannot be mounted", why=why, remedy=remedy)


def parse(text: str) -> Mount:
    """The mount that ``text`` spells.

    Raises:
        ValueError: saying which part no runtime, or not every runtime, could take.
    """
    for bad, what in ((",", "a comma"), ("\n", "a line break"), ('"', "a quotation mark")):
        if bad in text:
            raise ValueError(f"{text!r} holds {what}: not every container runtime can take that")
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not target:
        raise ValueError(f"{text!r} is no mount: write /source:/target or /source:/target:ro")
    for path, side in ((source, "source"), (target, "target")):
        if not path.startswith("/"):
            raise ValueError(f"the {side} of the mount {text!r} is not an absolute path")
    if mode not in ("", "ro", "rw"):
        raise ValueError(f"{mode!r} in the mount {text!r} is neither ro nor rw")
    return Mount(source, target, mode == "ro")
