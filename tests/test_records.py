"""The record in a run folder: all of it is there, survives, and is shown, old and damaged too."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folders
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from test_job import SITE, request
from test_prepare import MORE

from beam_slurm import __version__, job, profiles, runs, slurm, submit, yamlfile
from beam_slurm.cli.logs import logs
from beam_slurm.cli.runs import runs as command
from beam_slurm.cli.status import status
from beam_slurm.errors import BeamSlurmError
from beam_slurm.records import rerun, surroundings
from beam_slurm.records.record import Record
from beam_slurm.runs import Run

pytestmark = pytest.mark.usefixtures("no_site")

Jobs = dict[str, slurm.Job | None]


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """What Slurm knows: nothing, unless a test puts a job in here."""
    known: Jobs = {}
    monkeypatch.setattr(slurm, "job", known.get)
    monkeypatch.setattr(slurm, "find", lambda token: None)
    return known


def call(*words: str, root: Path, of: Any = command) -> Result:
    result = CliRunner().invoke(of, [*words, "--runs", str(root)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


Make = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes run folders as submit does, without a job."""

    def make(
        name: str, *words: str, profile: str = "b300-colocated", overrides: tuple[str, ...] = ()
    ) -> Run:
        more = [f"{key}={value}" for key, value in {**SITE, **MORE}.items()]
        texts = [*more, *words, f"site.paths.runs={tmp_path}/runs"]
        resolved = profiles.resolve(profile, settings=profiles.parse_settings(texts))
        made = job.make_request(resolved, overrides=overrides, run_id=name)
        return submit.prepare(made)

    return make


# --- what is written ----------------------------------------------------------------------------


def test_everything_that_was_said_is_recorded(make: Make) -> None:
    overrides = ("a='x y'", "b=\udcff\udce9", "", "c=\n")  # any bytes
    run = make("one", "recipe.steps=50", "job.name=mine", overrides=overrides)
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest["version"] == runs.VERSION == 2
    assert manifest["folder"] == str(run.path)
    assert tuple(manifest["overrides"]) == overrides
    assert manifest["settings"]["recipe.steps"] == 50
    assert manifest["settings"]["job.name"] == "mine"
    assert manifest["versions"]["beam_slurm"] == __version__
    assert manifest["versions"]["python"] == sys.version.split()[0]
    assert "commit" in manifest["sources"]["beam_slurm"]
    assert manifest["sources"]["checkout"]["why"]
    assert manifest["image"]["name"] == "/shared/images/nemo-rl.sqsh"
    record = Record(run)
    assert not record.altered
    assert record.remarks == []
    (run.path / "script.sbatch").write_text("#!/bin/bash\n")
    assert record.remarks == ["script.sbatch was changed after it was submitted"]


def test_every_value_keeps_its_origin(tmp_path: Path, make: Make) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: b300-colocated\nrecipe:\n  seed: 7\n")
    record = Record(make("one", "recipe.steps=50", profile=str(mine)))
    places = record.places
    assert places["recipe.seed"] == f"{mine}:3"
    assert places["recipe.steps"] == "--set recipe.steps"
    assert places["recipe.prompts_per_step"].startswith("profiles/")
    assert places["hardware.gpu_memory_gb"].startswith("profiles/hardware/")
    assert "recipe.optimizer.offloaded" not in places  # a default
    assert "hardware.host_memory_gb" in record.assumed
    shown = call("show", "one", root=tmp_path / "runs").stdout
    for line in shown.splitlines():
        if line.startswith("recipe.seed"):
            assert line.split() == ["recipe.seed", "7", f"{mine}:3"]
    assert "assumed  hardware.host_memory_gb: " in shown


@pytest.mark.parametrize("profile", profiles.names())
def test_each_profile_comes_back_as_it_was(profile: str) -> None:
    """Values, what they change, origins and assumptions: so the script is the same, too."""
    more = [f"{key}={value}" for key, value in MORE.items()]
    made = request(
        profile, *more, "site.environment={A: '1e-6', B: 'yes', C: '0123', D: '1:30:00'}"
    )
    run = submit.prepare(_in(made, Path.cwd()))
    record = Record(run)
    again = rerun.request(record)
    assert again.profile == made.profile
    assert again.resolved.shipped == made.resolved.shipped
    assert list(again.resolved.values()) == list(made.resolved.values())
    for key in made.profile.assumed:
        assert again.resolved.assumption(key) == made.resolved.assumption(key)
    assert again.run != run.path
    assert rerun.drift(record, surroundings.gather(again)).script == ()


def _in(made: job.JobRequest, root: Path) -> job.JobRequest:
    return job.make_request(made.resolved, run_id="one", root=root)


