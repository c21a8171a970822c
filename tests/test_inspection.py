"""How long the one step on all nodes may take, and what is asked for again after a restart.

A node is one `node.pyz inspect`, a process of this machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beam_slurm.node import check, events, inspection
from beam_slurm.node.check import FAIL, OK

PATIENCE = 60

# n1 is the batch host, whose Prolog is over. The others begin when they may, and n3 never ends.
LATE = f"""
trap 'kill $(jobs -p); exit 143' TERM
for node in n1 n2 n3; do
  (
    export SLURMD_NODENAME=$node
    [[ $node = n1 ]] || until [[ -e $GO ]]; do sleep 0.05; done
    [[ $node != n3 ]] || exec sleep 600
    exec {sys.executable} -m beam_slurm.node inspect "$@"
  ) &
done
wait
"""


@pytest.fixture(autouse=True)
def _batch_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n1")


def test_time_counts_from_the_first_node_that_had_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin when it is said that somebody waits; then n3 has the usual time and no more."""
    said = []

    def say(text: str) -> None:
        said.append(text)
        (tmp_path / "go").touch()

    monkeypatch.setattr(events, "say", say)
    monkeypatch.setenv("GO", str(tmp_path / "go"))
    asked = inspection.Inspection(["n1", "n2", "n3"], ["bash", "-c", LATE, "inspect"], 2)
    reports = asked.run()
    (told,) = said
    assert "within 2 s" in told
    assert "up to 12 s" in told
    assert [reports[node].offset is None for node in ("n1", "n2", "n3")] == [False, False, True]
    waited = re.fullmatch(r"no answer within (\d+) s", reports["n3"].silence)
    assert waited
    assert 4 <= int(waited.group(1)) < 14


def test_a_step_that_never_begins_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "PROLOG", 5)
    words = ["bash", "-c", "exec sleep 600", "inspect"]
    began = time.monotonic()
    reports = inspection.Inspection(["n1", "n2"], words, 0.2).run()
    assert 1 <= time.monotonic() - began < 10
    assert {said.silence for said in reports.values()} == {"no answer within 1 s"}


def test_the_batch_host_alone_has_had_its_prolog() -> None:
    words = ["bash", "-c", "exec sleep 600", "inspect"]
    began = time.monotonic()
    reports = inspection.Inspection(["n1"], words, 1).run()
    assert time.monotonic() - began < 5
    assert reports["n1"].silence == "no answer within 1 s"


@pytest.mark.parametrize(
    ("again", "goes", "verdict", "lasting"),
    [(False, False, FAIL, True), (True, False, FAIL, False), (True, True, OK, True)],
)
def test_what_the_last_attempt_holds_is_asked_for_again(
    tmp_path: Path, again: bool, goes: bool, verdict: str, lasting: bool
) -> None:
    """Here a folder is not there until the first answer about it is."""
    program = """
import os, sys
from beam_slurm.node import hostchecks, inspect
inspect.PATIENCE, inspect.ASK = (60.0 if sys.argv[2] == "go" else 1.0), 0.05
real = hostchecks.tmp
def tmp(path):
    found = real(path)
    if sys.argv[2] == "go":
        os.makedirs(path, exist_ok=True)
    return found
hostchecks.tmp = tmp
inspect.main(sys.argv[3:])
"""
    words = [str(tmp_path), "go" if goes else "stay", f"--tmp={tmp_path}/tmp", "--path=/nowhere"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words, *(["--again"] if again else [])],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    said = [event for event in map(events.parse, done.stdout.splitlines()) if event]
    checks = {event["name"]: check.of(event) for event in said if event["beam-slurm"] == "checked"}
    assert len(checks) == len(said) - 1  # each is told once
    assert (checks["tmp"].verdict, checks["tmp"].lasting) == (verdict, lasting)
    assert (checks["mounts"].verdict, checks["mounts"].lasting) == (FAIL, True)
