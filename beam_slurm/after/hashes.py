"""The hashes of a folder's files, as ``sha256sum -c`` reads them.

Everything is read, in as many threads as there are processors: hashlib lets others run.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from beam_slurm.after.dcp import METADATA
from beam_slurm.after.errors import Problem

SUMS = "SHA256SUMS"

THREADS = 16  # at most: what one node can make of shared storage
BLOCK = 16 << 20  # bytes read at once

UNLISTED = re.compile(r"[\\\x00-\x1f]")  # sha256sum escapes names with these; we refuse them

Progress = Callable[[int, int], None]
"""Called after each file with the bytes that are done and those of all files."""


def of(folder: Path, progress: Progress | None = None) -> dict[str, str]:
    """Name in the folder to SHA-256, of every file in it but the hidden and the list itself.

    Hidden files are notes of tools: those of a download, or a network file system's leftovers. One
    is not: without its ``.metadata`` a distributed checkpoint, as Megatron's is, cannot be read.

    Raises:
        Problem: a file cannot be read, or sha256sum could not list its name as it is.
    """
    names = _names(folder)
    for name in names:
        if UNLISTED.search(name):
            raise Problem(
                f"a file's name has a backslash or a control character: {name!r}",
                where=str(folder),
                do="rename it",
            )
    return _hash(folder, names, progress)


def write(folder: Path, progress: Progress | None = None) -> None:
    """Write ``SHA256SUMS``, so that ``sha256sum -c SHA256SUMS`` works in the folder.

    Raises:
        Problem: as ``of`` does, or the list cannot be written.
    """
    found = of(folder, progress)
    text = "".join(f"{digest}  {name}\n" for name, digest in found.items())
    passing = folder / f".{SUMS}.tmp"
    try:
        passing.write_bytes(os.fsencode(text))
        passing.replace(folder / SUMS)
    except OSError as error:
        raise Problem(
            "the hash list cannot be written", where=str(folder), why=str(error.strerror)
        ) from None


def _names(folder: Path) -> list[str]:
    """All files in ``folder``, however deep, that the hash list is to name."""
    found = []
    for at, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(at, name) for name in names if name == METADATA or not name.startswith(".")]
    paths = (path.relative_to(folder) for path in found)
    return sorted(path.as_posix() for path in paths if path != Path(SUMS))


def _raise(error: OSError) -> None:
    raise Problem("the folder cannot be read", where=error.filename, why=str(error.strerror))


def _hash(folder: Path, names: list[str], progress: Progress | None) -> dict[str, str]:
    found = {}
    done = 0
    with ThreadPoolExecutor(min(THREADS, len(os.sched_getaffinity(0)))) as pool:
        try:
            sizes = {name: (folder / name).stat().st_size for name in names}
            running = {pool.submit(_sha256, folder / name): name for name in names}
            for future in as_completed(running):
                name = running[future]
                found[name] = future.result()
                done += sizes[name]
                if progress:
                    progress(done, sum(sizes.values()))
        except OSError as error:
            raise Problem(
                "a file cannot be read",
                where=error.filename or str(folder),
                why=str(error.strerror),
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)  # after an error nobody waits for the rest
    return {name: found[name] for name in names}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    block = bytearray(BLOCK)
    view = memoryview(block)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(view[:count])
    return digest.hexdigest()
