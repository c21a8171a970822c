"""Every tensor of a Hugging Face checkpoint of Beam, from its config.json alone.

As transformers 5.24 writes them (BeamForCausalLM.save_pretrained). In memory the experts of a layer
are two tensors, on disk each projection of each expert is one. No torch is needed, so a checkpoint
of 1 TB is compared with this before a GPU is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from beam_slurm.after.errors import Problem

MODEL_TYPE = "beam"
MODEL_CLASS = "BeamForCausalLM"

# The router is computed in float32 whatever the model's dtype, and transformers saves it so.
# Whoever casts the whole model before saving rounds these two; they load all the same.
ROUTER = (".mlp.gate.weight", ".mlp.gate.e_score_correction_bias")
ROUTER_DTYPE = "F32"

# As config.json and as safetensors spell them.
DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}

# BeamConfig's own: what a config.json that leaves them out means.
DEFAULTS = {
    "vocab_size": 151936,
    "hidden_size": 5120,
    "intermediate_size": 20480,
    "num_hidden_layers": 52,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts": 256,
    "moe_intermediate_size": 2560,
    "attention_bias": False,
    "tie_word_embeddings": False,
}
DENSE_LAYERS = 3  # the first ones, where mlp_layer_types does not say otherwise


@dataclass(frozen=True)
class Tensor:
    """A tensor as a safetensors header states it.

    Attributes:
        shape: as torch has it: a projection is [outputs, inputs].
        dtype: as safetensors spells it, BF16 for bfloat16.
    """

    shape: tuple[int, ...]
    dtype: str


def tensors(config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Name to tensor, layer by layer.

    Args:
        config: the object in config.json.

    Raises:
        Problem: it is another architecture's or of quantised weights, or a value that shapes depend
            on is none.
    """
    _check_architecture(config)
    _refuse_quantised(config)
    ordinary = dtype(config)
    return {
        name: Tensor(shape, ROUTER_DTYPE if name.endswith(ROUTER) else ordinary)
        for name, shape in _shapes(config)
    }


def dtype(config: Mapping[str, Any]) -> str:
    """What all tensors but the router's are of, as safetensors spells it.

    Raises:
        Problem: the configuration does not say, or says something that Beam is not saved in.
    """
    stated = config.get("dtype") or config.get("torch_dtype")  # the latter until transformers 4.55
    if not isinstance(stated, str) or stated not in DTYPES:
        raise Problem(
            f"dtype is {json.dumps(stated)}, not one of {', '.join(DTYPES)}",
            where="config.json",
            do="state the dtype in which the weights are saved",
        )
    return DTYPES[stated]


def _check_architecture(config: Mapping[str, Any]) -> None:
    classes = config.get("architectures")
    remedy = ""
    if config.get("model_type") != MODEL_TYPE:
        said = f"model_type is {json.dumps(config.get('model_type'))}, not {MODEL_TYPE}"
    # Wrapped models have been saved under their wrapper's name (FSDPBeam...), and then no engine
    # knows them.
    elif classes is not None and classes != [MODEL_CLASS]:
        said = f"architectures is {json.dumps(classes)}, not {MODEL_CLASS}"
        remedy = f'if it is a Beam all the same, write ["{MODEL_CLASS}"] there'
    else:
        return
    raise Problem(
        f"the model is of another architecture than Beam: {said}", where="config.json", do=remedy
    )


def _refuse_quantised(config: Mapping[str, Any]) -> None:
    """FP8 has tensors of its own, and what is made with such a base would be called FP8 too."""
    quantised = config.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
        raise Problem(
            f"the weights are quantised: quantization_config is of {json.dumps(method)}",
            where="config.json",
            do="give the model in BF16",
        )


def _shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden = _size(config, "hidden_size")
    vocabulary = _size(config, "vocab_size")
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for number, kind in enumerate(_mlp_kinds(config)):
        layer = f"model.layers.{number}"
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield from _attention(f"{layer}.self_attn", config, hidden)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)
        yield f"{layer}.pre_feedforward_layernorm.weight", (hidden,)
        if kind == "sparse":
            yield from _experts(f"{layer}.mlp", config, hidden)
        else:
            yield from _mlp(f"{layer}.mlp", hidden, _size(config, "intermediate_size"))
        yield f"{layer}.post_feedforward_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not _flag(config, "tie_word_embeddings"):
        yield "lm_head.weight", (vocabulary, hidden)


def _attention(
    name: str, config: Mapping[str, Any], hidden: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    heads, head = _size(config, "num_attention_heads"), _size(config, "head_dim")
    query, key = heads * head, _size(config, "num_key_value_heads") * head
    projections = {
        "q_proj": (query, hidden),
        "k_proj": (key, hidden),
        "v_proj": (key, hidden),
        "o_proj": (hidden, query),
    }
    biased = _flag(config, "attention_bias")
    for projection, shape in projections.items():
        yield f"{name}.{projection}.weight", shape
        if biased:
            yield f"{name}.{projection}.bias", shape[:1]
    yield f"{name}.q_norm.weight", (head,)
    yield f"{name}.k_norm.weight", (head,)
    yield f"{name}.gate_proj.weight", (query, hidden)
    yield f"{name}.gate_bias", (heads,)


def _experts(
    name: str, config: Mapping[str, Any], hidden: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    experts, width = _size(config, "num_experts"), _size(config, "moe_intermediate_size")
    yield f"{name}.gate.weight", (experts, hidden)
    yield f"{name}.gate.e_score_correction_bias", (experts,)
    for number in range(experts):
        yield from _mlp(f"{name}.experts.{number}", hidden, width)


def _mlp(name: str, hidden: int, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.gate_proj.weight", (width, hidden)
    yield f"{name}.up_proj.weight", (width, hidden)
    yield f"{name}.down_proj.weight", (hidden, width)


def _mlp_kinds(config: Mapping[str, Any]) -> list[str]:
    """dense or sparse, one a layer."""
    layers = _size(config, "num_hidden_layers")
    kinds = config.get("mlp_layer_types")
    if kinds is None:
        return ["dense"] * min(DENSE_LAYERS, layers) + ["sparse"] * (layers - DENSE_LAYERS)
    if (
        not isinstance(kinds, list)
        or len(kinds) != layers
        or not all(kind in ("dense", "sparse") for kind in kinds)
    ):
        raise Problem(
            f"mlp_layer_types is not dense or sparse for each of {layers} layers",
            where="config.json",
        )
    return kinds


def _size(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key, DEFAULTS[key])
    if type(value) is not int or value < 1:
        raise Problem(f"{key} is {json.dumps(value)}, no positive number", where="config.json")
    return value


def _flag(config: Mapping[str, Any], key: str) -> bool:
    value = config.get(key, DEFAULTS[key])
    if not isinstance(value, bool):
        raise Problem(f"{key} is {json.dumps(value)}, not true or false", where="config.json")
    return value
