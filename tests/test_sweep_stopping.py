"""Early stop by Optuna's pruners: who is ended, when, and that nothing else is."""

from __future__ import annotations

from pathlib import Path

import folders
import pytest
from rich.console import Console
from test_sweep_results import SWEEP, Slurm, cluster, make

from beam_slurm import ending, slurm
from beam_slurm.runs import Run
from beam_slurm.sweep.folder import Folder
from beam_slurm.sweep.schema import EarlyStop, Objective
from beam_slurm.sweep.states import Observer
from beam_slurm.sweep.stopping import Judge
from beam_slurm.sweep.waiting import wait

__all__ = ["cluster"]

REWARD = Objective(metric="reward")
MEDIAN = EarlyStop(rule="median", min_steps=3, min_points=4)


def run(of: Folder, slurms: Slurm, at: int, *rewards: float, over: bool = False) -> None:
    """A point that has done these steps."""
    folders.bring_up(of.run(at))
    for step, reward in enumerate(rewards, 1):
        folders.measure(of.run(at), folders.train(step, steps=10, reward=reward))
    if over:
        folders.outcome(of.run(at), task=f"17_{at}")
    else:
        slurms.tasks.setdefault("17", {})[f"17_{at}"] = slurm.Job(f"17_{at}", "RUNNING")


def judged(of: Folder, judge: Judge) -> dict[int, str]:
    return {look.index: why for look, why in judge.judge(Observer().look(of))}


def test_the_median_rule(tmp_path: Path, cluster: Slurm) -> None:
    of = make(tmp_path, 8)
    for at in range(4):
        run(of, cluster, at, *(0.1 * at + 0.1 * step for step in range(1, 6)), over=True)
    run(of, cluster, 4, 0.0, 0.0)  # worse, but before step 3
    run(of, cluster, 5, 0.0, 0.0, 0.0)
    run(of, cluster, 6, 0.5, 0.6, 0.7)
    judge = Judge(MEDIAN, REWARD)
    assert judged(of, judge) == {5: "median rule at step 3, reward 0"}
    folders.measure(of.run(4), folders.train(3, steps=10, reward=0.0))
    assert list(judged(of, judge)) == [4]


def test_nobody_is_ended_before_enough_points_are_over(tmp_path: Path, cluster: Slurm) -> None:
    of = make(tmp_path, 8)
    for at in range(3):
        run(of, cluster, at, 1.0, 1.0, 1.0, over=True)
    run(of, cluster, 5, 0.0, 0.0, 0.0, 0.0)
    assert judged(of, Judge(MEDIAN, REWARD)) == {}


def test_less_can_be_better(tmp_path: Path, cluster: Slurm) -> None:
    of = make(tmp_path, 8)
    for at in range(4):
        run(of, cluster, at, 1.0, 1.0, 1.0, over=True)
    run(of, cluster, 5, 0.0, 0.0, 0.0)
    run(of, cluster, 6, 2.0, 2.0, 2.0)
    wanted = Objective(metric="reward", goal="minimize")
    assert list(judged(of, Judge(MEDIAN, wanted))) == [6]


def test_successive_halving(tmp_path: Path, cluster: Slurm) -> None:
    """At step 4, only the best of four go on."""
    of = make(tmp_path, 8)
    for at in range(8):
        run(of, cluster, at, *[float(8 - at)] * 6)
    ended = judged(of, Judge(EarlyStop(rule="halving", min_steps=1), REWARD))
    assert 0 not in ended
    assert {5, 6, 7} <= set(ended)


def test_points_that_are_over_are_never_ended(tmp_path: Path, cluster: Slurm) -> None:
    of = make(tmp_path, 8)
    for at in range(4):
        run(of, cluster, at, 1.0, 1.0, 1.0, 1.0, over=True)
    run(of, cluster, 5, 0.0, 0.0, 0.0, 0.0, over=True)
    assert judged(of, Judge(MEDIAN, REWARD)) == {}


def test_whoever_waits_ends_them_as_cancel_does(
    tmp_path: Path, cluster: Slurm, no_site: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SWEEP + "early_stop: {rule: median, min_steps: 3}\n"
    of = make(tmp_path, 6, text)
    for at in range(4):
        run(of, cluster, at, 1.0, 1.0, 1.0, over=True)
    run(of, cluster, 4, 2.0, 2.0, 2.0)
    run(of, cluster, 5, 0.0, 0.0, 0.0)
    ended = []

    def cancel(found: Run) -> str:
        ended.append(found.id)
        folders.outcome(found, state="cancelled", exit_code=143, cause="ended", task="17_5")
        return f"cancelling {found.id}"

    def later(seconds: float) -> None:
        folders.outcome(of.run(4), task="17_4")

    monkeypatch.setattr(ending, "end", cancel)
    console = Console(record=True, width=200)
    assert wait(of, console, sleep=later) == 0
    assert ended == ["lr-1a2b3c-0005"]
    said = console.export_text()
    assert "point 5: median rule at step 3, reward 0: cancelling lr-1a2b3c-0005" in said
    assert "6 points, 5 succeeded, 1 cancelled, 1 of them stopped early" in said
    looks = Observer().look(of)
    assert looks[5].stopped
    assert not looks[5].failed
