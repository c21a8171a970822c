"""The guard gives a job back whose first node is gone, and tells of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from webhooks import (
    Hook,
    attempt,
    known,
    rules,
)

from beam_slurm.node import again, attempts, followers, guard, notify, settle

pytestmark = pytest.mark.usefixtures("no_site")


OUTCOME = {"state": "failed", "class": "node", "cause": "lost", "exit_code": 69, "do": "see it"}
FOLLOWING = {"how": "undecided", "why": "what follows is being decided", "job": None}


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ({}, "None: None (exit code None)"),
        ({**OUTCOME, "next": None}, "failed (node): lost (exit code 69); do: see it"),
        (
            {**OUTCOME, "next": FOLLOWING},
            "failed (node): lost (exit code 69); may go on, as attempt 3: "
            "what follows is being decided",
        ),
    ],
)
def test_any_outcome_has_its_line(outcome: dict[str, Any], said: str) -> None:
    assert settle.last_line(outcome, 2) == said


STUB = """#!/bin/bash
echo "${0##*/} $*" >> "$CALLS"
[[ ${0##*/} != sbatch ]] || echo 18
"""


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's commands write into this file how they were called; job 17 is ours."""
    for name in ("sbatch", "scancel", "scontrol", "squeue"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(STUB)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_the_guard_of_an_array_s_task_gives_back_that_task_alone(
    tmp_path: Path, called: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last task has the array's own number."""
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    assert guard._give_back(rules(tmp_path), str(attempt(tmp_path)), "n1") == 1
    calls = called.read_text().splitlines()
    assert "sbatch --parsable --dependency=afterany:17_3 --exclude=n1 script.sbatch" in calls
    assert calls[-1] == "scancel 17_3"
    monkeypatch.setattr(again, "chain", lambda *_: ("", "no"))
    path = attempt(tmp_path / "other")
    assert guard._give_back(rules(tmp_path / "other"), str(path), "n1") == 1
    assert called.read_text().splitlines()[-1] == "scontrol requeue 17_3"


@pytest.mark.parametrize("broken", ["outcome", "tell", "disk"])
def test_nothing_keeps_the_guard_from_giving_the_job_back(
    tmp_path: Path, called: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    path = attempt(tmp_path)
    if broken == "outcome":
        monkeypatch.setattr(attempts, "outcome", lambda _: {})
        assert guard._give_back(rules(tmp_path), str(path), "n1") == 1
    else:
        of = {"tell": (notify, "tell"), "disk": (attempts, "write_off")}[broken]
        monkeypatch.setattr(*of, fail)
        with pytest.raises(OSError, match="No space"):
            guard._give_back(rules(tmp_path), str(path), "n1")
    assert called.read_text().splitlines()[-1] == "scancel 17"


def test_the_guard_tells_that_the_first_node_is_lost(
    tmp_path: Path, hook: Hook, called: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = attempt(tmp_path)
    for name, value in known(hook).items():
        monkeypatch.setenv(name, value)
    assert guard._give_back(rules(tmp_path), str(path), "n1") == 1
    assert called.read_text().splitlines()[-1] == "scancel 17"
    (message,) = hook.heard
    assert (message["event"], message["next"]["job"]) == ("restart", "18")
    assert "n1: it has not answered for 60 s" in message["text"]
    assert "goes on in job 18, as attempt 1" in message["text"]


@pytest.mark.parametrize("submitted", [True, False])
def test_a_decision_that_dies_with_the_first_node_is_made_by_the_guard(
    tmp_path: Path, called: Path, submitted: bool
) -> None:
    """How the attempt ended stands already; another job may be in the queue already."""
    path = attempt(tmp_path)
    (path / "outcome.json").write_text(
        json.dumps({**OUTCOME, "blamed": ["n2"], "ended": time.time(), "next": FOLLOWING})
    )
    assert not guard._settled(attempts.outcome(str(path)))
    if submitted:
        queue = f"#!/bin/bash\necho 19 beam-slurm:{tmp_path.name}\n"
        (tmp_path / "bin" / "squeue").write_text(queue)
    assert guard._give_back(rules(tmp_path, webhook=False), str(path), "n1") == 1
    words = called.read_text()
    assert ("sbatch" in words) is not submitted
    assert words.splitlines()[-1] == "scancel 17"
    outcome = attempts.outcome(str(path))
    assert outcome["cause"] == "lost"
    assert outcome["blamed"] == ["n1", "n2"]
    assert outcome["next"]["job"] == ("19" if submitted else "18")
    assert guard._settled(outcome)


def test_the_guard_ends_a_run_that_was_over_when_its_first_node_died(
    tmp_path: Path, called: Path
) -> None:
    path = attempt(tmp_path)
    (path / "outcome.json").write_text(
        json.dumps({"state": "succeeded", "cause": "", "next": FOLLOWING})
    )
    assert guard._give_back(rules(tmp_path, webhook=False), str(path), "n1") == 1
    assert called.read_text() == "scancel 17\n"
    assert attempts.outcome(str(path))["next"] is None


@pytest.mark.parametrize("submitted", [True, False])
def test_what_waits_for_the_run_follows_it_into_its_next_job(
    tmp_path: Path, called: Path, submitted: bool
) -> None:
    """``submit --then``: a conversion that waits for the success of a job that is given back. That
    job may have submitted the next one, and no more."""
    path = attempt(tmp_path)
    (tmp_path / followers.FILE).write_text("21\n")
    if submitted:
        (path / "outcome.json").write_text(
            json.dumps({**OUTCOME, "blamed": [], "ended": time.time(), "next": FOLLOWING})
        )
        queue = f"#!/bin/bash\necho 19 beam-slurm:{tmp_path.name}\n"
        (tmp_path / "bin" / "squeue").write_text(queue)
    assert guard._give_back(rules(tmp_path, webhook=False), str(path), "n1") == 1
    calls = called.read_text().splitlines()
    successor = 19 if submitted else 18
    assert f"scontrol update jobid=21 dependency=afterok:{successor}" in calls
    assert calls[-1] == "scancel 17"


@pytest.mark.parametrize(("state", "released"), [("succeeded", True), ("cancelled", False)])
def test_what_waits_for_a_success_has_it_although_the_job_is_cancelled(
    tmp_path: Path, called: Path, state: str, released: bool
) -> None:
    path = attempt(tmp_path)
    (tmp_path / followers.FILE).write_text("21\n")
    (path / "outcome.json").write_text(json.dumps({"state": state, "cause": "", "next": FOLLOWING}))
    assert guard._give_back(rules(tmp_path, webhook=False), str(path), "n1") == 1
    calls = called.read_text().splitlines()
    assert ("scontrol update jobid=21 dependency=" in calls) is released
    assert calls[-1] == "scancel 17"
