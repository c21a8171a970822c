"""Before submission: the output folder holds what the run is to go on from, or nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_checkpoint import WRITERS, skyrl, write
from test_job import SITE
from test_prepare import MORE

from beam_slurm import checks, job, profiles
from beam_slurm.errors import BeamSlurmError

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
    checks.output(fresh)
    resume = request(tmp_path, profile, "recipe.checkpoint.resume=true")
    with pytest.raises(BeamSlurmError, match="there is no whole checkpoint in") as none:
        checks.output(resume)
    assert "the run would start at step 1" in str(none.value)
    at = WRITERS[framework](folder, 20)
    checks.output(resume)
    with pytest.raises(BeamSlurmError) as held:
        checks.output(fresh)
    assert held.value.what == f"{folder} holds a checkpoint of step 20"
    assert held.value.remedy == "add --resume, or another --output-dir"
    short = ("recipe.checkpoint.resume=true", "recipe.steps=20")
    with pytest.raises(BeamSlurmError) as done:
        checks.output(request(tmp_path, profile, *short))
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
        checks.output(request(tmp_path, profile, "recipe.checkpoint.resume=true"))
    assert f"{tracker} is not there" in str(resumed.value)
    with pytest.raises(BeamSlurmError, match="something like a checkpoint of step 20"):
        checks.output(request(tmp_path, profile))


def test_unfinished_ones_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "first" / "checkpoints"
    write(folder / "tmp_step_20" / "training_info.json", "{}")
    checks.output(request(tmp_path, "h200-async"))  # nothing there to be lost
    with pytest.raises(BeamSlurmError, match="tmp_step_20 is unfinished"):
        checks.output(request(tmp_path, "h200-async", "recipe.checkpoint.resume=true"))


def test_skyrl_s_own_rule_of_the_newest_folder(tmp_path: Path) -> None:
    """One interval beyond the tracker is a save that was broken off; more it refuses itself."""
    folder = tmp_path / "first" / "checkpoints"
    resume = request(tmp_path, "b200-lora", "recipe.checkpoint.resume=true")
    skyrl(folder, 20)
    skyrl(folder, 10)  # and so says the tracker
    checks.output(resume)
    skyrl(folder, 30)
    write(folder / "latest_ckpt_global_step.txt", "10")
    with pytest.raises(BeamSlurmError, match="SkyRL would refuse to resume") as caught:
        checks.output(resume)
    assert "step 30, more than 10" in str(caught.value)


def test_resume_without_checkpoints_is_an_error(tmp_path: Path) -> None:
    words = ("recipe.checkpoint.resume=true", "recipe.checkpoint.enabled=false")
    with pytest.raises(BeamSlurmError, match="a run without checkpoints cannot resume"):
        checks.output(request(tmp_path, "h200-async", *words))


def test_what_is_not_seen_from_here_is_left_to_the_nodes(tmp_path: Path) -> None:
    elsewhere = tmp_path / "not-mounted-here"
    checks.output(request(elsewhere, "b200-lora", "recipe.checkpoint.resume=true"))


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
        checks.output(long)
