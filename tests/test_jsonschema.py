"""The schemas that editors use agree with what beam-slurm takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from beam_slurm import jsonschema as room
from beam_slurm import profiles
from beam_slurm.schema import Site
from beam_slurm.yamlfile import load

BEAM_SLURM = str(Path(sys.executable).with_name("beam-slurm"))
PROFILE = jsonschema.Draft202012Validator(room.profile())
SITE = jsonschema.Draft202012Validator(room.site())


@pytest.mark.parametrize("path", sorted(profiles.HOME.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_profile_fits_its_schema(path: Path) -> None:
    assert [error.message for error in PROFILE.iter_errors(load(path).data)] == []


@pytest.mark.parametrize(
    "data",
    [
        {"recipe": {"stepz": 3}},
        {"recipe": {"steps": "3"}},
        {"recipe": {"schedule": "sync"}},
        {"hardware": "h200x1"},
        {"framework": {"name": "nemo"}},
        {"site": {"container": "dockr"}},
        {"name": "x"},
    ],
)
def test_what_a_profile_may_not_say_does_not_fit(data: dict[str, Any]) -> None:
    assert not PROFILE.is_valid(data)


def test_a_site_file_fits_without_the_word_site() -> None:
    assert SITE.is_valid({"partition": "gpu", "paths": {"models": "/shared/models"}})
    assert not SITE.is_valid({"site": {"partition": "gpu"}})
    assert not SITE.is_valid({"paths": {"modles": "/shared/models"}})


def test_every_field_of_a_site_is_documented() -> None:
    made = room.site()
    silent = [
        f"{name}.{key}"
        for name, part in (("Site", made), *made["$defs"].items())
        for key, field in part["properties"].items()
        if not (field.get("description") or "$ref" in json.dumps(field))
    ]
    assert silent == []
    assert set(made["properties"]) == set(Site.model_fields)


def test_the_command_prints_it_and_writes_the_editor_s_line(tmp_path: Path) -> None:
    shown = subprocess.run(
        [BEAM_SLURM, "schema", "site"], capture_output=True, text=True, check=True
    )
    assert json.loads(shown.stdout) == room.site()
    path = tmp_path / "profile.schema.json"
    written = subprocess.run(
        [BEAM_SLURM, "schema", "profile", "-o", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert written.stdout == f"# yaml-language-server: $schema={path}\n"
    assert json.loads(path.read_text()) == room.profile()
    nowhere = subprocess.run(
        [BEAM_SLURM, "schema", "site", "-o", str(tmp_path / "no" / "x")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert nowhere.returncode == 2
    assert "cannot write" in nowhere.stderr
