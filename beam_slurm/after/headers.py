"""One safetensors file: which tensors lie in it, and whether it is whole; never the tensors.

Eight bytes (little-endian) with the length of a JSON header, the header with dtype, shape and place
of each tensor, then the tensors, one behind the other. So a file says itself how long it must be.
Layout: https://huggingface.co/docs/safetensors, whose reader refuses gaps and overlaps too.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from pathlib import Path
from typing import Any

from beam_slurm.after.architecture import Tensor
from beam_slurm.after.errors import Problem

LONGEST = 100_000_000  # bytes; safetensors itself refuses a longer header

SIZES = {  # bytes of one value
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 1),
}


def read(path: Path) -> dict[str, Tensor]:
    """The tensors in a file, which is as long as it must be.

    Raises:
        Problem: it cannot be read, is no safetensors file, or is not whole.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            # A damaged length must not make us read the tensors.
            text = file.read(length) if length <= min(LONGEST, size) else b""
    except OSError as error:
        raise Problem(f"it cannot be read: {error.strerror}", where=str(path)) from None
    if not 2 <= length <= LONGEST:
        raise Problem(f"{size} bytes do not begin as a safetensors file", where=str(path))
    if len(text) < length:
        raise Problem(f"it is cut off in its header: {size} bytes", where=str(path))
    try:
        found, end = _tensors(parse(text))
    except (ValueError, TypeError, KeyError) as error:
        raise Problem(f"its header is no safetensors header: {error}", where=str(path)) from None
    if size != 8 + length + end:
        how = "cut off" if size < 8 + length + end else "too long"
        raise Problem(
            f"it is {how}: {size} bytes, its header says {8 + length + end}", where=str(path)
        )
    return found


def parse(text: bytes) -> dict[str, Any]:
    """The JSON object in ``text``. A key that is there twice is an error: JSON keeps the last.

    Raises:
        ValueError: there is none.
    """
    found = json.loads(text.decode(), object_pairs_hook=_unique)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"{counts.most_common(1)[0][0]} is there twice")
    return found


def _tensors(header: dict[str, Any]) -> tuple[dict[str, Tensor], int]:
    """(tensors by name, bytes of them all)."""
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda each: each[1]["data_offsets"]):
        shape = entry["shape"]
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError(f"{name} has shape {shape}")
        size = math.prod(shape) * SIZES[entry["dtype"]]
        if entry["data_offsets"] != [end, end + size]:
            raise ValueError(f"{name} lies at {entry['data_offsets']}, not [{end}, {end + size}]")
        end += size
    return {
        name: Tensor(tuple(entry["shape"]), entry["dtype"]) for name, entry in entries.items()
    }, end
