"""``runs diff``: how two runs differ, the important first, and what cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import folders
import pytest
from test_records import CODE, Make, call, jobs, make  # noqa: F401 - fixtures

from beam_slurm.errors import BeamSlurmError
from beam_slurm.records import compare
from beam_slurm.records.record import Record

pytestmark = pytest.mark.usefixtures("no_site")

LARGE = {"dirty": True, "changed": ["a.py"], "why": "the patch is over 500 kB and was not kept"}


def test_diff_shows_what_matters_first_and_nothing_that_is_equal(
    make: Make,  # noqa: F811
    tmp_path: Path,
) -> None:
    make("one", "site.partition=a", overrides=("x=1", "y=2"))
    make(
        "two",
        "site.partition=b",
        "recipe.learning_rate=2e-6",
        "hardware.nodes=16",
        "site.images.nemo-rl-colocated=/shared/images/other.sqsh",
        overrides=("x=1", "y=3", "z=4"),
    )
    done = call("diff", "one", "two", "--json", root=tmp_path / "runs")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert list(found) == ["recipe", "overrides", "image", "hardware", "site"]
    assert found["recipe"] == {"recipe.learning_rate": [1e-06, 2e-06]}
    assert found["overrides"] == {"y": ["2", "3"], "z": [None, "4"]}
    assert found["hardware"] == {"hardware.nodes": [8, 16]}
    assert found["image"]["name"][1] == "/shared/images/other.sqsh"
    assert found["site"]["site.partition"] == ["a", "b"]
    shown = call("diff", "one", "two", root=tmp_path / "runs").stdout
    assert shown.index("recipe.learning_rate") < shown.index("hardware.nodes")
    assert "recipe.steps" not in shown


def test_diff_of_code_and_scripts(make: Make, tmp_path: Path) -> None:  # noqa: F811
    first, second = make("b300-0a"), make("b300-0b")
    same = call("diff", "b300-0a", "b300-0b", "--script", root=tmp_path / "runs")
    assert (same.exit_code, same.stdout) == (0, "no difference\n")
    sources = json.loads(json.dumps(second.manifest["sources"]))
    sources["beam_slurm"]["commit"] = "f" * 40
    second.record(sources=sources)
    script = second.path / "script.sbatch"
    script.write_text(script.read_text().replace("--time=", "--time=1-"))
    found = compare.compare(Record(first), Record(second))
    assert list(found) == ["code"]
    assert found["code"]["beam_slurm.commit"][1] == "f" * 40
    done = call("diff", "b300-0a", "b300-0b", "--script", root=tmp_path / "runs")
    assert done.exit_code == 1
    lines = [line for line in done.stdout.splitlines() if line[:1] in "+-"]
    assert len([line for line in lines if "#SBATCH --time=" in line]) == 2
    assert "script.sbatch was changed" in done.stderr


@pytest.mark.parametrize(
    ("first", "second", "key", "values"),
    [
        (
            {**LARGE, "digest": "1" * 64},
            {**LARGE, "digest": "2" * 64},
            "checkout.changes",
            ("1 file (11111111)", "1 file (22222222)"),
        ),
        (
            {"dirty": None, "why": "changes: git status took longer than 5 s"},
            {},
            "checkout.changes",
            ("not known: changes: git status took longer than 5 s", None),
        ),
        ({"untracked": ["b.py", "a.py"]}, {}, "checkout.untracked", ("a.py b.py", None)),
    ],
)
def test_code_that_differs_is_a_difference(
    first: dict[str, Any],
    second: dict[str, Any],
    key: str,
    values: tuple[str | None, ...],
    tmp_path: Path,
) -> None:
    for name, facts in (("one", first), ("two", second), ("same", first)):
        folders.make(tmp_path, name, version=2, sources={"checkout": {**CODE, **facts}})
    done = call("diff", "one", "two", "--json", root=tmp_path)
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {"code": {key: list(values)}}
    same = call("diff", "one", "same", root=tmp_path)
    assert same.stdout == "no difference\n"
    doubt = f"note: one: checkout: not all is known, {first.get('why')}"
    assert (doubt in same.stderr) == ("why" in first)


def test_secrets_and_images_that_differ_are_a_difference(tmp_path: Path) -> None:
    digest = {"name": "/x.sqsh", "digest": f"sha256:{'1' * 64}", "by": "x.sqsh.sha256", "size": 5}
    folders.make(tmp_path, "one", secrets=["HF_TOKEN"], image={**digest, "modified": 1.0})
    folders.make(tmp_path, "two", secrets=[], image={**digest, "modified": 2.0})
    found = json.loads(call("diff", "one", "two", "--json", root=tmp_path).stdout)
    assert found == {
        "image": {"modified": [1.0, 2.0]},
        "secrets": {"HF_TOKEN": ["given", None]},
    }


@pytest.mark.parametrize("content", [None, "[broken", "a: 2026-99-99", "[]"])
def test_runs_without_values_are_not_the_same(content: str | None, tmp_path: Path) -> None:
    for name in ("one", "two"):
        file = folders.make(tmp_path, name).path / "profile.yaml"
        file.unlink() if content is None else file.write_text(content)
    with pytest.raises(BeamSlurmError, match="one cannot be compared") as refused:
        call("diff", "one", "two", root=tmp_path)
    assert refused.value.where == str(tmp_path / "one" / "profile.yaml")
    assert "profile.yaml is missing or cannot be read" in call("show", "one", root=tmp_path).stderr


def test_overrides_that_are_no_pairs_are_compared_as_a_line(make: Make) -> None:  # noqa: F811
    first, second = make("one", overrides=("--flag", "a=1")), make("two", overrides=("a=1",))
    found = compare.compare(Record(first), Record(second))
    assert found["overrides"] == {"--": ("--flag a=1", None), "a": (None, "1")}


def test_diff_with_an_older_run_compares_what_both_have(make: Make, tmp_path: Path) -> None:  # noqa: F811
    make("one", profile="demo")
    old = folders.make(tmp_path / "runs", "old")
    (old.path / "profile.yaml").write_text("name: demo\nrecipe:\n  steps: 7\n")
    done = call("diff", "one", "old", root=tmp_path / "runs")
    assert done.exit_code == 1
    assert "recipe.steps" in done.stdout
    assert "old: an older beam-slurm" in done.stderr
