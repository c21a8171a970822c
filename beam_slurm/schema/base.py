"""What all models share: strictness, and the kinds of text that Slurm and the shell can take."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Job and run names: what every Slurm, file system and shell takes without quotes."""

TIME = re.compile(r"(?:\d+-)?\d+(?::\d{1,2}){0,2}")
"""Slurm's time limits: minutes, m:ss, h:mm:ss, d-h, d-hh:mm, d-hh:mm:ss."""


class Model(BaseModel):
    """Strict and frozen: what is not written here is an error.

    The text below a field is its documentation: the JSON schema carries it to the editor.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )


def one_line(value: str) -> str:
    """``value``, unless it holds a line break, another control character or no text at all."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("this is not UTF-8") from None
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise ValueError("a line break or another control character is not allowed here")
    return value


def not_blank(value: str) -> str:
    """``value``, unless it is empty or holds a control character."""
    if not value.strip():
        raise ValueError("this must not be empty")
    return one_line(value)


def one_word(value: str) -> str:
    """``value``, unless it holds white space."""
    if re.search(r"\s", not_blank(value)):
        raise ValueError("white space is not allowed here")
    return value


def absolute(value: str) -> str:
    """``value``, unless it is relative (other machines have other working directories) or holds
    what a list of mounts is cut at."""
    if not value.startswith("/"):
        raise ValueError("this must be an absolute path: it is used on other machines")
    if found := re.search(r"[,:\"]", value):
        raise ValueError(f"{found[0]} is not allowed here: container runtimes cut mounts at it")
    return not_blank(value)


Line = Annotated[str, Field(min_length=1)]
Text = Annotated[str, AfterValidator(not_blank)]
Word = Annotated[str, AfterValidator(one_word)]
Path = Annotated[str, AfterValidator(absolute)]
