"""Sweeps on the embedded Slurm: many multi-node runs as one array, some of them failing."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from launching import COMMAND, DRIVER, Launch

from beam_slurm import runs
from beam_slurm.runs import Run
from beam_slurm.sweep import folder
from beam_slurm.sweep.folder import Folder

pytestmark = pytest.mark.slurm

MEASURING = Path(__file__).with_name("measuring.py")
POINTS = 1000
SINGLES = 10

HEAD = """\
profile: demo
set:
  hardware.nodes: {nodes}
  hardware.exclusive: false
  hardware.cpus_per_node: 4
  hardware.gpus_per_node: {gpus}
  job.max_restarts: 0
  framework.entry: [python, {entry}]
"""


def write(launch: Launch, text: str, *, nodes: int, gpus: int, entry: Path) -> str:
    (launch.folder / "lr.yaml").write_text(HEAD.format(nodes=nodes, gpus=gpus, entry=entry) + text)
    return "lr.yaml"


def only(launch: Launch) -> Folder:
    (path,) = runs.sweeps(launch.folder / "runs")
    return folder.open_folder(path)


def begun(launch: Launch, name: str, mode: str) -> Folder:
    """A sweep whose points do as the test's driver is told."""
    launch.environment["MODE"] = mode
    done = launch.call("sweep", name)
    assert done.returncode == 0, done.stderr
    return only(launch)


