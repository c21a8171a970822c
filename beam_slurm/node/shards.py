"""Whether the files of a checkpoint are whole: their ends and headers, never the tensors.

A disk that is full or a node that dies while it saves leaves files that are there and too short.
Of torch's own files (``.pt``) that is certain: since torch 1.6 ``torch.save`` writes a zip file,
whose directory comes last. (An older torch, or one that is asked for the old format, writes
something else; no framework here does.) A safetensors file says how long it must be. A shard of
torch's distributed checkpoints (``.distcp``) has no such mark: only an empty one is found.
"""

import os
import zipfile

from beam_slurm.node.assets import check_shard, few


def damage(path: str) -> str:
    """What is wrong with the files in the folder ``path``, however deep; "" if nothing.

    Raises:
        OSError: a folder or file cannot be read.
    """
    found = []
    for at, folders, names in os.walk(path, onerror=_raise):
        folders.sort()
        for name in sorted(names):
            file = os.path.join(at, name)
            why = _damage(file)
            if why:
                found.append("%s %s" % (os.path.relpath(file, path), why))
    return few(found)


def torch_damage(path: str) -> str:
    """What is wrong with one file of ``torch.save``; "" if nothing."""
    if not os.path.isfile(path):
        return "is not there"
    size = os.path.getsize(path)
    if not size:
        return "is empty"
    try:
        with zipfile.ZipFile(path):
            return ""
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError):
        return "is truncated: %d bytes" % size


def _damage(path: str) -> str:
    if path.endswith(".pt"):
        return torch_damage(path)
    if path.endswith(".safetensors"):
        problems = check_shard(path, [])[1]
        return "is damaged: " + "; ".join(problems) if problems else ""
    if path.endswith(".distcp") and not os.path.getsize(path) and _is_named(path):
        return "is empty"
    return ""


def _is_named(path: str) -> bool:
    """Whether the checkpoint counts on this shard: a rank that had nothing to save leaves it empty.

    The names are in ``.metadata``, a pickle: it is searched, as pickles of others are not loaded.
    """
    try:
        with open(os.path.join(os.path.dirname(path), ".metadata"), "rb") as file:
            return os.path.basename(path).encode() in file.read()
    except FileNotFoundError:
        return True


def _raise(error: OSError) -> None:
    raise error
