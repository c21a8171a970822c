"""The policy: Beam's architecture, small enough for a CPU and with random weights."""

from typing import TYPE_CHECKING

import task
import torch

if TYPE_CHECKING:
    from transformers.models.beam.modeling_beam import BeamForCausalLM


def build_policy(seed: int, device: torch.device) -> "BeamForCausalLM":
    """A Beam of four layers and eight experts, about 240,000 parameters."""
    # Imported here because it takes seconds: actors pay them at once, the driver not at all.
    from transformers.models.beam.configuration_beam import BeamConfig
    from transformers.models.beam.modeling_beam import BeamForCausalLM

    config = BeamConfig(
        vocab_size=task.VOCABULARY_SIZE,
        eos_token_id=task.END,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=128,
        # As in the large model: dense layers first, then experts, chosen within groups of experts.
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
        num_experts=8,
        num_experts_per_tok=4,
        n_group=4,
        topk_group=2,
        moe_intermediate_size=32,
        # Full attention has no position encoding in Beam; a sum does not need one.
        layer_types=["full_attention"] * 4,
        max_position_embeddings=task.PROMPT_LENGTH + task.MAX_RESPONSE_LENGTH,
        attn_implementation="eager",  # At nine tokens it is the fastest.
    )
    torch.manual_seed(task.derive_seed(seed, "weights"))
    return BeamForCausalLM(config).to(device)


def choose_device() -> torch.device:
    """The GPU if torch can use one. That Ray has given one is not enough: it may be a stand-in."""
    # Tensors here are far too small to be worth a second thread, and hosts may share cores.
    torch.set_num_threads(1)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def response_logits(policy: "BeamForCausalLM", sequences: torch.Tensor) -> torch.Tensor:
    """Logits for each response token of ``sequences``: [batch, response length, vocabulary]."""
    logits: torch.Tensor = policy(input_ids=sequences[:, :-1], use_cache=False).logits
    return logits[:, task.PROMPT_LENGTH - 1 :]
