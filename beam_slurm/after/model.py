"""The model folder as far as generating needs it, checked before any weight is read.

Of any architecture that an engine knows; whether a Beam is whole to the last tensor, ``folder``
proves.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm.after import headers
from beam_slurm.after.errors import Problem

INDEX = "model.safetensors.index.json"
HASHES = "SHA256SUMS"


@dataclass(frozen=True)
class Model:
    """A Hugging Face folder.

    Attributes:
        config: its config.json.
        weights: what tells these weights from others: the hash of the hash list that a conversion
            has written; None if the folder has no such list.
    """

    path: Path
    config: dict[str, Any]
    weights: str | None

    @property
    def context(self) -> int | None:
        """How many tokens a prompt and its response may have together, if the model says so."""
        return self.config.get("max_position_embeddings")


def look(folder: Path) -> Model:
    """The model in ``folder``.

    Raises:
        Problem: config.json or a file of weights is missing, or cut off.
    """
    try:
        config = json.loads((folder / "config.json").read_text())
        if not isinstance(config, dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError) as error:
        raise Problem(
            "this is no Hugging Face folder",
            where=str(folder / "config.json"),
            why=str(error),
            do="convert the checkpoint first: beam-slurm convert",
        ) from None
    shards = _shards(folder)
    absent = [name for name in shards if not (folder / name).is_file()]
    if absent or not shards:
        raise Problem(
            "the model is not whole",
            where=str(folder),
            why="not there: " + ", ".join(absent[:5] or ["*.safetensors"]),
            do="convert or copy it again",
        )
    for name in shards:
        headers.read(folder / name)
    hashes = folder / HASHES
    weights = hashlib.sha256(hashes.read_bytes()).hexdigest() if hashes.exists() else None
    return Model(folder, config, weights)


def _shards(folder: Path) -> list[str]:
    try:
        return sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
    except FileNotFoundError:
        return [path.name for path in folder.glob("*.safetensors")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(
            "the index of the weights cannot be read", where=str(folder / INDEX), why=repr(error)
        ) from None
