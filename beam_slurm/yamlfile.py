"""YAML that remembers where every value stands, so that an error can name file and line.

Stricter than YAML 1.1 where that bites people: ``yes``/``off`` are words, ``1e-6`` is a number,
``1:30:00`` without quotes (YAML reads 5400) and a key given twice are errors.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from beam_slurm.errors import BeamSlurmError

Key = tuple[str | int, ...]
"""The way to a value: ``("recipe", "steps")`` or ``("site", "mounts", 0)``."""


@dataclass
class Document:
    """A tree of plain values and the place ("file:line") of each.

    ``places`` knows every mapping, list and scalar by its key; ``()`` is the whole document.
    """

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Key, str] = field(default_factory=dict)

    def place(self, key: Key) -> str | None:
        """Where ``key`` stands, or the closest thing around it that has a place."""
        while key not in self.places and key:
            key = key[:-1]
        return self.places.get(key)

    def set(self, key: Key, value: Any, place: str) -> None:
        """Put ``value`` at ``key``, making the mappings on the way."""
        target = self.data
        for depth, word in enumerate(key[:-1], 1):
            if word not in target:
                target[str(word)] = {}
                self.places[key[:depth]] = place
            inner = target[str(word)]
            if not isinstance(inner, dict):
                raise BeamSlurmError(
                    f"{dotted(key)}: {dotted(key[:depth])} is a single value, it has no keys",
                    where=place,
                )
            target = inner
        target[key[-1]] = value  # type: ignore[index]
        self._forget(key)
        self.places[key] = place

    def copy(self) -> Document:
        """A document of its own with the same content."""
        return Document(copy.deepcopy(self.data), dict(self.places))

    def merge(self, over: Document) -> None:
        """Lay ``over`` on top: mappings merge key by key, anything else replaces."""
        self._merge((), self.data, over.data, over)

    def _merge(self, at: Key, base: dict[str, Any], top: dict[str, Any], over: Document) -> None:
        for word, value in top.items():
            key = (*at, word)
            if isinstance(value, dict) and isinstance(base.get(word), dict):
                self._merge(key, base[word], value, over)
            else:
                base[word] = value
                self._forget(key)
                self.places.update(
                    (k, place) for k, place in over.places.items() if k[: len(key)] == key
                )

    def _forget(self, key: Key) -> None:
        for old in [k for k in self.places if k[: len(key)] == key]:
            del self.places[old]


def dotted(key: Key) -> str:
    """``("site", "mounts", 0)`` as people write it: ``site.mounts[0]``."""
    text = ""
    for word in key:
        text += f"[{word}]" if isinstance(word, int) else f".{word}" if text else word
    return text


def load(path: Path, name: str | None = None) -> Document:
    """Read one YAML file whose top is a mapping. ``name`` is what errors call it."""
    shown = name or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BeamSlurmError(f"cannot read {shown}", why=error.strerror) from error
    except UnicodeDecodeError as error:
        raise BeamSlurmError(
            f"{shown} is not a text file", why=f"byte {error.start} is not UTF-8"
        ) from error
    document = Document(places={(): f"{shown}:1"})
    try:
        node = yaml.compose(text, Loader=_Loader)
        value = {} if node is None else _plain(node, (), shown, document.places)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise BeamSlurmError(
            "this is not valid YAML", where=f"{shown}:{line}", why=error.problem or str(error)
        ) from error
    except yaml.YAMLError as error:
        raise BeamSlurmError("this is not valid YAML", where=shown, why=str(error)) from error
    except RecursionError:
        raise BeamSlurmError(
            "this is nested too deeply, or refers to itself", where=f"{shown}:1"
        ) from None
    if not isinstance(value, dict):
        raise BeamSlurmError("the top of this file must be keys and values", where=f"{shown}:1")
    document.data = value
    return document


def scalar(text: str, place: str) -> Any:
    """The value of ``text`` as it would stand in a file: ``8``, ``true``, ``[1, 2]``, a word."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError:
        return text  # not YAML (`a: b: c`, an open quote): then it is what was typed
    if node is None:
        return text
    if isinstance(node, yaml.ScalarNode) and ":" in node.value:
        return text  # 1:30:00 on a command line is what it looks like
    value = _plain(node, (), place, {})
    if isinstance(node, yaml.ScalarNode) and isinstance(value, str) and node.style is None:
        return text  # without quotes YAML would fold a line break and cut at " #"
    return value


def dump(data: dict[str, Any]) -> str:
    """``data`` as YAML in its own order, which ``load`` and YAML 1.1 read as the same values."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's booleans and floats."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"""^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?
            |[-+]?[0-9]+[eE][-+]?[0-9]+
            |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$""",
        re.X,
    ),
    list("-+0123456789."),
)


_Safe: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's is six times as quick


class _Dumper(_Safe):  # type: ignore[misc]
    """SafeDumper that puts in quotes what is text to YAML 1.1 and a number to 1.2: 1e-6."""


_Dumper.yaml_implicit_resolvers = {
    first: [
        *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
        *_Loader.yaml_implicit_resolvers.get(first, []),
    ]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
}


def _plain(node: yaml.Node, key: Key, name: str, places: dict[Key, str]) -> Any:
    place = f"{name}:{node.start_mark.line + 1}"
    places.setdefault(key, place)
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            word = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            at = f"{name}:{key_node.start_mark.line + 1}"
            if word is None:
                raise BeamSlurmError("a key must be one word", where=at)
            if word in mapping:
                raise BeamSlurmError(
                    f"the key {dotted((*key, word))} is given twice",
                    where=at,
                    remedy=f"keep one; the first stands at {places[(*key, word)]}",
                )
            places[(*key, word)] = at
            mapping[word] = _plain(value_node, (*key, word), name, places)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*key, i), name, places) for i, item in enumerate(node.value)]
    loader = _Loader("")
    value = loader.construct_object(node, deep=True)
    if isinstance(value, int) and ":" in node.value:
        raise BeamSlurmError(
            f"{dotted(key) or node.value}: YAML reads {node.value} as the number {value}",
            where=place,
            why="in YAML, digits with colons are a number to the base of 60",
            remedy=f'put it in quotes: "{node.value}"',
        )
    if not isinstance(value, str | int | float | bool | None):
        return node.value  # a date, say: the text as written
    return value
