"""Preflight's checks of a node beside its GPUs, on real folders and programs of this machine."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_slurm.node import canary, examine, hostchecks
from beam_slurm.node.check import FAIL, OK, UNKNOWN, WARN, Check

SHM = "/dev/shm"
HUGE = 10**18


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder lies on a file system of this type, with room enough."""
    monkeypatch.setattr(examine, "disk", lambda path: {"type": kind, "free": HUGE})


@pytest.mark.parametrize(
    ("path", "need", "verdict", "said"),
    [
        ("{tmp}/run", 0, OK, "free"),
        ("{tmp}/run/", 1, OK, "free"),
        ("{tmp}/run", HUGE, FAIL, "free"),
        ("{tmp}/absent/run", 0, FAIL, "{tmp}/absent is not there"),
        (SHM + "/run", 0, FAIL, "the node's memory, no disk"),
    ],
)
def test_scratch(tmp_path: Path, path: str, need: int, verdict: str, said: str) -> None:
    check = hostchecks.scratch(path.format(tmp=tmp_path), need)
    assert check.verdict == verdict
    assert said.format(tmp=tmp_path) in check.have


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("xfs", OK),
        ("ext4", OK),
        ("fuseblk", OK),
        ("overlay", OK),
        ("ramfs", FAIL),
        ("nfs4", FAIL),
        ("lustre", FAIL),
        ("gpfs", FAIL),
        ("beegfs", FAIL),
        ("ceph", FAIL),
        ("fuse.juicefs", FAIL),
    ],
)
def test_scratch_is_a_disk_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, verdict: str
) -> None:
    on(kind, monkeypatch)
    check = hostchecks.scratch(str(tmp_path / "run"), 0)
    assert (check.verdict, kind in check.have) == (verdict, True)


def test_tmp(tmp_path: Path) -> None:
    assert hostchecks.tmp(str(tmp_path)).verdict == OK
    assert hostchecks.tmp(SHM).verdict == OK  # memory will do
    assert hostchecks.tmp(str(tmp_path / "absent")).verdict == FAIL
    (tmp_path / "file").touch()
    assert "Not a directory" in hostchecks.tmp(str(tmp_path / "file")).have
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_tmp_on_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on("nfs", monkeypatch)
    assert hostchecks.tmp(str(tmp_path)).verdict == FAIL


def test_tmp_that_is_nearly_full(small_disk: Path) -> None:
    assert hostchecks.tmp(str(small_disk)).verdict == OK
    (small_disk / "old").write_bytes(bytes(1000 << 10))
    assert hostchecks.tmp(str(small_disk)).verdict == WARN


@pytest.mark.parametrize("look", [hostchecks.memory, hostchecks.shm])
def test_room_in_memory(look: Callable[[int], Check]) -> None:
    assert look(1).verdict == OK
    check = look(HUGE)
    assert check.verdict == FAIL
    assert check.need == "1000000000.0 GB"


def test_the_job_s_limit_counts_if_it_is_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = tmp_path / "memory" / "slurm" / "job_7" / "step_0"
    step.mkdir(parents=True)
    (step / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (step.parent / "memory.limit_in_bytes").write_text("2000000\n")
    found = hostchecks._limits_above(
        f"{tmp_path}/memory", "/slurm/job_7/step_0", "memory.limit_in_bytes"
    )
    assert min(found) == 2000000
    (step / "memory.max").write_text("max\n")
    assert hostchecks._limits_above(str(tmp_path), "/memory/slurm/job_7/step_0", "memory.max") == []
    monkeypatch.setattr(hostchecks, "_limit", lambda: min(found))
    assert hostchecks.memory(1000000).have == "2.0 MB allowed for this job (--mem)"
    assert hostchecks.memory(3000000).verdict == FAIL


@pytest.mark.parametrize(
    ("locked", "files", "found"),
    [
        (resource.RLIM_INFINITY, 65536, [OK, OK]),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, [OK, OK]),
        (8 << 20, 65535, [FAIL, FAIL]),
    ],
)
def test_limits(monkeypatch: pytest.MonkeyPatch, locked: int, files: int, found: list[str]) -> None:
    hard = {resource.RLIMIT_MEMLOCK: locked, resource.RLIMIT_NOFILE: files}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (0, hard[which]))
    assert [check.verdict for check in hostchecks.limits()] == found


def test_limits_are_the_hard_ones_of_the_process_that_asks() -> None:
    program = "from beam_slurm.node import hostchecks as h; print(*(c.have for c in h.limits()))"
    limited = f"ulimit -l 8192; ulimit -n 1024; exec {sys.executable} -c '{program}'"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=True)
    assert done.stdout == "8.4 MB 1024 open files\n"


