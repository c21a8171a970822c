"""Submitting a sweep: chunks, never twice, nothing half done. Slurm is ``fakeslurm`` here."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakeslurm
import pytest
from click.testing import CliRunner, Result
from fakeslurm import Fake

from beam_slurm import runs, slurm
from beam_slurm.cli import cli
from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run
from beam_slurm.sweep import file, folder, planning, submission, task
from beam_slurm.sweep.folder import Content, Entry, Folder
from beam_slurm.sweep.states import Observer

SWEEP = """\
profile: demo
set: {hardware.nodes: 2}
over: {recipe.learning_rate: [1e-4, 1e-3, 1e-2]}
seeds: [1, 2]
objective: {metric: reward}
max_parallel: 2
"""

Call = Callable[..., Result]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_site: None) -> Fake:
    made = fakeslurm.install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    (tmp_path / "lr.yaml").write_text(SWEEP)
    return made


@pytest.fixture
def call(fake: Fake) -> Call:
    """The command line in a folder with lr.yaml; an error of ours is raised."""

    def run(*words: str) -> Result:
        result = CliRunner().invoke(cli, ["sweep", *words])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def only(tmp_path: Path) -> Folder:
    (path,) = runs.sweeps(tmp_path / "runs")
    return folder.open_folder(path)


def bare(tmp_path: Path, count: int, parallel: int | None = None, kinds: int = 1) -> Folder:
    """A sweep with the least of run folders, by hand: thousands of real ones take a minute."""
    path = tmp_path / "runs" / "big-123456"
    path.mkdir(parents=True)
    names = [f"big-123456-{at:04}" for at in range(count)]
    for name in names:
        (path / name).mkdir()
        (path / name / "manifest.json").write_text("{}")
    entries = [Entry({"recipe.steps": at}, None, name, at % kinds) for at, name in enumerate(names)]
    options: list[list[tuple[str, Any]]] = [
        [("job-name", "big"), ("nodes", 1 + at), ("exclusive", None)] for at in range(kinds)
    ]
    sweep = file.read(tmp_path / "lr.yaml")
    content = Content(
        str(sweep.path), sweep.sha256, "slurm", "demo", 1.0, parallel, entries, options
    )
    return folder.create(path, sweep, content)


def jobs(of: Folder) -> dict[str, str]:
    """What each run's own manifest says its job is."""
    return {entry.run: Run(of.path / entry.run).manifest["job"] for entry in of.content.points}


def test_2500_points_are_three_arrays_and_each_is_submitted_once(
    tmp_path: Path, fake: Fake
) -> None:
    of = bare(tmp_path, 2500, parallel=8)
    fake.set(lost=1)  # the first submission times out after it was accepted
    submission.submit(of)
    taken = fake.submitted
    assert [job["tasks"] for job in taken] == [1001, 1001, 498]  # the highest index is 1000
    assert [job["options"]["array"] for job in taken] == ["0-1000%8", "0-1000%8", "0-497%8"]
    # Together they keep to 8: one begins when the one before it is over.
    assert [job["options"].get("dependency") for job in taken] == [
        None,
        "afterany:100",
        "afterany:101",
    ]
    assert len({job["comment"] for job in taken}) == 3
    found = jobs(of)
    assert len(set(found.values())) == 2500
    assert found["big-123456-1000"] == "100_1000"
    assert found["big-123456-1001"] == "101_0"
    assert found["big-123456-2499"] == "102_497"
    submission.submit(of)  # again: there is nothing to do
    assert len(fake.submitted) == 3


