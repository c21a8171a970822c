"""No literal secret in a script: it would be in dry-runs, logs and ``scontrol write batch_script``.

The job inherits the submitting shell's environment, so a secret is exported there and never typed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from beam_slurm.errors import BeamSlurmError

_NAMES = r"(?:api|secret|private|access|wandb)[_-]?key|(?:auth|access|hf|hub|api|bearer)[_-]?token"
_NAME = re.compile(rf"(?:^|[^a-z])(?:{_NAMES}|secret|passw(?:or)?d)$", re.I)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*_TOKEN$")  # GITHUB_TOKEN; eos_token is none
# name=value, "name": value and --name value, anywhere in a word; a value ends where quotes do.
# Names have a longest length, or a long line of letters would take for ever.
_PAIRS = re.compile(
    r"""(?:--(?P<option>[\w.-]{1,80})(?:=|\s+)|(?P<name>[A-Za-z_][\w.-]{0,80})["']?\s*[=:]\s*)"""
    r"""["']?(?P<value>[^\s,;"'{}\[\]]+)"""
)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{20,}"
    r"|hooks\.slack\.com/[\w/]{20,})\b"
)
_SHORTEST = 12  # a shorter value of a secret variable may well stand elsewhere by chance
_LONGEST = 4_000  # characters of a line of text that is looked through
HIDDEN = "***"


@cache  # asked for every variable and every word of a script
def named(name: str) -> bool:
    """Whether a variable or setting of this name holds a secret."""
    return bool(_NAME.search(name) or _VARIABLE.search(name))


def refuse(
    where: str,
    words: Iterable[str],
    environment: Mapping[str, str] = os.environ,
    place: str | None = None,
    names: Collection[str] = (),
) -> None:
    """Raise if one of ``words`` (``key=value`` or bare) carries a secret; it is not repeated.

    Args:
        where: what the words are, for the error.
        words: words that would stand in the script.
        environment: variables whose values count as secrets if their names say so.
        place: file and line of the words, if they have one.
        names: more names that the site calls secret.
    """

    def called(name: str) -> bool:
        return named(name) or name in names

    values = _values(environment, names)
    previous = ""
    for word in words:
        pairs = list(_pairs(word))
        if previous.startswith("--") and "=" not in previous:
            pairs.append((previous.lstrip("-"), word))
        literal = [pair for pair in pairs if not pair[1].startswith(("$", "???"))]
        name = next((name for name, value in literal if value and called(name)), "")
        if name or _SHAPES.search(word) or any(secret in word for secret in values):
            raise BeamSlurmError(
                f"{name or (pairs[0][0] if pairs else 'a word')} in {where} is a secret",
                where=place,
                why="the script would show it to everybody who can read a log or a dry run",
                remedy="export it in your shell (WANDB_API_KEY, HF_TOKEN): the job inherits it",
            )
        previous = word


def masked(
    text: str, environment: Mapping[str, str] = os.environ, names: Collection[str] = ()
) -> tuple[str, int]:
    """Text that was not written for us, with what ``refuse`` would find in it as ``***``.

    It is a person's code, and looks like a secret sooner than it is one: ``api_key = load()`` is
    hidden, too. A line that is too long to look through is hidden as a whole.

    Args:
        text: lines of a diff, say.
        environment: variables whose values count as secrets if their names say so.
        names: more names that are secret.

    Returns:
        the text, and how many places of it are hidden.
    """
    count = 0
    for value in sorted(_values(environment, names), key=len, reverse=True):
        count += text.count(value)
        text = text.replace(value, HIDDEN)
    text, shapes = _SHAPES.subn(HIDDEN, text)
    lines = [_masked_line(line, names) for line in text.split("\n")]
    return "\n".join(line for line, _ in lines), count + shapes + sum(found for _, found in lines)


def _masked_line(line: str, names: Collection[str]) -> tuple[str, int]:
    if len(line) > _LONGEST:
        return line[:1] + HIDDEN, 1
    parts, done, at = [], 0, 0
    while match := _PAIRS.search(line, at):
        name = match["option"] or match["name"]
        at = match.start("value")
        literal = not match["value"].startswith(("$", "???", HIDDEN))
        if literal and (named(name) or name in names):
            parts.append(line[done:at])
            done = at = match.end("value")
    return HIDDEN.join([*parts, line[done:]]), len(parts)


def _values(environment: Mapping[str, str], names: Collection[str]) -> set[str]:
    """Values of the variables that are secret, but for those too short to tell."""
    return {
        value
        for name, value in environment.items()
        if (named(name) or name in names) and len(value) >= _SHORTEST
    }


def _pairs(word: str) -> Iterator[tuple[str, str]]:
    """(name, value) of everything in a word that looks like one."""
    key, equals, value = word.partition("=")
    if equals:
        yield key, value
    start = 0
    while match := _PAIRS.search(word, start):
        yield match["option"] or match["name"], match["value"]
        start = match.start("value")  # --extra-args=--wandb-key x: a value may be a name itself


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
