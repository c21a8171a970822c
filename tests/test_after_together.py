"""Conversions, evaluations and chains beside each other, beside runs that train, and in what shows
them: what is refused is refused before anything is submitted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import folders
import pytest
from click.testing import Result
from fakeslurm import Fake
from test_chain import asked, chained, jobs  # noqa: F401 - a fixture
from test_checkpoint import demo
from test_posttraining import converted
from test_several import ASKED, Trained, call, fake, trained  # noqa: F401 - fixtures

from beam_slurm import runs
from beam_slurm.after import problems
from beam_slurm.after.responses import Response, Responses
from beam_slurm.errors import BeamSlurmError
from beam_slurm.posttraining import then
from beam_slurm.posttraining.then import Chain
from beam_slurm.report.asjson import as_json
from beam_slurm.report.facts import gather
from beam_slurm.runs import Run

TRAIN = ("submit", "--profile=demo", "--nodes=1", "--steps=80", "--save-every=20")
GO_ON = (*TRAIN, "--output-dir=first", "--resume")
CHAIN = "--then=convert,evaluate"


@pytest.fixture
def first(tmp_path: Path, trained: Trained) -> Run:  # noqa: F811
    """A run with a whole checkpoint of step 40, and a folder of problems beside it."""
    run = trained("first-1a2b3c")
    assert run.checkpoints
    demo(run.checkpoints, 40)
    demo(tmp_path / "runs" / "first" / "checkpoints", 40)
    (tmp_path / "mine.jsonl").write_text('{"question": "1+1", "answer": "2"}\n')
    return run


def refuses(fake: Fake, *words: str) -> BeamSlurmError:  # noqa: F811
    """Why it was; nothing is submitted, and no run is made."""
    before, root = fake.submitted, fake.path.parent / "runs"
    known = {run.id for run in runs.all_runs(root)}
    with pytest.raises(BeamSlurmError) as caught:
        call(*words)
    assert fake.submitted == before
    assert {run.id for run in runs.all_runs(root)} == known
    return caught.value


def test_a_chain_behind_a_run_that_goes_on_in_an_old_folder(
    tmp_path: Path,
    fake: Fake,  # noqa: F811
    first: Run,
) -> None:
    """Its conversion makes the folder hf, in which the scores will lie."""
    assert not (tmp_path / "runs" / "first" / "hf").exists()
    done = call(*GO_ON, CHAIN)
    assert done.exit_code == 0
    assert len(fake.submitted) == 3


def test_what_is_wrong_with_a_follower_is_known_before_the_run(
    tmp_path: Path,
    fake: Fake,  # noqa: F811
    first: Run,
) -> None:
    taken = tmp_path / "runs" / "first" / "hf" / "step_80"
    taken.parent.mkdir()
    call("convert", first.id, "-o", str(taken))
    said = refuses(fake, *GO_ON, CHAIN)
    assert f"{taken} is the output folder of {first.id}-hf-" in said.what


def test_an_image_for_evaluations_is_looked_at_and_recorded_behind_a_run(
    tmp_path: Path,
    fake: Fake,  # noqa: F811
) -> None:
    data = tmp_path / "aime-2025" / "aime-2025.jsonl"
    data.parent.mkdir()
    lines = [json.dumps({"prompt": f"{n}+1", "label": str(n + 1)}) for n in range(30)]
    data.write_text("\n".join(lines))
    images = [tmp_path / "train.sif", tmp_path / "vllm.sif"]
    images[0].touch()
    words = [
        f"site.images.{name}={at}" for name, at in zip(("miles", "evaluate"), images, strict=True)
    ]
    words += [f"site.paths.datasets={tmp_path}", f"site.paths.runs={tmp_path}/runs"]
    request = asked("miles-lora", *words, "site.container=apptainer")
    links = then.plan(request, Chain(True, None, False))
    with pytest.raises(BeamSlurmError, match=f"the image {images[1]} is not there"):
        then.check(links)
    images[1].touch()
    then.check(links)
    run = folders.make(request.run.parent, request.run.name)
    followed = then.follow(run, links)
    assert [it.manifest["image"]["name"] for it in followed] == [str(at) for at in images]


def test_a_chain_that_is_cut_off_says_that_the_run_goes_on(
    tmp_path: Path,
    fake: Fake,  # noqa: F811
) -> None:
    fake.set(jobs=2)
    with pytest.raises(BeamSlurmError, match="is submitted, but only 1 of the 2 jobs") as caught:
        call(*TRAIN, CHAIN)
    (run,) = (it for it in runs.all_runs(tmp_path / "runs") if "then" in it.manifest)
    assert f"beam-slurm cancel {run.id}" in (caught.value.remedy or "")
    assert len(fake.submitted) == 2


def test_a_dry_run_tells_of_what_would_follow(fake: Fake) -> None:  # noqa: F811
    done = call(*TRAIN, "--then=convert,evaluate:every 40", "--dry-run")
    told = [line for line in done.stderr.splitlines() if line.startswith("then ")]
    assert [line.rpartition("/")[2] for line in told] == [
        *(
            "step_000040 becomes a folder in Hugging Face's form",
            "step_40 is scored on held-out: 1 response a problem, at most 3 tokens, temperature 0",
        ),
        *(
            "step_000080 becomes a folder in Hugging Face's form",
            "step_80 is scored on held-out: 1 response a problem, at most 3 tokens, temperature 0",
        ),
    ]
    assert done.stdout.startswith("#!/bin/bash")
    assert not fake.submitted


def test_one_conversion_at_a_time_into_a_folder(fake: Fake, first: Run) -> None:  # noqa: F811
    call("convert", first.id)
    said = refuses(fake, "convert", first.id)
    assert f"is the output folder of {first.id}-hf-" in said.what
    assert "another -o" in (said.remedy or "")
    call("convert", first.id, "-o", "other")
    assert len(fake.submitted) == 2


def test_training_goes_on_while_an_older_checkpoint_is_scored(
    fake: Fake,  # noqa: F811
    trained: Trained,  # noqa: F811
) -> None:
    run = trained("first-1a2b3c", 2)
    assert run.checkpoints
    demo(run.checkpoints, 40)
    call("convert", run.id)
    call("evaluate", run.id, *ASKED)
    call(*TRAIN, f"--output-dir={run.output}", "--resume")
    assert len(fake.submitted) == 3


def test_an_evaluation_can_be_named_for_what_it_scores(
    fake: Fake,  # noqa: F811
    trained: Trained,  # noqa: F811
) -> None:
    run = trained("first-1a2b3c", 2)
    told = call("evaluate", run.id, "--json", *ASKED).stdout
    scored = json.loads(told)["run"]
    more = ("--set=held-out", "--temperature=0.5", "-o", "more", "--json")
    again = Run(Path(json.loads(call("evaluate", scored, *more).stdout)["folder"]))
    model = str(run.output / "hf" / "step_2")
    assert (again.manifest["task"]["run"], again.manifest["task"]["checkpoint"]) == (run.id, model)
    assert f"{scored} is no checkpoint of step 4" in str(
        refuses(fake, "evaluate", scored, "--step=4", *more)
    )
    assert f"{scored} has saved no checkpoints" in str(refuses(fake, "convert", scored))


def test_a_folder_of_one_step_is_not_one_of_another(
    tmp_path: Path,
    fake: Fake,  # noqa: F811
    first: Run,
) -> None:
    at = tmp_path / "runs" / "first" / "checkpoints" / "step_000040"
    said = refuses(fake, "convert", str(at), "--profile=demo", "--step=20")
    assert said.why == "it is of step 40"
    call("convert", str(at), "--profile=demo", "--step=40", "-o", "other")


def test_the_start_of_a_run_is_its_own_and_not_its_followers(
    tmp_path: Path,
    jobs: object,  # noqa: F811
) -> None:
    run = chained(tmp_path)
    assert runs.find("demo-1a", tmp_path).path == run.path
    assert runs.find("demo-1a2b3c-set-2", tmp_path).id == "demo-1a2b3c-set-2"
    folders.make(tmp_path, "demo-1a2b3d")
    with pytest.raises(BeamSlurmError, match="is the start of 6 runs"):
        runs.find("demo-1a", tmp_path)


def test_what_follows_and_of_what_it_is_can_be_read_by_machines(
    tmp_path: Path,
    jobs: object,  # noqa: F811
) -> None:
    run = chained(tmp_path)
    told = as_json(gather(run))
    assert (told["then"], told["task"]) == (run.manifest["then"], None)
    told = as_json(gather(Run(tmp_path / "demo-1a2b3c-set-2")))
    assert (told["then"], told["task"]) == ([], {"run": run.id, "step": 40})


def test_status_says_what_is_scored_or_converted_and_where_that_goes(
    fake: Fake,  # noqa: F811
    first: Run,
) -> None:
    told = json.loads(call("convert", first.id, "--json").stdout)
    said = " ".join(call("status", told["run"]).output.split())
    at = first.output
    assert f"checkpoint {at}/checkpoints/step_000040 of {first.id}, step 40" in said
    assert f"output {at}/hf/step_40 " in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--temperature=nan",), "nan is no number"),
        (("--temperature=inf",), "inf is no number"),
        (("--top-p=nan",), "nan is no number"),
        (("--site=site.yaml",), "--site goes with --profile"),
    ],
)
def test_an_option_that_says_nothing(words: tuple[str, ...], said: str) -> None:
    result = call("evaluate", "x", "--set=mine", *words)
    assert result.exit_code == 2
    assert said in result.output


def test_a_conversion_has_the_site_of_its_run() -> None:
    result = call("convert", "x", "--site=site.yaml")
    assert result.exit_code == 2
    assert "--site goes with --profile" in result.output


@pytest.mark.parametrize("name", ["", "a/b", "../b", "my set", "ü", "x" * 65])
def test_a_set_that_can_name_neither_job_nor_folder(
    tmp_path: Path,
    fake: Fake,  # noqa: F811
    first: Run,
    name: str,
) -> None:
    model = converted(tmp_path / "Beam")
    at = (str(model), "--profile=demo", f"--data={tmp_path}/mine.jsonl")
    said = refuses(fake, "evaluate", *at, f"--set={name}")
    assert said.what == f"--set {name!r} cannot name a set of problems"
    assert "1 to 64 of A-Z a-z 0-9 . _ -" in str(said.why)


def test_responses_that_cannot_be_gone_on_with_are_known_before_the_queue(
    tmp_path: Path,
    fake: Fake,  # noqa: F811
    first: Run,
) -> None:
    model = converted(tmp_path / "Beam")
    at = (str(model), "--profile=demo", f"--data={tmp_path}/mine.jsonl", "--set=mine")
    digest = problems.digest(problems.read(tmp_path / "mine.jsonl"))
    settings = {"set": "mine", "problems": digest, "temperature": 0.5, "top_p": 1.0}
    settings |= {"max_tokens": 4096, "seed": 0, "versions": {"vllm": "1"}}
    kept = Responses(tmp_path / "Beam-mine" / "responses.jsonl", settings)
    assert call("evaluate", *at, "--dry-run").exit_code == 0  # there is nothing to mix yet
    kept.append([Response("mine:1", 0, "2", 1, False, "stop", True, "2")])
    said = refuses(fake, "evaluate", *at)
    assert (said.what, said.why) == (
        "the output folder holds responses that were made under other settings",
        "temperature: 0.5 there, 1.0 now",
    )
    assert call("evaluate", *at, "--temperature=0.5", "--dry-run").exit_code == 0
    for output in ("mine.jsonl", "mine.jsonl/scores"):
        said = refuses(fake, "evaluate", *at, "-o", str(tmp_path / output))
        assert said.what == "the output is there and no folder"
        assert said.where == str(tmp_path / "mine.jsonl")


def test_responses_longer_than_the_models_context(
    tmp_path: Path,
    fake: Fake,  # noqa: F811
    first: Run,
) -> None:
    model = converted(tmp_path / "Beam")
    (model / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
    at = (str(model), "--profile=demo", f"--data={tmp_path}/mine.jsonl", "--set=mine")
    said = refuses(fake, "evaluate", *at)
    assert said.what == "responses of 4096 tokens do not fit into the model's context"
    assert call("evaluate", *at, "--max-tokens=4095", "--dry-run").exit_code == 0


def contained(tmp_path: Path, name: str, *more: str) -> tuple[Path, Result]:
    """A model in a folder of that name that no container has yet, and what its evaluation says."""
    model = converted(tmp_path / name / "Beam")
    data = tmp_path / "mine.jsonl"
    data.write_text('{"question": "1+1", "answer": "2"}\n')
    words = ("--profile=b300-colocated", "--set=mine", f"--data={data}", "--dry-run")
    return model, call("evaluate", str(model), *words, *more)


@pytest.mark.parametrize("name", ["a,b", "a:b", 'a"b'])
def test_a_folder_that_no_container_could_be_given(
    tmp_path: Path, no_site: None, name: str
) -> None:
    with pytest.raises(BeamSlurmError) as caught:
        contained(tmp_path, name)
    assert caught.value.what == f"the folder {tmp_path / name} cannot be mounted"


def test_a_folder_at_the_root_cannot_be_made_from_a_container(
    tmp_path: Path, no_site: None
) -> None:
    with pytest.raises(BeamSlurmError, match="the folder / cannot be mounted"):
        contained(tmp_path, "models", "-o", "/scores")


def test_a_folder_with_spaces_is_one_word(tmp_path: Path, no_site: None) -> None:
    model, done = contained(tmp_path, "my models")
    shellcheck = ["shellcheck", "--shell=bash", "-"]
    assert subprocess.run(shellcheck, input=done.stdout, text=True, check=False).returncode == 0
    assert f"'--model={model}'" in done.stdout
