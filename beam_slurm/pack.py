"""The programs that go into a run folder, one file each, the same on hosts and in containers."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from importlib.resources import files

_BEGINNING = (1980, 1, 1, 0, 0, 0)  # the same program gives the same bytes


def node_program() -> bytes:
    """beam_slurm/node, which ``python3 node.pyz VERB`` runs on the nodes."""
    return _program("node")


def after_program() -> bytes:
    """beam_slurm/after, which ``python after.pyz VERB`` runs in place of a training entry."""
    return _program("after")


@cache
def _program(package: str) -> bytes:
    """A zipapp of a package of ours that needs nothing of the others."""
    sources = {
        f"beam_slurm/{package}/{source.name}": source.read_text(encoding="utf-8")
        for source in files(f"beam_slurm.{package}").iterdir()
        if source.name.endswith(".py")
    }
    sources["beam_slurm/__init__.py"] = ""
    sources["__main__.py"] = f"from beam_slurm.{package}.__main__ import main\n\nmain()\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(sources.items()):
            info = zipfile.ZipInfo(name, _BEGINNING)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, text)
    return buffer.getvalue()
