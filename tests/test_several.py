"""Several checkpoints scored as one array: what is meant, what is refused, what is submitted."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import fakeslurm
import pytest
from click.testing import CliRunner, Result
from fakeslurm import Fake
from launching import Launch
from test_job import SITE, driver_words
from test_posttraining import converted
from test_prepare import MORE

from beam_slurm import job, profiles, runs, submit
from beam_slurm.after import demo
from beam_slurm.cli import cli
from beam_slurm.errors import BeamSlurmError
from beam_slurm.posttraining import several
from beam_slurm.posttraining.evaluating import Settings
from beam_slurm.records import surroundings
from beam_slurm.runs import Run
from beam_slurm.sweep import folder, planning, submission
from beam_slurm.sweep.folder import Folder

Trained = Callable[..., Run]
ASKED = ("--set=held-out", "--samples=2", "--max-tokens=3")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_site: None) -> Fake:
    made = fakeslurm.install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return made


@pytest.fixture
def trained(tmp_path: Path, no_site: None) -> Trained:
    """Makes a run of the demo whose checkpoints of these steps were converted."""

    def made(name: str, *steps: int, settings: tuple[str, ...] = ()) -> Run:
        resolved = profiles.resolve("demo", settings=profiles.parse_settings(settings))
        run = submit.prepare(job.make_request(resolved, run_id=name))
        assert run.checkpoints
        for step in steps:
            converted(run.checkpoints.parent / "hf" / f"step_{step}")
        return run

    return made


def call(*words: str) -> Result:
    result = CliRunner().invoke(cli, [*words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def words(script: str) -> list[str]:
    """Those that start the entry."""
    return [word.decode() for word in driver_words(script)]


def only(tmp_path: Path) -> Folder:
    (path,) = runs.sweeps(tmp_path / "runs")
    return folder.open_folder(path)


def elements(of: Folder) -> list[Run]:
    return [of.run(at) for at in range(len(of.content.points))]


def refused(tmp_path: Path, fake: Fake, *words: str) -> BeamSlurmError:
    """Why it was; nothing is submitted, and no folder is made or left."""
    before = sorted(tmp_path.rglob("*"))
    submitted = fake.submitted
    with pytest.raises(BeamSlurmError) as caught:
        call("evaluate", *words, *ASKED)
    assert fake.submitted == submitted
    assert sorted(tmp_path.rglob("*")) == before
    return caught.value


def test_names_times_steps_are_one_array(tmp_path: Path, fake: Fake, trained: Trained) -> None:
    first, second = trained("first-1a2b3c", 2, 4, 6), trained("second-1a2b3c", 2, 4)
    fake.set(lost=1)  # the submission times out after it was accepted
    steps = ("--step=2", "--step=4", "--step=2")
    done = call("evaluate", first.id, second.id, *steps, *ASKED)
    assert done.exit_code == 0, done.output
    of = only(tmp_path)
    assert [task["tasks"] for task in fake.submitted] == [4]
    assert fake.submitted[0]["options"]["job-name"] == "evaluate-held-out"
    assert "dependency" not in fake.submitted[0]["options"]
    assert f"{of.id}  demo  job 100" in done.output
    for at, run in enumerate(elements(of)):
        whose, step = (first, second)[at // 2], (2, 4)[at % 2]
        folder = whose.output / "hf" / f"step_{step}"
        manifest = run.manifest
        assert manifest["job"] == f"100_{at}"
        assert manifest["framework"] == "evaluate"
        assert manifest["output"] == f"{folder}-held-out"
        assert manifest["task"].pop("data").endswith("held-out.jsonl")
        assert manifest["task"] == {
            "run": whose.id,
            "checkpoint": str(folder),
            "step": step,
            "framework": "demo",
            "set": "held-out",
        }
        entry = words((run.path / "script.sbatch").read_text())
        assert entry[entry.index("evaluate") - 1] == f"{run.path}/after.pyz"
        for name in ("after.pyz", "problems.jsonl", "math-verify.zip"):
            assert (run.path / name).is_file()
        assert f"--model={folder}" in entry
        assert f"--output={folder}-held-out" in entry
        assert runs.find(run.id, tmp_path / "runs").path == run.path
        assert runs.find(f"100_{at}", tmp_path / "runs").path == run.path


def test_one_checkpoint_is_a_plain_job(tmp_path: Path, trained: Trained) -> None:
    run = trained("first-1a2b3c", 2, 4)
    done = call("evaluate", run.id, "--dry-run", *ASKED)
    assert f"#SBATCH --job-name={run.id}-held-out\n" in done.stdout
    assert f"--model={run.output}/hf/step_4" in words(done.stdout)
    assert "GPU-hours" not in done.stderr


@pytest.mark.parametrize("which", [(), ("--step=all",)])
def test_nodes_must_find_what_the_login_node_makes(
    tmp_path: Path, fake: Fake, trained: Trained, which: tuple[str, ...]
) -> None:
    """A folder of that name on a disk of the node's own is another one; see test_preflight."""
    run = trained("first-1a2b3c", 2, 4)
    mark = run.output / "hf" / "step_4-held-out" / ".lock"
    if not which:  # several would wait until there is room
        fake.set(jobs=0)
        assert "AssocMaxSubmitJobLimit" in (refused(tmp_path, fake, run.id).why or "")
        fake.set(jobs=None)
    assert call("evaluate", run.id, *which, *ASKED).exit_code == 0
    assert mark.read_bytes() == b""
    scripts = [path.read_text() for path in (tmp_path / "runs").rglob("script.sbatch")]
    (script,) = (it for it in scripts if f"--made={mark}" in it)
    assert f"--shared={mark.parent}" in script


