"""A Hugging Face folder of Beam: proved complete.

The proof reads names, sizes and headers, so 1 TB takes as long as opening its few hundred files.
Everything here speaks of files by their names in the folder.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beam_slurm.after import architecture, headers
from beam_slurm.after.architecture import Tensor
from beam_slurm.after.errors import Problem, few
from beam_slurm.after.shards import INDEX

CONFIG = "config.json"
SINGLE = "model.safetensors"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")  # Beam's is one of Hugging Face tokenizers


@dataclass
class _Weights:
    """What the shards hold.

    Attributes:
        tensors: by name; of one that is there twice, the first.
        promised: names that the index states.
        problems: of index and shards.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    promised: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def prove(folder: Path) -> list[str]:
    """What keeps ``folder`` from being a complete checkpoint of Beam, as sentences; empty: nothing.

    Complete: the configuration is Beam's, a tokenizer is there, every shard is whole and is what
    the index says of it, and together they hold each tensor of the architecture once, with its
    shape and dtype, and no other. What the index states in bytes is not compared: exporters copy
    it from the model that was trained.
    """
    try:
        os.scandir(f"{folder}/.").close()  # a path into it: its files can be opened too
    except OSError as error:
        return [f"{folder} cannot be read: {error.strerror}"]
    problems = [problem for name in TOKENIZER for problem in _unread(folder / name)]
    weights = _weights(folder)
    try:
        config = json_object(folder / CONFIG)
        wanted = architecture.tensors(config)
        ordinary = architecture.dtype(config)
    except Problem as problem:
        return [*problems, f"{CONFIG}: {problem.what}", *weights.problems]
    problems += weights.problems
    if weights.problems and not weights.tensors:
        return problems  # no shard could be read: that none of its tensors is there goes unsaid
    return problems + _differences(wanted, weights, ordinary)


def shards(folder: Path) -> dict[str, set[str]]:
    """Each shard's tensors as the index states them; of a single file without index, none.

    Raises:
        Problem: there are no weights, or the index is none.
    """
    index = folder / INDEX
    if not index.exists():
        if not (folder / SINGLE).exists():
            raise Problem(f"neither it nor {SINGLE} is there", where=str(index))
        return {SINGLE: set()}
    names = json_object(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise Problem("it has no weight_map", where=str(index))
    found: dict[str, set[str]] = {}
    for tensor, shard in names.items():
        # A shard is a file of this folder: a path could lead anywhere.
        if not isinstance(shard, str) or not re.fullmatch(r"[^/]+\.safetensors", shard):
            raise Problem(f"{tensor} is in {shard!r}, which is no shard's name", where=str(index))
        found.setdefault(shard, set()).add(tensor)
    return found


def _weights(folder: Path) -> _Weights:
    weights = _Weights()
    try:
        named = shards(folder)
    except Problem as problem:
        weights.problems.append(f"{INDEX}: {problem.what}")
        return weights
    weights.promised = {name for names in named.values() for name in names}
    missing = [shard for shard in sorted(named) if not (folder / shard).is_file()]
    if missing:
        weights.problems.append(
            f"{len(missing)} of {len(named)} shards are not there: {few(missing)}"
        )
    for shard in sorted(named.keys() - missing):
        _take(folder / shard, named[shard], weights)
    strays = sorted({path.name for path in folder.glob("*.safetensors")} - named.keys())
    if strays:
        weights.problems.append(
            f"not in the index, and read by some engines all the same: {few(strays)}"
        )
    return weights


def _take(path: Path, promised: set[str], weights: _Weights) -> None:
    """Add what lies in one shard, and what is wrong with it, to ``weights``."""
    try:
        held = headers.read(path)
    except Problem as problem:
        weights.problems.append(f"{path.name}: {problem.what}")
        return
    told = {
        "lacks tensors that the index says are in it": sorted(promised - held.keys()),
        "holds tensors that another shard holds too": sorted(held.keys() & weights.tensors.keys()),
        "holds tensors that the index does not name": (
            sorted(held.keys() - weights.promised) if weights.promised else []
        ),
    }
    weights.problems += [
        f"{path.name} {what}: {few(names)}" for what, names in told.items() if names
    ]
    weights.tensors = {**held, **weights.tensors}


def _differences(wanted: dict[str, Tensor], weights: _Weights, ordinary: str) -> list[str]:
    """How the tensors that are there differ from the architecture's."""
    found = weights.tensors
    # A tensor that the index promises and its shard lacks, or a shard that is not whole, is told.
    missing = [name for name in wanted if name not in found and name not in weights.promised]
    extra = sorted(found.keys() - wanted.keys())
    shapes, dtypes = [], []
    for name, want in wanted.items():
        have = found.get(name, want)
        if have.shape != want.shape:
            shapes.append(f"{name} ({list(have.shape)}, not {list(want.shape)})")
        rounded = name.endswith(architecture.ROUTER) and have.dtype == ordinary
        if have.dtype != want.dtype and not rounded:
            dtypes.append(f"{name} ({have.dtype}, not {want.dtype})")
    told = {
        "not there": missing,
        "none of the architecture's": extra,
        "of another shape than config.json says": shapes,
        "of another dtype than config.json says": dtypes,
    }
    return [
        f"{len(names)} of {len(wanted)} tensors are {what}: {few(names)}"
        for what, names in told.items()
        if names
    ]


def _unread(path: Path) -> list[str]:
    """Why a JSON file cannot be used, as a list of at most one sentence."""
    try:
        json_object(path)
    except Problem as problem:
        return [f"{path.name}: {problem.what}"]
    return []


def json_object(path: Path) -> dict[str, Any]:
    """What a JSON file holds.

    Raises:
        Problem: it is not there, cannot be read, or holds something else.
    """
    try:
        return headers.parse(path.read_bytes())
    except FileNotFoundError:
        raise Problem("it is not there", where=str(path)) from None
    except OSError as error:
        raise Problem(f"it cannot be read: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise Problem(f"it is no JSON object: {error}", where=str(path)) from None
