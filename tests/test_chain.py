"""``--then`` before anything is submitted: what is asked for, of which steps; what is refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import fakeslurm
import folders
import pytest
from click.testing import CliRunner, Result
from test_checkpoint import demo
from test_job import SITE, request
from test_prepare import MORE

from beam_slurm import checks, ending, posttraining, runs, slurm
from beam_slurm.cli import cli, submit
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.node import followers
from beam_slurm.node.followers import Follower
from beam_slurm.posttraining import evaluating, source, then
from beam_slurm.posttraining.evaluating import Settings
from beam_slurm.posttraining.then import Chain
from beam_slurm.report import overview, text
from beam_slurm.report.facts import gather
from beam_slurm.runs import Run

pytestmark = pytest.mark.usefixtures("no_site")

ENDS = ("COMPLETED", "COMPLETED", "CANCELLED", "CANCELLED")


def call(*words: str) -> Result:
    result = CliRunner().invoke(cli, [*words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def asked(profile: str, *words: str, overrides: tuple[str, ...] = ()) -> JobRequest:
    more = [f"{key}={value}" for key, value in MORE.items()]
    return request(profile, *more, *words, overrides=overrides)


def steps(request: JobRequest, every: int | None) -> list[int]:
    return [link.step for link in then.plan(request, Chain(False, every, False))]


@pytest.mark.parametrize(
    ("text", "chain"),
    [
        ("convert", Chain(False, None, False)),
        ("convert, evaluate", Chain(True, None, False)),
        ("convert:every 20", Chain(False, 20, False)),
        ("convert,evaluate:every 20", Chain(True, 20, False)),
        ("convert,evaluate,report", Chain(True, None, True)),
        ("convert,evaluate:every 5, report", Chain(True, 5, True)),
    ],
)
def test_what_is_asked_for(text: str, chain: Chain) -> None:
    assert then.parse(text) == chain


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("evaluate,convert", "in this order: convert,evaluate:every N,report"),
        ("convert:every 20,evaluate", "in this order"),
        ("convert,evaluate:every 0", "a whole number of training steps, at least 1"),
        ("convert:every", "a whole number of training steps, at least 1"),
        (":every 2x", "a whole number of training steps, at least 1"),
    ],
)
def test_why_it_is_no_chain(text: str, why: str) -> None:
    with pytest.raises(BeamSlurmError, match="is no chain") as caught:
        then.parse(text)
    assert why in str(caught.value.why)


@pytest.mark.parametrize(
    "text",
    [
        *("", "evaluate", "report", "evaluate,convert", "convert,convert", "convert,evaluate,"),
        *("convert,evaluate:every", "convert,evaluate:every 0", "convert,evaluate:every 2.5"),
        *("convert,evaluate:every20", "convert,evaluate:every=20", "convert,evaluate:20"),
        *("convert:every 20,evaluate", "convert,report,evaluate", "convert,evaluate:every -1"),
    ],
)
def test_what_is_no_chain(text: str) -> None:
    with pytest.raises(BeamSlurmError, match="is no chain") as caught:
        call("submit", "--profile=demo", f"--then={text}", "--dry-run")
    assert '--then "convert,evaluate:every 20"' in str(caught.value.remedy)


def test_without_quotes_the_number_is_a_word_of_its_own() -> None:
    with pytest.raises(BeamSlurmError, match="is no chain") as caught:
        call("submit", "--profile=demo", "--then", "convert,evaluate:every", "20", "--dry-run")
    assert "with quotes" in str(caught.value.remedy)


def test_each_nth_step_and_the_last_one() -> None:
    run = asked("demo", "recipe.steps=100", "recipe.checkpoint.every=10")
    assert steps(run, None) == [100]
    assert steps(run, 20) == [20, 40, 60, 80, 100]
    assert steps(run, 30) == [30, 60, 90, 100]
    assert steps(run, 100) == [100]
    first, *_, last = then.plan(run, Chain(True, 30, False))
    assert [it.task.name for it in first.requests if it.task] == ["convert", "evaluate"]
    assert (first.waits.step, last.waits.step) == (30, 100)
    assert then.plan(run, Chain(True, None, False))[0].waits.step is None


def test_miles_counts_its_folders_from_zero(tmp_path: Path) -> None:
    run = asked("miles-colocated")
    link = then.plan(run, Chain(False, 2 * run.profile.recipe.checkpoint.every, False))[0]
    task = link.requests[0].task
    assert task
    assert task.reads["--checkpoint"].endswith(f"/iter_{link.step - 1:07d}")
    assert task.output.endswith(f"/hf/step_{link.step}")


@pytest.mark.parametrize(
    ("every", "what", "remedy"),
    [
        (25, "steps without a checkpoint", ":every 40, or --save-every 25"),
        (10, "steps without a checkpoint", ":every 20, or --save-every 10"),
        (2000, "is never reached", "leave out :every"),
    ],
)
def test_steps_that_have_no_checkpoint(every: int, what: str, remedy: str) -> None:
    run = asked("demo", "recipe.steps=1000", "recipe.checkpoint.every=20")
    with pytest.raises(BeamSlurmError, match=what) as caught:
        steps(run, every)
    assert remedy in str(caught.value.remedy)


def test_more_checkpoints_than_a_queue_should_hold() -> None:
    run = asked("demo", "recipe.steps=1000", "recipe.checkpoint.every=1")
    with pytest.raises(BeamSlurmError, match="is 100 checkpoints") as caught:
        steps(run, 10)
    assert caught.value.remedy == ":every 20 or more"
    assert len(steps(run, 20)) == then.MOST


def test_what_lies_there_before_the_run_is_not_its_own(tmp_path: Path) -> None:
    words = (f"site.paths.runs={tmp_path}", "job.output_dir=first", "recipe.checkpoint.resume=true")
    run = asked("demo", *words, "recipe.steps=100", "recipe.checkpoint.every=20")
    demo(tmp_path / "first" / "checkpoints", 40)
    assert steps(run, 20) == [60, 80, 100]


def test_checkpoints_that_would_be_gone_too_early() -> None:
    words = ("recipe.checkpoint.enabled=true", "recipe.steps=200", "recipe.checkpoint.every=10")
    run = asked("b200-bf16", *words[1:], "recipe.checkpoint.keep=1")
    with pytest.raises(BeamSlurmError, match="would delete checkpoints") as caught:
        steps(run, 20)
    assert "that of step 20 goes when step 30 is saved" in str(caught.value.why)
    assert steps(run, None) == [200]  # the newest one stays
    for profile, stays in (("b200-bf16", 30), ("b300-colocated", 10)):
        run = asked(profile, *words, "recipe.checkpoint.keep=3")
        links = then.plan(run, Chain(False, 20, False))
        assert f"deleted {stays} steps later" in then.doubts(run, links)[0]
        assert then.doubts(run, links[-1:]) == []


@pytest.mark.parametrize("profile", ["b200-lora", "b200-lora-16"])
def test_skyrl_exports_what_its_adapters_alone_cannot_give(profile: str) -> None:
    run = asked(profile)
    chain = Chain(False, 20, False)
    assert then.exporting(run, chain) == ("trainer.hf_save_interval=20",)
    assert then.exporting(run, Chain(False, None, False)) == ("trainer.hf_save_interval=50",)
    first, _, last = then.plan(run, chain)
    task = last.requests[0].task
    assert task
    exported = f"{run.launch.output}/exports/global_step_%d/policy"
    assert task.reads["--checkpoint"] == exported % 50
    assert task.output == f"{run.launch.output}/hf/step_50"
    assert "--merge-lora" not in task.words
    assert first.waits == Follower("", 20, exported % 20)
    said = then.doubts(run, then.plan(run, chain))
    assert "exports the whole model 3 times, 1.0 TB each, into" in said[0]
    once = then.doubts(run, then.plan(run, Chain(False, None, False)))
    assert "exports the whole model once, 1.0 TB, into" in once[0]
    with pytest.raises(BeamSlurmError, match="say the same thing"):
        then.exporting(asked(profile, overrides=("trainer.hf_save_interval=5",)), chain)


def test_the_script_tells_skyrl_to_export_only_for_a_chain() -> None:
    given = [f"--set={key}={value}" for key, value in {**SITE, **MORE}.items()]
    words = ("submit", "--profile=b200-lora", "--dry-run", *given)
    assert "hf_save_interval" not in call(*words).stdout
    assert "trainer.hf_save_interval=10" in call(*words, "--then=convert:every 10").stdout
    assert "hf_save_interval" not in call(*words[:1], "--profile=b200-bf16", *words[2:]).stdout


def test_an_adapter_is_merged_if_it_is_to_be_scored(tmp_path: Path) -> None:
    """Miles writes adapters as PEFT has them; alone they stay adapters."""
    problem = {"prompt": "1+1", "label": "2"}
    data = tmp_path / "aime-2025" / "aime-2025.jsonl"
    data.parent.mkdir()
    lines = [json.dumps({**problem, "prompt": f"{n}+1", "label": str(n + 1)}) for n in range(30)]
    data.write_text("\n".join(lines) + "\n")
    run = asked("miles-lora", f"site.paths.datasets={tmp_path}")
    for evaluate in (False, True):
        task = then.plan(run, Chain(evaluate, None, False))[0].requests[0].task
        assert task
        assert ("--merge-lora" in task.words) is evaluate


@pytest.mark.parametrize(
    ("profile", "settings", "warned"),
    [
        ("b300-colocated", (), True),
        ("b300-colocated", ("site.images.evaluate=vllm:beam",), False),
        ("b300-colocated", ("site.container=bare",), False),
        ("h200-async", (), False),  # vLLM generates there
        ("b200-bf16", (), False),
        ("demo", (), False),
    ],
)
def test_an_image_that_may_have_no_vllm_is_doubted_before_the_run(
    tmp_path: Path, profile: str, settings: tuple[str, ...], warned: bool
) -> None:
    data = tmp_path / "mine.jsonl"
    data.write_text('{"question": "1+1", "answer": "2"}\n')
    run = asked(profile, "recipe.checkpoint.enabled=true", *settings)
    link = then.plan(run, Chain(False, None, False))[0]
    at = source.to_come(run, run.profile.recipe.steps)
    scored = posttraining.request(at, evaluating.task(at, Settings("mine", data), None))
    links = [replace(link, requests=(*link.requests, scored))]
    said = [doubt for doubt in then.doubts(run, links) if "site.images.evaluate" in doubt]
    assert bool(said) is warned
    by_hand = checks.engineless(scored)
    assert bool(by_hand) is warned
    # The record of a run that was submitted has its own site.
    assert all("FOLDER --profile NAME" not in doubt for doubt in said)
    assert not warned or "FOLDER --profile NAME" in str(by_hand)
    assert checks.engineless(links[0].requests[0]) is None


@pytest.mark.parametrize("prepared", [True, False])
def test_problems_that_are_not_prepared_have_a_remedy_that_the_command_knows(
    tmp_path: Path, prepared: bool
) -> None:
    site = {**MORE, "site.paths.datasets": str(tmp_path) if prepared else "null"}
    run = request("miles-lora", *(f"{key}={value}" for key, value in site.items()))
    with pytest.raises(BeamSlurmError) as caught:
        then.plan(run, Chain(True, None, False))
    remedy = str(caught.value.remedy)
    assert prepared or str(caught.value.why) == "the site file does not say site.paths.datasets"
    assert "beam-slurm prepare brings them" in remedy
    assert "--then convert alone" in remedy


def test_a_report_is_drawn_by_who_waits() -> None:
    for more in ((), ("--dry-run",)):
        with pytest.raises(BeamSlurmError, match="needs --wait") as caught:
            call("submit", "--profile=demo", "--then=convert,evaluate,report", *more)
        assert caught.value.why
        assert "beam-slurm report RUN" in str(caught.value.remedy)


# The controller takes ROOM jobs, and writes down behind which one each is to wait.
SBATCH = """#!/bin/bash
cd "${0%/*}" || exit 1
[[ $1 != --version ]] || { echo slurm 22.05.8; exit; }
echo "$*" | grep -o 'dependency=[^ ]*' >> behind
taken=$(wc -l < jobs 2>/dev/null)
if (( taken >= ROOM )); then
  echo 'sbatch: error: AssocMaxSubmitJobLimit' >&2; exit 1
