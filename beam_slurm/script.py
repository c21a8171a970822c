"""Scripts from templates: the only room with Jinja.

Values are shell-quoted by default; raw text is the marked exception, made by ``Raw`` and by the
filters below, and checked by each of them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from beam_slurm import __version__
from beam_slurm.errors import BeamSlurmError
from beam_slurm.schema import Site

TEMPLATES = Path(str(files("beam_slurm"))) / "data" / "templates"


def render(template: str, **values: Any) -> str:
    """The text of ``templates/<template>``; ``version`` is beam-slurm's unless given.

    Raises:
        BeamSlurmError: a value that an #SBATCH line cannot carry.
    """
    return _jinja().get_template(template).render(**{"version": __version__, **values})


def placement(site: Site) -> list[tuple[str, Any]]:
    """The #SBATCH options that say where a job may run, as far as the site has said them."""
    names = ("partition", "account", "qos", "reservation", "constraint", "exclude")
    options = [(name, getattr(site, name)) for name in names]
    return [(name, value) for name, value in options if value is not None]


def unplaced(site: Site) -> list[tuple[str, str]]:
    """Options that most clusters want and the site has not said, with their keys."""
    names = ("account", "partition")
    return [(name, f"site.{name}") for name in names if not getattr(site, name)]


def more_directives(site: Site, single: bool = False) -> list[tuple[str, Any]]:
    """The site's own #SBATCH options; None is an option alone.

    ``single`` leaves out those that say how several nodes lie to each other.
    """
    return [
        (name, None if value is True else value)
        for name, value in site.directives.items()
        if not (single and name in ("segment", "switches", "contiguous", "spread-job", "nodelist"))
    ]


class Raw(str):
    """Text for the script as it is: already quoted, or the shell's to expand."""

    __slots__ = ()


@cache
def _jinja() -> jinja2.Environment:
    made = jinja2.Environment(  # noqa: S701 - this makes shell, not HTML; finalize quotes
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        finalize=quote,
        trim_blocks=True,
        lstrip_blocks=True,
        comment_start_string="{##",  # bash has ${#array[@]}
        comment_end_string="##}",
        keep_trailing_newline=True,
    )
    made.tests["search"] = lambda text, pattern: re.search(pattern, text) is not None
    made.filters.update(
        words=_words,
        lines=_lines,
        filled=_filled,
        json=_json,
        directive=_directive,
        comment=_comment,
    )
    return made


def quote(value: Any) -> str:
    """One word for the shell; ``Raw`` stays as it is."""
    if isinstance(value, Raw):
        return value
    text = str(value)
    if not text.isprintable():
        return _ansi_c(text)
    quoted = shlex.quote(text)
    # A bare comma is right in bash, but in an array it looks like a slip: shellcheck says so.
    return f"'{quoted}'" if "," in quoted and not quoted.startswith("'") else quoted


def _ansi_c(text: str) -> str:
    """bash's $'...': keeps a value on one line, and sbatch refuses a script with a bare CR LF."""
    escaped = "".join(
        letter
        if letter.isprintable()
        else "".join(f"\\x{byte:02x}" for byte in os.fsencode(letter))
        for letter in text.replace("\\", "\\\\").replace("'", "\\'")
    )
    return f"$'{escaped}'"


def _words(values: Sequence[str]) -> Raw:
    return Raw(" ".join(quote(value) for value in values))


def _lines(values: Sequence[str]) -> list[Raw]:
    """The words of a command, each option and each key=value on a line of its own."""
    lines: list[list[str]] = []
    for value in values:
        if not lines or value.startswith("-") or "=" in value:
            lines.append([])
        lines[-1].append(value)
    return [_words(line) for line in lines]


def _filled(values: Sequence[str]) -> list[Raw]:
    """The words of a command, as many on a line as people like to read."""
    lines = [""]
    for word in map(quote, values):
        if lines[-1] and len(lines[-1]) + len(word) > 90:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [Raw(line) for line in lines]


def _json(value: Any) -> str:
    return json.dumps(dict(value), separators=(",", ":"))


def _directive(value: Any) -> Raw:
    """One word for an #SBATCH line: sbatch would cut it at white space and obey a second line."""
    text = str(value)
    if not re.fullmatch(r"[^\s\x00-\x1f\x7f'\"\\#]+", text):
        raise BeamSlurmError(
            f"{text!r} cannot stand in an #SBATCH line",
            why="white space, quotes, backslashes and # end or change a directive",
        )
    return Raw(text)


def _comment(value: Any) -> Raw:
    return Raw(" ".join(str(value).split()))
