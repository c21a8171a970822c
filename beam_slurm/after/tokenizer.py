"""The model's own tokenizer: questions to token ids, responses back to text, what ends a response.

Text is turned into tokens here and not by an engine, so that every engine gets the same prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beam_slurm.after import headers
from beam_slurm.after.errors import Problem


class Tokenizer:
    """The tokenizer in a Hugging Face folder.

    Attributes:
        stop: token ids that end a response: those of generation_config.json, of config.json and
            the tokenizer's own. A chat model often ends a turn with another token than a text.

    Raises:
        Problem: the folder has no tokenizer that transformers can load, or a file of settings is
            damaged.
    """

    def __init__(self, model: Path) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
        except Exception as error:  # the tokenizers' own are of no narrower class
            raise Problem(
                "the tokenizer cannot be loaded",
                where=str(model),
                why=str(error).strip().splitlines()[0],
                do="give the folder that a conversion has made: it holds the tokenizer too",
            ) from None
        stop = {self._tokenizer.eos_token_id}
        for name in ("config.json", "generation_config.json"):
            told = _told(model / name, "eos_token_id")
            stop.update(told if isinstance(told, list) else [told])
        self.stop = tuple(sorted(stop - {None}))

    def prompt(self, question: str) -> tuple[int, ...]:
        """Token ids of a question, by the chat template if the tokenizer has one."""
        if not self._tokenizer.chat_template:
            return tuple(self._tokenizer.encode(question))
        asked = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        # The template has written every special token that belongs there.
        return tuple(self._tokenizer.encode(asked, add_special_tokens=False))

    def text(self, tokens: Sequence[int]) -> str:
        """What the model said, without special tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


def _told(path: Path, key: str) -> Any:
    """A value in a JSON file; None if either is not there."""
    try:
        return headers.parse(path.read_bytes()).get(key)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Problem(
            "the model's settings cannot be read",
            where=str(path),
            why=str(error),
            do="convert or copy the model again",
        ) from None
