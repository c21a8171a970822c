"""What follows an attempt: the rules in their order, and what a run's attempts tell of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from beam_slurm.node import attempts, course, left, settle
from beam_slurm.node.checkpoint import NOTHING, Found
from beam_slurm.node.course import Next, Rules

RULES = Rules(
    run="/run",
    script="/run/script.sbatch",
    allocated=["n1", "n2", "n3"],
    framework="demo",
    steps=100,
    every=20,
    checkpoints="/run/checkpoints",
    max_restarts=3,
    again="requeue",
    total=0,
    lead=60,
    startup=60,
    nodes=2,
)
AT_20 = Found(20, "/c/step_20", [], 20)
BROKEN = Found(None, None, ["/c/step_40 is damaged: no end"], 40)
HOUR = 3600.0


def past(kind: str = "node", last: int | None = None, **more: Any) -> dict[str, Any]:
    """The outcome of an attempt of ten minutes."""
    return {
        "state": "failed",
        "class": kind,
        "component": "ray",
        "began": 0.0,
        "ended": 600.0,
        "steps": {"first": 1 if last else None, "last": last},
        "blamed": [],
        **more,
    }


ENTRY = {"component": "entry"}
BRAKE = Next("", "two attempts have brought no new step")
USED_UP = Next("", "its time is used up")
FAILED_AGAIN = Next("", "the entry failed before its first step: it would fail again")
HERE = Next("here", "2 of its nodes are fit, 2 are needed")
NEXT_JOB = "its job is over, not its time"


def n(*lasts: int | None, kind: str = "node", **more: Any) -> list[dict[str, Any]]:
    return [past(kind, last, **more) for last in lasts]


@pytest.mark.parametrize(
    ("history", "changed", "found", "fit", "remaining", "wanted"),
    [
        ([past("config", 30)], {}, AT_20, 3, HOUR, Next("", "it would fail again: see its cause")),
        # Time.
        (n(30, kind="time"), {}, AT_20, 3, HOUR, USED_UP),
        (n(30, kind="time"), {"total": 720.0}, AT_20, 3, HOUR, USED_UP),
        (n(30, kind="time"), {"total": 721.0}, AT_20, 3, HOUR, Next("requeue", NEXT_JOB)),
        (n(30), {"total": 720.0}, AT_20, 2, 0.0, USED_UP),
        (
            n(30, kind="time"), {"total": 9e9, "again": "chain"}, AT_20, 3, HOUR,
            Next("chain", NEXT_JOB),
        ),
        (
            n(30, kind="time"), {"total": 9e9, "again": "local"}, AT_20, 3, HOUR,
            Next("", "it cannot get another job by itself here"),
        ),
        # The brake: furthest step of all before, preempted attempts left out.
        (n(30, 30, 30), {}, AT_20, 2, HOUR, BRAKE),
        (n(30, 20, 25), {}, AT_20, 2, HOUR, BRAKE),
        (n(None, None), {}, NOTHING, 2, HOUR, BRAKE),
        (n(30, 30), {}, AT_20, 2, HOUR, HERE),
        (n(30, 30, 31), {}, AT_20, 2, HOUR, HERE),
        (n(30, 30) + n(None, kind="preempted") + n(30), {}, AT_20, 2, HOUR, BRAKE),
        (n(30) + n(None, None, None, kind="preempted"), {}, AT_20, 2, HOUR,
         Next("requeue", NEXT_JOB)),
        (n(30, 30, 30, kind="time"), {"total": 9e9}, AT_20, 2, HOUR, BRAKE),
        # Restarts: only failures count.
        (n(10, 20, 30), {"max_restarts": 3}, AT_20, 2, HOUR, HERE),
        (
            n(10, 20, 30, 40), {"max_restarts": 3}, AT_20, 2, HOUR,
            Next("", "job.max_restarts is 3"),
        ),
        (
            n(10), {"max_restarts": 0}, AT_20, 2, HOUR,
            Next("", "job.max_restarts is 0"),
        ),
        (
            n(10, 20, kind="time") + n(25, kind="preempted") + n(30),
            {"max_restarts": 1, "total": 9e9}, AT_20, 2, HOUR, HERE,
        ),
        # The entry itself, before its first step.
        (n(None, kind="framework", **ENTRY), {}, NOTHING, 2, HOUR, FAILED_AGAIN),
        (n(None, kind="oom", **ENTRY), {}, NOTHING, 2, HOUR, FAILED_AGAIN),
        (n(None, kind="container", **ENTRY), {}, NOTHING, 2, HOUR, FAILED_AGAIN),
        (n(None, kind="nccl", **ENTRY), {}, NOTHING, 2, HOUR, HERE),
        (n(1, kind="framework", **ENTRY), {}, NOTHING, 2, HOUR, HERE),
        (n(None, kind="container"), {}, NOTHING, 2, HOUR, HERE),
        # The proof.
        (
            n(45), {}, BROKEN, 2, HOUR,
            Next("", "there is no whole checkpoint: /c/step_40 is damaged: no end"),
        ),
        (
            n(21), {}, NOTHING, 2, HOUR,
            Next("", "it has done 21 steps, and there is no checkpoint in /run/checkpoints"),
        ),
        (n(20), {}, NOTHING, 2, HOUR, HERE),
        (
            n(1), {"every": 0, "checkpoints": ""}, NOTHING, 2, HOUR,
            Next("", "it has done 1 steps and saves no checkpoints: it would begin anew"),
        ),
        (n(None), {"every": 0, "checkpoints": ""}, NOTHING, 2, HOUR, HERE),
        # Where: here while nodes and time are enough.
        (n(30), {}, AT_20, 3, 121.0, Next("here", "3 of its nodes are fit, 2 are needed")),
        (n(30), {}, AT_20, 2, 120.0, Next("requeue", "this job ends in 2 min")),
        (n(30), {}, AT_20, 2, float("inf"), HERE),
        (
            n(30), {}, AT_20, 1, HOUR,
            Next("requeue", "1 of 3 nodes are fit, 2 are needed"),
        ),
        (
            n(30), {"again": "none"}, AT_20, 1, HOUR,
            Next("", "it cannot get another job by itself here"),
        ),
        (n(30), {"again": "none"}, AT_20, 2, HOUR, HERE),
        (n(30, kind="preempted"), {}, AT_20, 3, HOUR, Next("requeue", NEXT_JOB)),
        # Preflight is not the batch script's own process: nothing is fit for it to go on with.
        (
            n(None, component="preflight"), {"again": "chain"}, NOTHING, 0, HOUR,
            Next("chain", "0 of 3 nodes are fit, 2 are needed"),
        ),
        (
            n(None, component="preflight"), {"again": "local"}, NOTHING, 0, HOUR,
            Next("", "it cannot get another job by itself here"),
        ),
        # What comes first counts: config, time, brake, restarts, entry, proof.
        (
            n(30, 30, 30, kind="config"), {}, BROKEN, 0, 0.0,
            Next("", "it would fail again: see its cause"),
        ),
        (n(30, 30) + n(30, kind="time"), {}, BROKEN, 0, 0.0, USED_UP),
        (n(None, None, kind="oom", **ENTRY), {"max_restarts": 0}, BROKEN, 0, 0.0, BRAKE),
        (
            n(None, kind="oom", **ENTRY), {"max_restarts": 0}, BROKEN, 0, 0.0,
            Next("", "job.max_restarts is 0"),
        ),
        (n(None, kind="oom", **ENTRY), {}, BROKEN, 0, 0.0, FAILED_AGAIN),
    ],
)  # fmt: skip
def test_what_follows(
    history: list[dict[str, Any]],
    changed: dict[str, Any],
    found: Found,
    fit: int,
    remaining: float,
    wanted: Next,
) -> None:
    looked = []

    def look() -> Found:
        looked.append(found)
        return found

    said = course.after(RULES._replace(**changed), history, look, fit, remaining)
    assert (said.how, said.why, said.job) == wanted[:3]
    assert said.resumes == found.step or not said.how
    # To look sets aside what is broken: who has ended for another reason does not.
    assert not looked or said.how or re.search("checkpoint|another job", said.why)


def test_what_a_run_has_used_and_done() -> None:
    assert (course.used([]), course.done([])) == (0.0, 0)
    history = [past(last=30), past(last=None), past(last=20, began=600.0, ended=660.5)]
    assert (course.used(history), course.done(history)) == (1260.5, 30)


def test_when_a_run_without_slurm_ends() -> None:
    here = RULES._replace(again="local")
    assert course.ends(here, {}, [past()]) == float("inf")
    now = time.time()
    assert 400 <= course.ends(here._replace(total=1000.0), {}, [past()]) - now < 460


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "00:00:00:00"),
        (59.9, "00:00:00:59"),
        (3600, "00:01:00:00"),
        (86399, "00:23:59:59"),
        (86400 + 3661, "01:01:01:01"),
        (left.LONGEST, "99:00:00:00"),
    ],
)
def test_how_a_time_is_spelled_for_nemo_rl(seconds: float, said: str) -> None:
    assert left.spelled(seconds) == said


LOST = {"state": "failed", "class": "node", "cause": "n2: Node failure", "exit_code": 69}


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (
            {"state": "succeeded", "class": "", "cause": "the entry finished", "exit_code": 0},
            "succeeded: the entry finished (exit code 0)",
        ),
        (
            {**LOST, "stopped": BRAKE.why, "do": "see the log"},
            "failed (node): n2: Node failure (exit code 69); it does not go on: "
            "two attempts have brought no new step; do: see the log",
        ),
        (
            {**LOST, "next": {"how": "here", "why": "2 fit nodes", "job": None}, "do": "x"},
            "failed (node): n2: Node failure (exit code 69); goes on in this job, as attempt 3: "
            "2 fit nodes",
        ),
        (
            {**LOST, "next": {"how": "chain", "why": "w", "job": "18"}},
            "failed (node): n2: Node failure (exit code 69); goes on in job 18, as attempt 3: w",
        ),
        *(
            (
                {**LOST, "next": {"how": how, "why": "w", "job": None}},
                "failed (node): n2: Node failure (exit code 69); goes on when Slurm runs the job "
                "again, as attempt 3: w",
            )
            for how in ("requeue", "slurm")
        ),
    ],
)
def test_the_log_s_last_line(outcome: dict[str, Any], said: str) -> None:
    assert settle.last_line({"next": None, "stopped": "", "do": "", **outcome}, 2) == said


# --- attempts -----------------------------------------------------------------------------


def tell(attempt: Path, name: str, at: float, **facts: Any) -> None:
    with (attempt / "events.jsonl").open("a") as file:
        file.write(json.dumps({"beam-slurm": name, "time": at, **facts}) + "\n")


def test_attempts_are_numbered_through(tmp_path: Path) -> None:
    before = os.umask(0o027)  # who may read it is the site's to say
    try:
        made = [attempts.begin(str(tmp_path)) for _ in range(12)]
    finally:
        os.umask(before)
    assert [attempts.number(path) for path in made] == list(range(12))
    assert attempts.folders(str(tmp_path)) == made  # by number, not by name
    (tmp_path / "attempt-20").mkdir()
    (tmp_path / "attempt-x").mkdir()
    assert attempts.number(attempts.begin(str(tmp_path))) == 21
    assert (tmp_path / "attempt-11" / "ray").stat().st_mode & 0o777 == 0o750


def test_two_that_begin_at_once_get_a_folder_each(tmp_path: Path) -> None:
    program = "import sys; from beam_slurm.node import attempts\n" + (
        "for _ in range(9): print(attempts.begin(sys.argv[1]))"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    begun = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    made = [line for process in begun for line in process.communicate()[0].split()]
    assert sorted(map(attempts.number, made)) == list(range(27))


def test_an_attempt_without_a_last_word_is_written_off(tmp_path: Path) -> None:
    run = str(tmp_path)
    first = Path(attempts.begin(run))
    tell(first, "batch-started", 10.0, job="17", restart=1, nodes=["n1", "n3"])
    tell(first, "blamed", 11.0, node="n2", why="scratch: full")
    tell(first, "entry-started", 12.0)
    tell(first, "step", 20.0, step=21)
    tell(first, "step", 30.0, step=25)
    (first / "events.jsonl").open("a").write('{"beam-slurm": "st')  # the host lost its power
    assert attempts.history(run) == []
    second = Path(attempts.begin(run))
    (lost,) = attempts.history(run)
    assert lost == {
        **lost,
        "state": "failed",
        "class": "node",
        "exit_code": 69,
        "began": 10.0,
        "ended": 30.0,
        "job": "17",
        "restart": 1,
        "nodes": ["n1", "n3"],
        "entered": True,
        "steps": {"first": 21, "last": 25},
        "blamed": ["n2"],
        "stopped": "",
    }
    assert lost["next"]["how"] == "slurm"
    # It is over, and the rules can read it.
    assert course.after(RULES, [lost], lambda: AT_20, 2, HOUR) == HERE._replace(resumes=20)
    assert attempts.found_unfit(str(first)) == ["n2"]
    assert attempts.blamed(run) == set()  # that is long ago
    # One that had not even begun its log: its folder's age is all there is.
    third = attempts.begin(run)
    assert attempts.outcome(str(second))["steps"] == {"first": None, "last": None}
    assert attempts.outcome(third) == {}


def test_all_that_attempts_blame_is_left_out_for_a_day(tmp_path: Path) -> None:
    now = time.time()
    day = attempts.PARDON
    for blamed, ended in (
        (["n5"], now - day - 60),  # somebody may have mended it
        (["n1"], now - day + 60),
        ([], now),
        (["n1", "n3"], now),
    ):
        path = Path(attempts.begin(str(tmp_path)))
        (path / "outcome.json").write_text(json.dumps({"blamed": blamed, "ended": ended}))
    assert attempts.blamed(str(tmp_path)) == {"n1", "n3"}
    (path / "outcome.json").write_text("[half")  # not ours to trust
    assert attempts.blamed(str(tmp_path)) == {"n1"}


def test_what_earlier_attempts_have_left_on_a_node_is_found_by_its_name(tmp_path: Path) -> None:
    """By job and attempt, as templates/ray_address.j2 names it."""
    for job in ("17", "18"):
        attempts.write_off(attempts.begin(str(tmp_path)), job=job)
    now = attempts.begin(str(tmp_path))
    assert attempts.names_before(now) == ["17-0", "18-1"]
