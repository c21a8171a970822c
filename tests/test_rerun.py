"""A run again: the same script but for its folder, the same weights, and what has drifted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from launching import Launch
from sources import commit, git
from test_job import SITE, driver_words
from test_prepare import MORE

from beam_slurm import job, profiles, runs, submit
from beam_slurm.cli.runs import runs as command
from beam_slurm.errors import BeamSlurmError
from beam_slurm.records import compare, image
from beam_slurm.records.record import Record
from beam_slurm.runs import Run

NAME = "b300-0a1b2c"


@pytest.fixture
def root(tmp_path: Path, no_site: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("WANDB_API_KEY", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "runs"


def make(
    root: Path,
    *words: str,
    profile: str = "b300-colocated",
    overrides: tuple[str, ...] = (),
    local: bool = False,
) -> Run:
    """A run folder as submit makes it; its checkout and its image lie beside ``root``."""
    here = root.parent
    if not (here / "nemo-rl").exists():
        commit(here / "nemo-rl", a_py="x = 1\n")
        (here / "nemo.sqsh").write_bytes(b"squash")
    given = {
        **SITE,
        **MORE,
        "site.paths.runs": str(root),
        "site.paths.nemo_rl": f"{here}/nemo-rl",
        "site.images.nemo-rl-colocated": f"{here}/nemo.sqsh",
    }
    texts = [*(f"{key}={value}" for key, value in given.items()), *words]
    resolved = profiles.resolve(profile, settings=profiles.parse_settings(texts))
    made = job.make_request(resolved, overrides=overrides, local=local, run_id=NAME)
    return submit.prepare(made)


def again(root: Path, *words: str) -> Result:
    result = CliRunner().invoke(command, ["rerun", NAME, *words, "--runs", str(root)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(root: Path, *words: str) -> BeamSlurmError:
    """Why a rerun was refused; nothing of it is left."""
    before = sorted(root.iterdir())
    with pytest.raises(BeamSlurmError, match="would not run as it did: nothing was submitted") as e:
        again(root, *words)
    assert sorted(root.iterdir()) == before
    return e.value


def scripts(run: Run, done: Result) -> tuple[bytes, bytes]:
    """The run's script and the one that a dry run printed, without their own folders and ids."""
    new = os.fsdecode(done.stdout_bytes)
    name = new.partition("beam-slurm:")[2].split()[0] if "beam-slurm:" in new else ""
    folder, old = compare.place(Record(run))
    return (
        os.fsencode(compare.neutral(Record(run).script or "", folder, old)),
        os.fsencode(compare.neutral(new, folder.parent / name, name)),
    )


def test_the_script_is_the_same_but_for_its_folder(root: Path) -> None:
    overrides = ("a='x y'", "b=\udcff\udce9", "c=1;$(id)", "d=\n")
    run = make(root, "recipe.steps=50", "job.spares=1", overrides=overrides)
    done = again(root, "--dry-run")
    old, new = scripts(run, done)
    assert new == old
    assert driver_words(os.fsdecode(new))[-4:] == [os.fsencode(word) for word in overrides]
    assert done.stdout_bytes != (run.path / "script.sbatch").read_bytes()
    assert "changed" not in done.stderr
    assert list(root.iterdir()) == [run.path]


def test_neither_the_profile_s_file_nor_the_site_s_is_needed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, site = root.parent / "mine.yaml", root.parent / "site.yaml"
    mine.write_text("extends: b300-colocated\nrecipe:\n  learning_rate: 3e-6\n")
    site.write_text("qos: high\nenvironment: {NOTE: mine}\n")
    run = make(root, profile=str(mine))
    mine.unlink()
    site.write_text("qos: low\n")
    monkeypatch.chdir("/")
    old, new = scripts(run, again(root, "--dry-run"))
    assert new == old
    assert b"--qos=high" in new
    assert b"policy.optimizer.kwargs.lr=3e-06" in new or b"lr=3e-06" in new