def long(launch: Launch, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line for what takes minutes."""
    return subprocess.run(
        [COMMAND, *words],
        cwd=launch.folder,
        env=launch.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def status(launch: Launch, of: Folder) -> list[dict[str, Any]]:
    done = launch.call("sweep", "status", of.id, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_six_points_with_two_seeds_on_two_hosts_each(launch: Launch) -> None:
    """At most two at a time; one combination is made to fail, and only it is; the best is first."""
    rates = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
    listed = "".join(f'  - {{"--learning-rate={{}}": {rate}}}\n' for rate in rates)
    failing = '  - {"--learning-rate={}": 1e-3, "--crash={}": "yes"}\n'
    text = (
        f"points:\n{listed}{failing}seeds: [1, 2]\nobjective: {{metric: reward}}\nmax_parallel: 2\n"
    )
    name = write(launch, text, nodes=2, gpus=2, entry=MEASURING)
    done = long(launch, "sweep", name, "--wait")
    of = only(launch)
    points = status(launch, of)
    logs = {row["point"]: launch.log(of.run(row["point"])) for row in points}
    assert done.returncode == 3, done.stdout + done.stderr  # as the first that failed
    assert [row["state"] for row in points] == ["succeeded"] * 10 + ["failed"] * 2, logs
    assert [row["step"] for row in points] == [5] * 12
    assert len(of.content.chunks) == 1
    assert len({row["job"] for row in points}) == 12

    # Never more than two, each on two hosts: what the attempts themselves have written down.
    spans = []
    for at in range(12):
        outcome = of.run(at).outcome
        assert len(outcome["nodes"]) == 2
        assert outcome["task"] == f"{of.content.chunks[0].job}_{at}"
        spans += [(outcome["began"], 1), (outcome["ended"], -1)]
    running = most = 0
    for _, change in sorted(spans):
        running += change
        most = max(most, running)
    assert most == 2

    table = launch.call("sweep", "results", of.id, "-o", "lr.png")
    assert table.returncode == 0, table.stderr
    first = next(line for line in table.stdout.splitlines() if line.strip().startswith("1 "))
    assert first.split()[1:4] == ["0.001", "–", "1.00"]
    assert (launch.folder / "lr.png").read_bytes().startswith(b"\x89PNG")

    # A point is a run like any other.
    bad = of.run(11)
    detail = launch.call("status", bad.id)
    assert "failed" in detail.stdout
    assert re.search(r"exit code +3\b", detail.stdout)
    report = launch.call("report", of.run(4).id)
    assert report.returncode == 0, report.stderr

    # Those alone once more, after their fault was mended.
    (of.path / "mended").touch()
    again = long(launch, "sweep", name, "--retry-failed", "--wait")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "again: points 10, 11" in again.stdout
    of.reload()
    assert [len(chunk.runs) for chunk in of.content.chunks] == [12, 2]
    assert [row["state"] for row in status(launch, of)] == ["succeeded"] * 12


def test_cancel_of_a_point_and_of_a_sweep(launch: Launch) -> None:
    """Of the last point above all: its job has the array's own number."""
    text = '"over": {"--n={}": [1, 2, 3, 4]}\nmax_parallel: 3\n'
    name = write(launch, text, nodes=1, gpus=1, entry=DRIVER)
    of = begun(launch, name, "sleep")
    array = of.content.chunks[0].job
    for at in range(3):
        launch.started(of.run(at))
    assert status(launch, of)[3]["state"] == "pending"
    assert launch.call("cancel", f"{array}_1").returncode == 0
    launch.until("point 1 is over", lambda: status(launch, of)[1]["state"] == "cancelled")
    launch.started(of.run(3))
    last = of.run(3)
    numbers = {at: of.run(at).attempts[-1].outcome or of.run(at).events() for at in range(4)}
    raw = next(e["job"] for e in last.events() if e["beam-slurm"] == "batch-started")
    assert raw == array, numbers  # Slurm gives the array's number to the last task
    assert last.job == f"{array}_3"
    assert launch.call("cancel", last.id).returncode == 0
    launch.until("point 3 is over", lambda: status(launch, of)[3]["state"] == "cancelled")
    assert [row["state"] for row in status(launch, of)] == [
        "running",
        "cancelled",
        "running",
        "cancelled",
    ]
    done = launch.call("cancel", of.id)
    assert done.stdout == f"cancelling {of.id}: job {array}, 2 of 4 points\n"
    launch.until(
        "all are over",
        lambda: [row["state"] for row in status(launch, of)] == ["cancelled"] * 4,
    )
    assert launch.call("cancel", of.id).stdout == f"{of.id} is over already\n"


@pytest.mark.exhaustive
def test_a_point_is_requeued_alone_and_warned(launch: Launch) -> None:
    """What the node side tells the controller is about its own task, whatever its number."""
    text = '"over": {"--n={}": [1, 2]}\n'
    name = write(launch, text, nodes=1, gpus=1, entry=DRIVER)
    of = begun(launch, name, "hold")
    array = of.content.chunks[0].job
    for at in range(2):
        launch.started(of.run(at))
    launch.cluster.run(["scontrol", "update", f"jobid={array}_1", "requeue=1"])
    launch.cluster.run(["scontrol", "requeue", f"{array}_1"])
    launch.until("it waits", lambda: status(launch, of)[1]["state"] == "pending")

    def again() -> bool:
        launch.hurry(f"{array}_1")
        return len(of.run(1).attempts) == 2

    launch.until("a second attempt", again)
    assert len(of.run(0).attempts) == 1
    launch.until("it has begun", lambda: of.run(1).attempts[-1].entry_started)
    for at in range(2):
        (of.run(at).path / "go").touch()
    launch.until("both are over", lambda: all(r["state"] == "failed" for r in status(launch, of)))
    assert [log.name for log in of.run(1).logs] == [of.run(1).logs[0].name]  # appended to
    assert [of.run(at).outcome["exit_code"] for at in range(2)] == [3, 3]


@pytest.mark.exhaustive
def test_1000_points_take_a_fiftieth_of_1000_submissions(launch: Launch) -> None:
    """Of the single ones ten are measured, and taken a hundred times."""
    text = f'over:\n  "--n={{}}": {list(range(POINTS))}\n'
    name = write(launch, text, nodes=1, gpus=1, entry=DRIVER)
    (launch.folder / "site.yaml").write_text("directives: {begin: now+1hour}\n")
    began = time.monotonic()
    for _ in range(SINGLES):
        launch.submit("--nodes", "1")
    single = (time.monotonic() - began) / SINGLES
    began = time.monotonic()
    done = long(launch, "sweep", name)
    whole = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    of = only(launch)
    part = POINTS * single / whole
    print(f"single {single:.2f} s each, {POINTS} points {whole:.1f} s: 1/{part:.0f}")
    assert [len(chunk.runs) for chunk in of.content.chunks] == [POINTS]
    assert (
        Run(of.path / of.content.points[-1].run).job == f"{of.content.chunks[0].job}_{POINTS - 1}"
    )
    began = time.monotonic()
    words = [row["state"] for row in status(launch, of)]
    print(f"status {time.monotonic() - began:.1f} s")
    assert words == ["pending"] * POINTS
    assert launch.call("cancel", of.id).returncode == 0
    assert whole < POINTS * single / 50


def test_signals_reach_the_supervisor(launch: Launch) -> None:
    """Slurm's warning before the time limit goes to the batch script's own process."""
    text = '"over": {"--n={}": [1, 2]}\n'
    name = write(launch, text, nodes=1, gpus=1, entry=DRIVER)
    of = begun(launch, name, "hold")
    array = of.content.chunks[0].job
    launch.started(of.run(1))
    launch.cluster.run(["scancel", "--batch", "--signal=USR1", f"{array}_1"])
    launch.until(
        "it was heard",
        lambda: any(event["beam-slurm"] == "warning" for event in of.run(1).events()),
    )
    for at in range(2):
        (of.run(at).path / "go").touch()
