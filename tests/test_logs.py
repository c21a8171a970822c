"""``logs``: last lines, following, Ray's logs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import folders
import pytest
from click.testing import CliRunner

from beam_slurm import logs as room
from beam_slurm import slurm, waiting
from beam_slurm.cli.logs import logs
from beam_slurm.errors import BeamSlurmError
from beam_slurm.logs import Tail, start_of_last
from beam_slurm.runs import Run


@pytest.mark.parametrize(
    ("content", "lines", "last"),
    [
        (b"", 3, b""),
        (b"a\nb\nc\n", 0, b""),
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc", 1, b"c"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc\n", 9, b"a\nb\nc\n"),
        (b"\n\n\n", 2, b"\n\n"),
    ],
)
@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_last_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    lines: int,
    last: bytes,
    block: int,
) -> None:
    monkeypatch.setattr(room, "BLOCK", block)
    path = tmp_path / "log"
    path.write_bytes(content)
    assert content[start_of_last(path, lines) :] == last


class Copy:
    """A Tail and what it has said."""

    def __init__(self) -> None:
        self.bytes = b""
        self.notes: list[str] = []
        self.tail = Tail(self._take, self.notes.append)

    def _take(self, data: bytes) -> None:
        self.bytes += data


def test_tail_grows_shrinks_and_changes(tmp_path: Path) -> None:
    path, other = tmp_path / "job-1.log", tmp_path / "job-2.log"
    copy = Copy()
    assert not copy.tail.copy(path)
    path.write_bytes(b"a\nb\n")
    copy.tail.copy(path, 1)
    path.open("ab").write(b"c")
    copy.tail.copy(path, 1)
    copy.tail.copy(path, 1)
    assert (copy.bytes, copy.notes) == (b"b\nc", [])
    path.write_bytes(b"x\n")
    copy.tail.copy(path, 1)
    assert copy.bytes == b"b\ncx\n"
    assert copy.notes == ["job-1.log was written anew"]
    other.write_bytes(b"longer than before\n")
    other.rename(path)
    copy.tail.copy(path)
    assert copy.bytes.endswith(b"longer than before\n")
    other.write_bytes(b"y\n")
    copy.tail.copy(other, title="job-2.log")
    copy.tail.copy(other, title="job-2.log")
    assert copy.bytes.endswith(b"before\n\n==> job-2.log <==\ny\n")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> dict[str, slurm.Job]:
    known: dict[str, slurm.Job] = {}
    monkeypatch.setattr(slurm, "job", known.get)
    return known


def call(root: Path, *words: str) -> tuple[str, str]:
    result = CliRunner().invoke(logs, [*words, "--runs", str(root)])
    if result.exception:
        raise result.exception
    return result.stdout, result.stderr


def test_prints_bytes_as_they_are(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    run = folders.make(tmp_path)
    (run.path / "job-17.log").write_bytes(b"one\ntwo \xff [bold]\nthree\n")
    result = CliRunner().invoke(logs, ["-n", "2", "--runs", str(tmp_path)])
    assert result.stdout_bytes == b"two \xff [bold]\nthree\n"


def test_no_log_yet(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    folders.make(tmp_path)
    job["17"] = slurm.Job("17", "PENDING", "Resources")
    with pytest.raises(BeamSlurmError, match="no log yet") as caught:
        call(tmp_path)
    assert caught.value.why == "it is pending: Resources"


def test_ray_log_of_a_node(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    run = folders.make(tmp_path)
    with pytest.raises(BeamSlurmError, match="no Ray log of 'n2'") as none:
        call(tmp_path, "--ray", "n2")
    assert none.value.why == "Ray has not started on any node yet"
    for attempt, said in ((0, "old\n"), (1, "new\n")):
        folder = run.path / f"attempt-{attempt}" / "ray"
        folder.mkdir(parents=True)
        (folder / "n2.log").write_text(said)
    assert call(tmp_path, "--ray", "n2")[0] == "==> attempt-1/ray/n2.log <==\nnew\n"
    with pytest.raises(BeamSlurmError) as caught:
        call(tmp_path, "--ray", "../ray/n2")
    assert caught.value.remedy == "one of n2"


def test_follows_from_before_the_log_to_the_end(
    tmp_path: Path, job: dict[str, slurm.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folders.make(tmp_path)
    log = run.path / "job-17.log"
    job["17"] = slurm.Job("17", "PENDING", "Resources")

    def start() -> None:
        job["17"] = slurm.Job("17", "RUNNING", nodes="n[1-2]")
        log.write_text("first\n")

    def grow() -> None:
        log.open("a").write("second\n")

    def end() -> None:
        log.open("a").write("last words\n")
        folders.outcome(run)

    class Clock:
        now = 0.0

    watch = waiting.Watch
    monkeypatch.setattr(waiting, "Watch", lambda run: watch(run, lambda: Clock.now))
    left = iter([start, grow, end])

    def sleep(seconds: float) -> None:
        Clock.now += 10
        next(left)()

    monkeypatch.setattr(time, "sleep", sleep)
    out, err = call(tmp_path, "-f")
    assert out == "first\nsecond\nlast words\n"
    assert err == "beam-slurm: waiting for the log: the run is pending Resources\n"


def test_following_a_run_that_left_nothing(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    folders.make(tmp_path)
    job["17"] = slurm.Job("17", "CANCELLED", exit_code="0:0")
    out, err = call(tmp_path, "-f")
    assert out == ""
    assert "is over and left no log: cancelled" in err


def test_head_has_seen_enough(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    (run.path / "job-17.log").write_bytes(b"line\n" * 200_000)
    words = [sys.executable, "-c", "from beam_slurm.cli.logs import logs; logs()"]
    child = subprocess.Popen(
        [*words, "--runs", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert os.read(child.stdout.fileno(), 5) == b"line\n"
    child.stdout.close()
    _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (0, b"")


def chained(root: Path) -> Run:
    """A run of two jobs, each with a log."""
    run = folders.make(root)
    folders.lost(run, "chain", chained="108")
    (run.path / "job-17.log").write_text("one\ntwo\n")
    (run.path / "job-108.log").write_text("three\nfour\n")
    os.utime(run.path / "job-108.log", (0, 0))  # the clock of whoever wrote it proves nothing
    return run


def test_prints_the_logs_of_a_chain_in_order(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    run = chained(tmp_path)
    out, _ = call(tmp_path)
    assert out == "==> job-17.log <==\none\ntwo\n\n==> job-108.log <==\nthree\nfour\n"
    assert call(tmp_path, "-n", "1")[0] == "==> job-108.log <==\nfour\n"
    assert run.log == run.path / "job-108.log"


@pytest.mark.parametrize("lines", [None, 1])
def test_follows_into_the_log_of_the_next_job(
    tmp_path: Path,
    job: dict[str, slurm.Job],
    monkeypatch: pytest.MonkeyPatch,
    lines: int | None,
) -> None:
    run = folders.make(tmp_path)
    log, second = run.path / "job-17.log", run.path / "job-18.log"
    log.write_text("first\nsecond\n")
    job["17"] = slurm.Job("17", "RUNNING")

    def chain() -> None:
        folders.lost(run, "chain", chained="18")
        job["17"] = slurm.Job("17", "COMPLETED")
        job["18"] = slurm.Job("18", "PENDING", "Priority")

    def begin() -> None:
        log.open("a").write("last words\n")
        job["18"] = slurm.Job("18", "RUNNING")
        second.write_text("again\n")

    def end() -> None:
        second.open("a").write("done\n")
        folders.outcome(run, 300, 1)

    class Clock:
        now = 0.0

    watch = waiting.Watch
    monkeypatch.setattr(waiting, "Watch", lambda run: watch(run, lambda: Clock.now))
    left = iter([chain, begin, end])

    def sleep(seconds: float) -> None:
        Clock.now += 10
        next(left)()

    monkeypatch.setattr(time, "sleep", sleep)
    out, err = call(tmp_path, "-f", *([] if lines is None else ["-n", str(lines)]))
    begun = "first\nsecond\n" if lines is None else "second\n"
    assert out == begun + "last words\n\n==> job-18.log <==\nagain\ndone\n"
    assert err == ""


def test_what_else_was_kept_of_a_node(tmp_path: Path, job: dict[str, slurm.Job]) -> None:
    run = folders.make(tmp_path)
    folder = run.path / "attempt-0"
    (folder / "ray").mkdir(parents=True)
    (folder / "ray" / "n2.log").write_text("x\n")
    assert call(tmp_path, "--ray", "n2") == ("x\n", "")
    (folder / "ray" / "n2.logs.tar.gz").write_bytes(b"")
    (folder / "stacks").mkdir()
    (folder / "stacks" / "n2.txt").write_text("")
    (run.path / "attempt-1" / "ray").mkdir(parents=True)  # n2 is left out of it
    (run.path / "attempt-1" / "ray" / "n3.log").write_text("y\n")
    out, err = call(tmp_path, "--ray", "n2")
    assert out == "==> attempt-0/ray/n2.log <==\nx\n"
    assert err.splitlines() == [
        f"beam-slurm: see also {folder}/ray/n2.logs.tar.gz",
        f"beam-slurm: see also {folder}/stacks/n2.txt",
    ]
    with pytest.raises(BeamSlurmError) as caught:
        call(tmp_path, "--ray", "n9")
    assert caught.value.remedy == "one of n2, n3"