def test_all_steps_and_folders_beside_runs(tmp_path: Path, fake: Fake, trained: Trained) -> None:
    run = trained("first-1a2b3c", 2, 10, 4)
    shutil.copytree(run.output / "hf" / "step_4", run.output / "hf" / "step_9.part")
    call("evaluate", run.id, "--step=all", *ASKED)
    steps = [it.manifest["task"]["step"] for it in elements(only(tmp_path))]
    assert steps == [2, 4, 10]
    other = converted(tmp_path / "Beam")
    root = tmp_path / "others"
    more = (str(other), "--profile=demo", "-o", "scores")
    for words in (more, (*more, "--dry-run")):
        said = refused(tmp_path, fake, run.id, *words)
        assert "scores is not there" in said.what
        assert "make it, or leave out -o" in str(said.remedy)
    alone = (str(other), "--profile=demo", "-o", "nowhere/scores")
    for words in (alone, (*alone, "--dry-run")):
        said = refused(tmp_path, fake, *words)
        assert said.what == f"{tmp_path}/nowhere is not there"
        assert "give another folder with -o" in str(said.remedy)
    (tmp_path / "scores").mkdir()
    call("evaluate", str(run.path), *more, "--runs", str(root), *ASKED)
    (path,) = runs.sweeps(root)
    made = [Run(path / it.run) for it in folder.open_folder(path).content.points]
    assert [it.manifest["task"]["run"] for it in made] == [run.id, None]
    names = [Path(it.manifest["output"]).relative_to(tmp_path) for it in made]
    assert [*map(str, names)] == ["scores/first-1a2b3c-step_10", "scores/Beam"]


def test_jobs_that_ask_for_other_things_are_arrays_of_their_own(
    tmp_path: Path, fake: Fake, trained: Trained
) -> None:
    first = trained("first-1a2b3c", 2, 4)
    second = trained("second-1a2b3c", 2, 4, settings=("job.time=0:30:00",))
    third = trained("third-1a2b3c", 6)
    call("evaluate", first.id, second.id, third.id, "--step=all", *ASKED)
    assert [(it["tasks"], it["options"]["time"]) for it in fake.submitted] == [
        (3, "0:20:00"),
        (2, "0:30:00"),
    ]
    jobs = [run.manifest["job"] for run in elements(only(tmp_path))]
    assert jobs == ["100_0", "100_1", "101_0", "101_1", "100_2"]


