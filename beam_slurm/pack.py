"""The programs that go into a run folder, one file each, the same on hosts and in containers."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from importlib.resources import files

from beam_slurm.errors import BeamSlurmError

_BEGINNING = (1980, 1, 1, 0, 0, 0)  # the same program gives the same bytes

# math-verify and all that it needs: Python alone, and importable from a zip file.
MATH_VERIFY = (
    "math-verify",
    "latex2sympy2_extended",
    "antlr4-python3-runtime",
    "sympy",
    "mpmath",
)


def node_program() -> bytes:
    """beam_slurm/node, which ``python3 node.pyz VERB`` runs on the nodes."""
    return _program("node")


def after_program() -> bytes:
    """beam_slurm/after, which ``python after.pyz VERB`` runs in place of a training entry."""
    return _program("after")


@cache
def math_verify() -> bytes:
    """What compares answers, as it is installed here (5 MB): so that all images judge alike.

    Raises:
        BeamSlurmError: a part of it is not installed.
    """
    sources = {}
    for name in MATH_VERIFY:
        try:
            found = metadata.files(name) or []
            for file in found:
                code = file.suffix == ".py" and "tests" not in file.parts
                if code or file.name == "METADATA":  # which says its version
                    sources[str(file)] = file.read_binary()
        except (metadata.PackageNotFoundError, OSError):
            found = []
        if not found:
            raise BeamSlurmError(
                "answers cannot be checked: math-verify is not here as a whole",
                why=f"{name} is not installed; evaluations take it along from here",
                remedy="pip install 'beam-slurm[evaluate]', and then this again",
            )
    return _zip(sources)


@cache
def _program(package: str) -> bytes:
    """A zipapp of a package of ours that needs nothing of the others."""
    sources = {
        f"beam_slurm/{package}/{source.name}": source.read_bytes()
        for source in files(f"beam_slurm.{package}").iterdir()
        if source.name.endswith(".py")
    }
    sources["beam_slurm/__init__.py"] = b""
    sources["__main__.py"] = f"from beam_slurm.{package}.__main__ import main\n\nmain()\n".encode()
    return _zip(sources)


def _zip(sources: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(sources.items()):
            info = zipfile.ZipInfo(name, _BEGINNING)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return buffer.getvalue()