@pytest.mark.parametrize("taken", [True, False])
def test_a_controller_that_falls_silent_and_whoever_resumes(
    tmp_path: Path, fake: Fake, call: Call, taken: bool
) -> None:
    """Nobody knows whether the second array was taken: the resume finds out, and never doubles."""
    of = bare(tmp_path, 25)
    fake.set(array=10)
    submit, count = submission._sbatch, iter(range(9))

    def silent(of: Folder, number: int) -> str:
        if next(count) == 1:
            fake.set(**{"lost" if taken else "dropped": 1, "deaf": 1})
        return submit(of, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "_sbatch", silent)
        with pytest.raises(BeamSlurmError, match="nobody can say") as caught:
            submission.submit(of)
    assert "beam-slurm sweep big-123456 --resume" in (caught.value.remedy or "")
    assert "its comment beam-slurm:big-123456:1" in (caught.value.remedy or "")
    assert len(fake.submitted) == (2 if taken else 1)
    again = folder.open_folder(of.path)
    assert [(len(c.runs), c.job) for c in again.content.chunks] == [(10, "100"), (10, None)]
    assert len(again.left()) == 5
    looks = Observer().look(again)
    assert not any(look.failed for look in looks)  # nor is it run again while nobody knows
    assert "nobody knows whether Slurm took it" in looks[10].facts.state.why
    assert looks[20].facts.state.why == "it was not submitted yet"
    result = call("big-123456", "--resume")
    assert result.exit_code == 0, result.output
    assert [job["tasks"] for job in fake.submitted] == [10, 10, 5]
    assert len(set(jobs(of).values())) == 25


def test_cancel_finds_an_array_of_which_nobody_knew(tmp_path: Path, fake: Fake) -> None:
    of = bare(tmp_path, 3)
    fake.set(lost=1, deaf=1)
    with pytest.raises(BeamSlurmError, match="nobody can say"):
        submission.submit(of)
    result = CliRunner().invoke(cli, ["cancel", of.id])
    assert "job 100, 3 of 3 points" in result.output
    assert fake.submitted[0]["state"] == "CANCELLED"


def test_an_array_that_was_taken_and_is_over_and_forgotten(tmp_path: Path, fake: Fake) -> None:
    of = bare(tmp_path, 3)
    fake.set(lost=1, deaf=1)
    with pytest.raises(BeamSlurmError, match="nobody can say"):
        submission.submit(of)
    task.claimed(of.path / "big-123456-0001", "100")  # one of its tasks has begun
    fake.set(submitted=[{**job, "state": "COMPLETED"} for job in fake.submitted])
    again = folder.open_folder(of.path)
    submission.submit(again)
    assert [chunk.job for chunk in again.content.chunks] == ["100"]
    assert len(fake.submitted) == 1


def test_a_point_of_an_array_that_was_taken_twice_runs_once(tmp_path: Path) -> None:
    assert task.claimed(tmp_path, "12") == "12"
    assert task.claimed(tmp_path, "12") == "12"  # requeued
    assert task.claimed(tmp_path, "13") == "12"


def test_the_script_of_an_array_runs_its_points(tmp_path: Path, fake: Fake) -> None:
    """What submitit wrote, as Slurm would start a task of it: bash, Python, the point's script."""
    of = bare(tmp_path, 2)
    run = of.path / "big-123456-0001"
    (run / "script.sbatch").write_text(
        'echo "in $PWD as $0, pid $$"; env | grep -c "^SUBMITIT_"; exit 7\n'
    )
    submission.submit(of)
    script = fake.submitted[0]["script"]
    place = {
        "SLURM_JOB_ID": "102",
        "SLURM_ARRAY_JOB_ID": "100",
        "SLURM_ARRAY_TASK_ID": "1",
        "SLURM_NTASKS": "1",
        "SLURM_JOB_NODELIST": "n1",
    }
    here = {**os.environ, **place, "PYTHONPATH": str(Path(__file__).parents[1])}
    first = subprocess.Popen(["bash", script], env=here, stderr=subprocess.PIPE)
    _, said = first.communicate(timeout=120)
    assert first.returncode == 7, said.decode()
    assert (run / "job-102.log").read_text() == (
        f"in {run} as {run}/script.sbatch, pid {first.pid}\n0\n"
    )
    # The other submission of the same points, if Slurm has taken it too.
    here["SLURM_ARRAY_JOB_ID"] = "101"
    second = subprocess.run(
        ["bash", script], env=here, capture_output=True, text=True, timeout=120, check=False
    )
    assert second.returncode == 0, second.stderr
    assert "is run by array 100" in second.stdout


