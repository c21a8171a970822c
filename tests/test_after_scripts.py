"""The scripts of conversions and evaluations, read by people and by shellcheck.

UPDATE_GOLDEN=1 writes them anew: each change of one is a reviewable diff.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from test_job import driver_words
from test_matrix import IMAGES, SITE

from beam_slurm import frameworks, posttraining, profiles, runs
from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.launch import Missing
from beam_slurm.job import JobRequest
from beam_slurm.posttraining import converting, evaluating
from beam_slurm.posttraining.source import Source

pytestmark = pytest.mark.usefixtures("no_site")

GOLDEN = Path(__file__).parent / "golden" / "after"
VLLM = "site.images.evaluate=/shared/images/vllm.sqsh"

SCRIPTS = {
    "convert-b300-colocated": ("checkpoints/step_20",),
    "convert-b200-lora-16": ("checkpoints/global_step_20",),
    "evaluate-b300-colocated": ("hf/step_20", VLLM),
    "evaluate-h200-async": ("hf/step_20",),
    "evaluate-miles-lora": ("hf/step_20",),
}


@pytest.fixture
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set; and run ids are no longer of chance."""
    monkeypatch.setattr(runs, "new_id", lambda name: f"{name}-0123ab")
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "1+1", "answer": "2"}\n{"question": "1+2", "answer": "3"}\n')
    return path


def request(verb: str, profile: str, at: str, problems: Path, *words: str) -> JobRequest:
    """The job on a site that has said everything; nothing of it is there to be looked at."""
    said = [f"{key}={value}" for key, value in SITE.items()]
    said += [
        f"site.images.{name}={IMAGES['pyxis'].format(name)}"
        for name in ("nemo-rl-colocated", "nemo-rl-async", "skyrl", "miles")
    ]
    resolved = profiles.resolve(profile, settings=profiles.parse_settings([*said, *words]))
    path = Path("/shared/outputs/first") / at
    source = Source(resolved, path, None, 20, there=False)
    if verb == "convert":
        task = converting.task(source, "hf", None, merge_lora=False)
        mark = f"{task.output}.part/.conversion.json"
    else:
        task = evaluating.task(source, evaluating.Settings("mine", problems), None)
        mark = f"{task.output}/.lock"
    assert task.mark == ""  # it is to be made by a run that has not begun
    task = replace(task, mark=mark)
    return posttraining.request(source, task)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_as_reviewed_and_please_shellcheck(name: str, problems: Path) -> None:
    verb, _, profile = name.partition("-")
    at, *words = SCRIPTS[name]
    made = request(verb, profile, at, problems, *words)
    assert made.missing == ()
    text, path = str(made), GOLDEN / f"{name}.sbatch"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    done = subprocess.run(["shellcheck", path], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_an_image_for_evaluations_gets_nothing_of_the_framework_but_its_folders(
    problems: Path,
) -> None:
    at = ("b300-colocated", "hf/step_20", problems)
    trained, other = request("evaluate", *at).launch, request("evaluate", *at, VLLM).launch
    assert trained.container == "/shared/images/nemo-rl-colocated.sqsh"
    assert other.container == "/shared/images/vllm.sqsh"
    left = {mount.target for mount in trained.mounts} - {mount.target for mount in other.mounts}
    assert left == {"/workspace/nemo-rl"}
    assert trained.environment
    assert not other.environment
    # It is launched in the run folder, with the same words.
    assert trained.workdir.startswith("/shared/runs/")
    assert (other.workdir, other.entry) == (trained.workdir, trained.entry)
    # What is converted needs the framework's own.
    of = ("b300-colocated", "checkpoints/step_20", problems)
    assert request("convert", *of, VLLM).launch == request("convert", *of).launch


def test_an_image_for_evaluations_is_spelled_as_any_other(problems: Path) -> None:
    at = ("evaluate", "b300-colocated", "hf/step_20", problems)
    words = ("site.container=docker", "site.images.nemo-rl-colocated=nemo-rl:beam")
    made = request(*at, *words, "site.images.evaluate=vllm/vllm-openai:v1")
    assert "--entrypoint= vllm/vllm-openai:v1" in str(made)
    made = request(*at, "site.images.evaluate=ghcr.io/a/vllm:v1")
    assert "--container-image='ghcr.io#a/vllm:v1'" in str(made)
    with pytest.raises(BeamSlurmError, match="pyxis cannot start") as caught:
        request(*at, "site.images.evaluate=/shared/images/vllm.sif")
    assert "site.images.evaluate" in (caught.value.where or "")


def test_without_a_container_there_is_no_other_image(problems: Path) -> None:
    at = ("evaluate", "b300-colocated", "hf/step_20", problems, "site.container=bare")
    assert request(*at, VLLM).launch == request(*at).launch
    assert request(*at).launch.container is None


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_says_how_to_train_stays_behind(name: str, problems: Path) -> None:
    verb, _, profile = name.partition("-")
    at, *words = SCRIPTS[name]
    made = request(verb, profile, at, problems, *words)
    trained = frameworks.launch(made.resolved, "/run", Missing(), ())
    assert not set(trained.settings) & set(made.launch.environment)
    assert not made.launch.resources
    assert "WANDB_RUN_ID" not in str(made)
    # Nor are nodes asked for room that only training takes.
    assert "--scratch" not in str(made)
    # It belongs to a run that tells its steps; a conversion is over when it is over.
    assert ("--watch=" in str(made)) == (verb == "evaluate")


@pytest.mark.parametrize(("profile", "nodes"), [("h200-async", 2), ("b300-colocated", 1)])
def test_beam_gets_the_gpus_that_it_needs(profile: str, nodes: int, problems: Path) -> None:
    """1 TB in BF16: sixteen H200, or eight B300."""
    words = driver_words(str(request("evaluate", profile, "hf/step_20", problems)))
    assert {b"--tensor-parallel=8", f"--pipeline-parallel={nodes}".encode()} <= {*words}
