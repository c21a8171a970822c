"""Before submission: the output folder holds what the run is to go on from, or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from test_checkpoint import WRITERS, skyrl, write
from test_job import SITE
from test_prepare import MORE

from beam_slurm import checks, job, profiles, resume, runs
from beam_slurm.errors import BeamSlurmError
from beam_slurm.node.claim import MARKER

pytestmark = pytest.mark.usefixtures("no_site")

PROFILES = {"nemo-rl": "h200-async", "skyrl": "b200-lora", "miles": "miles-lora", "demo": "demo"}


def request(outputs: Path, profile: str, *words: str) -> job.JobRequest:
    folder = f"{outputs}/first" if profile == "demo" else "first"
    given = {
        **SITE,
        **MORE,
        "site.images.nemo-rl-async": "/shared/images/async.sqsh",
        "site.paths.outputs": str(outputs),
        "site.paths.scratch": "/scratch",
        "job.output_dir": folder,
        "recipe.checkpoint.enabled": "true",
        "recipe.steps": "50",
    }
    settings = profiles.parse_settings([*(f"{k}={v}" for k, v in given.items()), *words])
    return job.make_request(profiles.resolve(profile, settings=settings))


@pytest.mark.parametrize("framework", PROFILES)
def test_fresh_and_resumed_runs(framework: str, tmp_path: Path) -> None:
    profile = PROFILES[framework]
    folder = tmp_path / "first" / "checkpoints"
    fresh = request(tmp_path, profile)
    assert fresh.launch.checkpoints == str(folder)
    resume.output(fresh)
    again = request(tmp_path, profile, "recipe.checkpoint.resume=true")
    with pytest.raises(BeamSlurmError, match="there is no whole checkpoint in") as none:
        resume.output(again)
    assert "the run would start at step 1" in str(none.value)
    at = WRITERS[framework](folder, 20)
    resume.output(again)
    with pytest.raises(BeamSlurmError) as held:
        resume.output(fresh)
    assert held.value.what == f"{folder} holds a checkpoint of step 20"
    assert held.value.remedy == "add --resume, or another --output-dir"
    short = ("recipe.checkpoint.resume=true", "recipe.steps=20")
    with pytest.raises(BeamSlurmError) as done:
        resume.output(request(tmp_path, profile, *short))
    assert done.value.what == f"{at} has 20 steps behind it already"
    assert "recipe.steps is 20" in str(done.value)


@pytest.mark.parametrize("framework", ["skyrl", "miles"])
def test_a_lost_tracker_is_no_resume_and_no_fresh_start(framework: str, tmp_path: Path) -> None:
    folder = tmp_path / "first" / "checkpoints"
    WRITERS[framework](folder, 20)
    (tracker,) = folder.glob("latest*.txt")
    tracker.unlink()
    profile = PROFILES[framework]
    with pytest.raises(BeamSlurmError, match="no whole checkpoint") as resumed:
        resume.output(request(tmp_path, profile, "recipe.checkpoint.resume=true"))
    assert f"{tracker} is not there" in str(resumed.value)
    with pytest.raises(BeamSlurmError, match="something like a checkpoint of step 20"):
        resume.output(request(tmp_path, profile))


def test_unfinished_ones_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "first" / "checkpoints"
    write(folder / "tmp_step_20" / "training_info.json", "{}")
    resume.output(request(tmp_path, "h200-async"))  # nothing there to be lost
    with pytest.raises(BeamSlurmError, match="tmp_step_20 is unfinished"):
        resume.output(request(tmp_path, "h200-async", "recipe.checkpoint.resume=true"))


def test_skyrl_s_own_rule_of_the_newest_folder(tmp_path: Path) -> None:
    """One interval beyond the tracker is a save that was broken off; more it refuses itself."""
    folder = tmp_path / "first" / "checkpoints"
    again = request(tmp_path, "b200-lora", "recipe.checkpoint.resume=true")
    skyrl(folder, 20)
    skyrl(folder, 10)  # and so says the tracker
    resume.output(again)
    skyrl(folder, 30)
    write(folder / "latest_ckpt_global_step.txt", "10")
    with pytest.raises(BeamSlurmError, match="SkyRL would refuse to resume") as caught:
        resume.output(again)
    assert "step 30, more than 10" in str(caught.value)


def test_resume_without_checkpoints_is_an_error(tmp_path: Path) -> None:
    words = ("recipe.checkpoint.resume=true", "recipe.checkpoint.enabled=false")
    with pytest.raises(BeamSlurmError, match="a run without checkpoints cannot resume"):
        resume.output(request(tmp_path, "h200-async", *words))


def test_what_is_not_seen_from_here_is_left_to_the_nodes(tmp_path: Path) -> None:
    elsewhere = tmp_path / "not-mounted-here"
    resume.output(request(elsewhere, "b200-lora", "recipe.checkpoint.resume=true"))


def test_the_command_line_refuses_before_it_asks_slurm(tmp_path: Path) -> None:
    WRITERS["demo"](tmp_path / "first" / "checkpoints", 20)
    words = ["submit", "--profile", "demo", "--set", f"job.output_dir={tmp_path}/first"]
    command = str(Path(sys.executable).with_name("beam-slurm"))
    done = subprocess.run(
        [command, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "holds a checkpoint of step 20" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_folders_that_are_missing_are_told_and_those_that_submit_makes_are_not(
    tmp_path: Path,
) -> None:
    words = ("site.container=bare", f"site.paths.skyrl={tmp_path}/skyrl")
    made = request(tmp_path, "b200-lora", *words)
    with pytest.raises(BeamSlurmError, match="skyrl is not there"):
        checks.folders(made)
    (tmp_path / "skyrl").mkdir()
    checks.folders(made)
    runs = f"site.paths.runs={tmp_path}/runs"
    checks.folders(request(tmp_path, "demo", runs, "job.output_dir=first"))


def test_a_folder_that_cannot_be_looked_at_is_an_error(tmp_path: Path) -> None:
    long = request(tmp_path, "b200-lora", f"job.output_dir={'x' * 300}")
    with pytest.raises(BeamSlurmError, match="cannot look at"):
        resume.output(long)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["time=10:00", "lead_s=600"], "job.lead_s 600 is not shorter than job.time 10:00 (600 s)"),
        (["time=1-00", "lead_s=65536"], "job.lead_s 65536 is longer than Slurm's 65535 s"),
        (["total_time=59:00"], "job.total_time 59:00 is shorter than job.time 1:00:00"),
        (["total_time=2:00:00"], "and recipe.checkpoint.enabled is false"),
    ],
)
def test_times_that_cannot_be_kept_are_refused(words: list[str], said: str, tmp_path: Path) -> None:
    given = ("job.time=1:00:00", *(f"job.{word}" for word in words))
    with pytest.raises(BeamSlurmError) as refused:
        checks.times(request(tmp_path, "demo", *given, "recipe.checkpoint.enabled=false").profile)
    assert said in refused.value.what
    assert refused.value.why
    assert refused.value.remedy


@pytest.mark.parametrize("word", ["lead_s=3599", "total_time=1:00:00", "total_time=3-00:00"])
def test_times_that_can_be_kept_are_taken(word: str, tmp_path: Path) -> None:
    checks.times(request(tmp_path, "demo", "job.time=1:00:00", f"job.{word}").profile)


@pytest.mark.parametrize("known_by", ["the folder's mark", "its own run folder"])
@pytest.mark.parametrize("resumes", ["true", "false"])
def test_an_output_folder_in_use_is_refused(known_by: str, resumes: str, tmp_path: Path) -> None:
    """A run that has begun has left its mark; one that still waits is known by its folder only."""
    words = (f"site.paths.runs={tmp_path}/runs", f"recipe.checkpoint.resume={resumes}")
    made = request(tmp_path, "demo", *words)
    if resumes == "true":
        WRITERS["demo"](tmp_path / "first" / "checkpoints", 20)
    at = tmp_path / ("runs" if known_by == "its own run folder" else "elsewhere") / "demo-1"
    facts = {"executor": "local", "pid": os.getpid(), "output": made.launch.output, "job": "17"}
    other = runs.create(at, {}, facts)
    if known_by == "the folder's mark":
        write(Path(made.launch.output) / MARKER, json.dumps({"run": str(at), "job": "17"}))
    with pytest.raises(BeamSlurmError) as refused:
        resume.output(made)
    assert f"{made.launch.output} is the output folder of demo-1, which is" in refused.value.what
    assert refused.value.what.endswith("as job 17")
    assert "beam-slurm cancel demo-1" in (refused.value.remedy or "")
    other.record(pid=0)  # nobody's any more
    resume.output(made)


def test_a_mark_of_a_run_that_is_gone_or_unreadable_stops_nobody(tmp_path: Path) -> None:
    made = request(tmp_path, "demo")
    for text in ("", "[]", "{}", '{"run": 3}', json.dumps({"run": f"{tmp_path}/gone", "job": "1"})):
        write(Path(made.launch.output) / MARKER, text)
        resume.output(made)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("hardware.nodes=8", "hardware.nodes 8 instead of 12"),
        ("recipe.learner.expert=16", "recipe.learner.expert 16 instead of"),
        ("recipe.steps=70", ""),
        ("site.exclude=n3", ""),
    ],
)
def test_streamed_optimizer_state_is_not_cut_anew(change: str, said: str, tmp_path: Path) -> None:
    words = ("recipe.checkpoint.resume=true", "recipe.optimizer.state=nvme")
    before = request(tmp_path, "miles-h200-async", *words)
    folder = tmp_path / "runs" / "first"
    profile = yaml.safe_dump(json.loads(before.profile.model_dump_json()))
    runs.create(folder, {"profile.yaml": profile}, {"executor": "local"})
    WRITERS["miles"](tmp_path / "first" / "checkpoints", 20)
    write(tmp_path / "first" / MARKER, json.dumps({"run": str(folder), "job": "17"}))
    resume.output(before)
    made = request(tmp_path, "miles-h200-async", *words, change)
    if not said:
        resume.output(made)
        return
    with pytest.raises(BeamSlurmError, match="Miles cannot resume first with") as refused:
        resume.output(made)
    assert said in refused.value.what
