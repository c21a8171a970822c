"""Launches on the real embedded Slurm: bring-up, the truth about the end, nothing left behind.

Times here are generous bounds of what a person would wait; bench/ measures.
"""

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
from launching import COMMAND, DRIVER, PATIENCE, Launch

from beam_slurm import runs
from beam_slurm.cluster import Cluster

pytestmark = pytest.mark.slurm


def seen(run: runs.Run) -> dict[str, Any]:
    return json.loads((run.path / "seen.json").read_text())  # type: ignore[no-any-return]


def raylet() -> Path:
    """Ray's own daemon, as installed."""
    (found,) = Path(sys.prefix).glob("lib/python3*/site-packages/ray/core/src/ray/raylet/raylet")
    return found


NASTY = [
    'a.b="x y"',
    "it's $HOME `id`",
    "p=a|b",
    "d={k:v,w:1}",
    "l=[1,2]",
    "line\nbreak\r\n",
    ";rm -rf /",
    "",
    "--",
    "#SBATCH --nodes=99",
    "é☃",
]


def test_a_run_sees_exactly_its_nodes_and_the_words_it_was_given(launch: Launch) -> None:
    leaked = {
        "SLURM_CPUS_PER_TASK": "3",
        "SLURM_MEM_PER_CPU": "5",
        "SBATCH_MEM_PER_NODE": "7",
        "PMI_RANK": "1",
        "RAY_ADDRESS": "10.0.0.1:1",
    }
    run = launch.submit("--", *NASTY, **leaked)
    job = launch.over(run)
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), launch.log(run)
    found = seen(run)
    assert found["argv"] == [os.fsencode(word).hex() for word in NASTY]
    assert found["nodes"] == ["node1", "node2", "node3", "node4"]
    assert found["resources"]["GPU"] == 32
    assert found["resources"]["CPU"] == 64
    environment = found["environment"]
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_ADDRESS"].startswith("10.")
    assert environment.get("SLURM_MEM_PER_CPU") is None
    # The token is not on disk any more, and was never in the log or the script.
    assert not list((run.path / "private").iterdir())
    assert run.state().word == "succeeded"
    assert run.outcome["exit_code"] == 0
    launch.nothing_left(run)


@pytest.mark.parametrize("code", [3, 137])
def test_the_entry_s_exit_code_is_the_job_s(launch: Launch, code: int) -> None:
    run = launch.submit(MODE=str(code))
    job = launch.over(run)
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", f"{code}:0")
    assert run.outcome["component"] == "entry"
    assert run.state().exit_code == code
    launch.nothing_left(run)


def test_an_entry_that_does_not_exist_is_named(launch: Launch) -> None:
    run = launch.submit("--set", "framework.entry=[no-such-program]")
    assert launch.over(run)["ExitCode"] == "127:0"
    assert "cannot start no-such-program" in run.outcome["cause"]


@pytest.mark.parametrize(
    ("process", "host", "said"),
    [
        ("raylet", "node3", r"raylet was ended by signal 9 \(SIGKILL\)"),
        ("gcs_server", "node1", r"gcs_server was ended by signal 9 \(SIGKILL\)"),
    ],
)
def test_a_ray_process_that_dies_ends_the_run_with_its_host_and_cause(
    launch: Launch, process: str, host: str, said: str
) -> None:
    run = launch.submit(MODE="sleep")
    launch.started(run)
    began = time.monotonic()
    launch.cluster.exec(host, ["pkill", "-9", "-x", process])
    job = launch.over(run)
    assert time.monotonic() - began < 15
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "69:0")
    assert run.outcome["node"] == host
    assert re.search(said, run.outcome["cause"])
    assert f"{host}: Ray's {process}" in launch.log(run)
    launch.nothing_left(run)


def test_a_node_whose_task_is_killed_is_named_and_everything_is_cleared(launch: Launch) -> None:
    run = launch.submit(MODE="sleep")
    launch.started(run)
    launch.cluster.exec("node2", ["pkill", "-9", "-f", r"node\.pyz ray "])
    assert launch.over(run)["JobState"] == "FAILED"
    assert run.outcome["node"] == "node2"
    launch.nothing_left(run)