def test_mounts_name_what_is_missing(tmp_path: Path) -> None:
    assert hostchecks.mounts([str(tmp_path), "/"]).verdict == OK
    check = hostchecks.mounts([str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/b"])
    assert (check.verdict, check.have) == (FAIL, f"not there: {tmp_path}/a, {tmp_path}/b")


@pytest.mark.parametrize(
    ("content", "verdict", "said"),
    [(b"hsqs", OK, "nemo.sqsh"), (b"", FAIL, "is empty"), (None, FAIL, "No such file")],
)
def test_an_image_that_is_a_file(
    tmp_path: Path, content: bytes | None, verdict: str, said: str
) -> None:
    if content is not None:
        (tmp_path / "nemo.sqsh").write_bytes(content)
    check = hostchecks.image(f"{tmp_path}/nemo.sqsh", "pyxis")
    assert check.verdict == verdict
    assert said in check.have


def test_an_image_that_each_node_would_fetch_is_a_warning() -> None:
    assert hostchecks.image("nvcr.io#nvidia/nemo-rl:1", "pyxis").verdict == WARN


def test_a_runtime_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert hostchecks.image("x:1", "docker") == Check(
        "image", FAIL, "docker is not on PATH", "docker", "install it, or another site.container"
    )
    assert hostchecks.containers("docker", "7", exclusive=True).verdict == UNKNOWN


@pytest.mark.skipif(shutil.which("podman") is None, reason="Podman is not here")
def test_podman_says_whether_it_has_an_image_and_which_containers_run() -> None:
    check = hostchecks.image("beam.example/no-such-image:1", "podman")
    assert (check.verdict, "pulled" in check.have) == (WARN, True)
    # Other tests' containers may run now: then they are named.
    found = hostchecks.containers("podman", "no-such-job", exclusive=False)
    assert (found.verdict, found.have) == (OK, "none")


# A runtime of these answers: real ones stand in test_containers.
RUNTIME = """#!/bin/sh
case "$*" in
ps*--filter*) echo "$LABELLED" ;;
ps*) echo aaa bbb ccc ;;
inspect*) printf '%s\\n' '/dcgm {"DeviceRequests":[{"Capabilities":[["gpu"]]}]}' '/web {}' ;;
esac
"""


@pytest.mark.parametrize(
    ("labelled", "exclusive", "verdict", "said"),
    [
        ("", False, OK, "none"),
        ("", True, WARN, "dcgm"),
        ("aaa beam-7-0-n1-ray 7-0-n1", False, FAIL, "beam-7-0-n1-ray"),
        ("aaa beam-8-0-n1-ray 8-0-n1", False, OK, "none"),
        ("aaa beam-8-0-n1-ray 8-0-n1", True, FAIL, "beam-8-0-n1-ray"),
    ],
)
def test_containers_that_were_left_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    labelled: str,
    exclusive: bool,
    verdict: str,
    said: str,
) -> None:
    (tmp_path / "docker").write_text(RUNTIME)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LABELLED", labelled)
    check = hostchecks.containers("docker", "7", exclusive)
    assert check.verdict == verdict
    assert said in check.have
    assert "web" not in check.have


# --- the canary ---------------------------------------------------------------------------


def test_a_canary_goes_there_and_back_and_leaves_nothing(tmp_path: Path) -> None:
    folders = [str(tmp_path / "outputs"), str(tmp_path)]
    assert canary.plant(folders, "word") == {}
    for folder in folders:
        assert canary.answer(folder, "word", "n1") == ""
        assert not canary.collect(folder, "word", "n2")
        assert canary.collect(folder, "word", "n1")
        assert not canary.collect(folder, "word", "n1")
        assert canary.answer(folder, "word", "n3") == ""
    canary.wait(folders, "word", "n1", 60)  # at once: its files are gone
    canary.wait(folders, "word", "n3", 0)
    canary.lift(folders, "word", ["n1", "n2"])
    assert [path.name for path in tmp_path.rglob("*")] == ["outputs"]


def test_another_folder_is_told_from_the_same(tmp_path: Path) -> None:
    canary.plant([str(tmp_path / "here")], "word")
    (tmp_path / "there").mkdir()
    assert "another folder" in canary.answer(str(tmp_path / "there"), "word", "n1")
    assert "is not there" in canary.answer(str(tmp_path / "absent"), "word", "n1")
    assert "another folder" in canary.answer(str(tmp_path / "here"), "other", "n1")
    assert list((tmp_path / "there").iterdir()) == []


def test_what_a_killed_batch_host_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    names = [f"{canary.PREFIX}old", f"{canary.PREFIX}old-n1", f"{canary.PREFIX}new", "data"]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))
    os.utime(tmp_path / f"{canary.PREFIX}new")
    canary.plant([str(tmp_path)], "word")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f"{canary.PREFIX}new", f"{canary.PREFIX}word", "data"}


def test_a_canary_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / f"{canary.PREFIX}word").symlink_to(tmp_path / "victim")
    problems: Any = canary.plant([str(tmp_path)], "word")
    assert "exists" in problems[str(tmp_path)]
    assert (tmp_path / "victim").read_text() == "precious"
