"""Safetensors files of whole and of split tensors: what they hold, and new ones written.

Weights of 1 TB pass through memory one file at a time; a file has its name only once it is whole,
so that what an interruption leaves can be kept.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from beam_slurm.after import headers
from beam_slurm.after.architecture import Tensor
from beam_slurm.after.dcp import Contents
from beam_slurm.after.errors import Problem

LARGEST = 5_000_000_000  # bytes of tensors in a file; a larger tensor has one to itself
INDEX = "model.safetensors.index.json"


def damage(path: Path) -> str:
    """What is wrong with a safetensors file, by its header and size; "" if nothing."""
    try:
        headers.read(path)
    except Problem as problem:
        return problem.what
    return ""


def contents(files: Iterable[Path]) -> tuple[Contents, list[str]]:
    """(the whole tensors that files hold, of which each may have a part; those with a hole).

    Where a part begins in the whole is in the header, as torch's HuggingFaceStorageWriter notes it.
    torch itself would fill a hole with whatever lies in memory.
    """
    whole: dict[str, Tensor] = {}
    parts: dict[str, dict[tuple[int, ...], int]] = {}
    for path in files:
        notes = _notes(path)
        for name, part in headers.read(path).items():
            begin = notes.get(name, {}).get("saved_offsets", [0] * len(part.shape))
            before = whole[name].shape if name in whole else part.shape
            reach = zip(before, begin, part.shape, strict=True)
            shape = tuple(max(known, at + size) for known, at, size in reach)
            whole[name] = Tensor(shape, part.dtype)
            parts.setdefault(name, {})[tuple(begin)] = math.prod(part.shape)
    holes = [
        f"a part of {name} is in no file"
        for name, tensor in whole.items()
        if sum(parts[name].values()) != math.prod(tensor.shape)
    ]
    return Contents(whole, {}), holes


def _notes(path: Path) -> dict[str, Any]:
    """Where the parts in a file belong, by name; none for whole tensors."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = headers.parse(file.read(length))
    note = header.get("__metadata__", {}).get("DCP_SHARDING_INFO", "{}")
    try:
        return headers.parse(note.encode())
    except ValueError as error:
        raise Problem(
            "the note of where its tensors belong cannot be read", where=str(path), why=str(error)
        ) from None


def bytes_of(tensor: Tensor) -> int:
    return math.prod(tensor.shape) * headers.SIZES[tensor.dtype]


def plan(tensors: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """File names to the names of the tensors in each, in the order given."""
    files: list[list[str]] = []
    filled = LARGEST
    for name, tensor in tensors.items():
        size = bytes_of(tensor)
        if filled + size > LARGEST:
            files.append([])
            filled = 0
        files[-1].append(name)
        filled += size
    count = len(files)
    return {
        f"model-{number:05}-of-{count:05}.safetensors": names
        for number, names in enumerate(files, 1)
    }


def write(
    folder: Path,
    tensors: Mapping[str, Tensor],
    make: Callable[[list[str]], dict[str, Any]],
) -> None:
    """Write all ``tensors`` and their index into ``folder``, but for files that are there already.

    Args:
        make: names to torch tensors of exactly these shapes and dtypes; called once a file.
    """
    files = plan(tensors)
    for number, (name, inside) in enumerate(files.items(), 1):
        if not _is_written(folder / name, {each: tensors[each] for each in inside}):
            write_file(folder / name, make(inside))
        print(f"{name}: {number} of {len(files)}", flush=True)
    index = {
        "metadata": {"total_size": sum(map(bytes_of, tensors.values()))},
        "weight_map": {each: name for name, inside in files.items() for each in inside},
    }
    (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def write_file(path: Path, tensors: dict[str, Any]) -> None:
    """Write one file under a passing name, then give it its own.

    Raises:
        OSError: it cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    passing = path.with_name(path.name + ".tmp")
    try:
        save_file(tensors, passing, metadata={"format": "pt"})
    except SafetensorError as error:  # a disk that is full
        raise OSError(f"{path.name}: {error}") from None
    passing.rename(path)


def _is_written(path: Path, tensors: Mapping[str, Tensor]) -> bool:
    """Whether an earlier conversion of the same checkpoint has left this file whole."""
    return path.is_file() and not damage(path) and headers.read(path) == dict(tensors)
