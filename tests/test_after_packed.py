"""What an evaluation takes along from the login node: math-verify, and the problems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("math_verify")

from test_posttraining import call, converted
from test_rerun import make, root  # noqa: F401 - a fixture

from beam_slurm import pack, posttraining, submit
from beam_slurm.after import answers, evaluate, judge, problems
from beam_slurm.errors import BeamSlurmError
from beam_slurm.posttraining import evaluating, source

pytestmark = pytest.mark.usefixtures("no_site")

JUDGING = """
import json, sys
sys.path.insert(0, sys.argv[1])
from beam_slurm.after import answers
pairs = [("007", "7"), (r"\\frac{1}{2}", "0.5"), ("50", r"50\\%"), ("7", "8"), ("x^2", "x*x")]
said = [answers.right(rf"\\boxed{{{given}}}", gold) for gold, given in pairs]
print(json.dumps([answers.version(), *said]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As much of a run folder as an evaluation's answers need."""
    (tmp_path / "after.pyz").write_bytes(pack.after_program())
    (tmp_path / judge.PACKED).write_bytes(pack.math_verify())
    return tmp_path


def judged(python: str, folder: Path, *path: Path) -> list[Any]:
    told = subprocess.run(
        [python, "-c", JUDGING, str(folder / "after.pyz")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert isinstance(found, list)
    return found


def test_no_image_decides_a_score(folder: Path, tmp_path: Path) -> None:
    """One has none of it; another's antlr4 is omegaconf's, and its math-verify is years old."""
    venv.create(tmp_path / "image", with_pip=False)
    other = tmp_path / "other"
    for name in ("math_verify", "latex2sympy2_extended", "antlr4", "sympy", "mpmath"):
        (other / name).mkdir(parents=True)
        (other / name / "__init__.py").write_text(f"raise ImportError('the image has {name}')\n")
    for name, version in (("math_verify", "0.5.0"), ("antlr4_python3_runtime", "4.9.3")):
        about = other / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    version, *verdicts = judged(str(tmp_path / "image" / "bin" / "python"), folder, other)
    assert version == metadata.version("math-verify")
    assert verdicts == [True, True, True, False, True]


def test_the_engine_has_its_images_own_sympy(folder: Path) -> None:
    """torch brings a sympy that fits it: what judges must not stand before it."""
    with zipfile.ZipFile(folder / "after.pyz") as program:
        names = program.namelist()
    assert {name.partition("/")[0] for name in names} == {"__main__.py", "beam_slurm"}


def test_what_is_packed_is_code_and_versions_alone() -> None:
    packed = pack.math_verify()
    assert len(packed) < 6_000_000
    assert pack.math_verify() is packed  # once a process, however many checkpoints there are
    with zipfile.ZipFile(pack.io.BytesIO(packed)) as archive:
        names = [Path(name) for name in archive.namelist()]
    assert {name.suffix for name in names if name.name != "METADATA"} == {".py"}
    assert not [name for name in names if "tests" in name.parts]


@pytest.fixture
def asked(root: Path) -> dict[str, Any]:  # noqa: F811
    """A converted model, a set, and the words of an evaluation of it."""
    run = make(root, "recipe.checkpoint.enabled=true", f"site.paths.outputs={root.parent}/outputs")
    assert run.checkpoints
    converted(run.checkpoints.parent / "hf" / "step_20")
    data = root.parent / "mine.jsonl"
    data.write_text('{"question": "1+1", "answer": "2"}\n{"question": "1+2", "answer": "3"}\n')
    words = ("evaluate", run.id, "--set=mine", f"--data={data}", "--runs", str(root))
    return {"run": run, "data": data, "words": words}


def test_problems_and_math_verify_lie_in_the_run_folder(asked: dict[str, Any], root: Path) -> None:  # noqa: F811
    found = source.model(asked["run"].id, root)
    settings = evaluating.Settings("mine", asked["data"])
    task = evaluating.task(found, settings, None)
    made = submit.prepare(posttraining.request(found, task, root=root))
    assert (made.path / judge.PACKED).read_bytes() == pack.math_verify()
    travelled = problems.read(made.path / evaluate.PROBLEMS)
    assert problems.digest(travelled) == problems.digest(problems.read(asked["data"]))
    assert made.manifest["task"]["data"] == str(asked["data"])


def test_without_the_extra_nothing_is_submitted(
    asked: dict[str, Any],
    root: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = sorted(root.iterdir())

    def files(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", files)
    pack.math_verify.cache_clear()
    with pytest.raises(BeamSlurmError, match="math-verify is not here") as caught:
        call(*asked["words"])
    assert "pip install 'beam-slurm[evaluate]'" in (caught.value.remedy or "")
    assert sorted(root.iterdir()) == before


def test_answers_that_no_response_could_give_are_refused_before_a_job(
    asked: dict[str, Any],
    root: Path,  # noqa: F811
) -> None:
    before = sorted(root.iterdir())
    row = {"question": "Which?", "answer": r"\text{"}
    with asked["data"].open("a") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(BeamSlurmError, match="problem mine:3 cannot be compared") as caught:
        call(*asked["words"])
    assert caught.value.where == str(asked["data"])
    assert sorted(root.iterdir()) == before


def test_a_part_of_a_published_set_has_no_right_to_its_name(asked: dict[str, Any]) -> None:
    with pytest.raises(BeamSlurmError, match="not the whole of aime2025") as caught:
        call(*asked["words"], "--set=aime2025")
    assert "it has 2 problems" in (caught.value.why or "")


def test_each_answer_is_looked_at_once() -> None:
    """Of thousands of problems most have the same few hundred integers."""
    answers.readable.cache_clear()
    many = [problems.Question(str(number), "q", str(number % 7)) for number in range(700)]
    answers.refuse_unreadable(many, "set.jsonl")
    assert answers.readable.cache_info().misses == 7


def test_the_command_line_starts_without_what_judges() -> None:
    code = (
        "import sys; from beam_slurm.posttraining import evaluating;"
        "print({'sympy', 'math_verify', 'antlr4'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"
