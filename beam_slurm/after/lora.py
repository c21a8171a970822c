"""LoRA adapters as PEFT keeps them: taken along as they are, or merged into the base model."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

from beam_slurm.after import headers, shards
from beam_slurm.after.errors import Problem, few

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."  # before every name, in PEFT's files


def config(adapter: Path) -> dict[str, Any]:
    """The adapter's settings.

    Raises:
        Problem: they cannot be read.
    """
    path = adapter / CONFIG
    try:
        return headers.parse(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Problem("the adapter cannot be read", where=str(path), why=str(error)) from None


def mergeable(adapter: Path) -> dict[str, Any]:
    """The settings of an adapter that W + s·B·A is all of.

    Raises:
        Problem: it does more than that.
    """
    found = config(adapter)
    usual = {
        "peft_type": found.get("peft_type", "LORA") == "LORA",
        "use_dora": not found.get("use_dora"),
        "bias": found.get("bias", "none") == "none",
        "fan_in_fan_out": not found.get("fan_in_fan_out"),
        "alpha_pattern": not found.get("alpha_pattern"),
        "modules_to_save": not found.get("modules_to_save"),
        "lora_alpha": isinstance(found.get("lora_alpha"), int | float),
    }
    odd = [name for name, is_usual in usual.items() if not is_usual]
    if odd:
        raise Problem(
            "this kind of adapter cannot be merged",
            where=str(adapter / CONFIG),
            why=", ".join(f"{name} is {json.dumps(found.get(name))}" for name in odd),
            do="leave --merge-lora out: it stays an adapter",
        )
    return found


def take(adapter: Path, base: Path, part: Path) -> None:
    """Write an adapter into ``part`` as PEFT and vLLM load it; ``base`` is noted as its model."""
    settings = config(adapter)
    shards.write_file(part / WEIGHTS, weights(adapter))
    settings["base_model_name_or_path"] = str(base)
    (part / CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


def prove(adapter: Path) -> list[str]:
    """What an adapter's folder lacks, or what is wrong with it."""
    if not (adapter / CONFIG).is_file() or not (adapter / WEIGHTS).is_file():
        return [f"it needs {CONFIG} and {WEIGHTS}"]
    why = shards.damage(adapter / WEIGHTS)
    return [f"{WEIGHTS} {why}"] if why else []


def weights(adapter: Path) -> dict[str, Any]:
    """The adapter's tensors by PEFT's names; Miles keeps them by the model's, in torch's format."""
    if (adapter / WEIGHTS).is_file():
        from safetensors.torch import load_file

        found = load_file(adapter / WEIGHTS)
    else:
        import torch

        found = torch.load(
            adapter / "adapter_model.bin", map_location="cpu", weights_only=True, mmap=True
        )
    return {
        name if name.startswith(PREFIX) else PREFIX + name: tensor.contiguous().clone()
        for name, tensor in found.items()
    }


def merge(adapter: Path, base: Path, part: Path) -> None:
    """Write ``base`` with the adapter in it into ``part``: each weight W becomes W + s·B·A.

    s is alpha/r, or alpha/√r for rank-stabilised adapters. Computed in FP32, kept in the base's
    dtype, one file of the base at a time.

    Raises:
        Problem: the adapter is for a weight that the base does not have as a tensor of its own.
    """
    from safetensors import safe_open

    settings = mergeable(adapter)
    changes = _changes(weights(adapter), settings)
    files = sorted(base.glob("*.safetensors"))
    found = {name for file in files for name in headers.read(file)}
    lost = sorted(name for name in changes if name not in found)
    if lost:
        raise Problem(
            "the adapter does not fit the base model",
            where=str(adapter),
            why=f"the base has no tensor {few(lost, most=1)}",
            do="give the model that was trained with --base; "
            "without --merge-lora the adapter stays as it is",
        )
    for number, file in enumerate(files, 1):
        target = part / file.name
        if not (target.is_file() and not shards.damage(target)):
            with safe_open(file, framework="pt") as opened:
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            for name in tensors.keys() & changes.keys():
                tensors[name] = _changed(name, tensors[name], *changes[name])
            shards.write_file(target, tensors)
        print(f"{file.name}: {number} of {len(files)}", flush=True)
    if (base / shards.INDEX).is_file():
        shutil.copyfile(base / shards.INDEX, part / shards.INDEX)


def _changes(
    adapter: dict[str, Any], settings: dict[str, Any]
) -> dict[str, tuple[Any, Any, float]]:
    """The model's names of weights to A [r, in], B [out, r] and the scale."""
    found = {}
    for name, tensor in adapter.items():
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removesuffix(".lora_A.weight")
        other = adapter.get(module + ".lora_B.weight")
        if other is None:
            raise Problem("the adapter is not whole", where=module, why="it has A and no B")
        rank = tensor.shape[0]
        scale = settings["lora_alpha"] / (math.sqrt(rank) if settings.get("use_rslora") else rank)
        found[module.removeprefix(PREFIX) + ".weight"] = (tensor, other, scale)
    odd = [name for name in adapter if not name.endswith((".lora_A.weight", ".lora_B.weight"))]
    if odd or 2 * len(found) != len(adapter):
        raise Problem(
            "this kind of adapter cannot be merged",
            where=odd[0] if odd else "lora_B",
            why="merging knows pairs of lora_A.weight and lora_B.weight only",
        )
    return found


def _changed(name: str, weight: Any, a: Any, b: Any, scale: float) -> Any:
    if a.ndim != 2 or b.ndim != 2 or (b.shape[0], a.shape[1]) != tuple(weight.shape):
        raise Problem(
            "the adapter does not fit the base model",
            where=name,
            why=f"A is {list(a.shape)}, B is {list(b.shape)}, the weight {list(weight.shape)}",
        )
    return (weight.float() + scale * (b.float() @ a.float())).to(weight.dtype)
