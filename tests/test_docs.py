"""The tables of keys in docs/ are the schema's own words: UPDATE_DOCS=1 writes them anew."""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from beam_slurm import schema
from beam_slurm.frameworks import miles, nemo_rl, skyrl
from beam_slurm.yamlfile import Key, dotted

DOCS = Path(__file__).parents[1] / "docs"


def leaves(model: type[BaseModel], at: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key that holds a value, with its field."""
    for name, field in model.model_fields.items():
        inner = [
            part
            for part in (field.annotation, *typing.get_args(field.annotation))
            if isinstance(part, type) and issubclass(part, BaseModel)
        ]
        if name == "site" and at == "":
            continue
        if len(inner) > 1:  # one of several: each key once, with those that have it
            yield from _alternatives(inner, f"{at}{name}.")
            continue
        for part in inner:
            yield from leaves(part, f"{at}{name}.")
        if not inner:
            yield at + name, field


def _alternatives(models: list[type[BaseModel]], at: str) -> Iterator[tuple[str, FieldInfo]]:
    names = {model: word for word, model in schema.BY_NAME.items()}
    found: dict[tuple[str, str], list[str]] = {}
    for model in models:
        for name, field in model.model_fields.items():
            found.setdefault((name, field.description or ""), []).append(names[model])
    for (name, text), users in found.items():
        field = copy(next(m for m in models if names[m] == users[0]).model_fields[name])
        if name == "name":
            field.annotation = Literal[tuple(users)]  # type: ignore[assignment]
        else:
            field.description = f"{', '.join(users)}: {text[0].lower()}{text[1:]}"
        yield at + name, field


def kind(annotation: Any) -> str:
    """The values that a key takes, for people."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{word}`" for word in args)
    if origin is typing.Annotated:
        return kind(args[0])
    if origin is list:
        return "list"
    if origin is dict:
        return "keys and values"
    if args:
        kinds = [kind(part) for part in args if part is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    return {str: "text", bool: "`true`, `false`", int: "whole number", float: "number"}[annotation]


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value in (None, {}, []):
        return ""
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def table(model: type[BaseModel]) -> str:
    rows: dict[str, str] = {}
    for key, field in leaves(model):
        if key == "name":
            continue
        text = re.sub(r"\s+", " ", field.description or "").replace("|", "\\|")
        rows.setdefault(f"`{key}`", f"{text} | {kind(field.annotation)} | {default(field)}")
    lines = [f"| {key} | {row} |" for key, row in rows.items()]
    return "\n".join(["| key | meaning | values | default |", "|---|---|---|---|", *lines])


def mapping(names: Mapping[Key, str], title: str) -> str:
    """What a framework is told for which key."""
    lines = [f"| `{dotted(('recipe', *key))}` | `{name}` |" for key, name in names.items()]
    return "\n".join([f"| key | {title} |", "|---|---|", *lines])


@pytest.mark.parametrize(
    ("page", "mark", "wanted"),
    [
        ("profiles.md", "keys", table(schema.Profile)),
        ("site.md", "keys", table(schema.Site)),
        ("profiles.md", "nemo-rl", mapping(nemo_rl.OVERRIDES, "override")),
        ("profiles.md", "skyrl", mapping(skyrl.OVERRIDES, "override")),
        ("profiles.md", "miles", mapping(miles.FLAGS, "flag in `--extra-args`")),
    ],
)
def test_the_tables_say_what_the_code_says(page: str, mark: str, wanted: str) -> None:
    path = DOCS / page
    before, rest = path.read_text().split(f"<!-- {mark} -->\n")
    found, _, after = rest.partition("<!-- end -->\n")
    if os.environ.get("UPDATE_DOCS"):
        path.write_text(f"{before}<!-- {mark} -->\n{wanted}\n<!-- end -->\n{after}")
        return
    assert found == wanted + "\n"


def test_links_between_the_pages_lead_somewhere() -> None:
    pages = [*DOCS.glob("*.md"), *DOCS.parent.glob("*.md"), *DOCS.parent.glob("*/*/README.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_script_in_the_readme_is_the_one_that_is_rendered() -> None:
    readme = (DOCS.parent / "README.md").read_text()
    shown = readme.split("```bash\n")[1].split("```")[0]
    golden = (DOCS.parent / "tests" / "golden" / "b300-colocated.sbatch").read_text()
    for part in shown.split("\n\n"):
        assert part.rstrip() in golden
