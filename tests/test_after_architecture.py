"""The table of tensors is what transformers writes, for any Beam; a bad config is named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinymodels import TINY

from beam_slurm.after.architecture import Tensor, dtype, tensors
from beam_slurm.after.errors import Problem
from beam_slurm.plan.architecture import BEAM

Saved = Callable[[dict[str, Any]], tuple[dict[str, Any], dict[str, Tensor]]]


@pytest.fixture(scope="module")
def saved() -> Saved:
    """Has transformers save a Beam: what its config.json says, and the tensors in its files."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", minversion="5.24")
    from safetensors import safe_open

    def save(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        given = {key: value for key, value in values.items() if key not in ("model_type", "dtype")}
        model = transformers.BeamForCausalLM._from_config(
            transformers.BeamConfig(**given), dtype=getattr(torch, values["dtype"])
        )
        with TemporaryDirectory() as name:
            model.save_pretrained(name, max_shard_size="3KB")
            found = {}
            for path in Path(name).glob("*.safetensors"):
                with safe_open(path, "pt") as file:
                    for tensor in file.keys():  # noqa: SIM118  # it is no dict
                        kept = file.get_slice(tensor)
                        found[tensor] = Tensor(tuple(kept.get_shape()), kept.get_dtype())
            return json.loads((Path(name) / "config.json").read_text()), found

    return save


@st.composite
def beams(draw: st.DrawFn) -> dict[str, Any]:
    """Tiny Beams of all kinds: layers, groups, biases, tied embeddings, dtypes."""

    def some(most: int) -> int:
        return draw(st.integers(1, most))

    layers, groups, key_values = some(4), some(2), some(3)
    attention, mlp = ["full_attention", "sliding_attention"], ["dense", "sparse"]
    experts = groups * draw(st.integers(2, 3))
    kinds = st.lists(st.sampled_from(mlp), min_size=layers, max_size=layers)
    return {
        "dtype": draw(st.sampled_from(["bfloat16", "float32", "float16"])),
        "vocab_size": some(9),
        "hidden_size": some(9),
        "intermediate_size": some(9),
        "num_hidden_layers": layers,
        "num_attention_heads": key_values * some(3),
        "num_key_value_heads": key_values,
        "head_dim": 2 * some(3),
        "num_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, experts // groups)),
        "n_group": groups,
        "topk_group": some(groups),
        "moe_intermediate_size": some(5),
        "attention_bias": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
        "mlp_layer_types": draw(st.none() | kinds),
        "layer_types": draw(st.lists(st.sampled_from(attention), min_size=layers, max_size=layers)),
    }


@settings(max_examples=60, deadline=None, derandomize=True)
@given(values=beams())
def test_the_table_is_what_transformers_writes(saved: Saved, values: dict[str, Any]) -> None:
    config, found = saved(values)
    assert config["dtype"] == values["dtype"]
    assert tensors(config) == found


@pytest.mark.parametrize("layers", [1, 2, 3, 5, 52])
def test_what_a_config_leaves_out_is_what_transformers_takes(layers: int) -> None:
    transformers = pytest.importorskip("transformers", minversion="5.24")
    named = {"model_type": "beam", "dtype": "bfloat16", "num_hidden_layers": layers}
    assert tensors(named) == tensors(transformers.BeamConfig(**named).to_dict())


def test_the_real_model_has_its_parameters() -> None:
    found = tensors({"model_type": "beam", "dtype": "bfloat16"})
    buffers = [name for name in found if name.endswith("e_score_correction_bias")]
    count = sum(math.prod(tensor.shape) for tensor in found.values())
    assert count - 256 * len(buffers) == 501_267_599_808 == BEAM.parameters.total
    assert len(buffers) == 49
    assert len(found) == 3 + 52 * 12 + 3 * 3 + 49 * (2 + 3 * 256)
    wide = {name for name, tensor in found.items() if tensor.dtype == "F32"}
    assert len(wide) == 2 * 49
    assert {tensor.dtype for tensor in found.values()} == {"F32", "BF16"}


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_dtype_is_read_under_either_name(key: str) -> None:
    config = {name: value for name, value in TINY.items() if name != "dtype"}
    assert dtype({**config, key: "float32"}) == "F32"
    assert {tensor.dtype for tensor in tensors({**config, key: "float32"}).values()} == {"F32"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "qwen3_moe"}, 'model_type is "qwen3_moe", not beam'),
        ({"model_type": None}, "model_type is null, not beam"),
        ({"architectures": ["FSDPBeamForCausalLM"]}, 'architectures is ["FSDPBeamForCausalLM"]'),
        ({"architectures": ["BeamModel", "BeamForCausalLM"]}, 'architectures is ["BeamModel", '),
        ({"architectures": "BeamForCausalLM"}, 'architectures is "BeamForCausalLM", not'),
        ({"architectures": []}, "architectures is [], not BeamForCausalLM"),
        ({"dtype": None}, "dtype is null, not one of bfloat16, float16, float32"),
        ({"dtype": "float8_e4m3fn"}, 'dtype is "float8_e4m3fn"'),
        ({"dtype": ["bfloat16"]}, 'dtype is ["bfloat16"]'),
        ({"hidden_size": "8"}, 'hidden_size is "8", no positive number'),
        ({"hidden_size": None}, "hidden_size is null"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"num_experts": -1}, "num_experts is -1"),
        ({"head_dim": 2.0}, "head_dim is 2.0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is true"),
        ({"num_hidden_layers": 3}, "mlp_layer_types is not dense or sparse for each of 3 layers"),
        ({"mlp_layer_types": ["dense", "moe"]}, "mlp_layer_types is not dense or sparse"),
        ({"mlp_layer_types": "dense"}, "mlp_layer_types is not dense or sparse"),
        ({"attention_bias": "no"}, 'attention_bias is "no", not true or false'),
        ({"tie_word_embeddings": None}, "tie_word_embeddings is null"),
        (
            {"quantization_config": {"quant_method": "mxfp8"}},
            'quantised: quantization_config is of "',
        ),
    ],
)
def test_a_config_that_is_none_is_named(change: dict[str, Any], said: str) -> None:
    tensors(TINY)  # so it is the change
    with pytest.raises(Problem) as caught:
        tensors({**TINY, **change})
    assert said in caught.value.what
    assert caught.value.where == "config.json"