def test_another_commit_of_the_checkout(root: Path) -> None:
    make(root)
    before = git(root.parent / "nemo-rl", "rev-parse", "HEAD")
    after = commit(root.parent / "nemo-rl", a_py="x = 2\n")
    why = refused(root).why or ""
    assert f"commit {before[:12]} then, {after[:12]} now" in why
    assert f"git -C {root.parent}/nemo-rl checkout {before[:12]}" in why
    done = again(root, "--dry-run")
    assert f"{after[:12]} now" in done.stderr
    assert done.stdout.startswith("#!/bin/bash")
    git(root.parent / "nemo-rl", "checkout", "--quiet", before)
    assert "changed" not in again(root, "--dry-run").stderr


def test_changed_files_in_the_checkout(root: Path) -> None:
    file = root.parent / "nemo-rl" / "a.py"
    commit(root.parent / "nemo-rl", a_py="x = 1\n")
    (root.parent / "nemo.sqsh").write_bytes(b"squash")
    file.write_text("x = 2\n")
    run = make(root)
    assert "+x = 2" in (run.path / "checkout.patch").read_text()
    assert "changed" not in again(root, "--dry-run").stderr
    file.write_text("x = 3\n")
    assert "changed files: 1 file (" in (refused(root).why or "")
    git(root.parent / "nemo-rl", "checkout", "--quiet", "a.py")
    assert ", none now" in (refused(root).why or "")
    git(root.parent / "nemo-rl", "apply", str(run.path / "checkout.patch"))
    assert "changed" not in again(root, "--dry-run").stderr


def test_a_checkout_of_which_nothing_is_known_is_a_doubt(root: Path) -> None:
    make(root)
    (root.parent / "nemo-rl" / ".git").rename(root.parent / "git")
    done = again(root, "--dry-run")
    assert "checkout: not all is known" in done.stderr
    assert "changed" not in done.stderr


@pytest.mark.parametrize("large", [False, True])
def test_another_image(root: Path, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(image, "SMALL", 1)
    make(root)
    (root.parent / "nemo.sqsh").write_bytes(b"another")
    why = refused(root).why or ""
    assert ("was written anew since" if large else "the image: sha256:") in why


def test_a_digest_beside_the_image_is_not_believed_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "SMALL", 1)
    file, beside = root.parent / "nemo.sqsh", root.parent / "nemo.sqsh.sha256"
    commit(root.parent / "nemo-rl", a_py="x = 1\n")
    file.write_bytes(b"squash")
    beside.write_text("1" * 64)
    run = make(root)
    assert run.manifest["image"]["by"] == beside.name
    assert "changed" not in again(root, "--dry-run").stderr
    file.write_bytes(b"other!")
    os.utime(file, (1, 1))  # as cp -p leaves it
    assert "was written anew since" in (refused(root).why or "")


def test_files_that_git_does_not_know_are_told(root: Path) -> None:
    make(root)
    (root.parent / "nemo-rl" / "reward.py").write_text("x = 1\n")
    done = again(root, "--dry-run")
    assert "note: checkout: not in git: none then, reward.py now" in done.stderr


def test_it_is_the_same_door_as_submit_s(root: Path) -> None:
    mail = ("job.mail_type=END", "job.mail_user=me@example.org")
    make(root, "hardware.nodes=1", *mail, profile="demo", local=True)
    done = again(root, "--dry-run", "--json")
    assert done.exit_code == 2
    assert "--json tells of a run" in done.stderr
    done = again(root, "--dry-run")
    assert "warning: job.mail_type is left out" in done.stderr


def test_a_dry_run_says_what_submit_would_refuse(root: Path) -> None:
    make(root, "hardware.nodes=1")
    assert "submit would refuse this" in again(root, "--dry-run").stderr


