"""JSON schemas of the two kinds of files that people write, for their editors.

Made from the models of ``schema``, so they cannot drift: names, types, allowed words, defaults and
the text below each field. A profile file may leave out what it ``extends``, and may name its
hardware; a site file holds the keys below ``site``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from beam_slurm.profiles import HOME
from beam_slurm.schema import Profile, Site

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def site() -> dict[str, Any]:
    """The schema of site.yaml."""
    return {**_lenient(Site), "$schema": DIALECT, "title": "beam-slurm site file"}


def profile() -> dict[str, Any]:
    """The schema of a profile file."""
    made = _lenient(Profile)
    fields = made["properties"]
    del fields["name"]  # the name of the file
    named = sorted(path.stem for path in (HOME / "hardware").glob("*.yaml"))
    fields["hardware"] = {
        "description": "The nodes: a file of profiles/hardware by name, or the keys themselves.",
        "anyOf": [{"enum": named}, fields["hardware"]],
    }
    # Which framework it is may stand in the profile that is extended.
    fields["framework"] = {"anyOf": fields["framework"]["oneOf"]}
    fields["extends"] = {
        "description": "The profile that this one changes: a name or a file.",
        "type": "string",
    }
    return {**made, "$schema": DIALECT, "title": "beam-slurm profile"}


def header(path: Path) -> str:
    """The line at the top of a YAML file by which editors find the schema in ``path``."""
    return f"# yaml-language-server: $schema={path.absolute()}"


def _lenient(model: type[Profile] | type[Site]) -> dict[str, Any]:
    """``model``'s schema without required keys: any of them may stand in another file."""
    made = model.model_json_schema()
    for part in (made, *made.get("$defs", {}).values()):
        part.pop("required", None)
    return made
