"""Models that are small enough for a CPU, with random weights, as Hugging Face folders.

Their vocabulary holds whole answers, ``\\boxed{3}``, so that random weights are sometimes right.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ANSWERS = [f"\\boxed{{{digit}}}" for digit in (2, 3, 4)]
SUMS = [(1, 1), (1, 2), (2, 2), (4, 0), (0, 3), (2, 0)]
WORDS = ["<pad>", "<end>", "<unk>", "user:", "model:", "+", "?", *map(str, range(10)), *ANSWERS]
END = WORDS.index("<end>")
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }} {% endfor %}"
    "{% if add_generation_prompt %}model: {% endif %}"
)
CONTEXT = 64  # tokens
SHAPE: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "eos_token_id": END,
    "bos_token_id": None,
    "pad_token_id": 0,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,  # the smallest that vLLM's attention on a CPU has
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,  # so that weights, and not only the seed, decide what is likely
}

# The least that a Beam can be, as its config.json has it.
TINY: dict[str, Any] = {
    "model_type": "beam",
    "architectures": ["BeamForCausalLM"],
    "dtype": "bfloat16",
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 2,
    "num_experts": 4,
    "moe_intermediate_size": 3,
    "mlp_layer_types": ["dense", "sparse"],
}


def sums(path: Path) -> Path:
    """``SUMS`` as problems."""
    rows = [{"question": f"{a} + {b} ?", "answer": str(a + b)} for a, b in SUMS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tokenizer(folder: Path, template: str | None = TEMPLATE) -> None:
    """A tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<end>", unk_token="<unk>", pad_token="<pad>"
    )
    fast.chat_template = template
    fast.save_pretrained(folder)


def beam(folder: Path, seed: int = 0) -> Path:
    """A Beam with dense and sparse layers and its tokenizer, in ``folder``."""
    import torch
    from transformers.models.beam.configuration_beam import BeamConfig
    from transformers.models.beam.modeling_beam import BeamForCausalLM

    torch.manual_seed(seed)
    config = BeamConfig(
        **SHAPE,
        mlp_layer_types=["dense", "sparse"],
        num_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=32,
    )
    BeamForCausalLM(config).save_pretrained(folder)
    tokenizer(folder)
    return folder


def qwen3(folder: Path, seed: int = 0) -> Path:
    """A Qwen3 and its tokenizer, in ``folder``: vLLM generates with it on a CPU too."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    Qwen3ForCausalLM(Qwen3Config(**SHAPE)).save_pretrained(folder)
    tokenizer(folder)
    return folder