def test_the_webhook_hears_nothing_of_each(trained: Trained, tmp_path: Path) -> None:
    run = trained("first-1a2b3c", 2, 4, settings=("site.notify.webhook=HOOK",))
    root = tmp_path / "runs"
    planned = several.plan(
        several.find([run.id], root, None, None), Settings("held-out", None), None, root=root
    )
    for each in planned:
        notify = each.request.profile.site.notify
        assert (notify.webhook, notify.on) == ("HOOK", [])


def test_what_names_no_checkpoint(tmp_path: Path, fake: Fake, trained: Trained) -> None:
    run = trained("first-1a2b3c", 2, 4)
    bare = trained("second-1a2b3c")
    other = str(converted(tmp_path / "Beam"))
    said = refused(tmp_path, fake, run.id, "nobody-1a2b3c")
    assert "there is no run 'nobody-1a2b3c'" in said.what
    said = refused(tmp_path, fake, run.id, bare.id)
    assert f"no checkpoint of {bare.id} has been converted" in said.what
    said = refused(tmp_path, fake, run.id, bare.id, "--step=all")
    assert f"no checkpoint of {bare.id} has been converted" in said.what
    said = refused(tmp_path, fake, run.id, "--step=2", "--step=3")
    assert f"no checkpoint of step 3 of {run.id}" in said.what
    said = refused(tmp_path, fake, run.id, other)
    assert (said.what, said.remedy) == (f"{other} is no run", "add --profile NAME")
    (tmp_path / run.id).mkdir()  # such as its output folder may be
    said = refused(tmp_path, fake, run.id, "--profile=demo")
    assert f"--profile is for a folder, and {run.id} is none" in said.what
    said = refused(tmp_path, fake, run.id, other, "--profile=demo", "--step=all")
    assert f"{other} is one checkpoint" in said.what
    assert "runs and folders in two commands" in str(said.remedy)
    for steps in (("--step=2", "--step=all"), ("--step=-2",), ("--step=two",)):
        result = call("evaluate", run.id, *steps, *ASKED)
        assert result.exit_code == 2
        assert "a number of training steps, or once: all" in result.output


@pytest.mark.parametrize("name", ["mine", "aime2025"])
def test_a_set_that_the_demo_has_not(
    tmp_path: Path, fake: Fake, trained: Trained, name: str
) -> None:
    run = trained("first-1a2b3c", 2)
    with pytest.raises(BeamSlurmError) as caught:
        call("evaluate", run.id, f"--set={name}")
    said = caught.value
    assert (said.what, said.why) == (f"there is no set {name}", "the known ones are: held-out")
    assert "--data FILE" in str(said.remedy)
    assert said.where is None


def test_every_model_is_looked_at_before_any_is_submitted(
    tmp_path: Path, fake: Fake, trained: Trained
) -> None:
    run = trained("first-1a2b3c", 2, 4)
    weights = run.output / "hf" / "step_4" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:20])
    said = refused(tmp_path, fake, run.id, "--step=all")
    assert str(weights) in str(said)
    weights.unlink()
    assert refused(tmp_path, fake, run.id, "--step=all").what == "the model is not whole"


def test_two_that_would_write_into_one_folder(tmp_path: Path, fake: Fake, trained: Trained) -> None:
    run = trained("first-1a2b3c", 2, 4)
    said = refused(tmp_path, fake, run.id, run.id)
    assert said.what == f"{run.id} step 4 is named twice"
    (tmp_path / "link").symlink_to(run.output / "hf")
    link = tmp_path / "link" / "step_4"
    said = refused(tmp_path, fake, run.id, str(link), "--profile=demo")
    assert said.what == f"{link} is named twice"
    one, other = converted(tmp_path / "a" / "Beam"), converted(tmp_path / "b" / "Beam")
    both = (str(one), str(other), "--profile=demo")
    said = refused(tmp_path, fake, *both, "-o", "scores")
    assert said.what == f"{one} and {other} would both write into {tmp_path}/scores/Beam"
    assert call("evaluate", *both, *ASKED).exit_code == 0