def test_what_an_array_tells_slurm(tmp_path: Path, fake: Fake) -> None:
    """Every option of the points' own scripts, their warning before the end above all."""
    planned = planning.make(file.read(tmp_path / "lr.yaml"), "lr-1")
    of = submission.start(file.read(tmp_path / "lr.yaml"), planned, 2)
    text = Path(fake.submitted[0]["script"]).read_text()
    own = str(planned[0].request).splitlines()
    options = {line for line in own if line.startswith("#SBATCH ")}
    differ = {line for line in options if line.split()[1].split("=")[0].strip("-") in OWN}
    assert len(differ) == 3
    missing = {line for line in options - differ if line not in text.replace("'", "").splitlines()}
    assert not missing
    assert "#SBATCH --signal=B:USR1@60" in text
    assert "#SBATCH --comment=beam-slurm:lr-1:0" in text
    assert f"#SBATCH --chdir={of.path}" in text
    assert "submitit" not in text.partition("# command")[0].replace(str(of.arrays), "")
    assert "srun" not in text
    assert len({line.split("=")[0] for line in text.splitlines() if "#SBATCH" in line}) == len(
        [line for line in text.splitlines() if "#SBATCH" in line]
    )


OWN = ("comment", "chdir", "output")


@pytest.mark.parametrize("said", ["", ", site.notify.on: [failure]"])
def test_points_are_silent_unless_the_file_says_otherwise(
    tmp_path: Path, fake: Fake, said: str
) -> None:
    (tmp_path / "lr.yaml").write_text(SWEEP.replace("nodes: 2}", "nodes: 2" + said + "}"))
    (tmp_path / "here.yaml").write_text("notify: {webhook: HOOK}\n")
    found = file.read(tmp_path / "lr.yaml")
    for each in planning.make(found, "lr-123456", site=tmp_path / "here.yaml"):
        notify = each.request.profile.site.notify
        assert (notify.webhook, notify.on) == ("HOOK", ["failure"] if said else [])


def test_points_of_different_sizes_are_arrays_of_their_own(tmp_path: Path, fake: Fake) -> None:
    of = bare(tmp_path, 7, kinds=2)
    submission.submit(of)
    assert [(job["tasks"], job["options"]["nodes"]) for job in fake.submitted] == [
        (4, "1"),
        (3, "2"),
    ]
    assert jobs(of)["big-123456-0006"] == "100_3"
    assert jobs(of)["big-123456-0005"] == "101_2"


def test_a_limit_on_the_user_s_jobs_leaves_the_rest_for_later(
    tmp_path: Path, fake: Fake, call: Call
) -> None:
    fake.set(jobs=4)
    result = call("lr.yaml")
    assert result.exit_code == 0, result.output
    assert "left    2 points" in result.output
    of = only(tmp_path)
    assert [job["tasks"] for job in fake.submitted] == [4]
    words = [look.facts.state.why for look in Observer().look(of)]
    assert words == ["Resources"] * 4 + ["it was not submitted yet"] * 2
    call(of.id, "--resume")
    assert [job["tasks"] for job in fake.submitted] == [4]  # still no room
    fake.set(submitted=[{**job, "state": "COMPLETED"} for job in fake.submitted])
    assert "left" not in call(of.id, "--resume").output
    assert [job["tasks"] for job in fake.submitted] == [4, 2]
    assert fake.submitted[1]["options"]["dependency"] == "afterany:100"


def test_a_refusal_in_the_middle_says_what_is_in_the_queue(tmp_path: Path, fake: Fake) -> None:
    of = bare(tmp_path, 25)
    fake.set(array=10)
    with pytest.MonkeyPatch.context() as patch:
        original = submission._sbatch

        def refused(of: Folder, number: int) -> str:
            if number == 1:
                raise BeamSlurmError("sbatch refuses", why="QOSMaxSubmitJobPerUserLimit")
            return original(of, number)

        patch.setattr(submission, "_sbatch", refused)
        with pytest.raises(BeamSlurmError, match="sbatch refuses") as caught:
            submission.submit(of)
    assert "10 of 25 points are submitted, as 100" in (caught.value.remedy or "")
    assert "beam-slurm cancel big-123456" in (caught.value.remedy or "")
    again = folder.open_folder(of.path)
    assert len(again.left()) == 15
    submission.submit(again)
    assert [job["tasks"] for job in fake.submitted] == [10, 10, 5]


