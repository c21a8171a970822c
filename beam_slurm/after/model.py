"""The model folder as far as generating needs it, checked before any weight is read.

Of any architecture that an engine knows; whether a Beam is whole to the last tensor, ``folder``
proves.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm.after import headers
from beam_slurm.after.errors import Problem, few
from beam_slurm.after.folder import CONFIG, json_object, shards
from beam_slurm.after.hashes import SUMS


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
        found = self.config.get("max_position_embeddings")
        return found if isinstance(found, int) else None


def look(folder: Path) -> Model:
    """The model in ``folder``.

    Raises:
        Problem: config.json or a file of weights is missing, or cut off.
    """
    try:
        config = json_object(folder / CONFIG)
    except Problem as problem:
        raise Problem(
            "this is no Hugging Face folder",
            where=problem.where,
            why=problem.what if folder.is_dir() else f"{folder} is no folder that is there",
            do="give the folder of a model; a checkpoint is made one by beam-slurm convert RUN",
        ) from None
    try:
        names = sorted(shards(folder))
    except Problem as problem:
        raise _not_whole(problem.where, problem.what) from None
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise _not_whole(str(folder), f"not there: {few(absent)}")
    for name in names:
        headers.read(folder / name)
    hashes = folder / SUMS
    weights = hashlib.sha256(hashes.read_bytes()).hexdigest() if hashes.exists() else None
    return Model(folder, config, weights)


def _not_whole(where: str, why: str) -> Problem:
    return Problem("the model is not whole", where=where, why=why, do="convert or copy it again")
