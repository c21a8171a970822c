"""What a sweep has come to: states of many points at little cost, the ranking, CSV, the figure."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from pathlib import Path
from typing import Any

import folders
import pytest
from click.testing import CliRunner

from beam_slurm import slurm
from beam_slurm.cli import cli
from beam_slurm.errors import BeamSlurmError
from beam_slurm.metrics import History, Step
from beam_slurm.node import again
from beam_slurm.sweep import file, folder, results
from beam_slurm.sweep.folder import Chunk, Content, Entry, Folder
from beam_slurm.sweep.schema import Objective
from beam_slurm.sweep.states import Observer

SWEEP = """\
profile: demo
over:
  recipe.learning_rate: [1e-4, 1e-3, 1e-2]
  "--mode={}": [a, b]
seeds: [1, 2]
objective: {metric: reward, over: mean of last 2}
"""


class Slurm:
    """The tasks of arrays as the controller would tell of them, and how often it is asked."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, slurm.Job]] = {}
        self.asked: list[str] = []

    def of(self, array: str) -> dict[str, slurm.Job]:
        self.asked.append(array)
        return self.tasks.get(array, {})

    def job(self, job_id: str) -> slurm.Job | None:
        self.asked.append(job_id)
        return None


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm()
    monkeypatch.setattr(slurm, "tasks", made.of)
    monkeypatch.setattr(slurm, "accounted", lambda array: {})
    monkeypatch.setattr(slurm, "job", made.job)
    return made


