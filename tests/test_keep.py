"""Ray's session logs packed on the way out: what is kept, what is not, and never an exception."""

from __future__ import annotations

import os
import socket
import stat
import tarfile
import time
from pathlib import Path

import pytest

from beam_slurm.node import keep as module
from beam_slurm.node.keep import keep
from beam_slurm.node.mask import Mask

SECRET = b"a-secret-value"
MASK = Mask([SECRET])


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The folder of a session's logs below ``tmp_path``/temp, as Ray makes it."""
    session = tmp_path / "temp" / "ray" / "session_2026-01-02_03-04-05_1_2"
    (session / "logs" / "old").mkdir(parents=True)
    (tmp_path / "temp" / "ray" / "session_latest").symlink_to(session)
    return session / "logs"


def write(path: Path, data: bytes, age: float = 0) -> None:
    path.write_bytes(data)
    os.utime(path, (time.time() - age, time.time() - age))


def packed(logs: Path, **bounds: float) -> tuple[dict[str, bytes], str]:
    """(name to content of what was kept, in the archive's order; what was left out)."""
    target = logs.parents[3] / "node1.logs.tar.gz"
    left = keep(str(logs.parents[2]), str(target), MASK, **bounds)  # type: ignore[arg-type]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert not target.with_name(target.name + ".part").exists()
    with tarfile.open(target) as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
        return {
            name.removeprefix("node1.logs/"): file.read() for name, file in members.items() if file
        }, left


def test_all_logs_are_kept_newest_first_and_masked(logs: Path) -> None:
    write(logs / "gcs_server.out", b"older", age=9)
    write(logs / "old" / "worker-1.err", b"oldest", age=99)
    write(logs / "raylet.out", b"key=" + SECRET + b"\n")
    write(logs / "raylet.err", b"")
    found, left = packed(logs)
    assert left == ""
    assert list(found.items()) == [
        ("raylet.out", b"key=***\n"),
        ("gcs_server.out", b"older"),
        ("old/worker-1.err", b"oldest"),
    ]


def test_of_a_long_log_the_end_is_kept_and_the_cut_is_said(logs: Path) -> None:
    write(logs / "worker.out", b"x" * 5000 + b"the end")
    found, left = packed(logs, each=1000)
    line, text = found["worker.out"].split(b"\n")
    assert line == b"[beam-slurm: 4007 bytes cut here]"
    assert text == b"x" * 993 + b"the end"
    assert left == ""


@pytest.mark.parametrize("size", range(1, len(SECRET) + 12))
def test_a_cut_through_a_secret_shows_no_part_of_it(logs: Path, size: int) -> None:
    write(logs / "worker.out", b"0" * 50 + SECRET * 2 + b"0" * 8)
    found, _ = packed(logs, each=size)
    text = found["worker.out"].split(b"\n")[1]
    assert not set(text) - set(b"0*")


def test_the_newest_files_fill_the_budget(logs: Path) -> None:
    for number in range(8):
        write(logs / f"worker-{number}.out", b"x" * 1000, age=number)
    found, left = packed(logs, most=2500)
    assert list(found) == ["worker-0.out", "worker-1.out", "worker-2.out"]
    assert sum(map(len, found.values())) < 2600
    assert left == "5 of 8 of Ray's logs were left out: 2500 bytes are full"
    found, left = packed(logs, files=2)
    assert list(found) == ["worker-0.out", "worker-1.out"]
    assert left == "6 of 8 of Ray's logs were left out: more than 2"


def test_links_and_special_files_are_not_followed(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "private", b"somebody's")
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere" / "file", b"somebody's")
    (logs / "link.out").symlink_to(tmp_path / "private")
    (logs / "folder").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(logs / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(logs)  # a socket's path must be short
        server.bind("socket")
    write(logs / "raylet.out", b"words")
    assert packed(logs) == ({"raylet.out": b"words"}, "")


def test_a_file_that_becomes_a_link_or_a_pipe_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "private", b"somebody's")
    (tmp_path / "link").symlink_to(tmp_path / "private")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=name):
            module._end_of(str(tmp_path / name), 100, MASK.again(), time.monotonic() + 9)


def test_a_link_to_the_session_that_leads_away_is_not_followed(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "away" / "logs").mkdir(parents=True)
    write(tmp_path / "away" / "logs" / "file", b"somebody's")
    latest = logs.parents[1] / "session_latest"
    latest.unlink()
    latest.symlink_to(tmp_path / "away")
    left = keep(str(tmp_path / "temp"), str(tmp_path / "out.tar.gz"), MASK)
    assert left.startswith("Ray's logs were not kept: ")
    assert not (tmp_path / "out.tar.gz").exists()


def test_without_the_link_the_last_session_counts(logs: Path) -> None:
    (logs.parents[1] / "session_latest").unlink()
    (logs.parents[1] / "session_2025-01-02_03-04-05_1_2" / "logs").mkdir(parents=True)
    write(logs / "raylet.out", b"words")
    assert packed(logs)[0] == {"raylet.out": b"words"}


def test_the_time_is_looked_at_between_files_and_within_one(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(logs / "a.out", b"x" * 10)
    write(logs / "b.out", b"x" * 10 * module.CHUNK, age=1)
    write(logs / "c.out", b"x" * 10, age=2)
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    found, left = packed(logs, seconds=9, each=20 * module.CHUNK, most=40 * module.CHUNK)
    assert list(found) == ["a.out"]
    assert left == "2 of 3 of Ray's logs were left out: the time was up"


def test_many_small_files_do_not_outrun_the_clock(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        write(logs / f"worker-{number:02}.out", b"x", age=number)
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    found, left = packed(logs, seconds=50)
    assert 0 < len(found) < 30
    assert left.endswith(": the time was up")


def test_nothing_is_read_when_there_is_no_time(logs: Path) -> None:
    write(logs / "a.out", b"x")
    target = logs.parents[3] / "node1.logs.tar.gz"
    left = keep(str(logs.parents[2]), str(target), MASK, seconds=-1)
    assert left == "Ray's logs were not kept: the time was up"


def test_an_older_archive_stays_until_the_new_one_is_whole(logs: Path) -> None:
    target = logs.parents[3] / "node1.logs.tar.gz"
    target.write_bytes(b"before")
    (logs.parents[3] / "private").write_bytes(b"private")
    target.with_name(target.name + ".part").symlink_to(logs.parents[3] / "private")
    write(logs / "a.out", b"x")
    assert packed(logs) == ({"a.out": b"x"}, "")
    assert (logs.parents[3] / "private").read_bytes() == b"private"
    keep(str(logs), str(target), MASK)
    assert packed(logs) == ({"a.out": b"x"}, "")


@pytest.mark.parametrize("spoil", ["no temp", "no logs", "no target"])
def test_what_is_missing_is_a_word_and_no_exception(logs: Path, spoil: str) -> None:
    temp, target = logs.parents[2], logs.parents[3] / "node1.tar.gz"
    if spoil == "no temp":
        temp = temp / "absent"
    elif spoil == "no logs":
        (logs / "old").rmdir()
        logs.rmdir()
    else:
        target = target / "absent" / "node1.tar.gz"
    assert "No such file or directory" in keep(str(temp), str(target), MASK)
