"""The demo's checkpoint to a Hugging Face folder with the same logits, and back.

The demo (examples/grpo_digits) has no model that it started from: what a base would bring,
configuration and tokenizer, is made here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from beam_slurm.after.errors import Problem

WEIGHTS = "model.pt"
END = "<end>"
VOCABULARY = {**{str(digit): digit for digit in range(9)}, "=": 9, END: 10}

# As examples/grpo_digits/model.py builds its policy.
CONFIG: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "eos_token_id": VOCABULARY[END],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "num_experts": 8,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 32,
    "layer_types": ["full_attention"] * 4,
    "max_position_embeddings": 8,
}


def to_hugging_face(checkpoint: Path, part: Path) -> None:
    """Write the policy of a demo checkpoint into ``part``, with a tokenizer for its digits.

    Raises:
        Problem: the checkpoint is of another model, or transformers has no Beam.
    """
    model = _beam()
    path = checkpoint / WEIGHTS
    import torch

    try:
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except RuntimeError as error:
        raise Problem(
            "the checkpoint is of another architecture than the demo's",
            where=str(path),
            why=" ".join(str(error).split())[:300],
            do="give a checkpoint of examples/grpo_digits, or its own --framework",
        ) from None
    model.save_pretrained(part)
    tokenizer().save_pretrained(part)


def to_demo(folder: Path, part: Path) -> None:
    """Write the model in a Hugging Face folder into ``part``, as the demo's learner loads it.

    Raises:
        Problem: it is not the demo's model.
    """
    import torch

    model = _beam()
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    loaded = type(model).from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    if {name: tensor.shape for name, tensor in loaded.state_dict().items()} != wanted:
        _refuse(folder)
    torch.save(loaded.state_dict(), part / WEIGHTS)


def check(embedding: tuple[int, ...], folder: Path) -> None:
    """Refuse a model of another size before it is loaded: the real one has 1 TB.

    Raises:
        Problem: its embedding is not the demo's.
    """
    if embedding != (CONFIG["vocab_size"], CONFIG["hidden_size"]):
        _refuse(folder)


def _refuse(folder: Path) -> NoReturn:
    raise Problem(
        "the model is of another architecture than the demo's",
        where=str(folder),
        do="give a folder that was converted from a checkpoint of the demo",
    )


def tokenizer() -> Any:
    """One token a digit: ``2012=`` is [2, 0, 1, 2, 9]; of other words around it, it knows none.

    What it says is an answer in the words that ``answers`` looks for: [5] is ``Answer: 5``.
    """
    from tokenizers import Regex, Tokenizer
    from tokenizers.decoders import Fuse, Sequence
    from tokenizers.decoders import Replace as Put
    from tokenizers.models import WordLevel
    from tokenizers.normalizers import Replace
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel(VOCABULARY, unk_token="<unknown>"))  # noqa: S106
    words.pre_tokenizer = Split(Regex("."), "isolated")
    words.normalizer = Replace(Regex("[^0-9=]"), "")
    words.decoder = Sequence([Fuse(), Put(Regex("^"), "Answer: ")])
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        eos_token=END,
        pad_token=END,
        model_max_length=CONFIG["max_position_embeddings"],
        model_input_names=["input_ids", "attention_mask"],
    )


def _beam() -> Any:
    """The demo's model, its weights not yet anything."""
    try:
        from transformers.models.beam.configuration_beam import BeamConfig
        from transformers.models.beam.modeling_beam import BeamForCausalLM
    except ImportError as error:
        raise Problem(
            "the demo's checkpoint needs transformers with the Beam architecture",
            why=str(error),
            do="install transformers 5.24 or newer, and torch",
        ) from None
    return BeamForCausalLM(BeamConfig(**CONFIG))