# PyYAML itself takes these line breaks of Unicode for a space.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
        max_leaves=5,
    )
)
def test_yaml_that_is_written_is_read_the_same_by_both_versions(value: Any) -> None:
    text = yamlfile.dump({"key": value})
    assert yaml.safe_load(text) == {"key": value}
    file = Path("dumped.yaml")
    file.write_text(text)
    assert yamlfile.load(file).data == {"key": value}


def test_surroundings_are_gathered_once_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = request("demo", "hardware.nodes=1", local=True)
    around = surroundings.gather(made)
    monkeypatch.setattr(surroundings, "gather", None)  # whoever calls it fails
    for index in range(3):
        point = job.make_request(
            made.resolved, local=True, run_id=f"sweep-{index:04}", root=tmp_path / "sweep"
        )
        run = submit.prepare(point, around, sweep={"index": index})
        assert run.path == tmp_path / "sweep" / f"sweep-{index:04}"
        assert run.manifest["sweep"] == {"index": index}
        assert run.manifest["sources"] == around.facts()["sources"]


def test_the_record_is_cheap(make: Make, tmp_path: Path) -> None:
    made = request("b300-colocated", f"site.paths.runs={tmp_path}")
    times = []
    for _ in range(5):
        began = time.perf_counter()
        surroundings.gather(made)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.3


# --- many at once -------------------------------------------------------------------------------

WRITER = """
import sys, time
from pathlib import Path
from beam_slurm import job, profiles, runs, submit
root, name = Path(sys.argv[1]), sys.argv[2]
settings = profiles.parse_settings([f"hardware.nodes=1", f"job.name={name}"])
for index in range(3):
    made = job.make_request(
        profiles.resolve("demo", settings=settings), local=True, run_id=f"{name}-{index}", root=root
    )
    run = submit.prepare(made)
    for number in range(20):
        run.record(job=str(number))
    found = {run.id: run.manifest.get("job") for run in runs.all_runs(root)}
    assert found[run.id] == "19", found
"""


def test_ten_write_and_read_at_once(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), f"w{number}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(10)
    ]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        for manifest in root.glob("*/manifest.json"):
            found = json.loads(manifest.read_text())  # whole at any moment
            assert found["id"] == manifest.parent.name
            seen += 1
    assert [writer.communicate()[1] for writer in writers] == [""] * 10
    assert seen
    made = list(runs.all_runs(root))
    assert len(made) == 30
    assert all(Record(run).remarks == [] for run in made)
    assert not list(root.glob("*/*.part"))


# --- list and show ------------------------------------------------------------------------------


def test_list_shows_every_run_and_filters(tmp_path: Path, jobs: Jobs) -> None:
    for number in range(25):
        run = folders.make(tmp_path, f"old-{number:02}", job=str(number), profile="old")
        folders.outcome(run, steps={"first": 1, "last": number})
    run = folders.make(tmp_path, "new", job="77", created=folders.T0 + 5)
    jobs["77"] = slurm.Job("77", "PENDING", "Priority")
    shown = call("list", root=tmp_path).stdout.splitlines()
    assert len(shown) == 27
    assert shown[1].split()[:3] == ["new", "demo", "pending"]
    row = next(line for line in shown if line.startswith("old-24"))
    assert row.split()[:3] == ["old-24", "old", "succeeded"]
    assert "24/80" in row
    only = call("list", "--state", "pending", root=tmp_path).stdout
    assert len(only.splitlines()) == 2
    found = json.loads(call("list", "--profile", "old", "--json", root=tmp_path).stdout)
    assert len(found) == 25
    assert {one["version"] for one in found} == {1}
    size = sum(path.stat().st_size for path in run.path.rglob("*") if path.name != "manifest.json")
    new = json.loads(call("show", "new", "--json", root=tmp_path).stdout)
    assert new["bytes"] == size
    assert "no such run" in call("list", "--profile", "none", root=tmp_path).stdout