fi
echo x >> jobs
echo $(( taken + 1 ))
"""


@pytest.mark.parametrize(("room", "waiting"), [(7, [2, 4, 6]), (4, [2, 4]), (3, [2])])
def test_a_queue_that_takes_no_more_leaves_a_chain_that_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, waiting: list[int]
) -> None:
    """What was submitted before waits for the run and is written down for its supervisor."""
    fakeslurm.install(tmp_path)
    (tmp_path / "bin" / "sbatch").write_text(SBATCH.replace("ROOM", str(room)))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    command = ("submit", "--profile=demo", "--steps=6", "--save-every=2", "--nodes=1")
    if room == 7:
        said = call(*command, "--then=convert,evaluate:every 2").stdout
        assert [line.split(", ")[1] for line in said.splitlines() if line.startswith("then")] == [
            f"of step {step}" for step in (2, 2, 4, 4, 6, 6)
        ]
    else:
        with pytest.raises(BeamSlurmError, match="AssocMaxSubmitJobLimit"):
            call(*command, "--then=convert,evaluate:every 2")
    run = next(it for it in runs.all_runs(tmp_path / "runs") if "then" in it.manifest)
    assert len(run.manifest["then"]) == room - 1
    found = followers.read(str(run.path))
    assert [(it.job, it.step) for it in found] == [(str(step), step) for step in waiting]
    behind = (tmp_path / "bin" / "behind").read_text().split()
    assert behind[: room - 1] == [
        f"dependency=afterok:{job}" for job in (1, 2, 1, 4, 1, 6)[: room - 1]
    ]
    for name in run.manifest["then"][: 2 * ((room - 1) // 2) : 2]:
        own = followers.read(str(run.path.parent / name))
        assert [it.step for it in own] == [None]


def chained(root: Path, **manifest: object) -> Run:
    """A run with two chains behind it: that of step 20 was released, that of step 40 waits."""
    names = [f"demo-1a2b3c-{name}" for name in ("hf-1", "set-1", "hf-2", "set-2")]
    run = folders.make(root, **{"then": names, **manifest})
    for at, name in enumerate(names):
        before = run.id if at % 2 == 0 else names[at - 1]
        facts = {"follows": before, "task": {"run": run.id, "step": 20 * (1 + at // 2)}}
        folders.make(root, name, job=str(21 + at), output=str(root / name / "output"), **facts)
    followers.write(str(run.path), [Follower("23", 40)])
    return run


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> dict[str, slurm.Job]:
    known = {
        "17": slurm.Job("17", "RUNNING"),
        "21": slurm.Job("21", "RUNNING"),
        **{job: slurm.Job(job, "PENDING", reason="Dependency") for job in ("22", "23", "24")},
    }
    monkeypatch.setattr(slurm, "job", known.get)
    monkeypatch.setattr(slurm, "cancel", lambda job: None)
    return known


def test_what_was_released_goes_on_when_the_run_is_cancelled(
    tmp_path: Path, jobs: dict[str, slurm.Job]
) -> None:
    run = chained(tmp_path)
    said = ending.end(run)
    assert said.endswith("; of saved checkpoints, these go on: demo-1a2b3c-hf-1, demo-1a2b3c-set-1")
    folders.outcome(Run(tmp_path / "demo-1a2b3c-hf-1"))
    assert ending.end(run).endswith("these go on: demo-1a2b3c-set-1")
    (run.path / followers.FILE).unlink()
    assert "go on" not in ending.end(run)


def test_the_newest_run_is_the_one_that_others_follow(tmp_path: Path) -> None:
    run = chained(tmp_path)
    for at, follower in enumerate(run.manifest["then"], 1):
        Run(tmp_path / follower).record(created=(run.created or 0) + at)
    assert runs.find(None, tmp_path).id == run.id


def test_status_tells_of_each_with_its_step_and_score(
    tmp_path: Path, jobs: dict[str, slurm.Job]
) -> None:
    run = chained(tmp_path)
    converted, scored, *_ = (Run(tmp_path / name) for name in run.manifest["then"])
    folders.outcome(converted)
    folders.outcome(scored)
    scored.output.mkdir()
    scores = {"avg@8": {"value": 0.625}, "pass@1": {"value": 0.625}}
    summary = {"settings": {"set": "aime2025"}, "scores": scores}
    (scored.output / "summary.json").write_text(json.dumps(summary))
    jobs |= {job: slurm.Job(job, "COMPLETED") for job in ("21", "22")}
    jobs["23"] = slurm.Job("23", "FAILED")
    folders.outcome(Run(tmp_path / "demo-1a2b3c-hf-2"), state="failed", cause="it has no room")
    with (console := text.console()).capture() as shown:
        console.print(overview.detail(gather(run)), soft_wrap=True)
    rows = [line.split(None, 1) for line in shown.get().splitlines()]
    assert [row[1].strip() for row in rows if row[0] == "then"] == [
        "demo-1a2b3c-hf-1  step 20  succeeded",
        "demo-1a2b3c-set-1  step 20  succeeded  avg@8 62.5 %",
        "demo-1a2b3c-hf-2  step 40  failed: it has no room",
        "demo-1a2b3c-set-2  step 40  pending: Dependency",
    ]


def test_who_waits_stays_for_all_that_goes_on(
    tmp_path: Path, jobs: dict[str, slurm.Job], capsys: pytest.CaptureFixture[str]
) -> None:
    """The run fails after step 20: what followed that is waited for, what is gone is soon told."""
    run = chained(tmp_path)
    behind = [Run(tmp_path / name) for name in run.manifest["then"]]
    for job, state in zip(("17", "21", "22", "23", "24"), ("FAILED", *ENDS), strict=True):
        jobs[job] = slurm.Job(job, state, exit_code="0:0")
    folders.outcome(run, state="failed", cause="out of memory", exit_code=3)
    for follower in behind[:2]:
        folders.outcome(follower)
    assert submit._stay(run, behind, early=True, as_json=False, draw=False) == 3
    said = capsys.readouterr().out
    assert [said.splitlines().count(follower.id) for follower in behind] == [1, 1, 1, 1]
    assert said.count("cancelled") == 2
    assert submit._stay(run, behind, early=False, as_json=False, draw=False) == 3
    assert behind[0].id not in capsys.readouterr().out


def test_the_first_that_fails_behind_a_run_gives_the_exit_code(
    tmp_path: Path, jobs: dict[str, slurm.Job], capsys: pytest.CaptureFixture[str]
) -> None:
    run = chained(tmp_path)
    behind = [Run(tmp_path / name) for name in run.manifest["then"]]
    for job in jobs:
        jobs[job] = slurm.Job(job, "COMPLETED")
    for each in (run, *behind):
        folders.outcome(each)
    folders.outcome(behind[0], state="failed", cause="the checkpoint is not whole", exit_code=2)
    folders.outcome(behind[2], state="failed", cause="no room", exit_code=4)
    assert submit._stay(run, behind, early=True, as_json=False, draw=False) == 2
    said = capsys.readouterr().out
    assert "the checkpoint is not whole" in said
    assert "no room" in said


def test_an_evaluation_of_a_conversion_is_one_of_the_run_that_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "runs"
    model = str(tmp_path / "hf" / "step_20")
    conversion = folders.make(
        root, "demo-1a2b3c-hf-1", task={"run": "demo-1a2b3c", "step": 20, "output": model}
    )
    folders.make(root, "step_20-hf-2", task={"run": None, "step": None, "output": model})
    monkeypatch.setattr("beam_slurm.records.rerun.restored", lambda *_: asked("demo").resolved)
    found = source.model(conversion.id, root)
    assert (found.run and found.run.id, found.step, str(found.path)) == ("demo-1a2b3c", 20, model)
    assert source.model("step_20-hf-2", root).run is None
