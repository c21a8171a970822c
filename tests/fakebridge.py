"""A stand-in for Megatron Bridge, which cannot be installed without CUDA: the order of its calls.

It moves files instead of tensors: what it exports is the Hugging Face folder ``exports``. That our
calls fit the real one is another test's, by ``bridge_signatures``.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest


class Weight(NamedTuple):
    param_name: str
    weight: Any


class Bridge:
    """What it was asked for is in ``done``."""

    def __init__(self, exports: Path, save: Callable[[Path], None]) -> None:
        self.exports = exports
        self.save = save
        self.done: list[str] = []
        self.inside = False

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        modules = {
            "megatron": {},
            "megatron.bridge": {"AutoBridge": self},
            "megatron.bridge.peft": {},
            "megatron.bridge.peft.lora": {"LoRA": self.lora},
            "megatron.bridge.training": {},
            "megatron.bridge.training.checkpointing": {
                "_load_model_weights_from_checkpoint": self.load
            },
            "megatron.bridge.training.model_load_save": {
                "temporary_distributed_context": self.context
            },
            "megatron.core": {"dist_checkpointing": SimpleNamespace(load=self.load_adapter)},
        }
        for name, contents in modules.items():
            module = ModuleType(name)
            module.__path__ = []
            for each, value in contents.items():
                setattr(module, each, value)
            monkeypatch.setitem(sys.modules, name, module)

    @contextmanager
    def context(self, backend: str) -> Iterator[None]:
        assert backend == "gloo"
        self.inside = True
        yield
        self.inside = False

    def from_hf_pretrained(self, path: str) -> Bridge:
        self.done.append(f"bridge {Path(path).name}")
        return self

    def to_megatron_provider(self, load_weights: bool) -> Bridge:
        self.done.append("with weights" if load_weights else "without weights")
        return self

    def finalize(self) -> None:
        assert self.perform_initialization is False  # type: ignore[attr-defined]

    def register_pre_wrap_hook(self, hook: Callable[[list[Any]], list[Any]]) -> None:
        self.done.append(f"hook {hook([])}")

    def provide_distributed_model(self, wrap_with_ddp: bool, use_cpu_initialization: bool) -> Any:
        assert self.inside
        assert (wrap_with_ddp, use_cpu_initialization) == (False, True)
        return [self]

    to_megatron_model = provide_distributed_model

    def load(self, path: str, model: list[Any]) -> None:
        assert model == [self]
        self.done.append(f"load {Path(path).name}")

    def lora(self, **settings: Any) -> Callable[..., Any]:
        self.done.append(f"lora {settings}")
        return lambda chunks, training: f"training {training}"

    def sharded_state_dict(self) -> dict[str, Any]:
        return {"a.weight": 1, "a.adapter.linear_in.weight": 2, "a.adapter._extra_state": 3}

    def load_adapter(self, state: dict[str, Any], path: str) -> dict[str, Any]:
        assert state == {"model": {"a.adapter.linear_in.weight": 2}}
        self.done.append(f"load {Path(path).name}")
        return state

    def load_state_dict(self, state: dict[str, Any], strict: bool) -> None:
        assert list(state) == ["a.adapter.linear_in.weight"]
        assert not strict

    def save_hf_pretrained(self, model: list[Any], path: str, show_progress: bool) -> None:
        assert self.inside
        shutil.copytree(self.exports, path, dirs_exist_ok=True)

    def export_adapter_weights(self, model: list[Any], show_progress: bool) -> Iterator[Weight]:
        import torch

        for one in "AB":
            yield Weight(f"model.layers.0.mlp.up_proj.lora_{one}.weight", torch.ones(2, 2))

    def save_megatron_model(
        self, model: list[Any], path: str, hf_tokenizer_path: str, low_memory_save: bool
    ) -> None:
        assert low_memory_save
        self.save(Path(path) / "iter_0000000")
