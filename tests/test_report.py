"""Facts, status and report of run folders made by hand; Slurm's answers are put in their place."""

from __future__ import annotations

import json
import math
import os
import re
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import folders
import pytest
from click.testing import CliRunner, Result

from beam_slurm import slurm
from beam_slurm.cli.report import report
from beam_slurm.cli.status import status
from beam_slurm.errors import BeamSlurmError
from beam_slurm.metrics import kept
from beam_slurm.metrics.source import Source
from beam_slurm.report import text
from beam_slurm.report.asjson import as_json
from beam_slurm.report.courses import course, courses
from beam_slurm.report.facts import gather, gather_all, next_steps, seconds_left
from beam_slurm.report.phases import BringUp
from beam_slurm.runs import Run, write_whole
from beam_slurm.state import State

pytestmark = pytest.mark.usefixtures("job")


def call(command: Any, root: Path, *words: str) -> Result:
    result = CliRunner().invoke(command, [*words, "--runs", str(root)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def silent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Slurm does not answer; the list counts who asked."""
    asked: list[str] = []

    def ask(job_id: str) -> slurm.Job:
        asked.append(job_id)
        raise BeamSlurmError("Slurm's controller does not answer", why="a\nSocket timed out")

    monkeypatch.setattr(slurm, "job", ask)
    return asked


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (-3, "0.0 s"),
        (0.84, "0.8 s"),
        (9.97, "10 s"),
        (59.4, "59 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (97200, "1 d 3 h"),
    ],
)
def test_duration(seconds: float | None, said: str) -> None:
    assert text.duration(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (float("nan"), "nan"),
        (0.0, "0.00"),
        (0.91234, "0.912"),
        (12.345, "12.3"),
        (3201.4, "3,201"),
        (-0.5, "-0.500"),
        (1e-6, "1.0e-06"),
    ],
)
def test_number(value: float | None, said: str) -> None:
    assert text.number(value) == said


def test_sparkline() -> None:
    assert text.sparkline([]) == ""
    assert text.sparkline([None, float("inf")]) == ""
    assert text.sparkline([1.0, 1.0]) == "▄▄"
    assert text.sparkline([0.0, None, 7.0]) == "▁█"
    assert text.sparkline([float(x) for x in range(8)]) == "▁▂▃▄▅▆▇█"
    assert len(text.sparkline([float(x) for x in range(1000)], 24)) == 24


def test_plot_has_its_corners() -> None:
    rows = text.plot([(0, 0), (1, 1)], 2, 1)
    assert rows == [chr(0x2800 + 0x40) + chr(0x2800 + 0x08)]
    assert text.plot([(3, 5)], 1, 1) != ["⠀"]


# --- events -------------------------------------------------------------------------------------


def test_phases_in_any_order(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    folders.bring_up(run)
    folders.event(run, "entry-ended", 100, code=0)
    folders.event(run, "ended", 101, code=0)
    said = run.events()
    for events in (said, list(reversed(said))):
        legs = BringUp.of(events).phases(2, folders.T0 - 12)
        assert [(leg.name, leg.seconds) for leg in legs] == [
            ("queue", 12),
            ("nodes", 3),
            ("ray", 1),
            ("entry", 0.5),
            ("run", 95.5),
            ("end", 1),
        ]


def legs(run: Run, **state: Any) -> list[tuple[str, float | None, str]]:
    facts = gather(run, State(**state))
    return [(leg.name, leg.seconds, leg.note) for leg in facts.phases()]


def test_preflight_is_a_leg_of_its_own(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    day = "%Y-%m-%dT%H:%M:%S"
    running = slurm.Job("17", "RUNNING", start=time.strftime(day, time.localtime(folders.T0)))
    assert legs(run, word="starting", job=running) == [("queue", None, "")]
    running = replace(running, nodes="n[1-3]")
    assert legs(run, word="starting", job=running) == [("queue", 12, ""), ("preflight", None, "")]
    folders.preflight(run, 5, n3=["gpus"])
    begun = [("queue", 15, ""), ("preflight", 2, "2 of 3 fit,")]
    assert legs(run, word="starting", job=running) == begun
    folders.event(run, "batch-started", 5.5, node="n1")
    assert legs(run, word="starting", job=running) == [*begun, ("nodes", None, "0 of 2")]


def test_preflight_that_ends_the_run(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    folders.outcome(run, 4, state="cancelled", exit_code=143)  # before it was through
    assert legs(run, word="cancelled") == [("queue", 12, ""), ("preflight", 4, "")]
    folders.preflight(run, 3, fit=("n1",), n2=["gpus", "disk"])
    said = call(status, tmp_path, "demo").output
    assert "preflight 1 of 2 fit, 2.0 s" in said
    assert legs(run, word="failed") == [("queue", 13, ""), ("preflight", 2, "1 of 2 fit,")]


def test_preflight_of_a_restart_follows_the_attempt_before(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    folders.lost(run, "here")
    (run.path / "attempt-1").mkdir()
    (leg,) = gather(run, State("starting")).phases()
    assert (leg.name, leg.began, leg.seconds) == ("preflight", folders.T0 + 200, None)


def test_a_leg_that_failed_ends_with_the_run() -> None:
    t = folders.T0
    events = [
        {"beam-slurm": "batch-started", "time": t, "head": "n1"},
        {"beam-slurm": "node-up", "time": t + 1, "node": "n1"},
        {"beam-slurm": "gate-failed", "time": t + 60, "why": "missing: n2"},
        {"beam-slurm": "ended", "time": t + 61, "code": 69},
    ]
    (leg,) = BringUp.of(events).phases(2)
    assert (leg.name, leg.seconds, leg.note) == ("nodes", 61, "1 of 2")
    (going,) = BringUp.of(events[:2]).phases(2)
    assert going.seconds is None


def test_events_that_are_none() -> None:
    events: list[Any] = [{}, {"beam-slurm": "x"}, {"beam-slurm": "node-up", "time": "?"}, 3]
    assert BringUp.of(events) == BringUp()


# --- facts --------------------------------------------------------------------------------------


def test_courses(tmp_path: Path) -> None:
    facts = gather(folders.whole(tmp_path))
    assert facts.history
    found = courses(facts.history)
    reward = found["reward"]
    assert reward is not None
    assert (reward.best, reward.best_step, reward.window) == (1.0, 80, 8)
    assert reward.first == pytest.approx(4.5 / 80)
    accuracy = found["accuracy held-out"]
    assert accuracy is not None
    assert accuracy.last == pytest.approx(0.95)
    assert course([(1, None), (2, float("nan"))]) is None


def test_time_left_is_the_pace_of_the_last_steps(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    for step in range(1, 21):
        folders.measure(run, folders.train(step, step_time=100.0 if step <= 10 else 3.0))
    assert seconds_left(gather(run, State("running"))) == pytest.approx(180)


def test_json_is_json(tmp_path: Path) -> None:
    run = folders.whole(tmp_path)
    folders.measure(run, folders.train(81, loss=float("nan")))
    found = as_json(gather(run))
    assert json.loads(json.dumps(found, allow_nan=False))["metrics"]["last"]["loss"] is None
    assert (found["state"], found["exit_code"], found["seconds"]) == ("succeeded", 0, 200)


@pytest.mark.parametrize(
    ("state", "first"),
    [
        ("pending", "squeue --start --jobs=17"),
        ("running", "beam-slurm logs demo-1a2b3c -f"),
        ("failed", "beam-slurm logs demo-1a2b3c --ray n2"),
    ],
)
def test_what_to_do_next(tmp_path: Path, state: str, first: str) -> None:
    run = folders.make(tmp_path)
    if state == "failed":
        folders.lost_node(run)
    assert next_steps(gather(run, State(state)))[0] == first


# --- status -------------------------------------------------------------------------------------


def test_status_of_no_runs(tmp_path: Path) -> None:
    assert "there is no run" in call(status, tmp_path).output


def test_status_lists_newest_first(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    folders.whole(tmp_path, "old-1")
    folders.make(tmp_path, "new-1", created=folders.T0, job="18", framework="other")
    job["18"] = slurm.Job("18", "PENDING", "Resources")
    lines = call(status, tmp_path).output.splitlines()
    assert lines[0].split() == [
        "run",
        "profile",
        "state",
        "job",
        "nodes",
        "step",
        "reward",
        "created",
    ]
    assert lines[1].split()[:7] == ["new-1", "demo", "pending", "18", "2", "?/80", "?"]
    assert lines[2].split()[:7] == ["old-1", "demo", "succeeded", "17", "2", "80/80", "1.00"]
    assert "\x1b" not in "".join(lines)
    found = json.loads(call(status, tmp_path, "--json").output)
    assert [(run["id"], run["state"]) for run in found] == [
        ("new-1", "pending"),
        ("old-1", "succeeded"),
    ]


def test_status_shows_twenty(tmp_path: Path) -> None:
    for at in range(22):
        folders.make(tmp_path, f"run-{at}", created=folders.T0 + at)
    some = call(status, tmp_path).output
    assert "run-2 " in some
    assert "run-1 " not in some
    assert "2 older ones" in some
    assert "run-1 " in call(status, tmp_path, "--all").output


def test_status_where_slurm_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.whole(tmp_path, "good-1")
    for at in range(30):
        folders.make(tmp_path, f"run-{at}", created=1)
    asked = silent(monkeypatch)
    found, problem = gather_all([Run(path) for path in sorted(tmp_path.iterdir())])
    assert problem == "Slurm's controller does not answer: Socket timed out"
    assert len(asked) <= 4  # no more than ask at the same time
    assert [facts.state.word for facts in found] == ["succeeded"] + 30 * ["unknown"]
    result = call(status, tmp_path)
    assert result.exit_code == 0
    assert "Socket timed out" in result.stderr


def test_status_of_a_pending_run(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    folders.make(tmp_path)
    job["17"] = slurm.Job("17", "PENDING", "Resources", start="2027-01-15T09:00:00")
    said = call(status, tmp_path, "demo").output
    assert "demo-1a2b3c  pending  Resources" in said
    assert "2027-01-15 09:00:00" in said
    assert "squeue --start --jobs=17" in said


def test_status_of_a_starting_run_names_the_missing(
    tmp_path: Path, job: dict[str, slurm.Job]
) -> None:
    run = folders.make(tmp_path)
    folders.event(run, "batch-started", 0, node="n1", port=1)
    folders.event(run, "node-up", 2, node="n1")
    job["17"] = slurm.Job("17", "RUNNING", nodes="n[1-2]")
    said = call(status, tmp_path, "17").output
    assert "n[1-2]" in said
    assert re.search(r"missing +n2\b", said)
    assert "queue 12 s → nodes 1 of 2 …" in said


def test_status_of_a_failed_run(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    folders.bring_up(run)
    folders.lost_node(run)
    said = call(status, tmp_path, "demo").output
    assert "ray on n2" in said
    assert "n2: Ray lost a process: raylet [exit code=-9]" in said
    assert "exit code   69" in said
    assert "Some Ray subprocesses exited unexpectedly:" in said


def test_status_while_the_nodes_are_inspected(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    run = folders.make(tmp_path)
    (run.path / "attempt-0").mkdir()
    job["17"] = slurm.Job("17", "RUNNING", nodes="n[1-2]")
    said = call(status, tmp_path, "demo").output
    assert "demo-1a2b3c  starting  its nodes are inspected\n" in said
    assert "missing" not in said  # nobody has asked them to join yet
    folders.preflight(run, 0, n3=["gpus"])
    said = call(status, tmp_path, "demo").output
    assert "preflight 2 of 3 fit, 2.0 s" in said
    assert "n3: gpus fail: have 7, need 8" in said


def test_status_of_a_run_that_hung_shows_its_stacks(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    folders.bring_up(run)
    stuck = {"state": "failed", "component": "watchdog", "cause": "stuck: silence"}
    folders.outcome(run, **stuck, exit_code=69)
    assert "stacks" not in call(status, tmp_path, "demo").output
    stacks = run.path / "attempt-0" / "stacks"
    stacks.mkdir()
    for node in ("n1", "n2"):
        (stacks / f"{node}.txt").touch()
    said = call(status, tmp_path, "demo").output
    assert f"n1 n2 in {stacks}" in said
    assert next_steps(gather(run))[0] == f"less {stacks}/*.txt"


def test_status_of_a_run_out_of_time_names_what_to_go_on_from(tmp_path: Path) -> None:
    run = folders.make(tmp_path, output="/shared/out/one")
    timed = {"state": "failed", "class": "time", "cause": "its time was up", "exit_code": 75}
    folders.outcome(run, **timed, do="submit again with --resume and the same --output-dir")
    said = call(status, tmp_path, "demo").output
    assert re.search(r"^output +/shared/out/one *$", said, re.M)


def test_status_of_a_job_that_is_just_over(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    folders.bring_up(folders.make(tmp_path))
    now = time.strftime("%Y-%m-%dT%H:%M:%S")
    job["17"] = slurm.Job("17", "COMPLETED", nodes="n[1-2]", end=now)
    said = call(status, tmp_path, "demo").output
    assert "demo-1a2b3c  running  the job is over, its outcome is awaited\n" in said
    assert re.search(r"^next +beam-slurm status demo-1a2b3c *$", said, re.M)


def test_status_of_a_framework_without_reader(tmp_path: Path) -> None:
    run = folders.make(tmp_path, framework="other", output="/shared/out/demo-1a2b3c")
    folders.outcome(run)
    said = call(status, tmp_path, "demo").output
    assert "reads no metrics of other runs" in said
    assert "/shared/out/demo-1a2b3c" in said


# --- what is kept --------------------------------------------------------------------------------


def test_the_logs_of_a_run_that_is_over_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folders.whole(tmp_path, steps=20)
    measured = run.path / "output" / "metrics.jsonl"
    folders.measure(run, folders.train(21, loss=math.nan, kl=-math.inf))
    first = gather(run).history
    assert not (run.path / kept.NAME).exists()  # it is small
    monkeypatch.setattr(kept, "WORTH", 1)
    gather(run, State("running"))
    assert not (run.path / kept.NAME).exists()  # it goes on
    gather(run)
    monkeypatch.setattr(Source, "read", lambda _: pytest.fail("it was read again"))
    again = gather(run).history
    assert first
    assert again
    for name in kept.KINDS:
        assert repr(getattr(again, name)) == repr(getattr(first, name))  # nan is not nan's equal
    monkeypatch.undo()
    monkeypatch.setattr(kept, "WORTH", 1)
    # Whatever it was read from has changed, or it is not what we wrote: it is read again.
    folders.measure(run, folders.train(22))
    assert last(run) == 22
    about = measured.stat()
    measured.write_text(measured.read_text().replace('"step": 22', '"step": 23'))
    os.utime(measured, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    assert last(run) == 23
    for damage in ("", "[]", "{}", '{"files": []}'):
        (run.path / kept.NAME).write_text(damage)
        assert last(run) == 23
    text = (run.path / kept.NAME).read_text()
    for old, new in (('"step"', '"stop"'), ('"steps": [', '"steps": [3, '), ('"loss"', '"lost"')):
        (run.path / kept.NAME).write_text(text.replace(old, new))
        assert last(run) == 23
    monkeypatch.setattr(kept, "READERS", [*kept.READERS, measured])  # another version of us
    gather(run)
    assert (run.path / kept.NAME).read_text() != text


def test_where_nothing_can_be_kept_it_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "WORTH", 1)
    run = folders.whole(tmp_path, steps=20)
    (run.path / kept.NAME).mkdir()
    assert last(run) == last(run) == 20
    assert not list(run.path.glob(".*"))


def last(run: Run) -> int | None:
    """The newest step that is shown."""
    history = gather(run).history
    return history.last.step if history and history.last else None


# --- report -------------------------------------------------------------------------------------


def size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_report_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = folders.whole(tmp_path)
    result = call(report, tmp_path, "demo")
    assert result.exit_code == 0
    assert "accuracy held-out  11.9 %  95.0 %  95.0 %" in result.output
    assert "3 min 20 s · 0.222 GPU-hours" in result.output
    assert result.output.splitlines()[-2:] == [
        f"page    {run.path}/report.html",
        f"figure  {run.path}/report.png",
    ]
    width, height = size(run.path / "report.png")
    assert (width, width > height) == (1960, True)
    assert not list(run.path.glob(".*"))


def test_reports_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    """Each writes into parts of its own: what stands there in the end is whole, whosever it is."""
    texts = [str(at).encode() * 3_000_000 for at in range(4)]
    path = tmp_path / "report.html"
    with ThreadPoolExecutor() as pool:
        for _ in range(5):
            list(pool.map(lambda text: write_whole(path, text), texts))
            assert path.read_bytes() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_report_of_values_that_are_too_large(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = folders.whole(tmp_path, steps=3)
    huge = {"reward": 1e308, "step_time": 1e308, "generation_time": -1e308, "time": 1e308}
    for step in range(4, 49):
        measure = folders.evaluate(step, 1e308, responses=10**400, response_length=1e308)
        folders.measure(run, folders.train(step, **huge), measure)
    for command, words in ((status, ()), (status, ("demo",)), (report, ("demo",))):
        assert call(command, tmp_path, *words).exit_code == 0
        assert call(command, tmp_path, *words, "--json").exit_code == 0
    size(run.path / "report.png")
    assert gather(run).history.last.reward == math.inf  # type: ignore[union-attr]


def test_report_of_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    for name in ("one-1", "two-2"):
        folders.whole(tmp_path / "runs", name)
    # Named twice, a run is still one.
    result = call(report, Path("runs"), "one", "two", "one-1")
    assert [line.split()[:3] for line in result.output.splitlines()[1:3]] == [
        ["one-1", "succeeded", "80/80"],
        ["two-2", "succeeded", "80/80"],
    ]
    assert "11.9 → 95.0 %" in result.output
    assert sorted(path.name for path in Path("report").iterdir()) == ["report.html", "report.png"]
    assert not list(Path("runs").glob("*/report.*"))
    found = json.loads(call(report, Path("runs"), "one", "two", "--json").stdout)
    assert [run["id"] for run in found] == ["one-1", "two-2"]


def test_report_of_an_unknown_run_draws_none(tmp_path: Path) -> None:
    folders.whole(tmp_path)
    with pytest.raises(BeamSlurmError, match="there is no run 'other'"):
        call(report, tmp_path, "demo", "other", "-o", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("steps", [1, 2, 25])
def test_report_of_little(tmp_path: Path, steps: int) -> None:
    pytest.importorskip("matplotlib")
    run = folders.make(tmp_path)
    empty = dict.fromkeys(("reward", "response_length", "generation_time"))
    for step in range(1, steps + 1):
        folders.measure(run, folders.train(step, step_time=float("nan"), **empty))
    folders.measure(run, folders.evaluate(0, float("nan")), folders.evaluate(1, 1.0, responses=0))
    assert call(report, tmp_path, "demo", "-o", str(tmp_path / "x")).exit_code == 0
    assert size(tmp_path / "x" / "report.png")


def test_report_as_json_draws_nothing(tmp_path: Path) -> None:
    run = folders.whole(tmp_path)
    found = json.loads(call(report, tmp_path, "--json").output)
    assert found["metrics"]["courses"]["reward"]["best_step"] == 80
    assert found["gpu_hours"]["training"] == pytest.approx(193.5 * 4 / 3600, rel=0.02)
    assert not (run.path / "report.png").exists()


def test_report_of_nothing_is_one_all_the_same(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    pytest.importorskip("matplotlib")
    run = folders.make(tmp_path)
    job["17"] = slurm.Job("17", "PENDING", "Priority")
    said = call(report, tmp_path).output
    assert "demo-1a2b3c  pending  Priority" in said
    assert "it has measured nothing yet" in said
    assert "Priority" in (run.path / "report.html").read_text()
    assert size(run.path / "report.png")


def test_report_without_matplotlib_still_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folders.whole(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BeamSlurmError) as caught:
        report.main(["--runs", str(tmp_path)], standalone_mode=False)
    assert caught.value.exit_code == 2
    assert caught.value.remedy == "pip install 'beam-slurm[report]'"
    assert "accuracy held-out" in capsys.readouterr().out
    assert not list(run.path.glob("*report*"))


def test_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folders.whole(tmp_path)
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    with pytest.raises(BeamSlurmError, match="cannot write into") as caught:
        call(report, tmp_path, "-o", str(tmp_path / "out"))
    assert caught.value.why == "Is a directory"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]
    (tmp_path / "file").touch()
    with pytest.raises(BeamSlurmError, match="cannot write into"):
        call(report, tmp_path, "-o", str(tmp_path / "file" / "below"))


@pytest.mark.parametrize("command", [status, report])
def test_help_has_examples(command: Any) -> None:
    assert (
        f"Examples:\n    beam-slurm {command.name}"
        in CliRunner().invoke(command, ["--help"]).output
    )


# --- which runs are listed ----------------------------------------------------------------------


def listed(root: Path, *words: str) -> list[str]:
    return [run["id"] for run in json.loads(call(status, root, "--json", *words).output)]


def test_what_follows_a_run_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two dozen jobs of a chain, one that runs, one that failed; and a run that began long ago."""
    names = [f"last-1a2b3c-{at}" for at in range(24)]
    for at in range(22):
        folders.make(tmp_path, f"run-{at:02}", created=folders.T0 + at)
    folders.make(tmp_path, "last-1a2b3c", created=folders.T0 + 30, then=names)
    for at, name in enumerate(names):
        task = {"framework": "convert", "task": {"step": at}, "follows": "last-1a2b3c"}
        folders.make(tmp_path, name, created=folders.T0 + 31 + at, **task)
    folders.outcome(Run(tmp_path / names[2]), state="failed", exit_code=1)
    folders.outcome(Run(tmp_path / names[3]))
    now = {names[5]: "RUNNING", names[6]: "PENDING", "run-00": "RUNNING"}
    queue = "".join(f"{word} beam-slurm:{name}\n" for name, word in now.items())
    monkeypatch.setattr(slurm, "ask", lambda *words: queue)
    others = [f"run-{at:02}" for at in range(21, 2, -1)]
    assert listed(tmp_path) == [names[5], names[2], "last-1a2b3c", *others, "run-00"]
    said = call(status, tmp_path).output
    assert "2 older ones and 22 that follow others: beam-slurm status --all" in said
    assert said.splitlines()[0].split()[-1] == "then"
    (line,) = (line for line in said.splitlines() if line.startswith("last-1a2b3c "))
    assert line.split()[-1] == "24"
    assert len(listed(tmp_path, "--all")) == 47


def test_where_slurm_says_nothing_the_newest_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*words: str) -> str:
        raise BeamSlurmError("there is no squeue")

    monkeypatch.setattr(slurm, "ask", ask)
    for at in range(22):
        folders.make(tmp_path, f"run-{at:02}", created=folders.T0 + at)
    here = folders.make(tmp_path, "here-1", created=1, executor="local", pid=os.getpid())
    folders.event(here, "batch-started", 0)
    assert listed(tmp_path) == [*(f"run-{at:02}" for at in range(21, 1, -1)), "here-1"]