@pytest.mark.parametrize("one", [True, False])
def test_an_output_folder_that_a_waiting_evaluation_has(
    tmp_path: Path, fake: Fake, trained: Trained, one: bool
) -> None:
    run = trained("first-1a2b3c", 2, 4)
    assert call("evaluate", run.id, "--step=all", *ASKED).exit_code == 0
    of = only(tmp_path)
    said = refused(tmp_path, fake, run.id, "--step=4", *(() if one else ("--step=2",)))
    assert f"is the output folder of {of.id}-0001, which is pending" in said.what
    assert "-o" in (said.remedy or "")
    call("cancel", of.id)
    assert call("evaluate", run.id, "--step=all", *ASKED).exit_code == 0
    assert [task["tasks"] for task in fake.submitted] == [2, 2]


def test_a_dry_run_shows_the_array_and_a_script(
    tmp_path: Path, fake: Fake, trained: Trained
) -> None:
    run = trained("first-1a2b3c", 2, 4)
    before = sorted(tmp_path.rglob("*"))
    done = call("evaluate", run.id, "--step=all", "--dry-run", *ASKED)
    assert done.exit_code == 0
    assert done.stdout.startswith("#!/bin/bash")
    assert f"--model={run.output}/hf/step_2" in words(done.stdout)
    assert "step_4" not in done.stdout
    assert f"{run.id} step 4" in done.stderr
    assert "array 0: 2 checkpoints, --array=0-1\n" in done.stderr
    assert "2 checkpoints, at most 5.33 GPU-hours" in done.stderr  # 2 × 8 × 20 min
    assert sorted(tmp_path.rglob("*")) == before
    assert not fake.submitted
    said = call("evaluate", run.id, "--step=all", "--dry-run", "--json", *ASKED).output
    assert "--json tells of a run" in said


def test_as_json(tmp_path: Path, fake: Fake, trained: Trained) -> None:
    run = trained("first-1a2b3c", 2, 4)
    told = json.loads(call("evaluate", run.id, "--step=all", "--json", *ASKED).stdout)
    of = only(tmp_path)
    assert told == {
        "sweep": of.id,
        "jobs": ["100"],
        "folder": str(of.path),
        "runs": [
            {
                "run": it.id,
                "job": f"100_{at}",
                "folder": str(it.path),
                "output": f"{run.output}/hf/step_{2 + 2 * at}-held-out",
            }
            for at, it in enumerate(elements(of))
        ],
    }


def end(run: Run, at: int, code: int) -> None:
    """As a node would have written it: scored, or failed."""
    attempt = run.path / "attempt-0"
    attempt.mkdir()
    facts = {"job": "100", "task": f"100_{at}", "ended": 9.0, "exit_code": code}
    word = "failed" if code else "succeeded"
    (attempt / "outcome.json").write_text(json.dumps({**facts, "state": word, "cause": "x"}))
    if code == 0:
        assert run.output.is_dir()  # the login node has made it
        scores = {"problems": 12, "avg@2": {"value": 0.25, "low": 0.125, "high": 0.5}}
        summary = {"settings": {"set": "sums"}, "scores": scores}
        (run.output / "summary.json").write_text(json.dumps(summary))


