"""Tiny but real model and data files: a Beam of a few hundred bytes, and the rest."""

from __future__ import annotations

import json
import struct
from pathlib import Path


def shard(path: Path, tensors: dict[str, int]) -> int:
    """A safetensors file of float32 vectors by name and length; returns the bytes of tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, length in tensors.items():
        begin, end = end, end + 4 * length
        header[name] = {"dtype": "F32", "shape": [length], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
    return end


SHARDS = {
    "model-00001-of-00003.safetensors": {"embed": 16, "layers.0.up": 8},
    "model-00002-of-00003.safetensors": {"layers.1.up": 12, "layers.1.down": 4},
    "model-00003-of-00003.safetensors": {"norm": 2, "lm_head": 10},
}


def model(folder: Path) -> Path:
    """A whole model of three shards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "beam", "num_hidden_layers": 52}')
    (folder / "tokenizer.json").write_text("{}")
    total = sum(shard(folder / name, tensors) for name, tensors in SHARDS.items())
    names = {tensor: name for name, tensors in SHARDS.items() for tensor in tensors}
    index = {"metadata": {"total_size": total}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def parquet(path: Path) -> None:
    """What a reader of names, sizes and magic takes for Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PAR1" + bytes(40) + b"PAR1")


def snapshot(home: Path, name: str) -> Path:
    """One data set in Hugging Face's cache, as ``hf download`` lays it out."""
    folder = home / "hub" / ("datasets--" + name.replace("/", "--"))
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "0abc").write_text("{}\n")
    at = folder / "snapshots" / "f00d"
    at.mkdir(parents=True)
    (at / "data.jsonl").symlink_to(Path("../../blobs/0abc"))
    return folder
