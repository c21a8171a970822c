"""Megatron checkpoints to Hugging Face folders and back, by Megatron Bridge's AutoBridge.

One process on the head's CPUs, as NeMo RL's own converter does it: the whole model lies in host
memory (1 TB for Beam). How much more it takes is not known for Beam; an import of 0.6 TB by the
same calls is reported to have taken 1.25 times that. The Megatron model is always built from the
base's configuration and never from what a trainer saved beside its weights: of the three
frameworks only NeMo RL saves that in a form which Bridge reads. Split over however many GPUs a
checkpoint was, Megatron's distributed format gives back whole tensors.

Of Bridge only what the published wheel has is called, so that images of any age will do.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beam_slurm.after import dcp, lora, shards
from beam_slurm.after.architecture import Tensor
from beam_slurm.after.dcp import Contents
from beam_slurm.after.errors import Problem

EMBEDDING = "embedding.word_embeddings.weight"
# A vocabulary padded for tensor parallelism adds, and a router's bias may be kept elsewhere.
SLACK = 0.01

# What Bridge's LoRA takes of the settings that it wrote itself.
SETTINGS = ("target_modules", "exclude_modules", "dim", "alpha", "dropout", "dropout_position")


def check(contents: Contents, wanted: Mapping[str, Tensor], where: Path) -> None:
    """Refuse a checkpoint of another architecture, as far as the names and shapes in it tell.

    Raises:
        Problem: its embedding or its number of parameters does not fit.
    """
    model = {
        name: tensor
        for name, tensor in contents.tensors.items()
        if "optimizer" not in name and not name.endswith("_extra_state")
    }
    embedding = next((model[name] for name in model if name.endswith(EMBEDDING)), None)
    ours = wanted["model.embed_tokens.weight"].shape
    have, want = _elements(model), _elements(wanted)
    why = ""
    if embedding is None:
        why = f"it has no {EMBEDDING}"
    elif embedding.shape[1:] != ours[1:] or embedding.shape[0] < ours[0]:
        why = f"its embedding is {list(embedding.shape)}, the base's {list(ours)}"
    elif abs(have - want) > SLACK * want:
        why = f"it has {have:,} parameters, the base {want:,}"
    if why:
        raise Problem(
            "the checkpoint is of another architecture than the base",
            where=str(where),
            why=why,
            do="give the model that was trained with --base",
        )


def auto_bridge() -> Any:
    """Megatron Bridge's AutoBridge.

    Raises:
        Problem: it is not installed here.
    """
    try:
        from megatron.bridge import AutoBridge
    except ImportError as error:
        raise Problem(
            "Megatron Bridge is not installed here: megatron.bridge cannot be imported",
            why=str(error),
            do="convert in the framework's training image: those of NeMo RL (built with mcore), "
            "SkyRL (megatron) and Miles bring it; it cannot be installed without CUDA",
        ) from None
    return AutoBridge


def memory(wanted: Mapping[str, Tensor]) -> int:
    """Bytes of host memory below which no conversion can end: the whole model's."""
    return sum(map(shards.bytes_of, wanted.values()))


def check_memory(wanted: Mapping[str, Tensor]) -> None:
    """Refuse a machine whose free memory is less than the model, which lies in it once.

    Raises:
        Problem: with both numbers.
    """
    need = memory(wanted)
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    have = int(found[1]) * 1024 if found else need
    if have < need:
        raise Problem(
            "this machine has not enough memory for the conversion",
            why=f"the model is {need / 1e9:,.0f} GB, and {have / 1e9:,.0f} GB are free",
            do="convert on a node with more host memory",
        )


def to_hugging_face(checkpoint: Path, base: Path, part: Path) -> None:
    """Export the weights in ``checkpoint`` to ``part``, in files as those of ``base``."""
    from megatron.bridge.training.checkpointing import _load_model_weights_from_checkpoint
    from megatron.bridge.training.model_load_save import temporary_distributed_context

    bridge = _bridge(base)
    with temporary_distributed_context(backend="gloo"):
        provider = bridge.to_megatron_provider(load_weights=False)
        provider.perform_initialization = False  # All of them are loaded.
        provider.finalize()
        model = provider.provide_distributed_model(wrap_with_ddp=False, use_cpu_initialization=True)
        print(f"loading {checkpoint}", flush=True)
        _load_model_weights_from_checkpoint(str(checkpoint), model)
        print("exporting", flush=True)
        bridge.save_hf_pretrained(model, str(part), show_progress=False)