def test_another_machine_or_version_makes_another_script(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    run = make(root, "hardware.nodes=1", profile="demo", local=True)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert "script.sbatch would be another" in (refused(root).why or "")
    done = again(root, "--dry-run")
    lines = [line for line in done.stderr.splitlines() if line[:1] in "+-"]
    assert [line[:3] for line in lines[:2]] == ["---", "+++"]
    assert "SLURM_JOB_CPUS_PER_NODE=16" in lines[2]
    assert "SLURM_JOB_CPUS_PER_NODE=4" in lines[3]
    assert run.manifest["executor"] == "local"


def test_a_secret_that_is_missing_now(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    run = make(root)
    assert run.manifest["secrets"] == ["WANDB_API_KEY"]
    for file in run.path.iterdir():
        assert file.is_dir() or b"0123456789abcdef" not in file.read_bytes()
    assert "changed" not in again(root, "--dry-run").stderr
    monkeypatch.delenv("WANDB_API_KEY")
    assert refused(root).why == "WANDB_API_KEY: given then, and not set in this shell"
    monkeypatch.setenv("WANDB_API_KEY", "another-value-today")
    monkeypatch.setenv("HF_TOKEN", "new")
    assert "HF_TOKEN: set in this shell, and not then" in again(root, "--dry-run").stderr


def test_other_versions_are_told_and_no_obstacle(root: Path) -> None:
    run = make(root)
    versions = {"beam_slurm": "0.0.9", "python": "3.10.1", "slurm": None}
    run.record(versions=versions)
    done = again(root, "--dry-run")
    assert "note: beam-slurm: 0.0.9 then," in done.stderr
    assert "note: Python: 3.10.1 then," in done.stderr
    assert "changed" not in done.stderr


def test_an_output_folder_that_was_said_may_be_another(root: Path) -> None:
    make(root, "job.output_dir=first")
    done = again(root, "--dry-run", "--output-dir", "second")
    assert "BEAM_LOG_DIR=/root/shared_data/second" in done.stdout
    assert "shared_data/first" not in done.stdout
    assert "changed" not in done.stderr


# --- on the embedded Slurm ----------------------------------------------------------------------


def weights(run: Run, step: int) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    path = run.output / "checkpoints" / f"step_{step:06}" / "model.pt"
    found = torch.load(path, map_location="cpu", weights_only=True)
    assert isinstance(found, dict)
    return found


def finish(launch: Launch, *words: str) -> Run:
    """A run to its end."""
    done = launch.call(*words)
    assert done.returncode == 0, done.stderr
    run = Run(Path(json.loads(done.stdout)["folder"]))
    assert launch.over(run)["JobState"] == "COMPLETED", launch.log(run)
    return run


@pytest.mark.slurm
def test_rerun_of_a_seeded_demo_gives_the_same_weights(launch: Launch) -> None:
    """Bit by bit, from two hosts with a rollout worker each."""
    torch = pytest.importorskip("torch")
    small = ("--steps=6", "--save-every=6", "--nodes=2", "--max-restarts=0")
    said = ("--set", "recipe.seed=5", "--set", "recipe.evaluation.every=6")
    first = finish(
        launch, "submit", "--json", "--profile", "demo", *small, *said, "--", "--clip-low=0.19"
    )
    second = finish(launch, "runs", "rerun", first.id, "--json")
    assert second.id != first.id
    assert second.manifest["rerun_of"] == first.id
    assert second.manifest["overrides"] == ["--clip-low=0.19"]

    pair = Record(first), Record(second)
    assert compare.scripts(*pair) == []
    assert compare.compare(*pair) == {}
    same = launch.call("runs", "diff", first.id, second.id, "--script")
    assert (same.returncode, same.stdout) == (0, "no difference\n")
    assert len(list(runs.all_runs(first.path.parent))) == 2

    lines = (first.output / "metrics.jsonl").read_text().splitlines()
    steps = [it for line in lines if (it := json.loads(line))["type"] == "train"]
    assert len(steps) == 6
    assert any(step["grad_norm"] > 0 for step in steps)  # or equal weights would say nothing
    before, after = weights(first, 6), weights(second, 6)
    assert list(before) == list(after)
    different = [name for name in before if not torch.equal(before[name], after[name])]
    assert different == []
