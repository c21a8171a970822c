"""The signatures of Megatron Bridge that ``after.megatron`` counts on, from published wheels.

The wheels cannot be installed without CUDA; they can be read. ``fixtures/megatron-bridge.json``
holds what `extract` found in each, with the wheel's hash.
"""

from __future__ import annotations

import ast
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).parent / "fixtures" / "megatron-bridge.json"

# Where each call of ours is defined: a function's name, or class.name; a dataclass is called by
# its fields. `sharded_state_dict` and `load_state_dict` are methods that the models inherit.
DEFINED = {
    "megatron_bridge": {
        "from_hf_pretrained": "models/conversion/auto_bridge.py:AutoBridge.from_hf_pretrained",
        "to_megatron_provider": "models/conversion/auto_bridge.py:AutoBridge.to_megatron_provider",
        "to_megatron_model": "models/conversion/auto_bridge.py:AutoBridge.to_megatron_model",
        "save_megatron_model": "models/conversion/auto_bridge.py:AutoBridge.save_megatron_model",
        "save_hf_pretrained": "models/conversion/auto_bridge.py:AutoBridge.save_hf_pretrained",
        "export_adapter_weights": (
            "models/conversion/auto_bridge.py:AutoBridge.export_adapter_weights"
        ),
        "finalize": "models/transformer_config.py:TransformerConfig.finalize",
        "provide_distributed_model": (
            "models/model_provider.py:ModelProviderMixin.provide_distributed_model"
        ),
        "register_pre_wrap_hook": (
            "models/model_provider.py:ModelProviderMixin.register_pre_wrap_hook"
        ),
        "temporary_distributed_context": (
            "training/model_load_save.py:temporary_distributed_context"
        ),
        "_load_model_weights_from_checkpoint": (
            "training/checkpointing.py:_load_model_weights_from_checkpoint"
        ),
        "LoRA": "peft/lora.py:LoRA",
        "HFWeightTuple": "models/conversion/model_bridge.py:HFWeightTuple",
        "adapt": "peft/base.py:PEFT.__call__",
    },
    "megatron_core": {"load": "dist_checkpointing/serialization.py:load"},
}


def extract(wheel: Path) -> dict[str, Any]:
    """Version, hash and signatures of one wheel."""
    name, version = wheel.name.split("-")[:2]
    package = name.replace("_", "/")
    signatures = {}
    with zipfile.ZipFile(wheel) as archive:
        for call, place in DEFINED[name].items():
            file, _, path = place.partition(":")
            tree = ast.parse(archive.read(f"{package}/{file}"))
            signatures[call] = _signature(_definition(tree, path.split(".")))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return {"version": version, "sha256": digest, "signatures": signatures}


def calls(source: str) -> dict[str, list[ast.Call]]:
    """The calls in ``source`` that DEFINED knows, by the last word of what is called."""
    known = {name for names in DEFINED.values() for name in names}
    found: dict[str, list[ast.Call]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            if name in known:
                found.setdefault(name, []).append(node)
    return found


def misfits(call: ast.Call, signature: dict[str, Any]) -> list[str]:
    """What of a call its signature does not take, and what it lacks."""
    positional, keywords = signature["positional"], signature["keywords"]
    given = [word.arg for word in call.keywords if word.arg]
    wrong = [
        f"no argument {name}"
        for name in given
        if name not in positional + keywords and not signature["any_keyword"]
    ]
    if len(call.args) > len(positional):
        wrong.append(f"only {len(positional)} in order")
    spread = any(word.arg is None for word in call.keywords)
    wrong += [
        f"{name} is missing"
        for name in signature["required"]
        if name not in positional[: len(call.args)] + given and not spread
    ]
    return wrong


def _definition(tree: ast.AST, path: list[str]) -> ast.ClassDef | ast.FunctionDef:
    for name in path:
        tree = next(
            node
            for node in ast.iter_child_nodes(tree)
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
        )
    assert isinstance(tree, ast.ClassDef | ast.FunctionDef)
    return tree


def _signature(node: ast.ClassDef | ast.FunctionDef) -> dict[str, Any]:
    if isinstance(node, ast.ClassDef):
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        names = {each.target.id: each.value for each in fields if isinstance(each.target, ast.Name)}
        return {
            "positional": list(names),
            "keywords": [],
            "required": [name for name, value in names.items() if value is None],
            "any_keyword": False,
        }
    arguments = node.args
    positional = [each.arg for each in arguments.posonlyargs + arguments.args]
    required = positional[: len(positional) - len(arguments.defaults)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    required += [each.arg for each, default in keywords if default is None]
    return {
        "positional": [name for name in positional if name not in ("self", "cls")],
        "keywords": [each.arg for each in arguments.kwonlyargs],
        "required": [name for name in required if name not in ("self", "cls")],
        "any_keyword": arguments.kwarg is not None,
    }


def published() -> dict[str, Any]:
    """What the fixture holds: wheel's name to its version, hash and signatures."""
    found: dict[str, Any] = json.loads(FIXTURE.read_text())
    return found