def test_a_sweep_that_is_refused_as_a_whole_leaves_nothing(
    tmp_path: Path, fake: Fake, call: Call
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        refuse = BeamSlurmError("sbatch refuses")
        patch.setattr(submission, "_sbatch", lambda *_: (_ for _ in ()).throw(refuse))
        with pytest.raises(BeamSlurmError, match="sbatch refuses"):
            call("lr.yaml")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("over: {job.output_dir: [a, b]}", None),
        ("set: {job.output_dir: same}\nover: {recipe.steps: [1, 2]}", "both write into"),
        ("over: {hardware.nodes: [2, 9]}", "point 1 (nodes=9): demo wants 9 nodes"),
        ("over: {job.lead_s: [10, 1200]}", "point 1 (lead_s=1200): job.lead_s 1200 is not"),
        ("over: {site.secrets: [[], [NOT_SET]]}", "NOT_SET of site.secrets is not set"),
    ],
)
def test_every_point_is_checked_before_any_is_submitted(
    tmp_path: Path, fake: Fake, call: Call, change: str, said: str | None
) -> None:
    (tmp_path / "lr.yaml").write_text(f"profile: demo\n{change}\n")
    if said is None:
        assert call("lr.yaml").exit_code == 0
        return
    with pytest.raises(BeamSlurmError) as caught:
        call("lr.yaml")
    assert said in caught.value.what
    assert not fake.submitted
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_shows_everything_and_does_nothing(
    tmp_path: Path, fake: Fake, call: Call
) -> None:
    fake.set(array=4)
    result = call("lr.yaml", "--dry-run", "-o", "first.sbatch")
    assert result.exit_code == 0, result.output
    assert "array 0: 4 points, --array=0-3%2" in result.output
    assert "array 1: 2 points, --array=0-1%2" in result.output
    assert "lr: 6 points, at most 32.0 GPU-hours" in result.output  # 6 × 16 × 20 min
    assert "--learning-rate=0.0001" in (tmp_path / "first.sbatch").read_text()
    assert not fake.submitted
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_needs_no_slurm(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    result = call("lr.yaml", "--dry-run")
    assert result.exit_code == 0
    assert "array 0: 6 points" in result.output


def test_the_budget_refuses_with_the_numbers_or_trims(
    tmp_path: Path, fake: Fake, call: Call
) -> None:
    with pytest.raises(BeamSlurmError) as caught:
        call("lr.yaml", "--max-gpu-hours", "20")
    assert caught.value.what == "6 points may cost 32.0 GPU-hours, over 20.0"
    assert "--trim keeps the first 3 (16.0 GPU-hours)" in (caught.value.remedy or "")
    assert "it would be refused" in call("lr.yaml", "--dry-run", "--max-gpu-hours", "20").output
    assert not fake.submitted
    result = call("lr.yaml", "--max-gpu-hours", "20", "--trim")
    assert "the first 3 of 6 points" in result.output
    assert [job["tasks"] for job in fake.submitted] == [3]


def test_a_budget_in_the_file(tmp_path: Path, fake: Fake, call: Call) -> None:
    (tmp_path / "lr.yaml").write_text(SWEEP + "max_gpu_hours: 5\n")
    with pytest.raises(BeamSlurmError, match=r"over 5\.00") as caught:
        call("lr.yaml", "--trim")
    assert "--trim" not in (caught.value.remedy or "")  # not even one fits


def test_an_edited_sweep_file_is_noticed(tmp_path: Path, fake: Fake, call: Call) -> None:
    call("lr.yaml")
    of = only(tmp_path)
    assert call("lr.yaml", "--resume").exit_code == 0
    (tmp_path / "lr.yaml").write_text(SWEEP + "# one more word\n")
    with pytest.raises(BeamSlurmError, match=r"lr\.yaml was edited after it was submitted") as it:
        call("lr.yaml", "--resume")
    assert f"beam-slurm sweep {of.id} --resume" in (it.value.remedy or "")
    result = call(of.id, "--resume")  # the sweep as it was
    assert "was edited since" in result.output
    (of.path / "sweep.yaml").write_text(SWEEP + "# in its folder, too\n")
    for words in ((of.id, "--resume"), ("status", of.id), ("results", of.id)):
        with pytest.raises(BeamSlurmError, match=r"sweep\.yaml was edited"):
            call(*words)
    assert len(fake.submitted) == 1


def test_failed_points_alone_are_run_again(
    tmp_path: Path, fake: Fake, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("lr.yaml")
    of = only(tmp_path)
    assert "no point" in call(of.id, "--retry-failed").output
    fake.set(submitted=[{**job, "state": "COMPLETED"} for job in fake.submitted])
    for at, entry in enumerate(of.content.points):
        attempt = of.path / entry.run / "attempt-0"
        attempt.mkdir()
        bad = at in (1, 4)
        end = {
            "state": "failed" if bad else "succeeded",
            "cause": "x",
            "exit_code": int(bad),
            "job": "100",
            "task": f"100_{at}",
            "ended": 9.0,
        }
        (attempt / "outcome.json").write_text(json.dumps(end))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)  # where the default for runs is another folder
    result = call(str(of.path), "--retry-failed")
    assert "again: points 1, 4" in result.output
    assert [job["tasks"] for job in fake.submitted] == [6, 2]
    of.reload()
    names = [entry.run for entry in of.content.points]
    assert names[1] == f"{of.id}-0001-r1"
    assert names[0] == f"{of.id}-0000"
    assert of.jobs()[names[4]] == "101_1"
    script = (of.path / names[4] / "script.sbatch").read_text()
    before = (of.path / f"{of.id}-0004" / "script.sbatch").read_text()
    assert script.replace("-0004-r1", "-0004") == before
    states = [look.facts.state.word for look in Observer().look(of)]
    assert states == ["succeeded", "pending", "succeeded", "succeeded", "pending", "succeeded"]
    assert submission._again(names[4]) == f"{of.id}-0004-r2"


def test_nothing_is_run_again_while_slurm_is_silent(
    tmp_path: Path, fake: Fake, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs would be taken for lost, and run twice."""
    call("lr.yaml")
    of = only(tmp_path)

    def silent(*words: str, **variables: str) -> str:
        raise BeamSlurmError("Slurm's controller does not answer")

    monkeypatch.setattr(slurm, "ask", silent)
    with pytest.raises(BeamSlurmError, match="which points have failed"):
        call(of.id, "--retry-failed")
    assert len(fake.submitted) == 1


def test_a_secret_that_is_swept_over_is_not_said(tmp_path: Path, fake: Fake, call: Call) -> None:
    value = "hf_" + "abcdEFGH1234" * 3
    (tmp_path / "lr.yaml").write_text(
        f'profile: demo\nover: {{"hf-token={{}}": [{value}, {value}2]}}\n'
    )
    with pytest.raises(BeamSlurmError) as caught:
        call("lr.yaml")
    assert value not in str(caught.value)


def test_two_at_once_do_not_submit_twice(tmp_path: Path, fake: Fake) -> None:
    of = bare(tmp_path, 3)
    with (of.path / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BeamSlurmError, match="another beam-slurm is submitting"):
            submission.submit(of)
    assert not fake.submitted


def test_a_sweep_and_its_points_are_found_and_cancelled(
    tmp_path: Path, fake: Fake, call: Call
) -> None:
    call("lr.yaml")
    of = only(tmp_path)
    root = tmp_path / "runs"
    assert len(list(runs.all_runs(root))) == 6
    assert not list(runs.all_runs(root, points=False))
    assert runs.find(f"{of.id}-0003", root).manifest["sweep"]["index"] == 3
    assert runs.find("100_3", root).id == f"{of.id}-0003"
    assert runs.find(f"{of.id}-0003", root).state().word == "pending"
    listed = CliRunner().invoke(cli, ["status"]).output
    assert f"{of.id}  demo  job 100" in listed
    assert "-0003" not in listed
    rows = json.loads(CliRunner().invoke(cli, ["status", "--json"]).output)
    assert [(row["id"], row["points"], row["jobs"]) for row in rows] == [(of.id, 6, ["100"])]
    with pytest.raises(BeamSlurmError, match="is a sweep: its points are runs") as caught:
        CliRunner().invoke(cli, ["runs", "show", of.id], catch_exceptions=False)
    assert f"{of.id}-0000" in (caught.value.remedy or "")
    one = CliRunner().invoke(cli, ["status", of.id]).output
    assert "6 points, 6 pending" in one
    result = CliRunner().invoke(cli, ["cancel", of.id])
    assert result.output == f"cancelling {of.id}: job 100, 6 of 6 points\n"
    assert fake.submitted[0]["state"] == "CANCELLED"
    assert CliRunner().invoke(cli, ["cancel", of.id]).output == f"{of.id} is over already\n"
    assert [look.facts.state.word for look in Observer().look(of)] == ["cancelled"] * 6


def test_early_stop_without_optuna_is_refused_before_anything_is_submitted(
    tmp_path: Path, fake: Fake, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    (tmp_path / "lr.yaml").write_text(SWEEP + "early_stop: {rule: halving}\n")
    with pytest.raises(BeamSlurmError, match="early_stop needs Optuna") as caught:
        call("lr.yaml")
    assert "beam-slurm[sweep]" in (caught.value.remedy or "")
    assert not fake.submitted


def test_a_cancelled_sweep_goes_on_when_it_is_told_to(
    tmp_path: Path, fake: Fake, call: Call
) -> None:
    fake.set(jobs=4)
    call("lr.yaml")
    of = only(tmp_path)
    CliRunner().invoke(cli, ["cancel", of.id])
    of.reload()
    submission.submit(of)  # as --wait would do
    assert [job["tasks"] for job in fake.submitted] == [4]
    assert [look.facts.state.word for look in Observer().look(of)] == ["cancelled"] * 6
    result = call(of.id, "--resume")
    assert "again: points 0, 1, 2, 3\n" in result.output
    assert "left    2 points" in result.output
    assert [job["tasks"] for job in fake.submitted] == [4, 4]
    fake.set(jobs=10)
    assert "again" not in call(of.id, "--resume").output
    assert [job["tasks"] for job in fake.submitted] == [4, 4, 2]
    of.reload()
    names = [entry.run for entry in of.content.points]
    assert names == [f"{of.id}-{at:04}{'-r1' * (at < 4)}" for at in range(6)]
    assert [look.facts.state.word for look in Observer().look(of)] == ["pending"] * 6


def test_bad_folders(tmp_path: Path, fake: Fake, call: Call) -> None:
    with pytest.raises(BeamSlurmError, match="there is no sweep 'lr-0'"):
        call("status", "lr-0")
    call("lr.yaml")
    of = only(tmp_path)
    with pytest.raises(BeamSlurmError, match="is a folder"):
        call(str(of.path))
    with pytest.raises(BeamSlurmError, match="there is no sweep file lr-x"):
        call("lr-x")
    moved = of.path.rename(tmp_path / "elsewhere")
    assert "6 points" in call("status", str(moved)).output  # a folder that was moved is read
    content = json.loads((moved / "sweep.json").read_text())
    (moved / "sweep.json").write_text(json.dumps({**content, "version": 0}))
    with pytest.raises(BeamSlurmError, match="another version"):
        call("status", str(moved))
    (moved / "sweep.json").write_text('{"version": 1, "poi')
    with pytest.raises(BeamSlurmError, match="is no sweep"):
        call("status", str(moved))


def test_a_sweep_without_slurm_for_several_nodes(tmp_path: Path, call: Call) -> None:
    with pytest.raises(BeamSlurmError, match=r"point 0 .*wants 2 nodes, without Slurm"):
        call("lr.yaml", "--local")


def test_usage(call: Call) -> None:
    assert "--output goes with --dry-run" in call("lr.yaml", "-o", "x").output
    said = call("lr.yaml", "--resume", "--local").output
    assert "--local is for a new sweep" in said
    assert "Usage: beam-slurm sweep [OPTIONS] FILE" in said.replace("cli", "beam-slurm")
    assert "--trim goes with --max-gpu-hours" in call("lr.yaml", "--trim").output
    call("lr.yaml")
    assert "--site is for points that run again" in call("lr.yaml", "--resume", "--site=x").output
    assert "status SWEEP" in call("--help").output
    program = (
        "import sys; from beam_slurm.cli import cli; cli(['sweep', '-h'], standalone_mode=False);"
        "assert not {'submitit', 'optuna', 'rich', 'matplotlib', 'pydantic'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
