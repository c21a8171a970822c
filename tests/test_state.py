"""A run's state: every way in which an attempt can have ended beside every word of Slurm's."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

import folders
import pytest
from click.testing import CliRunner
from rich.console import Console

from beam_slurm import runs, slurm
from beam_slurm.cli.status import status
from beam_slurm.errors import BeamSlurmError
from beam_slurm.report.facts import gather
from beam_slurm.runs import Run
from beam_slurm.slurm import Job
from beam_slurm.state import STRAGGLER
from beam_slurm.watch.frame import Frame
from beam_slurm.watch.gathering import Look

# Slurm's word on the job that counts, and its restart count; None: it has forgotten the job.
WORDS: dict[str, tuple[str, str, int] | None] = {
    "waits": ("PENDING", "0:0", 1),
    "held": ("REQUEUE_HOLD", "0:0", 1),
    "runs": ("RUNNING", "0:0", 0),
    "runs again": ("RUNNING", "0:0", 1),
    "ends": ("COMPLETING", "0:0", 0),
    "cancelled": ("CANCELLED", "0:0", 1),
    "failed": ("FAILED", "3:0", 1),
    "completed": ("COMPLETED", "0:0", 1),
    "timeout": ("TIMEOUT", "0:0", 1),
    "node fail": ("NODE_FAIL", "0:0", 1),
    "oom": ("OUT_OF_MEMORY", "0:125", 1),
    "preempted": ("PREEMPTED", "0:15", 1),
    "forgotten": None,
}

Expected = tuple[str, "int | None", str]

# An attempt that is to be followed by another: the same whoever brings that about. The label of
# the state, the exit code, and what its reason says.
GOES_ON: dict[str, Expected] = {
    "waits": ("pending", None, "attempt 1 waits: Priority"),
    "held": ("pending", None, "attempt 1 waits: Priority"),
    "runs": ("starting", None, "restarting: 4 fit nodes here"),
    "runs again": ("starting", None, "restarting: 4 fit nodes here"),
    "ends": ("starting", None, "restarting: 4 fit nodes here"),
    "cancelled": ("cancelled", 143, "Slurm: CANCELLED 0:0 Priority, before attempt 1 began"),
    "failed": ("failed (node)", 3, "Slurm: FAILED 3:0 Priority, before attempt 1 began"),
    "completed": ("failed (node)", 1, "did not come to its end, before attempt 1 began"),
    "timeout": ("failed (time)", 1, "Slurm: TIMEOUT 0:0 Priority, before attempt 1 began"),
    "node fail": ("failed (node)", 1, "Slurm: NODE_FAIL 0:0 Priority, before attempt 1 began"),
    "oom": ("failed (oom)", 253, "Slurm: OUT_OF_MEMORY 0:125 Priority, before attempt 1"),
    "preempted": ("failed (preempted)", 143, "Slurm: PREEMPTED 0:15 Priority, before attempt 1"),
    "forgotten": ("unknown", None, "Slurm has forgotten the job, before attempt 1 began"),
}

INTO_THE_QUEUE = {**GOES_ON, "ends": ("pending", None, "attempt 1 waits: Priority")}

# An attempt that ended the run: its own word counts, unless Slurm begins the job anew.
OWN = ("failed (node)", 69, "n2: Node failure")
QUEUED = {word: GOES_ON[word] for word in ("waits", "held")}
THE_END = {**dict.fromkeys(WORDS, OWN), **QUEUED}
REQUEUED = {
    **GOES_ON,
    **dict.fromkeys(("runs", "ends", "forgotten"), OWN),
    "runs again": ("starting", None, "restarting: the job was requeued"),
}

# how the run goes on, the job by which it does, the attempt's restart count, what is expected
ROWS: dict[str, tuple[str | None, str | None, int, dict[str, Expected]]] = {
    "here": ("here", None, 0, GOES_ON),
    "requeue": ("requeue", None, 0, INTO_THE_QUEUE),
    "slurm": ("slurm", None, 0, INTO_THE_QUEUE),
    "chain": ("chain", "18", 0, GOES_ON),
    "the end": (None, None, 1, THE_END),
    "requeued from outside": (None, None, 0, REQUEUED),
}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Job]:
    """The jobs that Slurm knows."""
    jobs: dict[str, Job] = {}
    monkeypatch.setattr(slurm, "job", jobs.get)
    return jobs


def knows(known: dict[str, Job], name: str, word: tuple[str, str, int] | None) -> None:
    if word:
        state, code, restarts = word
        known[name] = Job(name, state, "Priority", code, restarts=restarts)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("row", ROWS)
def test_an_outcome_beside_slurm_s_word(
    tmp_path: Path, known: dict[str, Job], row: str, word: str
) -> None:
    how, job, restart, expected = ROWS[row]
    run = folders.make(tmp_path)
    folders.lost(run, how, chained=job, restart=restart)
    if job:
        known["17"] = Job("17", "COMPLETED")  # the first link of a chain counts no more
    knows(known, job or "17", WORDS[word])
    (run.path / "job-17.log").write_text("the end of attempt 0\n")
    state = run.state()
    assert not (word == "cancelled" and "the end of attempt 0" in state.why)
    label, code, why = expected[word]
    assert (state.label, state.exit_code) == (label, code)
    assert why in state.why
    assert state.ended is (label.split()[0] not in ("pending", "starting"))
    assert state.witnessed is (expected[word] == OWN)


UNDER_WAY = {
    "waits": ("pending", None, "attempt 1 waits: Priority"),
    "held": ("pending", None, "attempt 1 waits: Priority"),
    "runs": ("running", None, ""),
    "runs again": ("starting", None, "restarting: the job was requeued"),
    "ends": ("running", None, ""),
    "cancelled": ("cancelled", 143, "Slurm: CANCELLED 0:0"),
    "failed": ("failed", 3, "Slurm: FAILED 3:0"),
    "completed": ("failed", 1, "Slurm says COMPLETED, but the script did not come to its end"),
    "timeout": ("failed (time)", 1, "Slurm: TIMEOUT"),
    "node fail": ("failed (node)", 1, "Slurm: NODE_FAIL"),
    "oom": ("failed (oom)", 253, "Slurm: OUT_OF_MEMORY"),
    "preempted": ("failed (preempted)", 143, "Slurm: PREEMPTED"),
    "forgotten": ("unknown", None, "Slurm has forgotten the job, and it left no outcome.json"),
}
BEFORE_THE_FIRST = {
    **UNDER_WAY,
    **dict.fromkeys(("waits", "held"), ("pending", None, "Priority")),
    **dict.fromkeys(("runs", "runs again", "ends"), ("starting", None, "")),
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("begun", [True, False])
def test_no_outcome_beside_slurm_s_word(
    tmp_path: Path, known: dict[str, Job], begun: bool, word: str
) -> None:
    run = folders.make(tmp_path)
    if begun:
        folders.event(run, "batch-started", 0, node="n1", job="17", restart=0)
        folders.event(run, "entry-started", 5)
    knows(known, "17", WORDS[word])
    state = run.state()
    label, code, why = (UNDER_WAY if begun else BEFORE_THE_FIRST)[word]
    assert (state.label, state.exit_code) == (label, code)
    assert state.why == why or (state.ended and state.why.startswith(why))


# --- the moment after the end -------------------------------------------------------------------

AWAITED = "its outcome is awaited"


@pytest.mark.parametrize(
    ("slurm_says", "ago", "facts", "label", "why"),
    [
        ("COMPLETED", 1, {}, "running", "the job is over, " + AWAITED),
        ("FAILED", 1, {}, "running", AWAITED),
        ("CANCELLED", STRAGGLER - 2, {}, "running", AWAITED),
        ("COMPLETED", STRAGGLER + 2, {}, "failed", "did not come to its end"),
        ("CANCELLED", STRAGGLER + 2, {}, "cancelled", "Slurm: CANCELLED"),
        ("COMPLETED", 1 - STRAGGLER, {}, "running", AWAITED),  # this host's clock is behind
        ("COMPLETED", -STRAGGLER - 9, {}, "failed", "did not come to its end"),
        # Its script has never begun: nobody will say more.
        ("CANCELLED", 1, {"nodes": ""}, "cancelled", "Slurm: CANCELLED"),
        ("FAILED", 1, {"exit_code": "0:53"}, "failed", "the log could not be written"),
        ("FAILED", 1, {"end": ""}, "failed", "Slurm: FAILED"),
        ("RUNNING", 1, {}, "running", ""),
        ("PENDING", 1, {"nodes": ""}, "pending", "attempt 1 waits"),
    ],
)
def test_an_outcome_may_come_into_sight_late(
    tmp_path: Path,
    known: dict[str, Job],
    slurm_says: str,
    ago: float,
    facts: dict[str, str],
    label: str,
    why: str,
) -> None:
    run = folders.make(tmp_path)
    folders.bring_up(run)
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - ago))
    known["17"] = Job(
        "17", slurm_says, **{"exit_code": "0:0", "nodes": "n[1-2]", "end": end, **facts}
    )
    state = run.state()
    assert (state.label, state.ended) == (label, label in ("failed", "cancelled"))
    assert why in state.why
    folders.outcome(run)
    if slurm_says != "PENDING":
        assert run.state().word == "succeeded"


def test_an_attempt_that_ended_before_its_job_is_seen_to_go_on(
    tmp_path: Path, known: dict[str, Job]
) -> None:
    run = folders.make(tmp_path)
    folders.lost(run, "here")
    end = time.strftime("%Y-%m-%dT%H:%M:%S")
    known["17"] = Job("17", "COMPLETED", exit_code="0:0", nodes="n[1-2]", end=end)
    assert (run.state().word, run.state().exit_code) == ("running", None)


@pytest.mark.parametrize(
    ("slurm_says", "code", "label", "exit_code", "why"),
    [
        ("COMPLETED", 0, "succeeded", 0, "the entry finished"),
        ("COMPLETING", 0, "succeeded", 0, "the entry finished"),
        (None, 0, "succeeded", 0, "the entry finished"),
        ("TIMEOUT", 0, "failed (time)", 1, "Slurm: TIMEOUT"),
        ("FAILED", 69, "running", None, f"it ended with exit code 69, {AWAITED}"),
        ("COMPLETING", 69, "running", None, ""),
    ],
)
def test_the_last_event_is_seen_before_the_outcome(
    tmp_path: Path,
    known: dict[str, Job],
    slurm_says: str | None,
    code: int,
    label: str,
    exit_code: int | None,
    why: str,
) -> None:
    run = folders.make(tmp_path)
    folders.bring_up(run)
    folders.event(run, "ended", 200, code=code)
    if slurm_says:
        end = time.strftime("%Y-%m-%dT%H:%M:%S")
        known["17"] = Job("17", slurm_says, exit_code=f"{code}:0", nodes="n[1-2]", end=end)
    state = run.state()
    assert (state.label, state.exit_code, state.why) == (label, exit_code, why)
    assert attempts_of(run) == (["ended"] if exit_code is not None else [""])


def attempts_of(run: Run) -> list[str]:
    """Whether each attempt is known to have ended."""
    return ["ended" if attempt.outcome else "" for attempt in run.attempts]


DECIDING = ("running", None, "attempt 0 has ended, what follows is being decided: n2: Node failure")
UNDECIDED = {
    **dict.fromkeys(WORDS, OWN),
    **dict.fromkeys(("runs", "ends"), DECIDING),
    **{word: GOES_ON[word] for word in ("waits", "held")},
    "runs again": ("starting", None, "restarting: the job was requeued"),
}


@pytest.mark.parametrize("word", WORDS)
def test_an_end_that_is_being_decided(tmp_path: Path, known: dict[str, Job], word: str) -> None:
    run = folders.make(tmp_path)
    folders.lost(run, "undecided", restart=0)
    state, code, restarts = WORDS[word] or ("", "", 0)
    if state:
        # Slurm counts the restart of a job that it runs again, and of no other.
        known["17"] = Job("17", state, "Priority", code, restarts=restarts * (word in AGAIN))
    found = run.state()
    label, exit_code, why = UNDECIDED[word]
    assert (found.label, found.exit_code) == (label, exit_code)
    assert why in found.why


AGAIN = ("waits", "held", "runs again")


@pytest.mark.parametrize(
    ("own", "slurm_says", "label", "code", "why"),
    [
        ({"state": "succeeded", "exit_code": 0}, "COMPLETED", "succeeded", 0, "said"),
        ({"state": "succeeded", "exit_code": 0}, "TIMEOUT", "failed (time)", 1, "Slurm: TIMEOUT"),
        ({"state": "cancelled", "class": "cancelled"}, "CANCELLED", "cancelled", 143, "said"),
        ({"state": "cancelled", "class": "cancelled"}, "FAILED", "cancelled", 143, "said"),
        (
            {"state": "cancelled", "class": "cancelled", "node": "n2"},
            "NODE_FAIL",
            "failed (node)",
            143,
            "Slurm: NODE_FAIL, said",
        ),
        (
            {"state": "failed", "class": "time", "exit_code": 75},
            "FAILED",
            "failed (time)",
            75,
            "said",
        ),
        ({"state": "failed", "class": "time"}, "TIMEOUT", "failed (time)", 143, "said"),
        ({"state": "failed", "class": "nccl"}, "TIMEOUT", "failed (nccl)", 143, "said"),
        ({"state": "failed"}, "OUT_OF_MEMORY", "failed (oom)", 143, "Slurm: OUT_OF_MEMORY"),
        (
            {"state": "preempted", "class": "preempted"},
            "PREEMPTED",
            "failed (preempted)",
            143,
            "said",
        ),
        ({"state": "preempted", "class": "preempted"}, "FAILED", "failed (preempted)", 143, "said"),
    ],
)
def test_who_is_believed_at_the_end(
    tmp_path: Path,
    known: dict[str, Job],
    own: dict[str, Any],
    slurm_says: str,
    label: str,
    code: int,
    why: str,
) -> None:
    run = folders.make(tmp_path)
    folders.outcome(run, **{"exit_code": 143, "cause": "said", **own})
    known["17"] = Job("17", slurm_says)
    state = run.state()
    assert (state.label, state.exit_code, state.why) == (label, code, why)


def test_a_chain_whose_next_job_nobody_has_named(tmp_path: Path, known: dict[str, Job]) -> None:
    run = folders.make(tmp_path)
    folders.lost(run, "chain")
    known["17"] = Job("17", "RUNNING")
    assert run.state().word == "starting"  # it submits the next one just now
    known["17"] = Job("17", "FAILED", exit_code="69:0")
    assert (run.state().label, run.state().exit_code) == ("failed (node)", 69)
    assert "squeue --me" in run.state().why


def test_a_job_that_chains_while_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folders.make(tmp_path)
    asked = []

    def ask(job_id: str) -> Job:
        asked.append(job_id)
        folders.lost(run, "chain", chained="18")
        return Job(job_id, "COMPLETED" if job_id == "17" else "PENDING", "Dependency")

    monkeypatch.setattr(slurm, "job", ask)
    assert (run.state().word, run.state().why) == ("pending", "attempt 1 waits: Dependency")
    assert asked[:2] == ["17", "18"]


# --- without Slurm ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "alive", "label", "why"),
    [
        ("here", True, "starting", "restarting: 4 fit nodes here"),
        ("here", False, "failed", "the process is gone, before attempt 1 began"),
        ("undecided", True, *DECIDING[::2]),
        ("undecided", False, "failed (node)", "n2: Node failure"),
        (None, True, "failed (node)", "n2: Node failure"),
        (None, False, "failed (node)", "n2: Node failure"),
    ],
)
def test_a_run_on_this_machine(
    tmp_path: Path, how: str | None, alive: bool, label: str, why: str
) -> None:
    run = folders.make(tmp_path, executor="local", job=None, pid=os.getpid() if alive else 2**30)
    assert run.state().word == ("starting" if alive else "failed")
    folders.lost(run, how)
    assert (run.state().label, run.state().why) == (label, why)
    folders.event(run, "entry-started", 300, attempt=1)
    assert run.state().word == ("running" if alive else "failed")


# --- attempts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "counts", "jobs"),
    [
        ([], "17", ["17"]),
        ([None], "17", ["17"]),
        ([("here", None, "17"), None], "17", ["17"]),
        ([("requeue", None, "17")], "17", ["17"]),
        ([("chain", "18", "17")], "18", ["17", "18"]),
        ([("chain", "18", "17"), None], "18", ["17", "18"]),
        ([("chain", "18", "17"), ("here", None, "18"), None], "18", ["17", "18"]),
        ([("chain", "18", "17"), ("chain", "23", "18")], "23", ["17", "18", "23"]),
        ([("chain", "18", "17"), (None, None, "18")], "18", ["17", "18"]),
        ([("chain", None, "17")], "17", ["17"]),
    ],
)
def test_the_job_that_counts(
    tmp_path: Path,
    outcomes: list[tuple[str | None, str | None, str] | None],
    counts: str,
    jobs: list[str],
) -> None:
    run = folders.make(tmp_path)
    for at, told in enumerate(outcomes):
        folders.event(run, "batch-started", at, attempt=at)
        if told:
            how, following, own = told
            folders.lost(run, how, at, following, job=own)
    assert (run.job, run.jobs) == (counts, jobs)
    assert runs.find(counts, tmp_path) == runs.find("17", tmp_path) == run
    with pytest.raises(BeamSlurmError, match="there is no run '1'"):
        runs.find("1", tmp_path)


def test_a_run_by_its_folder_and_what_is_none(tmp_path: Path) -> None:
    with pytest.raises(BeamSlurmError, match="there is no run 'demo'") as caught:
        runs.find("demo", tmp_path)
    assert "beam-slurm submit" in str(caught.value.remedy)
    run = folders.make(tmp_path)
    assert runs.find(f"{run.id}/", tmp_path) == runs.find(f"{run.path}/", tmp_path) == run
    with pytest.raises(BeamSlurmError) as caught:
        runs.find("/nowhere/x/", tmp_path)
    assert caught.value.what == "there is no folder /nowhere/x"
    assert "a run by its id" in str(caught.value.remedy)


def test_attempts_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    for number in (10, 9, 0):
        folders.event(run, "batch-started", number, attempt=number)
    (run.path / "attempt-x").mkdir()
    assert [attempt.number for attempt in run.attempts] == [0, 9, 10]
    assert [attempt.began for attempt in run.attempts] == [folders.T0 + at for at in (0, 9, 10)]


@pytest.mark.parametrize("follows", ["first-1a2b3c", None])
def test_what_follows_a_run_that_failed_says_so(
    tmp_path: Path, known: dict[str, Job], follows: str | None
) -> None:
    run = folders.make(tmp_path, **({"follows": follows} if follows else {}))
    known["17"] = Job("17", "CANCELLED", "DependencyNeverSatisfied", "0:0")
    state = run.state()
    which = f", {follows}," if follows else ""
    assert state.why == f"the run before it{which} failed or was cancelled"
    assert (state.word, state.exit_code) == ("cancelled", 143)
    said = CliRunner().invoke(status, [run.id, "--runs", str(tmp_path)]).output
    rows = dict(line.strip().split(None, 1) for line in said.splitlines()[1:])
    assert rows.get("next") == (f"beam-slurm status {follows}" if follows else None)
    facts = gather(run)
    frame = Frame(run.id, Look(facts, (), ""))
    assert "failed or was cancelled" in drawn(frame)


def drawn(frame: Frame) -> str:
    file = io.StringIO()
    Console(file=file, width=120, height=40).print(frame)
    return file.getvalue()
