"""What a node says of itself, and what that means for a profile. No Slurm here."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from beam_slurm import job, profiles
from beam_slurm.doctor import login, nodes, verdicts
from beam_slurm.doctor.subject import Subject
from beam_slurm.node import events, examine
from beam_slurm.pack import node_program

ASK: dict[str, Any] = {
    "paths": {"model": "/models/Beam"},
    "writable": {"runs": "/runs", "outputs": "/outputs"},
    "seen": {"outputs": "/outputs/.beam-doctor-1"},
    "commands": ["docker"],
    "disks": {"scratch": "/scratch"},
}
FINE: dict[str, Any] = {
    "paths": {"model": "folder-9-abc"},
    "writable": {"runs": "", "outputs": ""},
    "seen": {"outputs": True},
    "commands": {"docker": "/usr/bin/docker"},
    "disks": {"scratch": {"type": "xfs", "free": 28e12}},
    "visible_gpus": 8,
    "gpu_names": ["NVIDIA B200"] * 8,
    "memlock": resource.RLIM_INFINITY,
    "nofile": 1048576,
    "shm_free": 1e12,
    "python": "3.10.12",
    "address": "10.1.0.1",
    "address_problem": "",
}


def subject(*settings: str) -> Subject:
    """Full GRPO with SkyRL: 700 GB of NVMe, 8 B200 a node."""
    words = ["site.paths.runs=/runs", "site.paths.outputs=/outputs", *settings]
    resolved = profiles.resolve(
        "b200-bf16", use_site=False, settings=profiles.parse_settings(words)
    )
    return Subject(resolved.profile, job.make_request(resolved), alone=False)


def judged(facts: Mapping[str, Any], *settings: str, seen_here: str | None = "folder-9-abc") -> Any:
    """Checks of node n1 that do not pass, as name -> verdict; n2 and n3 are fine."""
    others = {"n2": {**FINE, "address": "10.1.0.2"}, "n3": {**FINE, "address": "10.1.0.3"}}
    answers = {"n1": {**FINE, **facts}, **others}
    found = verdicts.judge(subject(*settings), ASK, {"model": seen_here}, answers)
    assert list(found) == ["n1", "n2", "n3"]
    for check in found["n1"]:
        assert check.remedy or check.verdict == "pass"
    return {check.name: check.verdict for check in found["n1"] if check.verdict != "pass"}


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({}, {}),
        ({"paths": {"model": None}}, {"model": "fail"}),
        ({"paths": {"model": "folder-8-def"}}, {"model": "fail"}),
        ({"writable": {"runs": "Read-only file system", "outputs": ""}}, {"runs": "fail"}),
        ({"seen": {"outputs": False}}, {"outputs": "fail"}),
        ({"commands": {"docker": ""}}, {"docker": "fail"}),
        ({"commands": {"enroot": ""}}, {"enroot": "warn"}),
        ({"disks": {"scratch": None}}, {"scratch": "fail"}),
        ({"disks": {"scratch": {"type": "tmpfs", "free": 28e12}}}, {"scratch": "fail"}),
        ({"disks": {"scratch": {"type": "xfs", "free": 699e9}}}, {"scratch": "fail"}),
        ({"disks": {"scratch": {"type": "xfs", "free": 701e9}}}, {}),
        ({"visible_gpus": 7}, {"GPUs": "fail"}),
        ({"visible_gpus": None, "gpu_names": ["NVIDIA B200"] * 7}, {"GPUs": "fail"}),
        ({"visible_gpus": None, "gpu_names": []}, {"GPUs": "fail"}),
        ({"visible_gpus": 8, "gpu_names": []}, {}),
        ({"gpu_names": ["NVIDIA H200"] * 8}, {"GPUs": "warn"}),
        ({"memlock": 8388608}, {"memlock": "warn"}),
        ({"nofile": 1024}, {"nofile": "warn"}),
        ({"nofile": resource.RLIM_INFINITY}, {}),
        ({"address": "10.1.0.2"}, {"address": "fail"}),
        ({"address": "", "address_problem": "no 'ib0' here"}, {"address": "fail"}),
    ],
)
def test_each_fact_has_its_verdict(facts: dict[str, Any], found: dict[str, str]) -> None:
    assert judged(facts) == found


def test_skyrl_without_a_key_for_wandb_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict() -> str:
        return next(c.verdict for c in login.check(subject()) if c.name == "WANDB_API_KEY")

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert verdict() == "warn"
    monkeypatch.setenv("WANDB_API_KEY", "x")
    assert verdict() == "pass"


def test_shared_memory_counts_only_if_the_profile_wants_some() -> None:
    assert judged({"shm_free": 1e9}) == {}
    assert judged({"shm_free": 1e9}, "ray.object_store_gb=64") == {"shm": "fail"}


def test_where_this_machine_sees_nothing_most_nodes_are_right() -> None:
    assert judged({"paths": {"model": "folder-1-x"}}, seen_here=None) == {"model": "fail"}
    assert judged({}, seen_here=None) == {}


def test_a_fingerprint_is_names_and_sizes_not_times(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "inside").mkdir(parents=True)
        (tmp_path / name / "shard").write_bytes(bytes(10))
    os.utime(tmp_path / "b" / "shard", (1, 1))
    first = examine.fingerprint(str(tmp_path / "a"))
    assert first == examine.fingerprint(str(tmp_path / "b"))
    (tmp_path / "b" / "shard").write_bytes(bytes(11))
    assert first != examine.fingerprint(str(tmp_path / "b"))
    assert examine.fingerprint(str(tmp_path / "a" / "shard")) == "file-10"
    assert examine.fingerprint(str(tmp_path / "c")) is None
    assert examine.fingerprint(str(tmp_path / "a" / "shard" / "c")) is None


def test_the_node_s_program_answers_in_short_lines(tmp_path: Path) -> None:
    (tmp_path / "node.pyz").write_bytes(node_program())
    ask = {
        "paths": {"here": str(tmp_path), "gone": "/nowhere"},
        "writable": {"runs": str(tmp_path), "outputs": f"{tmp_path}/node.pyz/x"},
        "seen": {"ask": str(tmp_path / "ask.json"), "other": "/nowhere"},
        "commands": ["bash", "no-such-command", *(f"{'x' * 90}{number}" for number in range(20))],
        "disks": {"shm": "/dev/shm", "gone": "/nowhere"},
        "interface": "no-such-interface",
        "prefix": None,
    }
    (tmp_path / "ask.json").write_text(json.dumps(ask))
    words = [sys.executable, "node.pyz", "examine", "ask.json"]
    environment = {**os.environ, "SLURMD_NODENAME": "n1", "CUDA_VISIBLE_DEVICES": "0,1,2"}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) < events.LONGEST
    told = [event for line in lines if (event := events.parse(line))]
    assert len(told) == len(lines)
    assert examine.gather(told[:-1]) == {}  # there is more to come
    found = examine.gather([*told, {**told[0], "node": "n2"}])
    assert set(found) == {"n1"}
    said = found["n1"]
    assert said["visible_gpus"] == 3
    assert set(examine.examine(ask)) <= set(said)
    assert said["paths"]["gone"] is None
    assert said["paths"]["here"].startswith("folder-2-")
    assert said["writable"] == {"runs": "", "outputs": "Not a directory"}
    assert said["seen"] == {"ask": True, "other": False}
    assert (bool(said["commands"]["bash"]), said["commands"]["no-such-command"]) == (True, "")
    assert said["disks"]["gone"] is None
    assert said["disks"]["shm"]["type"] == "tmpfs"
    assert "no-such-interface" in said["address_problem"]


def test_the_job_has_the_run_s_directives_and_its_own_name_and_time(tmp_path: Path) -> None:
    about = subject("site.partition=b200", "site.account=rl", "job.time=3-00:00:00")
    folder = tmp_path / "runs" / ".doctor-1a2b"
    lines = nodes.script(str(about.request), folder, 8, ["module load python"]).splitlines()
    directives = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
    assert {"partition=b200", "account=rl", "nodes=8", "gpus-per-node=b200:8"} <= set(directives)
    assert "time=5" in directives
    assert f"chdir={folder}" in directives
    names = [word.partition("=")[0] for word in directives]
    assert len(names) == len(set(names))
    assert lines.index("module load python") < next(
        i for i, line in enumerate(lines) if line.startswith("srun ")
    )


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("", 0),
        ("python3: can't open file\n", 0),
        ("srun: error: node2: task 1: Exited with exit code 2\n", 1),
        (
            "srun: error: n[2-4]: tasks 1-3,7: Exited with exit code 2\nsrun: error: n1: task 0: K",
            5,
        ),
    ],
)
def test_tasks_that_srun_has_given_up(text: str, lost: int) -> None:
    assert nodes._lost(text) == lost
