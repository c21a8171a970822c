"""Which container image a run starts, as far as that is cheaply told where it is submitted.

A tag may move and a file may be replaced: the digest says whether it is the same image still.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATIENCE = 3.0  # seconds for the runtime's answer
SMALL = 32_000_000  # bytes of a file that is read as a whole
BESIDE = ".sha256"  # behind the name of an image: the file that holds its digest

_DIGEST = re.compile(r"\b(?:sha256:)?([0-9a-f]{64})\b")


def identify(runtime: str, spelled: str) -> dict[str, Any]:
    """The image as plain values.

    Args:
        runtime: ``site.container``.
        spelled: the image as that runtime takes it: ``Launch.container``.

    Returns:
        ``name``; ``digest``, "sha256:..." or None; ``by``, who told the digest; ``size`` in bytes
        and ``modified`` in epoch seconds of a file; ``why`` there is no digest.
    """
    found: dict[str, Any] = {"name": spelled, "digest": None, "by": None, "why": None}
    if "@sha256:" in spelled:
        return {**found, "digest": spelled.rpartition("@")[2], "by": "its name"}
    if spelled.startswith("/"):
        return {**found, **_file(Path(spelled))}
    if runtime in ("docker", "podman"):
        return {**found, **_stored(runtime, spelled)}
    return {**found, "why": "the nodes get it from its registry, where a tag may move"}


def sure(found: Mapping[str, Any]) -> bool:
    """Whether its digest alone says which image it is: one beside a file may be of another."""
    return bool(found.get("digest")) and not str(found.get("by")).endswith(BESIDE)


def _file(path: Path) -> dict[str, Any]:
    try:
        seen = path.stat()
        facts: dict[str, Any] = {"size": seen.st_size, "modified": round(seen.st_mtime, 3)}
        beside, why = (
            Path(f"{path}{BESIDE}"),
            f"it is large, and has no {path.name}{BESIDE} beside it",
        )
        if beside.is_file():
            match = _DIGEST.search(beside.read_text(errors="replace")[:1000])
            # An image that is copied over the old one leaves its digest behind.
            if match and beside.stat().st_mtime >= seen.st_mtime:
                return {**facts, "digest": f"sha256:{match[1]}", "by": beside.name}
            why = f"{beside.name} is older than it" if match else f"{beside.name} holds none"
        if seen.st_size <= SMALL:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            return {**facts, "digest": f"sha256:{digest}", "by": "its content"}
    except OSError as error:
        return {"why": f"cannot look at it from this machine: {error.strerror}"}
    return {**facts, "why": why}


def _stored(runtime: str, name: str) -> dict[str, Any]:
    """The image in this machine's own store; nodes have stores of their own."""
    if not shutil.which(runtime):
        return {"why": f"{runtime} is not on this machine"}
    words = [runtime, "image", "inspect", "--format={{.Id}} {{json .RepoDigests}}", name]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return {"why": f"{runtime} image inspect took longer than {PATIENCE:g} s"}
    said = done.stdout.decode(errors="replace")
    # What a registry calls it comes first: the store's own id is another on each machine.
    repo, own = said.partition(" ")[2], said.partition(" ")[0]
    match = _DIGEST.search(repo) or _DIGEST.search(own)
    if done.returncode or not match:
        return {"why": f"{runtime} on this machine does not hold it"}
    by = "its registry" if _DIGEST.search(repo) else "its id"
    return {"digest": f"sha256:{match[1]}", "by": f"{by}, says {runtime} on this machine"}
