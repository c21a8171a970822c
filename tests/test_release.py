"""What waits for a checkpoint: which ones are whole, who is released, and what goes wrong."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import assetfiles
import pytest
from test_checkpoint import WRITERS, demo, write
from test_supervise import RAY, Supervise

from beam_slurm.node import again, checkpoint, followers
from beam_slurm.node.followers import Follower
from beam_slurm.node.release import Release

# It answers as the file ``says`` tells, and well without one.
SCONTROL = """#!/bin/bash
cd "${0%/*}" || exit 1
echo "$*" >> calls
[[ ! -e says ]] || { cat says >&2; exit 1; }
"""
GONE = "Job is no longer pending execution for job 21"
SILENT = "slurm_update error: Unable to contact slurm controller (connect failure)"
DENIED = "Access/permission denied for job 21"


class Waiting:
    """A run of the demo with checkpoints, a file of followers, and a Slurm of its own."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        self.checkpoints = self.run / "checkpoints"
        self.checkpoints.mkdir(parents=True)
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "scontrol").write_text(SCONTROL)
        (self.bin / "scontrol").chmod(0o755)
        self.release = Release(str(self.run), "demo", str(self.checkpoints))

    def wait(self, *waiting: Follower) -> None:
        followers.write(str(self.run), waiting)

    def says(self, text: str) -> None:
        (self.bin / "says").write_text(text)

    @property
    def left(self) -> list[str]:
        return [it.job for it in followers.read(str(self.run))]

    @property
    def calls(self) -> list[str]:
        path = self.bin / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    made = Waiting(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    return made


def released(*jobs: int) -> list[str]:
    return [f"update jobid={job} dependency=" for job in jobs]


def test_the_file_holds_what_was_written(tmp_path: Path) -> None:
    assert followers.read(str(tmp_path)) == []
    known = [Follower("21"), Follower("22", 20), Follower("23", 40, "/out/a folder/step_40")]
    followers.write(str(tmp_path), known)
    assert followers.read(str(tmp_path)) == known
    assert [path.name for path in tmp_path.iterdir()] == [followers.FILE]


@pytest.mark.parametrize("layout", WRITERS)
def test_which_checkpoints_are_whole(layout: str, tmp_path: Path) -> None:
    assert checkpoint.saved(layout, str(tmp_path / "none"), {20}) == []
    for step in (20, 40, 60):
        at = WRITERS[layout](tmp_path, step)
    assert checkpoint.saved(layout, str(tmp_path), {20, 60, 80}) == [20, 60]
    for file in at.rglob("*.pt"):
        write(file, "")  # what torch.save writes is not empty
    assert checkpoint.saved(layout, str(tmp_path), {20, 60}) == [20]


@pytest.mark.parametrize(
    ("layout", "tracker", "number"),
    [
        ("skyrl", "latest_ckpt_global_step.txt", 40),
        ("miles", "latest_checkpointed_iteration.txt", 39),
    ],
)
def test_beyond_the_tracker_saving_is_not_over(
    layout: str, tracker: str, number: int, tmp_path: Path
) -> None:
    for step in (20, 40, 60):
        WRITERS[layout](tmp_path, step)
    write(tmp_path / tracker, str(number))
    assert checkpoint.saved(layout, str(tmp_path), {20, 40, 60}) == [20, 40]
    (tmp_path / tracker).unlink()  # Miles has none beside adapters
    assert checkpoint.saved(layout, str(tmp_path), {20, 60}) == [20, 60]


def test_who_waits_for_a_checkpoint_is_released_once_it_is_whole(waiting: Waiting) -> None:
    waiting.wait(Follower("21", 2), Follower("22", 4), Follower("23"))
    waiting.release.look()
    assert waiting.calls == []
    demo(waiting.checkpoints, 2)
    torn = demo(waiting.checkpoints, 4)
    (torn / "state.json").unlink()
    waiting.release.look()
    assert waiting.calls == released(21)
    assert waiting.left == ["22", "23"]
    demo(waiting.checkpoints, 4)
    waiting.release.look()
    waiting.release.look()
    assert waiting.calls == released(21, 22)
    assert waiting.left == ["23"]  # that one is for the run's end


def test_an_exported_model_is_looked_for_where_it_goes(waiting: Waiting, tmp_path: Path) -> None:
    export = tmp_path / "exports" / "global_step_2" / "policy"
    waiting.wait(Follower("21", 2, str(export)))
    demo(waiting.checkpoints, 2)
    whole = assetfiles.model(tmp_path / "whole")
    export.mkdir(parents=True)
    for path in [*whole.iterdir()][:-1]:
        shutil.copy(path, export)
        waiting.release.look()
    assert waiting.calls == []
    shutil.copytree(whole, export, dirs_exist_ok=True)
    waiting.release.look()
    assert waiting.calls == released(21)


def test_a_job_that_is_gone_is_forgotten(
    waiting: Waiting, capfd: pytest.CaptureFixture[str]
) -> None:
    waiting.wait(Follower("21", 2), Follower("22", 4))
    demo(waiting.checkpoints, 2)
    waiting.says(GONE)
    waiting.release.look()
    assert waiting.left == ["22"]
    assert f"job 21 does not wait for step 2 any more: {GONE}" in capfd.readouterr().err


def test_a_refusal_is_said_once_and_leaves_the_job_to_the_run_s_end(
    waiting: Waiting, capfd: pytest.CaptureFixture[str]
) -> None:
    waiting.wait(Follower("21", 2))
    demo(waiting.checkpoints, 2)
    waiting.says(DENIED)
    for _ in range(3):
        waiting.release.look()
    assert waiting.calls == released(21)
    assert waiting.left == ["21"]
    assert capfd.readouterr().err.count(DENIED) == 1


def test_a_silent_controller_is_asked_again(
    waiting: Waiting, capfd: pytest.CaptureFixture[str]
) -> None:
    waiting.wait(Follower("21", 2))
    demo(waiting.checkpoints, 2)
    waiting.says(SILENT)
    for _ in range(3):
        waiting.release.look()
    assert waiting.left == ["21"]
    assert capfd.readouterr().err.count("does not answer") == 1
    (waiting.bin / "says").unlink()
    waiting.release.look()
    assert waiting.calls == released(21, 21, 21, 21)
    assert waiting.left == []


def test_only_what_waits_still_follows_the_run_into_its_next_job(waiting: Waiting) -> None:
    waiting.wait(Follower("21", 2), Follower("22", 4))
    demo(waiting.checkpoints, 2)
    waiting.release.look()
    again.bring_along(str(waiting.run), "18")
    assert waiting.calls == [*released(21), "update jobid=22 dependency=afterok:18"]


def test_a_run_of_no_framework_has_no_checkpoints_to_look_for(waiting: Waiting) -> None:
    """A conversion is a run, too, and an evaluation may wait for it."""
    for framework, folder in (("convert", str(waiting.checkpoints)), ("demo", "")):
        release = Release(str(waiting.run), framework, folder)
        release.begin()
        assert not release.is_alive()


def test_the_supervisor_releases_while_the_run_goes_on(waiting: Waiting) -> None:
    """Also what an attempt before it has saved; the driver ends only when it has seen both."""
    attempt = Supervise(waiting.run)
    waiting.wait(Follower("21", 2), Follower("22", 4))
    demo(waiting.checkpoints, 2)
    demo(waiting.run / "later", 4)
    seen = "until grep -q jobid={} ../../bin/calls; do sleep 0.05; done; "
    driver = seen.format(21) + "mv ../later/step_000004 ../checkpoints; " + seen.format(22)
    rules = ("--save-every=2", f"--checkpoints={waiting.checkpoints}")
    path = f"{waiting.bin}:{os.environ['PATH']}"
    found = attempt.run(RAY, driver + "end 0", *rules, PATH=path)
    assert found["state"] == "succeeded"
    assert waiting.calls == released(21, 22)
    assert waiting.left == []
    assert "step 4 is saved: job 22, which waited for it, may start" in attempt.words
