"""What a distributed checkpoint of torch holds, read without torch and without running its code.

The file ``.metadata`` beside the shards (``.distcp``) is a pickle. Here nothing of it is called:
every class is replaced by a husk, and what matters is picked out. So a checkpoint can be refused
where there is no torch, before a job is submitted, and whoever wrote it.
"""

from __future__ import annotations

import collections
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm.after.architecture import Tensor
from beam_slurm.after.errors import Problem

METADATA = ".metadata"

# As safetensors names them; torch's own names are what the pickle holds.
DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


@dataclass(frozen=True)
class Contents:
    """What lies in a checkpoint.

    Attributes:
        tensors: by name, whole, however many files they are split over.
        sizes: bytes that each file must have at least, by its name.
    """

    tensors: dict[str, Tensor]
    sizes: dict[str, int]


def read(folder: Path) -> Contents:
    """The contents that ``.metadata`` promises.

    Raises:
        Problem: it cannot be read, or is no metadata of torch.
    """
    path = folder / METADATA
    try:
        with path.open("rb") as file:
            found = _Husks(file).load()
        tensors = {
            str(name): Tensor(tuple(kept["size"]), DTYPES[kept["properties"].state[0]])
            for name, kept in _states(found.state["state_dict_metadata"])
            if "chunks" in kept
        }
        sizes: dict[str, int] = {}
        for _, kept in _states(found.state["storage_data"]):
            end = int(kept["offset"]) + int(kept["length"])
            sizes[kept["relative_path"]] = max(sizes.get(kept["relative_path"], 0), end)
    except OSError as error:
        raise Problem("the checkpoint cannot be read", where=str(path), why=str(error)) from None
    except Exception as error:  # whatever a damaged pickle makes of itself
        raise Problem(
            "the checkpoint is not whole",
            where=str(path),
            why=f"it is no metadata of torch.distributed.checkpoint: {error}",
            do="take another checkpoint of the run",
        ) from None
    return Contents(tensors, sizes)


def damage(folder: Path, contents: Contents) -> list[str]:
    """What is missing or too short of the files that the contents lie in."""
    found = []
    for name, least in sorted(contents.sizes.items()):
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is not there")
        elif path.stat().st_size < least:
            found.append(f"{name} is truncated: {path.stat().st_size} of {least} bytes")
    return found


def _states(objects: dict[Any, Any]) -> list[tuple[Any, dict[str, Any]]]:
    return [(name, husk.state) for name, husk in objects.items()]


class _Husk:
    """Stands for an object of any class, and keeps what would have been its state."""

    state: Any

    def __new__(cls, *values: Any, **named: Any) -> _Husk:
        husk = super().__new__(cls)
        husk.state = {}
        return husk

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, name: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass


class _Husks(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch", "Size"):
            return tuple
        if module == "torch" and name in DTYPES:
            return name
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        return _Husk
