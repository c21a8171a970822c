"""A sweep without Slurm, for real: submitit's LocalExecutor, with a queue of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from beam_slurm.cli import cli
from beam_slurm.sweep import file, here, planning, submission
from beam_slurm.sweep.folder import Folder
from beam_slurm.sweep.states import Observer

SUCCEEDS = """\
echo began "$(pgrep -cf "^bash .*/lr-1-000./script.sbatch")"; mkdir -p attempt-0
printf '{"state": "succeeded", "cause": "", "exit_code": 0, "ended": 1}' > attempt-0/outcome.json
"""


def local(tmp_path: Path, parallel: int, script: str) -> Folder:
    """Three points for this machine, whose runs are ``script``."""
    (tmp_path / "lr.yaml").write_text(
        "profile: demo\nset: {hardware.nodes: 1, hardware.gpus_per_node: 1}\n"
        f"over: {{recipe.learning_rate: [1e-4, 1e-3, 1e-2]}}\nmax_parallel: {parallel}\n"
    )
    read = file.read(tmp_path / "lr.yaml")
    planned = planning.make(read, "lr-1", local=True)
    planning.check(planned)
    of = submission.prepare(read, planned, parallel)
    for entry in of.content.points:
        (of.path / entry.run / "script.sbatch").write_text(script)
    submission.submit(of)
    return of


def words(of: Folder) -> list[str]:
    return [look.facts.state.word for look in Observer().look(of)]


def until(condition: Callable[[], bool], of: Folder) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline, (of.path / "queue.log").read_text()
        time.sleep(0.1)


def test_without_slurm_the_points_run_here(
    tmp_path: Path, no_site: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    of = local(tmp_path, 1, SUCCEEDS)
    until(lambda: not here.lives(of), of)
    assert words(of) == ["succeeded"] * 3, (of.path / "queue.log").read_text()
    for at in range(3):
        assert (of.run(at).path / "job-local.log").read_text() == "began 1\n"  # one at a time
        assert of.run(at).manifest["pid"]


def test_without_slurm_a_sweep_is_cancelled_and_goes_on(
    tmp_path: Path, no_site: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    of = local(tmp_path, 2, "mkdir attempt-0; exec sleep 100\n")
    until(lambda: all((of.run(at).path / "attempt-0").exists() for at in range(2)), of)
    assert words(of) == ["starting", "starting", "pending"]
    assert "3 of 3 points" in CliRunner().invoke(cli, ["cancel", of.id]).output
    until(lambda: words(of)[:2] == ["failed", "failed"], of)  # a sleep leaves no last word
    until(lambda: not here.lives(of), of)
    of.reload()
    assert words(of)[2] == "cancelled"
    assert not (of.run(2).path / "attempt-0").exists()
    (of.run(2).path / "script.sbatch").write_text(SUCCEEDS)
    assert CliRunner().invoke(cli, ["sweep", of.id, "--resume"]).exit_code == 0
    of.reload()
    until(lambda: words(of)[2] == "succeeded", of)
    until(lambda: not here.lives(of), of)
