"""Checkpoints that are not converted: not whole, of another model, or none at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conversions import refused

pytest_plugins = ["conversions"]
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def without(path: str) -> Callable[[Path], object]:
    return lambda step: (step / path).unlink()


def truncated(step: Path) -> None:
    path = step / "policy" / "weights" / "model" / "__0_0.distcp"
    path.write_bytes(path.read_bytes()[:-1000])


def no_pickle(step: Path) -> None:
    (step / "policy" / "weights" / "model" / ".metadata").write_bytes(b"\x80\x04nothing")


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (without("training_info.json"), "no training_info.json"),
        (without("policy/weights/model/__0_0.distcp"), "__0_0.distcp is not there"),
        (truncated, "__0_0.distcp is truncated"),
        (no_pickle, "no metadata of torch"),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_refused(
    tmp_path: Path, base: Path, whole: Path, harm: Callable[[Path], object], why: str
) -> None:
    harm(whole)
    problem = refused("nemo-rl", whole, tmp_path / "hf", "--base", str(base))
    assert problem.what == "the checkpoint is not whole"
    assert why in problem.why


def test_an_unfinished_checkpoint_is_refused(tmp_path: Path, base: Path, whole: Path) -> None:
    unfinished = whole.rename(tmp_path / "tmp_step_20")
    problem = refused("nemo-rl", unfinished, tmp_path / "hf", "--base", str(base))
    assert "tmp_" in problem.why


def test_a_checkpoint_beyond_the_tracker_is_refused(
    tmp_path: Path, base: Path, megatron_checkpoint: Path
) -> None:
    (megatron_checkpoint.parent / "latest_ckpt_global_step.txt").write_text("5")
    problem = refused("skyrl", megatron_checkpoint, tmp_path / "hf", "--base", str(base))
    assert "says 5" in problem.why


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"intermediate_size": 130}, "mlp.gate_proj.weight is [128, 64], not [130, 64]"),
        ({"num_hidden_layers": 3, "mlp_layer_types": ["dense", "sparse", "sparse"]}, "none of"),
        ({"num_experts": 16}, "experts.8.gate_proj.weight is missing"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_refused(
    tmp_path: Path, base: Path, whole: Path, change: dict[str, Any], why: str
) -> None:
    other = tmp_path / "other"
    shutil.copytree(base, other)
    config = json.loads((other / "config.json").read_text())
    config["layer_types"] = config["layer_types"][: change.get("num_hidden_layers", 4)]
    (other / "config.json").write_text(json.dumps({**config, **change}))
    problem = refused("nemo-rl", whole, tmp_path / "hf", "--base", str(other))
    assert "another architecture" in problem.what
    assert why in problem.why


def test_a_base_that_is_no_beam_is_refused(tmp_path: Path, whole: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert (
        "no Hugging Face" in refused("nemo-rl", whole, tmp_path / "hf", "--base", str(other)).what
    )
    (other / "config.json").write_text('{"model_type": "llama"}')
    problem = refused("nemo-rl", whole, tmp_path / "hf", "--base", str(other))
    assert "another architecture than Beam" in problem.what
    assert "--base" in refused("nemo-rl", whole, tmp_path / "hf").do


def test_no_checkpoint_and_none_with_weights_are_refused(tmp_path: Path) -> None:
    assert "no such" in refused("miles", tmp_path / "iter_0000001", tmp_path / "hf").what
    (tmp_path / "iter_0000001").mkdir()
    assert "no weights" in refused("miles", tmp_path / "iter_0000001", tmp_path / "hf").what