def test_a_node_that_cannot_start_ray_is_named_with_the_cause(launch: Launch) -> None:
    """One node cannot make its temp folder: what a full or foreign /tmp does."""
    launch.cluster.exec("node4", ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", "/mnt"])
    try:
        run = launch.submit("--set", "site.paths.tmp=/mnt", MODE="sleep")
        job = launch.over(run)
    finally:
        launch.cluster.exec("node4", ["umount", "/mnt"])
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "69:0")
    assert run.outcome["node"] == "node4"
    assert "Read-only file system" in run.outcome["cause"]
    launch.nothing_left(run)


def test_ray_start_that_fails_on_a_worker_is_named_with_its_words(launch: Launch) -> None:
    """On one node the program ``ray start`` needs is not the one that the others have."""
    launch.cluster.exec("node3", ["mount", "--bind", "/bin/false", str(raylet())])
    try:
        run = launch.submit()
        job = launch.over(run)
    finally:
        launch.cluster.exec("node3", ["umount", str(raylet())])
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "69:0")
    assert run.outcome["component"] == "ray"
    assert run.outcome["node"] == "node3"
    assert "ray" in run.outcome["cause"]
    launch.nothing_left(run)


def test_scancel_leaves_no_process_on_any_host(launch: Launch) -> None:
    run = launch.submit(MODE="sleep")
    launch.started(run)
    done = launch.call("cancel", run.id)
    assert done.returncode == 0, done.stderr
    began = time.monotonic()
    launch.nothing_left(run)
    assert time.monotonic() - began < 10
    assert launch.over(run)["JobState"] == "CANCELLED"
    assert run.state().word == "cancelled"
    again = launch.call("cancel", run.id)
    assert (again.returncode, again.stdout) == (0, f"{run.id} is over already\n")


def test_a_missing_node_is_named_when_the_deadline_comes(launch: Launch) -> None:
    """Frozen, a worker neither fails nor joins: only the deadline can tell."""
    run = launch.submit("--set", "ray.deadline_s=25", MODE="sleep")

    def frozen() -> bool:
        found = launch.cluster.exec(
            "node2", ["pkill", "-STOP", "-f", r"node\.pyz ray "], check=False
        )
        return found.returncode == 0

    launch.until("a task on node2", frozen)
    job = launch.over(run)
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "69:0")
    assert "missing: node2" in run.outcome["cause"]
    launch.nothing_left(run)


def test_two_jobs_share_a_node_without_meeting(launch: Launch) -> None:
    shared = [
        "--set=hardware.nodes=1",
        "--set=hardware.gpus_per_node=2",
        "--set=hardware.exclusive=false",
        "--set=hardware.cpus_per_node=4",
        "--set=site.constraint=null",
    ]
    first = launch.submit(*shared, MODE="sleep")
    second = launch.submit(*shared, MODE="sleep")
    for run in (first, second):
        launch.started(run)
        found = seen(run)
        assert found["resources"]["GPU"] == 2
        assert found["resources"]["CPU"] == 4
    assert launch.slurm(first)["NodeList"] == launch.slurm(second)["NodeList"]
    launch.call("cancel", first.id)
    launch.nothing_left(first)
    assert launch.slurm(second)["JobState"] == "RUNNING"
    assert launch.left(second)


def test_wait_returns_the_run_s_exit_code(launch: Launch) -> None:
    entry = f"framework.entry=[python, {DRIVER}]"
    done = launch.call("submit", "--profile", "demo", "--set", entry, "--wait", MODE="5")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "exited with code 5" in done.stdout


def test_dry_run_of_b300_colocated_is_accepted_by_a_slurm_of_that_size(
    slurm_machine: None, tmp_path: Path
) -> None:
    cluster = Cluster(f"b300-{os.getpid()}")
    try:
        cluster.up(hosts=8, gpus=8, gpu_type="b300")
        script = subprocess.run(
            [COMMAND, "submit", "--profile", "b300-colocated", "--dry-run"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        ).stdout
        done = cluster.run(["sbatch", "--test-only"], input=script, stdin=None)
        assert "to start at" in done.stderr
    finally:
        cluster.down()
