"""No literal secret in a script: it would be in dry-runs, logs and ``scontrol write batch_script``.

The job inherits the submitting shell's environment, so a secret is exported there and never typed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beam_slurm.errors import BeamSlurmError

_NAMES = r"(?:api|secret|private|access|wandb)[_-]?key|(?:auth|access|hf|api|bearer)[_-]?token"
_NAME = re.compile(rf"(?:^|[^a-z])(?:{_NAMES}|secret|passw(?:or)?d)$", re.I)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{20,})\b"
)
_SHORTEST = 12  # a shorter value of a secret variable may well stand elsewhere by chance


def named(name: str) -> bool:
    """Whether a variable or setting of this name holds a secret."""
    return _NAME.search(name) is not None


def refuse(
    where: str,
    words: Iterable[str],
    environment: Mapping[str, str] = os.environ,
    place: str | None = None,
) -> None:
    """Raise if one of ``words`` (``key=value`` or bare) carries a secret; it is not repeated.

    Args:
        where: what the words are, for the error.
        words: words that would stand in the script.
        environment: variables whose values count as secrets if their names say so.
        place: file and line of the words, if they have one.
    """
    values = [v for k, v in environment.items() if named(k) and len(v) >= _SHORTEST]
    previous = ""
    for word in words:
        key, equals, value = word.partition("=")
        name = key if equals else previous.lstrip("-") if previous.startswith("--") else ""
        literal = value if equals else word
        by_name = named(name) and literal and not literal.startswith(("$", "???"))
        if by_name or _SHAPES.search(word) or any(secret in word for secret in values):
            raise BeamSlurmError(
                f"{name or 'a word'} in {where} is a secret",
                where=place,
                why="the script would show it to everybody who can read a log or a dry run",
                remedy="export it in your shell (WANDB_API_KEY, HF_TOKEN): the job inherits it",
            )
        previous = word


def words(value: Any, key: str = "") -> Iterator[str]:
    """What ``refuse`` looks at of a value from YAML: its strings, those of a mapping as key=value.

    A shell line counts with each of its words: ``export HF_TOKEN=...``.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from words(inner, str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from words(inner)
    elif isinstance(value, str):
        yield from (value.split() if not key else ())
        yield f"{key}={value}" if key else value
