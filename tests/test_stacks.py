"""Stack dumps of real processes: one that sleeps, one that is stopped, with and without py-spy."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beam_slurm.node import processes
from beam_slurm.node.mask import Mask
from beam_slurm.node.stacks import dump, of_job

JOB = f"7{os.getpid()}"
SPY = Path(sys.executable).parent  # where py-spy is installed with the other tools

PROGRAM = """
import threading, sys, time
def waits_for_a_message():
    print("here", flush=True)
    time.sleep(600)
waits_for_a_message()
"""
PARENT = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {PROGRAM!r}], env={{}})
child.wait()
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python programs of the job; returns when they say that they are there."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str, job: str = JOB) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, "SLURM_JOB_ID": job},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"here\n"
        return child

    yield run
    for child in started:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout:
            child.stdout.close()


def stop(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGSTOP)
    while (processes.stat(child.pid) or ["?"])[0] != "T":
        time.sleep(0.01)


def parts(path: str) -> tuple[str, str]:
    """(the table, the stacks) of a dump."""
    head, table, stacks = Path(path).read_text().split("\n\n", 2)
    assert head.startswith(f"Processes of job {JOB} on node1, ")
    return table, stacks


needs_spy = pytest.mark.skipif(not (SPY / "py-spy").exists(), reason="py-spy is not installed")


@needs_spy
@pytest.mark.parametrize("stopped", [False, True])
def test_a_python_stack_names_the_function(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setenv("PATH", str(SPY), prepend=os.pathsep)
    child = start("-c", PROGRAM)
    if stopped:
        stop(child)
    path = dump(str(tmp_path), JOB, "node1")
    assert path == str(tmp_path / "stacks" / "node1.txt")
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    table, stacks = parts(path)
    row = re.search(rf"^ *{child.pid} +(\w) +([\d.]+) +(.*)", table, re.M)
    assert row is not None
    assert row[1] == ("T" if stopped else "S")
    assert "waits_for_a_message" in stacks
    # Looking at it has not set it going, nor stopped it.
    assert (processes.stat(child.pid) or ["?"])[0] == row[1]


@pytest.mark.parametrize("stopped", [False, True])
def test_without_py_spy_the_kernel_tells(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    child = start("-c", PROGRAM)
    if stopped:
        stop(child)
    _, stacks = parts(dump(str(tmp_path), JOB, "node1"))
    assert f"Process {child.pid}: {sys.executable} -c" in stacks
    assert "py-spy is not on PATH" in stacks
    state = "T" if stopped else "S"
    assert re.search(rf"^  thread {child.pid} \S+: {state} \S+", stacks, re.M)


def test_a_py_spy_that_fails_is_quoted_and_the_kernel_tells(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text("#!/bin/sh\necho 'Error: Permission Denied' >&2\nexit 1\n")
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    child = start("-c", PROGRAM)
    _, stacks = parts(dump(str(tmp_path), JOB, "node1"))
    assert "py-spy: Error: Permission Denied" in stacks
    assert f"  thread {child.pid} " in stacks


def test_a_py_spy_that_hangs_costs_no_more_than_the_time_given(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text("#!/bin/sh\nexec sleep 60\n")
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for _ in range(2):
        start("-c", PROGRAM)
    begun = time.monotonic()
    _, stacks = parts(dump(str(tmp_path), JOB, "node1", seconds=0.5))
    assert time.monotonic() - begun < 5
    assert stacks.count("  thread ") == 2


def test_a_worker_that_hides_its_environment_is_known_by_its_parent(start: Start) -> None:
    parent = start("-c", PARENT)
    found = of_job(JOB)
    assert len(found) == 2
    assert {process.pid for process in found} == {parent.pid, *processes.children(parent.pid)}


def test_other_jobs_and_our_own_programs_are_left_out(start: Start, tmp_path: Path) -> None:
    own = tmp_path / "node.pyz"
    own.write_text(PROGRAM)
    start(str(own), "ray")
    start("-c", PROGRAM, job=JOB + "1")
    theirs = start("-c", PROGRAM)
    asks = start(
        "-c",
        f"from beam_slurm.node.stacks import of_job; found = of_job({JOB!r}); print('here');"
        "print(*[process.pid for process in found])",
    )
    assert asks.stdout is not None
    assert asks.stdout.readline().decode().split() == [str(theirs.pid)]


def test_a_secret_on_a_command_line_is_masked(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(SPY), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM)
    secret = "a-secret-value" * 20  # longer than what the table shows of a command
    child = start("train.py", "--wandb-key", secret)
    text = Path(dump(str(tmp_path), JOB, "node1", mask=Mask([secret.encode()]))).read_text()
    assert "secret" not in text
    assert re.search(rf"^ *{child.pid} .*--wandb-key \*\*\*$", text, re.M)


def test_a_job_without_processes_here_has_an_empty_table(tmp_path: Path) -> None:
    assert Path(dump(str(tmp_path), JOB, "node1")).read_text().endswith("COMMAND\n")