def test_the_scores_of_all_and_what_can_be_done_with_them(
    tmp_path: Path, fake: Fake, trained: Trained
) -> None:
    run = trained("first-1a2b3c", 2, 4)
    call("evaluate", run.id, "--step=all", *ASKED)
    of = only(tmp_path)
    assert f"{of.id}  demo  job 100" in call("status").output
    assert f"2 checkpoints: beam-slurm sweep status {of.id}" in call("status").output
    table = call("status", of.id).output.splitlines()
    assert table[1].split() == [
        *("point", "checkpoint", "state", "job", "avg@k", "95", "%", "interval", "why")
    ]
    assert table[-1] == "2 checkpoints, 2 pending"
    fake.set(submitted=[{**task, "state": "COMPLETED"} for task in fake.submitted])
    end(of.run(0), 0, 0)
    end(of.run(1), 1, 7)
    for command in (("status",), ("sweep", "status")):
        table = call(*command, of.id).output.splitlines()
        assert table[1].split()[4] == "avg@2"
        assert table[2].split() == [
            *("0", run.id, "step", "2", "succeeded", "100_0", "25.0", "%"),
            *("12.5", "to", "50.0", "%"),
        ]
        assert table[3].split()[:7] == ["1", run.id, "step", "4", "failed", "100_1", "–"]
        assert table[-2:] == [
            "2 checkpoints, 1 succeeded, 1 failed",
            f"next    beam-slurm status {of.id}-0001",
        ]
    rows = json.loads(call("status", of.id, "--json").output)
    assert [row["checkpoint"] for row in rows] == [f"{run.id} step 2", f"{run.id} step 4"]
    assert [row["task"]["step"] for row in rows] == [2, 4]
    assert rows[0]["scores"]["avg@2"] == {"value": 0.25, "low": 0.125, "high": 0.5}
    assert rows[1]["scores"] == {}
    # Its points come from no file: they are named again, and what is done is kept.
    with pytest.raises(BeamSlurmError, match="has no sweep file") as caught:
        call("sweep", of.id, "--retry-failed")
    assert "what is done is kept" in (caught.value.remedy or "")
    with pytest.raises(BeamSlurmError, match="has no objective"):
        call("sweep", "results", of.id)
    assert "over already" in call("cancel", of.id).output
    call("evaluate", run.id, "--step=4", "--step=2", *ASKED)
    assert [task["tasks"] for task in fake.submitted] == [2, 2]


def test_an_array_of_which_nobody_knew_is_found_again(
    tmp_path: Path, fake: Fake, trained: Trained
) -> None:
    run = trained("first-1a2b3c", 2, 4)
    fake.set(lost=1, deaf=1)
    with pytest.raises(BeamSlurmError, match="nobody can say") as caught:
        call("evaluate", run.id, "--step=all", *ASKED)
    of = only(tmp_path)
    assert f"beam-slurm sweep {of.id} --resume" in (caught.value.remedy or "")
    assert call("sweep", of.id, "--resume").exit_code == 0
    assert [task["tasks"] for task in fake.submitted] == [2]
    assert [it.manifest["job"] for it in elements(of)] == ["100_0", "100_1"]


def test_cancel_ends_all_and_prune_removes_them(
    tmp_path: Path, fake: Fake, trained: Trained
) -> None:
    run = trained("first-1a2b3c", 2, 4)
    call("evaluate", run.id, "--step=all", *ASKED)
    of = only(tmp_path)
    assert call("cancel", of.id).output == f"cancelling {of.id}: job 100, 2 of 2 checkpoints\n"
    assert fake.submitted[0]["state"] == "CANCELLED"
    shutil.rmtree(run.path)
    assert "removed 2 runs" in call("runs", "prune", "--keep=0", "--yes").output
    assert not of.path.exists()


def test_what_each_is_made_of_is_its_own(tmp_path: Path, no_site: None) -> None:
    """Checkpoints of runs in two images: one look for those that share one."""
    made = []
    for name in ("one.sqsh", "other.sqsh", "one.sqsh"):
        (tmp_path / name).write_bytes(name.encode())
        given = {**SITE, **MORE, "site.images.nemo-rl-colocated": f"{tmp_path}/{name}"}
        texts = profiles.parse_settings(f"{key}={value}" for key, value in given.items())
        made.append(job.make_request(profiles.resolve("b300-colocated", settings=texts)))
    found = surroundings.gather_all(made)
    assert found[0] is found[2]
    names = [it.image["name"] for it in found if it.image]
    assert names == [f"{tmp_path}/{name}.sqsh" for name in ("one", "other", "one")]


