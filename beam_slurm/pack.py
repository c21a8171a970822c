"""node.pyz: the node-side program as one file, the same on hosts and inside containers."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from importlib.resources import files

_BEGINNING = (1980, 1, 1, 0, 0, 0)  # the same program gives the same bytes


_MAIN = "from beam_slurm.node.__main__ import main\n\nmain()\n"


@cache
def node_program() -> bytes:
    """A zipapp of beam_slurm/node that ``python3 node.pyz VERB`` runs."""
    package = files("beam_slurm.node")
    sources = {
        f"beam_slurm/node/{source.name}": source.read_text(encoding="utf-8")
        for source in package.iterdir()
        if source.name.endswith(".py")
    }
    sources["beam_slurm/__init__.py"] = ""
    sources["__main__.py"] = _MAIN
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(sources.items()):
            info = zipfile.ZipInfo(name, _BEGINNING)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, text)
    return buffer.getvalue()