def make(tmp_path: Path, count: int = 12, text: str = SWEEP) -> Folder:
    """A sweep whose points are submitted as array 17 and have not begun."""
    (tmp_path / "lr.yaml").write_text(text)
    path = tmp_path / "runs" / "lr-1a2b3c"
    path.mkdir(parents=True)
    sweep = file.read(tmp_path / "lr.yaml")
    entries = []
    for at in range(count):
        name = f"lr-1a2b3c-{at:04}"
        values = {
            "recipe.learning_rate": 10.0 ** (-4 + at // 4 % 3),
            "--mode={}": "ab"[at // 2 % 2],
        }
        facts = {"id": "lr-1a2b3c", "index": at, "values": values, "seed": 1 + at % 2}
        folders.make(path, name, job=f"17_{at}", steps=4, sweep=facts)
        entries.append(Entry(values, 1 + at % 2, name, 0))
    content = Content(
        str(sweep.path), sweep.sha256, "slurm", "demo", folders.T0, None, entries, [[("nodes", 2)]]
    )
    content.chunks.append(Chunk("beam-slurm:lr-1a2b3c:0", [entry.run for entry in entries], "17"))
    return folder.create(path, sweep, content)


def succeed(of: Folder, at: int, reward: float) -> None:
    run = of.run(at)
    folders.bring_up(run)
    for step in range(1, 5):
        folders.measure(run, folders.train(step, steps=4, reward=reward * step / 4))
    folders.outcome(run, job="17", task=f"17_{at}")


@pytest.fixture
def finished(tmp_path: Path, cluster: Slurm, no_site: None) -> Folder:
    """All points have succeeded but point 3, which failed, and 11, which runs."""
    of = make(tmp_path)
    for at in range(12):
        rate, mode, seed = at // 4, at // 2 % 2, at % 2
        if at == 3:
            folders.bring_up(of.run(at))
            folders.outcome(of.run(at), state="failed", exit_code=2, cause="boom")
        elif at == 11:
            folders.bring_up(of.run(at))
            folders.measure(of.run(at), folders.train(2, steps=4, reward=99.0))
            cluster.tasks["17"] = {"17_11": slurm.Job("17_11", "RUNNING", nodes="n1")}
        else:
            succeed(of, at, [0.4, 0.9, 0.2][rate] + 0.05 * mode + 0.02 * seed)
    return of


def ranked(of: Folder, wanted: Objective) -> list[tuple[float, str, float | None, int]]:
    rows = results.rank(Observer().look(of), wanted)
    return [
        (row.values["recipe.learning_rate"], row.values["--mode={}"], row.mean, len(row.found))
        for row in rows
    ]


def test_the_best_combination_is_first(finished: Folder) -> None:
    wanted = Objective(metric="reward")
    found = ranked(finished, wanted)
    assert [row[:2] for row in found] == [
        (1e-3, "b"),
        (1e-3, "a"),
        (1e-4, "b"),
        (1e-4, "a"),
        (1e-2, "b"),
        (1e-2, "a"),
    ]
    assert found[0][2] == pytest.approx(0.96)
    assert found[2][3] == 1  # one of its seeds has failed
    assert found[4][3] == 1  # one of its seeds runs: what it has now does not count
    assert ranked(finished, Objective(metric="reward", goal="minimize"))[0][:2] == (1e-2, "a")


def history(*rewards: float) -> History:
    made = History()
    for step, reward in enumerate(rewards, 1):
        made.add(Step(step, reward=reward))
    return made


@pytest.mark.parametrize(
    ("over", "goal", "rewards", "expected"),
    [
        ("last", None, (1, 3, 2), 2),
        ("best", None, (1, 3, 2), 3),
        ("best", "minimize", (2, 1, 3), 1),
        ("mean of last 2", None, (1, 3, 2), 2.5),
        ("mean of last 9", None, (1, 3, 2), 2),
        ("best", None, (1, math.nan, math.inf), 1),
        ("last", None, (1, math.nan), math.nan),
        ("best", None, (math.nan,), math.nan),
        ("last", None, (), None),
    ],
)
def test_which_value_counts(
    over: str, goal: Any, rewards: tuple[float, ...], expected: float | None
) -> None:
    found = results.value(history(*rewards), Objective(metric="reward", over=over, goal=goal))
    assert found == pytest.approx(expected, nan_ok=True)
    assert results.value(None, Objective(metric="reward")) is None


def test_a_point_that_has_diverged_ranks_behind_those_that_have_not(
    tmp_path: Path, cluster: Slurm
) -> None:
    of = make(tmp_path)
    for at in range(10):
        succeed(of, at, math.nan if at in (0, 1) else float(at))
    found = ranked(of, Objective(metric="reward"))
    assert found[0][0] == 1e-2
    assert math.isnan(found[-2][2] or 0)
    assert found[-1][2] is None  # nothing of it is over


def call(of: Folder, *words: str) -> str:
    result = CliRunner().invoke(cli, ["sweep", *words, "--runs", str(of.path.parent)])
    if result.exception:
        raise result.exception
    return result.stdout


def test_the_tables(finished: Folder) -> None:
    table = call(finished, "results", finished.id)
    first = next(line for line in table.splitlines() if line.strip().startswith("1 "))
    assert first.split() == ["1", "0.001", "b", "0.840", "0.012", "2/2", "6,", "7"]
    assert "best    beam-slurm report lr-1a2b3c-0006\n" in table
    assert "again   beam-slurm runs rerun lr-1a2b3c-0006\n" in table
    assert "3 failed" in table
    assert "12 points, 1 running, 10 succeeded, 1 failed" in table
    status = call(finished, "status", finished.id)
    rows = {line.split()[0]: line.split() for line in status.splitlines() if line.strip()}
    assert rows["3"][4:6] == ["failed", "17_3"]
    assert "boom" in rows["3"]
    assert rows["11"][1:9] == ["0.01", "b", "2", "running", "17_11", "2/4", "99.0", "4.0"]
    assert "--retry-failed" in status


def test_csv_and_json(finished: Folder) -> None:
    rows = list(csv.DictReader(io.StringIO(call(finished, "results", finished.id, "--csv"))))
    assert len(rows) == 12
    assert rows[6]["recipe.learning_rate"] == "0.001"
    assert rows[6]["--mode={}"] == "b"
    assert rows[6]["seed"] == "1"
    assert float(rows[6]["objective"]) == pytest.approx(0.95 * 0.875)
    assert rows[3]["state"] == "failed"
    assert rows[3]["objective"] == ""
    found = json.loads(call(finished, "results", finished.id, "--json"))
    assert [row["point"] for row in found[:2]] == [6, 7]  # the best first
    assert {row["job"] for row in found} == {f"17_{at}" for at in range(12)}


def test_the_figure(finished: Folder, tmp_path: Path) -> None:
    call(finished, "results", finished.id, "-o", str(tmp_path / "lr.png"))
    content = (tmp_path / "lr.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000
    assert not list(tmp_path.glob(".*.part"))
    with pytest.raises(BeamSlurmError, match="cannot write"):
        call(finished, "results", finished.id, "-o", str(tmp_path / "no" / "lr.png"))


def test_nothing_to_draw_or_to_rank_yet(tmp_path: Path, cluster: Slurm, no_site: None) -> None:
    of = make(tmp_path)
    with pytest.raises(BeamSlurmError, match="has not measured reward yet"):
        call(of, "results", of.id, "-o", str(tmp_path / "lr.png"))
    other = tmp_path / "other"
    other.mkdir()
    of = make(other, text=SWEEP.rpartition("objective")[0])
    with pytest.raises(BeamSlurmError, match="has no objective"):
        call(of, "results", of.id)


def test_1000_points_are_one_question(tmp_path: Path, cluster: Slurm) -> None:
    of = make(tmp_path, 1000)
    for at in range(600):
        folders.bring_up(of.run(at))
        folders.measure(of.run(at), *(folders.train(s, steps=4) for s in range(1, 5)))
        if at < 500:
            folders.outcome(of.run(at), task=f"17_{at}")
    cluster.tasks["17"] = {
        f"17_{at}": slurm.Job(f"17_{at}", "RUNNING" if at < 600 else "PENDING", "Resources")
        for at in range(500, 1000)
    }
    observer = Observer()
    began = time.monotonic()
    looks = observer.look(of)
    first = time.monotonic() - began
    words = [look.facts.state.word for look in looks]
    assert words == ["succeeded"] * 500 + ["running"] * 100 + ["pending"] * 400
    assert cluster.asked == ["17"]
    began = time.monotonic()
    observer.look(of)
    assert cluster.asked == ["17", "17"]
    again = time.monotonic() - began
    assert first < 20, f"{first:.1f} s"  # about 1 s on a machine with nothing else to do
    assert again < first


def test_a_controller_that_is_silent(finished: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(array: str) -> dict[str, slurm.Job]:
        raise BeamSlurmError("Slurm's controller does not answer", why="timeout")

    monkeypatch.setattr(slurm, "tasks", silent)
    observer = Observer()
    words = [look.facts.state.word for look in observer.look(finished)]
    assert words == ["succeeded"] * 3 + ["failed"] + ["succeeded"] * 7 + ["unknown"]
    assert "does not answer" in observer.note


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What scontrol and sacct say."""
    said: dict[str, str] = {}
    monkeypatch.setattr(slurm, "ask", lambda *words, **_: said[words[0]])
    return said


def test_the_tasks_of_an_array(answers: dict[str, str]) -> None:
    """The array's own number is that of one of its tasks: it is not taken for all of them."""
    answers["scontrol"] = (
        "JobId=17 ArrayJobId=17 ArrayTaskId=4-6,9%2 JobState=PENDING Reason=JobArrayTaskLimit\n"
        "JobId=19 ArrayJobId=17 ArrayTaskId=1 JobState=RUNNING Reason=None NodeList=n1\n"
        "JobId=18 ArrayJobId=17 ArrayTaskId=0 JobState=FAILED Reason=NonZeroExitCode ExitCode=2:0\n"
    )
    found = slurm.tasks("17")
    assert {task: job.state for task, job in found.items()} == {
        **{f"17_{at}": "PENDING" for at in (4, 5, 6, 9)},
        "17_1": "RUNNING",
        "17_0": "FAILED",
    }
    assert found["17_0"].exit_code == "2:0"
    one = slurm.job("17")
    assert one
    assert one.state == "PENDING"
    answers["sacct"] = "17_2|COMPLETED|0:0|then|now|n1\n17_[7-8%2]|PENDING|0:0|||None assigned\n"
    known = slurm.accounted("17")
    assert {task: job.state for task, job in known.items()} == {
        "17_2": "COMPLETED",
        "17_7": "PENDING",
        "17_8": "PENDING",
    }


def test_a_job_of_an_array_names_itself_as_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its number alone, the last one would requeue and end all the others."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert (again.task(), again.own()) == (None, "17")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    assert (again.task(), again.own()) == ("17_3", "17_3")
    said = "JobId=17 ArrayTaskId=3 JobState=RUNNING\nJobId=18 ArrayTaskId=0 JobState=FAILED\n"
    monkeypatch.setattr(again, "_ask", lambda *_: (0, said))
    assert again.fields("17")["JobState"] == "RUNNING"
    assert again.fields("18")["JobState"] == "FAILED"
    monkeypatch.setattr(again, "_ask", lambda *_: (0, ""))
    assert again.fields("17") == {}


def test_a_name_that_a_run_begins_with_too_is_the_run_s(
    tmp_path: Path, cluster: Slurm, no_site: None
) -> None:
    of = make(tmp_path, 2)
    root = of.path.parent
    assert folder.look("lr", root, among_runs=True)
    folders.make(root, "lr-9f9f9f")
    assert folder.look("lr", root, among_runs=True) is None
    assert folder.look(of.id, root, among_runs=True)
    assert folder.look("lr", root)
    with pytest.raises(BeamSlurmError, match="'lr' is the start of 3 runs"):
        CliRunner().invoke(cli, ["cancel", "lr"], catch_exceptions=False)


def test_a_sweep_that_cannot_be_read_hides_no_run(
    tmp_path: Path, cluster: Slurm, no_site: None
) -> None:
    of = make(tmp_path, 2)
    folders.make(of.path.parent, "demo-9f9f9f")
    (of.path / "sweep.json").write_text("{")
    listed = CliRunner().invoke(cli, ["status"]).output
    assert "demo-9f9f9f" in listed
    assert "is no sweep" in listed