def test_list_reads_no_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of runs may have GB of logs."""
    from beam_slurm import metrics

    folders.whole(tmp_path)
    monkeypatch.setattr(metrics, "reader", None)
    assert "demo-1a2b3c" in call("list", root=tmp_path).stdout


def test_list_goes_on_where_slurm_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(job_id: str) -> slurm.Job:
        raise BeamSlurmError("Slurm's controller does not answer")

    monkeypatch.setattr(slurm, "job", silent)
    folders.outcome(folders.make(tmp_path, "done"))
    folders.make(tmp_path, "waits")
    shown = call("list", root=tmp_path)
    assert "succeeded" in shown.stdout
    assert "unknown" in shown.stdout
    assert "from the runs' own files alone: Slurm's controller does not answer" in shown.stderr


def test_show_has_the_jobs_and_nodes_of_each_attempt(make: Make, tmp_path: Path) -> None:
    run = make("one", overrides=("a=1", "b='c d'"))
    run.record(job="17")
    folders.lost(run, "chain", chained="18")
    folders.outcome(run, attempt=1, job="18", nodes=["n3", "n4"])
    shown = call("show", "one", root=tmp_path / "runs").stdout
    assert "job 17" in shown
    assert "n1 n2" in shown
    assert "job 18" in shown
    assert "n3 n4" in shown
    assert shlex.join(("a=1", "b='c d'")) in shown
    found = json.loads(call("show", "one", "--json", root=tmp_path / "runs").stdout)
    assert found["jobs"] == ["17", "18"]
    assert [attempt["nodes"] for attempt in found["attempts"]] == [["n1", "n2"], ["n3", "n4"]]
    steps = found["values"]["recipe.steps"]
    assert steps["origin"].startswith("profiles/")
    assert found["manifest"] == json.loads((run.path / "manifest.json").read_text())


# --- old, damaged, moved ------------------------------------------------------------------------


def test_a_manifest_of_an_older_version_is_shown_and_says_what_it_lacks(tmp_path: Path) -> None:
    run = folders.whole(tmp_path)
    assert "version" not in run.manifest
    shown = call("show", run.id, root=tmp_path)
    assert "an older beam-slurm has written this (manifest version 1)" in shown.stderr
    assert "demo (demo)" in shown.stdout
    assert run.id in call("list", root=tmp_path).stdout
    with pytest.raises(BeamSlurmError, match="cannot be run again") as refused:
        call("rerun", run.id, root=tmp_path)
    assert refused.value.why == (
        "its record lacks the words behind -- (overrides), the shipped profile that it changes "
        "(origins.json): an older beam-slurm has written it"
    )
    assert "submit --profile demo --dry-run" in str(refused.value)


def test_a_manifest_of_a_newer_version_is_not_understood_by_halves(
    make: Make, tmp_path: Path
) -> None:
    run = make("one")
    run.record(version=3)
    shown = call("show", "one", root=tmp_path / "runs")
    assert "a newer beam-slurm has written this (manifest version 3" in shown.stderr
    with pytest.raises(BeamSlurmError, match="cannot be run again by this beam-slurm"):
        call("rerun", "one", root=tmp_path / "runs")


@pytest.mark.parametrize("content", ["", '{"id": "one", "jo', "[1, 2]", "\0\0\0"])
def test_a_damaged_manifest_says_so_and_nothing_is_lost(
    content: str, make: Make, tmp_path: Path, jobs: Jobs
) -> None:
    root = tmp_path / "runs"
    make("other")
    run = make("one")
    (run.path / "manifest.json").write_text(content)
    folders.event(run, "batch-started", 0, job="17")
    jobs["17"] = slurm.Job("17", "RUNNING", nodes="n1")
    shown = call("show", "one", root=root)
    assert f"{run.path}/manifest.json" in shown.stderr
    assert "its other files are shown" in shown.stderr
    assert "recipe.steps" in shown.stdout  # of profile.yaml
    listed = call("list", root=root).stdout
    assert "its manifest cannot be read" in listed
    assert "other" in listed
    with pytest.raises(BeamSlurmError, match="cannot be run again") as refused:
        call("rerun", "one", root=root)
    assert "manifest.json" in str(refused.value)
    with pytest.raises(BeamSlurmError, match="cannot be recorded"):
        run.record(job="18")
    assert (run.path / "manifest.json").read_text() == content
    assert run.state().word == "starting"  # its attempt knows the job
    shutil.rmtree(run.path / "attempt-0")
    assert run.state().word == "unknown"
    assert "manifest.json" in run.state().why


def test_a_manifest_that_somebody_else_has_written_spoils_no_list(tmp_path: Path) -> None:
    folders.outcome(folders.make(tmp_path, "mine"))
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "manifest.json").write_text('{"created": "yesterday", "version": "x"}')
    assert [run.id for run in runs.all_runs(tmp_path)] == ["mine", "theirs"]
    assert "theirs" in call("list", root=tmp_path).stdout
    assert "recipe" not in call("show", "theirs", root=tmp_path).stdout
    with pytest.raises(BeamSlurmError, match="cannot be run again"):
        call("rerun", "theirs", root=tmp_path)


def test_a_folder_that_was_moved_is_read_where_it_is(
    make: Make, tmp_path: Path, jobs: Jobs
) -> None:
    run = make("one", "recipe.steps=5", profile="demo")
    run.record(job="17")
    folders.bring_up(run)
    folders.measure(run, folders.train(1))
    (run.path / "job-17.log").write_text("hello from the log\n")
    jobs["17"] = slurm.Job("17", "RUNNING", nodes="n1")
    assert run.moved is None
    there = tmp_path / "archive" / "renamed"
    there.parent.mkdir()
    run.path.rename(there)
    moved = runs.find(str(there), tmp_path / "runs")
    assert moved.moved == run.path
    assert moved.output == there / "output"
    assert moved.here("/elsewhere/x") == Path("/elsewhere/x")
    shown = call(str(there), root=tmp_path / "runs", of=status).stdout
    assert f"it was submitted as {run.path}" in shown
    assert f"job 17 is not over, and writes to {run.path} still" in shown
    assert "1/80" in shown  # its metrics
    assert "hello from the log" in call(str(there), root=tmp_path / "runs", of=logs).stdout
    told = call("show", str(there), root=tmp_path / "runs").stderr
    assert "job 17 is not over" in told
    folders.outcome(moved)
    jobs.clear()
    assert "is not over" not in call("show", str(there), root=tmp_path / "runs").stderr
    assert f"moved here from {run.path}" in call("list", root=there.parent).stdout
    record = Record(moved)
    assert rerun.drift(record, surroundings.gather(rerun.request(record))).script == ()


def test_a_link_to_the_folder_is_no_move(make: Make, tmp_path: Path) -> None:
    run = make("one")
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    assert Run(tmp_path / "link" / "one").moved is None
    assert run.moved is None


def test_a_local_run_is_asked_on_its_own_machine(tmp_path: Path) -> None:
    run = folders.make(tmp_path, executor="local", pid=os.getpid(), host="elsewhere")
    folders.bring_up(run)
    state = run.state()
    assert (state.word, state.why) == (
        "unknown",
        "it was started on elsewhere, which alone can tell",
    )
    folders.outcome(run)
    assert run.state().word == "succeeded"


CODE = {"commit": "a" * 40, "dirty": False, "changed": [], "untracked": [], "why": ""}


@pytest.mark.parametrize(
    "facts",
    [
        {"sources": {"ray": {"commit": "a" * 40, "dirty": True}}},
        {"sources": {"beam_slurm": "x", "checkout": {**CODE, "untracked": 5, "changed": "x"}}},
        {"folder": 5},
        {"folder": "\0"},
        {"output": 5, "checkpoints": 5},
        {"output": "\ud800"},
        {"created": 1e30},
        {"image": {"digest": 5, "size": "x"}},
    ],
)
def test_an_odd_manifest_is_shown_as_far_as_it_goes(facts: dict[str, Any], tmp_path: Path) -> None:
    folders.make(tmp_path, "one", version=2, **facts)
    folders.make(tmp_path, "two")
    for words in (("list",), ("show", "one"), ("diff", "one", "two"), ("diff", "two", "one")):
        assert call(*words, root=tmp_path).exit_code in (0, 1)
    assert call("one", root=tmp_path, of=status).exit_code == 0


def test_checkpoints_move_with_their_run(tmp_path: Path) -> None:
    where = tmp_path / "old" / "one"
    run = folders.make(tmp_path, "one", folder=str(where), checkpoints=f"{where}/output/ckpt")
    assert run.checkpoints == run.path / "output" / "ckpt"
    assert folders.make(tmp_path, "two").checkpoints is None


def test_a_terminal_obeys_no_record(tmp_path: Path) -> None:
    evil = "\x1b[2Jevil\x1b]0;title\x07\x9b31m"
    run = folders.make(
        tmp_path,
        "one",
        version=3,
        profile=evil,
        folder=f"/{evil}",
        overrides=[evil],
        settings={evil: evil},
        sources={"checkout": {**CODE, "untracked": [evil], "changed": [evil], "dirty": True}},
    )
    folders.outcome(run, state="failed", cause=evil, lines=[evil], exit_code=1, **{"class": evil})
    folders.make(tmp_path, "two", version=2, rerun_of=evil)
    calls = [call(*words, root=tmp_path) for words in (("list",), ("show", "one"))]
    calls += [call("diff", "one", "two", root=tmp_path)]
    calls += [call(*words, root=tmp_path, of=status) for words in ((), ("one",))]
    for done in calls:
        assert "evil" in done.stdout
        assert not set("\x1b\x07\x9b") & set(done.stdout + done.stderr)


def test_schema_of_another_version_is_named_with_its_line(make: Make) -> None:
    run = make("one")
    file = run.path / "profile.yaml"
    file.write_text(file.read_text().replace("\n  steps: 200", "\n  steps: 200\n  stepps: 1"))
    with pytest.raises(BeamSlurmError, match=r"recipe\.stepps is unknown") as refused:
        rerun.request(Record(run))
    assert str(file) in (refused.value.where or "")
