"""Checkpoints on shared storage: whole or not there at all.

A checkpoint is written under ``tmp_step_N`` and renamed to ``step_N`` once every byte is on disk.
Whatever a killed run leaves behind keeps the unfinished name and is never read.
"""

import json
import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

MODEL = "model.pt"
OPTIMIZER = "optimizer.pt"
STATE = "state.json"


@dataclass(frozen=True)
class Found:
    """What lies in a checkpoint folder: the newest whole one, and what is wrong with the others."""

    newest: Path | None
    unusable: dict[Path, str]


def save(
    folder: Path,
    step: int,
    model: dict[str, Any],
    optimizer: dict[str, Any],
    state: dict[str, Any],
) -> Path:
    """Write one checkpoint and return its path; ``state`` is plain JSON."""
    final = folder / f"step_{step:06d}"
    unfinished = folder / f"tmp_{final.name}"
    for leftover in (unfinished, final):
        if leftover.exists():
            shutil.rmtree(leftover)
    unfinished.mkdir(parents=True)
    torch.save(model, unfinished / MODEL)
    torch.save(optimizer, unfinished / OPTIMIZER)
    (unfinished / STATE).write_text(json.dumps({"step": step, **state}, indent=1) + "\n")
    for path in (*unfinished.iterdir(), unfinished):
        _flush_to_disk(path)
    unfinished.rename(final)
    _flush_to_disk(folder)
    return final


def load(path: Path, device: torch.device) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The model, the optimizer and the state of a checkpoint."""
    model = torch.load(path / MODEL, map_location=device, weights_only=True)
    optimizer = torch.load(path / OPTIMIZER, map_location=device, weights_only=True)
    return model, optimizer, read_state(path)


def read_state(path: Path) -> dict[str, Any]:
    """``state.json`` of a checkpoint: its step and what the run was started with."""
    state: dict[str, Any] = json.loads((path / STATE).read_text())
    return state


def find(folder: Path) -> Found:
    """The newest whole checkpoint, and the folders that are none."""
    whole: list[Path] = []
    unusable: dict[Path, str] = {}
    for path in sorted([*folder.glob("step_*"), *folder.glob("tmp_step_*")]):
        why = "unfinished" if path.name.startswith("tmp_") else _damage(path)
        if why:
            unusable[path] = why
        else:
            whole.append(path)
    return Found(newest=max(whole, key=lambda path: path.name, default=None), unusable=unusable)


def _damage(path: Path) -> str:
    """What is wrong with a checkpoint of the final name, as after a disk failure; "" if nothing."""
    for name in (MODEL, OPTIMIZER, STATE):
        if not (path / name).is_file():
            return f"damaged (no {name})"
    for name in (MODEL, OPTIMIZER):
        # What torch.save writes is a zip file, and that ends with its directory.
        if not zipfile.is_zipfile(path / name):
            return f"damaged ({name} is truncated)"
    try:
        read_state(path)
    except ValueError:
        return f"damaged ({STATE} is truncated)"
    return ""


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
