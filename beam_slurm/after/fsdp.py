"""FSDP2 checkpoints to a Hugging Face folder, tensor by tensor through torch's own readers.

NeMo RL's AutoModel saves what each rank has: as safetensors with a note of where a part belongs,
or as torch's ``.distcp``; its names are those of Hugging Face files, with or without a prefix.
Where a model of transformers was saved as it lies in memory, all experts of a layer are one tensor,
gate and up projection in one: they are taken apart. Weights are often FP32, a trainer's master
copy, and become what the architecture says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm.after import shards
from beam_slurm.after.architecture import Tensor
from beam_slurm.after.checkpoints import Kind, Source
from beam_slurm.after.dcp import DTYPES, Contents
from beam_slurm.after.errors import Problem, few

ANCHOR = "model.embed_tokens.weight"  # in every checkpoint; what stands before it is a prefix
WEIGHTS = ("F64", "F32", "F16", "BF16")  # values as they are: of FP8 they are with their scales
EXPERT = re.compile(r"(.*\.mlp\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")


@dataclass(frozen=True)
class Piece:
    """Where a tensor lies: in ``name``, all of it, one expert, or that one's first or last half."""

    name: str
    expert: int | None = None
    half: int | None = None


def plan(contents: Contents, wanted: Mapping[str, Tensor], where: Path) -> dict[str, Piece]:
    """Where each tensor of the architecture lies in a checkpoint.

    Raises:
        Problem: one is missing, of another shape or quantised, or there are some that the
            architecture lacks.
    """
    stored = contents.tensors
    prefix = next((name[: -len(ANCHOR)] for name in stored if name.endswith(ANCHOR)), "")
    pieces: dict[str, Piece] = {}
    wrong: list[str] = []
    for name, tensor in wanted.items():
        piece = Piece(prefix + name)
        expert = EXPERT.fullmatch(name)
        if piece.name not in stored and expert:
            piece = _within(prefix + expert[1], int(expert[2]), expert[3])
        if piece.name not in stored:
            wrong.append(f"{name} is missing")
        elif (shape := _shape(piece, stored[piece.name])) != tensor.shape:
            wrong.append(f"{name} is {list(shape)}, not {list(tensor.shape)}")
        pieces[name] = piece
    used = {piece.name for piece in pieces.values()}
    tied = prefix + "lm_head.weight"  # may be saved although it is the embedding
    for name in stored:
        if name not in used and name != tied and not name.endswith("_extra_state"):
            wrong.append(f"{name} is none of the model's")
    if wrong:
        raise Problem(
            "the checkpoint is of another architecture than the base",
            where=str(where),
            why=few(wrong, "; "),
            do="give the model that was trained with --base",
        )
    _refuse_quantised({name: stored[name] for name in sorted(used)}, where)
    return pieces


def _refuse_quantised(stored: Mapping[str, Tensor], where: Path) -> None:
    found = [f"{name} ({each.dtype})" for name, each in stored.items() if each.dtype not in WEIGHTS]
    if found:
        raise Problem(
            "the checkpoint's weights are quantised, and nothing tells their scales",
            where=str(where),
            why=few(found),
            do="take a checkpoint that was saved in BF16 or FP32",
        )


def convert(source: Source, wanted: Mapping[str, Tensor], part: Path) -> None:
    """Write the weights of ``source`` into ``part`` as safetensors with an index.

    In memory are one file's tensors at a time, and the tensor in which all experts of a layer lie.

    Args:
        wanted: every tensor of the architecture.
    """
    assert source.contents is not None
    pieces = plan(source.contents, wanted, source.path)
    reader = _Reader(source)

    def make(names: list[str]) -> dict[str, Any]:
        kept = reader.load({pieces[name].name for name in names})
        return {name: _cut(kept[pieces[name].name], pieces[name], wanted[name]) for name in names}

    shards.write(part, wanted, make)


def _within(experts: str, expert: int, projection: str) -> Piece:
    if projection == "down_proj":
        return Piece(f"{experts}.down_proj", expert)
    return Piece(f"{experts}.gate_up_proj", expert, half=0 if projection == "gate_proj" else 1)


def _shape(piece: Piece, stored: Tensor) -> tuple[int, ...]:
    shape = stored.shape
    if piece.expert is not None:
        shape = shape[1:] if piece.expert < shape[0] else ()
    if piece.half is not None and shape:
        shape = (shape[0] // 2, *shape[1:])
    return shape


def _cut(tensor: Any, piece: Piece, wanted: Tensor) -> Any:
    if piece.expert is not None:
        tensor = tensor[piece.expert]
    if piece.half is not None:
        tensor = tensor.chunk(2, dim=0)[piece.half]
    # A copy of its own: safetensors refuses tensors that share memory.
    return tensor.to(_torch(wanted.dtype), copy=True).contiguous()


def _torch(dtype: str) -> Any:
    """torch's dtype for one in the words of safetensors."""
    import torch

    return getattr(torch, next(name for name, known in DTYPES.items() if known == dtype))


class _Reader:
    """Loads tensors of a checkpoint by name, and keeps those that it loaded last."""

    def __init__(self, source: Source) -> None:
        assert source.contents is not None
        self._stored = source.contents.tensors
        self._storage = _storage(source)
        self._kept: dict[str, Any] = {}

    def load(self, names: Iterable[str]) -> dict[str, Any]:
        import torch
        from torch.distributed.checkpoint.state_dict_loader import load

        names = set(names)
        self._kept = {name: kept for name, kept in self._kept.items() if name in names}
        fresh = {
            name: torch.empty(self._stored[name].shape, dtype=_torch(self._stored[name].dtype))
            for name in sorted(names - self._kept.keys())
        }
        if fresh:
            load(fresh, storage_reader=self._storage, no_dist=True)
        self._kept.update(fresh)
        return self._kept


def _storage(source: Source) -> Any:
    """torch's reader for this form, which reads the metadata only once: for 1 TB it is large."""
    from torch.distributed.checkpoint import FileSystemReader

    if source.kind is Kind.SHARDED:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

        reader: Any = HuggingFaceStorageReader(str(source.path))
    else:
        reader = FileSystemReader(source.path)
    metadata = reader.read_metadata()
    reader.read_metadata = lambda *_, **__: metadata
    return reader
