"""What ``status`` and the figure show of a run of several attempts, and of what preflight found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import folders
import pytest
from click.testing import CliRunner

from beam_slurm import slurm
from beam_slurm.cli.report import report
from beam_slurm.cli.status import status
from beam_slurm.report import figure, text
from beam_slurm.report.facts import gather
from beam_slurm.runs import Run
from beam_slurm.state import State

pytestmark = pytest.mark.usefixtures("job")


def call(command: Any, root: Path, *words: str) -> str:
    result = CliRunner().invoke(command, [*words, "--runs", str(root)])
    if result.exception:
        raise result.exception
    return result.output


def rows(output: str) -> dict[str, str]:
    """What ``status RUN`` says beside each name."""
    found = (re.match(r"(\S.*?)  +(.*?) *$", line) for line in output.splitlines())
    return {match[1]: match[2] for match in found if match}


def healed(root: Path, **manifest: Any) -> Run:
    """A run of 80 steps that lost n2 after 37, went on from 20, and was chained after 60."""
    run = folders.make(root, **manifest)
    folders.bring_up(run)
    for attempt, (first, last) in enumerate(((1, 37), (21, 60), (61, 80))):
        began = 1000.0 * attempt
        if attempt:
            folders.event(run, "batch-started", began, attempt, node="n1", port=1)
        for step in range(first, last + 1):
            folders.measure(run, folders.train(step, time=folders.T0 + began + step))
    folders.lost(run, "here")
    timed = {"state": "failed", "class": "time", "cause": "10 min left", "exit_code": 75}
    end = {"began": folders.T0 + 1000, "ended": folders.T0 + 1200, "nodes": ["n1", "n3"]}
    steps = {"steps": {"first": 21, "last": 60}, "blamed": []}
    folders.lost(run, "chain", 1, "18", **timed, **end, **steps)
    end = {"began": folders.T0 + 2000, "ended": folders.T0 + 2100, "job": "18"}
    folders.outcome(run, 2100, 2, **end, nodes=[f"n{at}" for at in range(16)])
    return run


def test_status_shows_the_attempts(tmp_path: Path) -> None:
    healed(tmp_path)
    said = call(status, tmp_path, "demo")
    at = said.index("attempts")
    lines = [" ".join(line.split()) for line in said[at:].splitlines()[:8]]
    day = text.date(folders.T0), text.date(folders.T0 + 1000), text.date(folders.T0 + 2000)
    assert lines == [
        f"attempts 0 job 17, on n1 n2, from {day[0]}, 3 min 20 s, steps 1–37",
        "failed (node): n2: Node failure",
        "restarted in its job: 4 fit nodes here, from step 20",
        f"1 job 17, on n1 n3, from {day[1]}, 3 min 20 s, steps 21–60",
        "failed (time): 10 min left",
        "chained as job 18: 4 fit nodes here, from step 20",
        f"2 job 18, on 16 nodes: n0 … n15, from {day[2]}, 1 min 40 s",
        "succeeded: the entry finished",
    ]
    found = rows(said)
    assert (found["job"], found["blamed"], found["took"]) == ("18", "n2", "35 min 00 s")


def test_json_shows_the_attempts(tmp_path: Path) -> None:
    healed(tmp_path)
    found = json.loads(call(status, tmp_path, "demo", "--json"))
    assert (found["state"], found["class"], found["blamed"]) == ("succeeded", None, ["n2"])
    assert (found["job"], found["attempt"]) == ({"id": "18"}, "attempt-2")
    assert [
        (a["number"], a["job"], a["class"], a["steps"], (a["next"] or {}).get("how"))
        for a in found["attempts"]
    ] == [
        (0, "17", "node", {"first": 1, "last": 37}, "here"),
        (1, "17", "time", {"first": 21, "last": 60}, "chain"),
        (2, "18", None, None, None),
    ]


def test_the_table_counts_attempts_where_there_are_several(
    tmp_path: Path, job: dict[str, slurm.Job]
) -> None:
    folders.whole(tmp_path, "one-1", created=1)
    folders.make(tmp_path, "none-1", created=2, job="99")
    job["99"] = slurm.Job("99", "PENDING", "Resources")
    assert "attempt" not in call(status, tmp_path)
    healed(tmp_path, name="many-1")
    lines = call(status, tmp_path).splitlines()
    assert lines[0].split()[3:6] == ["job", "attempt", "nodes"]
    cells = {line.split()[0]: line.split()[3:5] for line in lines[1:]}
    assert cells == {"many-1": ["18", "2"], "none-1": ["99", "–"], "one-1": ["17", "0"]}


def test_status_of_a_run_between_two_attempts(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    run = folders.make(tmp_path)
    folders.bring_up(run)
    folders.lost(run, "requeue")
    job["17"] = slurm.Job("17", "PENDING", "Priority", restarts=1)
    said = call(status, tmp_path, "demo")
    assert "demo-1a2b3c  pending  attempt 1 waits: Priority" in said
    assert "failed (node): n2: Node failure" in said
    assert "requeued: 4 fit nodes here, from step 20" in said
    assert "queue …" in said
    assert "exit code" not in said
    assert "squeue --start --jobs=17" in said
    folders.event(run, "batch-started", 400, 1, node="n1")
    job["17"] = slurm.Job("17", "RUNNING", nodes="n[1-2]", restarts=1)
    said = call(status, tmp_path, "demo")
    assert "queue 3 min 20 s → nodes …" in said
    assert rows(said)["missing"] == "n1, n2"


def test_status_of_a_failed_run_says_what_to_do(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    folders.bring_up(run)
    told = {"class": "oom", "state": "failed", "exit_code": 137, "cause": "n1: out of memory"}
    folders.outcome(run, **told, do="set memory.x to 3", stopped="it would fail again")
    said = call(status, tmp_path, "demo")
    assert "demo-1a2b3c  failed (oom)  n1: out of memory" in said
    found = rows(said)
    assert "why" not in found  # the first line says it
    assert (found["do"], found["stopped"]) == ("set memory.x to 3", "it would fail again")
    assert "attempts" not in found
    plain = json.loads(call(status, tmp_path, "demo", "--json"))
    assert (plain["class"], plain["do"]) == ("oom", "set memory.x to 3")
    assert plain["stopped"] == "it would fail again"


def check(name: str, verdict: str) -> dict[str, str]:
    return {"name": name, "verdict": verdict, "have": "7", "need": "8", "do": "drain it"}


def test_status_shows_what_preflight_found(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    run = folders.make(tmp_path)
    folders.event(run, "batch-started", 0, node="n1")
    fine = [check("disk", "ok"), check("nvidia-smi", "unknown")]
    nodes = {
        "n1": {"use": "head", "checks": [*fine, check("clock", "warn")]},
        "n2": {"use": "runs", "checks": fine},
        "n3": {"use": "unfit", "checks": [*fine, check("gpus", "fail"), check("clock", "warn")]},
    }
    (run.path / "attempt-0" / "preflight.json").write_text(json.dumps({"nodes": nodes}))
    job["17"] = slurm.Job("17", "RUNNING", nodes="n[1-3]")
    said = call(status, tmp_path, "demo")
    assert rows(said)["preflight"] == "n1 n3: clock warn: have 7, need 8; drain it"
    assert "n3: gpus fail: have 7, need 8; drain it" in said
    assert "disk" not in said
    assert "nvidia-smi" not in said
    assert rows(said)["missing"] == "n1, n2"


def test_spares_are_not_missing(tmp_path: Path) -> None:
    facts = gather(folders.make(tmp_path, nodes=2), State("starting"))
    assert facts.expected(["n1", "n2", "n3"]) == []
    assert facts.expected(["n1", "n2"]) == ["n1", "n2"]


def test_a_lost_attempt_is_called_so(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    run = folders.make(tmp_path)
    folders.bring_up(run)
    folders.event(run, "batch-started", 300, 1, node="n1")
    job["17"] = slurm.Job("17", "RUNNING", nodes="n[1-2]", restarts=1)
    said = [line.strip() for line in call(status, tmp_path, "demo").splitlines()]
    assert [line for line in said if line in ("lost", "starting")] == ["lost", "starting"]


def test_of_many_attempts_the_newest_are_shown(
    tmp_path: Path, job: dict[str, slurm.Job | None]
) -> None:
    run = folders.make(tmp_path)
    for attempt in range(40):
        folders.event(run, "batch-started", attempt, attempt, node="n1")
        folders.lost(run, "here", attempt)
    said = call(status, tmp_path, "demo")
    assert f"34 earlier ones: {run.path}/attempt-*/outcome.json" in said
    assert re.findall(r"^(?:attempts)? +(\d+) +job 17", said, re.M) == [*map(str, range(34, 40))]


def test_the_figure_marks_new_attempts(tmp_path: Path) -> None:
    facts = gather(healed(tmp_path))
    assert facts.history
    assert [step.step for step in facts.history.steps] == list(range(1, 81))
    assert figure.restarts(facts) == [21, 61]
    pytest.importorskip("matplotlib")
    assert call(report, tmp_path, "demo")
    one = gather(folders.whole(tmp_path, "one-1"))
    assert one.history
    assert figure.restarts(one) == []