def to_megatron(folder: Path, part: Path) -> None:
    """Import a Hugging Face folder as the checkpoint ``part``/iter_0000000."""
    from megatron.bridge.training.model_load_save import temporary_distributed_context

    bridge = _bridge(folder)
    with temporary_distributed_context(backend="gloo"):
        print(f"loading {folder}", flush=True)
        model = bridge.to_megatron_model(wrap_with_ddp=False, use_cpu_initialization=True)
        print("saving", flush=True)
        # What is written is given up tensor by tensor: else there would be two models in memory.
        bridge.save_megatron_model(
            model, str(part), hf_tokenizer_path=str(folder), low_memory_save=True
        )


def adapter_to_hugging_face(checkpoint: Path, base: Path, part: Path, merge: bool) -> None:
    """Export a LoRA adapter that NeMo RL saved: alone as PEFT has it, or merged into ``base``.

    Raises:
        Problem: its settings cannot be read, or it holds no adapter.
    """
    from megatron.bridge.peft.lora import LoRA
    from megatron.bridge.training.model_load_save import temporary_distributed_context
    from megatron.core import dist_checkpointing

    settings = _adapter_settings(checkpoint)
    adapt = LoRA(**settings)
    bridge = _bridge(base)
    with temporary_distributed_context(backend="gloo"):
        # The base's weights are read only to be merged: an adapter is exported without them.
        provider = bridge.to_megatron_provider(load_weights=merge)
        provider.perform_initialization = False
        provider.finalize()
        provider.register_pre_wrap_hook(lambda chunks: adapt(chunks, training=False))
        model = provider.provide_distributed_model(wrap_with_ddp=False, use_cpu_initialization=True)
        wanted = {
            name: tensor
            for name, tensor in model[0].sharded_state_dict().items()
            if ".adapter." in name and "_extra_state" not in name
        }
        print(f"loading {checkpoint}", flush=True)
        loaded = dist_checkpointing.load({"model": wanted}, str(checkpoint))
        model[0].load_state_dict(loaded["model"], strict=False)
        if merge:
            bridge.save_hf_pretrained(model, str(part), show_progress=False)
            return
        exported = bridge.export_adapter_weights(model, show_progress=False)
        tensors = {each.param_name: each.weight.contiguous().clone() for each in exported}
    _write_adapter(tensors, settings, base, part)


def prove(part: Path, wanted: Mapping[str, Tensor]) -> list[str]:
    """What is missing of a Megatron checkpoint that was written to ``part``."""
    folders = sorted(part.glob("iter_*"))
    if not folders:
        return ["Megatron Bridge has written no iter_*"]
    contents = dcp.read(folders[-1])
    check(contents, wanted, folders[-1])
    return dcp.damage(folders[-1], contents)


def _bridge(model: Path) -> Any:
    """The bridge for the model in a Hugging Face folder; its weights are read when asked for."""
    try:
        return auto_bridge().from_hf_pretrained(str(model))
    except ValueError as error:
        raise Problem(
            "this Megatron Bridge cannot convert this model",
            where=str(model),
            why=str(error).strip().splitlines()[0],
            do="convert in an image that was made for Beam",
        ) from None


def _adapter_settings(checkpoint: Path) -> dict[str, Any]:
    import yaml

    path = checkpoint / "run_config.yaml"
    try:
        found = yaml.safe_load(path.read_text())["peft"]
        return {name: found[name] for name in SETTINGS if name in found}
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise Problem(
            "the adapter's settings cannot be read", where=str(path), why=str(error)
        ) from None


def _write_adapter(
    tensors: dict[str, Any], settings: dict[str, Any], base: Path, part: Path
) -> None:
    """An adapter as PEFT has it."""
    ends = re.compile(r"\.lora_[AB](\.default)?\.weight$")
    modules = sorted({ends.sub("", name).rsplit(".", 1)[-1] for name in tensors})
    if not modules:
        raise Problem("Megatron Bridge has exported no adapter", where=str(part))
    shards.write_file(
        part / lora.WEIGHTS, {lora.PREFIX + name: tensor for name, tensor in tensors.items()}
    )
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "bias": "none",
        "r": settings.get("dim", 32),
        "lora_alpha": settings.get("alpha", 32),
        "lora_dropout": settings.get("dropout", 0.0),
        "target_modules": modules,
    }
    (part / lora.CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _elements(tensors: Mapping[str, Tensor]) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors.values())