@pytest.mark.parametrize("bad", [0, None])
def test_without_slurm_one_after_the_other(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: int | None
) -> None:
    """Whoever waits ends with the exit code of the one that fails; the other is not stopped."""
    monkeypatch.setenv("PATH", f"{tmp_path}/none:/usr/bin:/bin")
    run = trained("first-1a2b3c", 2, 4, settings=("hardware.gpus_per_node=1",))
    sources = several.find([run.id], tmp_path / "runs", None, None)
    planned = several.plan(
        sources, Settings("held-out", None), None, root=tmp_path / "runs", local=True
    )
    planning.check(planned)
    of = submission.prepare(None, planned, None)
    for at, each in enumerate(elements(of)):
        code = 7 if at == bad else 0
        word = "failed" if code else "succeeded"
        (each.path / "script.sbatch").write_text(
            f'mkdir attempt-0; printf \'{{"state": "{word}", "exit_code": {code}, '
            f'"cause": "x", "ended": 1}}\' > attempt-0/outcome.json\n'
        )
    done = call("sweep", of.id, "--resume", "--wait")
    assert done.exit_code == (0 if bad is None else 7), done.output
    assert f"2 checkpoints, {'2' if bad is None else '1'} succeeded" in done.output
    assert [each.attempts[0].outcome["exit_code"] for each in elements(of)] == [
        7 * (bad == 0),
        7 * (bad == 1),
    ]


@pytest.mark.slurm
def test_one_array_on_slurm_in_which_one_fails(
    launch: Launch, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is gone by the time its task begins: that one alone has failed."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers.models.beam")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples" / "grpo_digits"))
    demo_model = importlib.import_module("model")

    run = trained("demo-1a2b3c")
    for step in (2, 4):
        at = run.output / "hf" / f"step_{step}"
        demo_model.build_policy(step, torch.device("cpu")).save_pretrained(at)
        demo.tokenizer().save_pretrained(at)
    asked = ("--set=held-out", "--samples=1", "--temperature=0", "--max-tokens=3")
    words = ("evaluate", run.id, "--step=all", *asked)

    partition = launch.cluster.run(["sinfo", "--noheader", "--format=%R"]).stdout.strip()
    change = ["scontrol", "update", f"partition={partition}"]
    launch.cluster.run([*change, "state=down"])  # what is submitted waits
    try:
        done = launch.call(*words, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        again = launch.call(*words)
        assert again.returncode == 2
        assert f"is the output folder of {told['runs'][0]['run']}, which is pending" in again.stderr
        at.rename(at.with_name("gone"))
    finally:
        launch.cluster.run([*change, "state=up"])
    done = launch.call("sweep", told["sweep"], "--resume", "--wait")
    made = [Run(Path(it["folder"])) for it in told["runs"]]
    logs = [launch.log(it) for it in made]
    outcomes = [it.outcome for it in made]
    assert [it["state"] for it in outcomes] == ["succeeded", "failed"], logs
    assert done.returncode == outcomes[1]["exit_code"] != 0
    (array,) = told["jobs"]
    assert [it["task"] for it in outcomes] == [f"{array}_0", f"{array}_1"]

    # Once more, with the model back: what is done is kept.
    at.with_name("gone").rename(at)
    kept = (made[0].output / "responses.jsonl").read_bytes()
    done = launch.call(*words, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 checkpoints, 2 succeeded" in done.stdout
    assert (made[0].output / "responses.jsonl").read_bytes() == kept
    newest = folder.newest(launch.folder / "runs")[0].name
    rows = json.loads(launch.call("status", newest, "--json").stdout)
    assert [row["job"].partition("_")[2] for row in rows] == ["0", "1"]
    assert len({row["job"].partition("_")[0] for row in rows}) == 1
    assert all(0 <= row["scores"]["avg@1"]["value"] <= 1 for row in rows)
