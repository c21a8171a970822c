"""A folder's hash list: what is in it, and that sha256sum takes it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from beam_slurm.after import hashes
from beam_slurm.after.errors import Problem

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


METADATA = "iter_0000000/.metadata"  # of a Megatron checkpoint: part of it, although hidden


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder of files; to a hash it is all the same what is in them."""
    path = tmp_path / "Beam"
    path.mkdir()
    for name in ("config.json", ONE, TWO):
        (path / name).write_text(f"that of {name}")
    return path


def test_sha256sum_takes_the_list(model: Path) -> None:
    (model / "a note é.txt").write_text("with a space")
    (model / "more").mkdir()
    (model / "more" / "deep.txt").write_bytes(b"")
    (model / ".cache").mkdir()
    (model / ".cache" / "download").write_text("a tool's own")
    (model / METADATA).parent.mkdir()
    (model / METADATA).write_text("what lies in which file")
    (model / METADATA).with_name(".nfs0001").write_text("a file system's own")
    hashes.write(model)
    words = ["sha256sum", "--strict", "-c", hashes.SUMS]
    told = subprocess.run(words, cwd=model, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    lines = (model / hashes.SUMS).read_text().splitlines()
    names = [line[66:] for line in lines]
    assert names == sorted(names)
    assert {"a note é.txt", "more/deep.txt", ONE, "config.json", METADATA} <= set(names)
    assert [name for name in names if name[0] == "." or "/." in name] == [METADATA]
    assert hashes.SUMS not in names
    assert not (model / f".{hashes.SUMS}.tmp").exists()


def test_the_list_is_the_same_each_time_and_not_in_itself(model: Path) -> None:
    hashes.write(model)
    first = (model / hashes.SUMS).read_bytes()
    hashes.write(model)
    assert (model / hashes.SUMS).read_bytes() == first


def test_a_file_larger_than_a_block_is_hashed_whole(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "BLOCK", 1000)
    content = os.urandom(3500)
    (model / "large").write_bytes(content)
    assert hashes.of(model)["large"] == hashlib.sha256(content).hexdigest()


def test_progress_is_told_in_bytes_after_each_file(model: Path) -> None:
    calls: list[tuple[int, int]] = []
    hashes.write(model, lambda done, total: calls.append((done, total)))
    sizes = [path.stat().st_size for path in model.iterdir() if path.name != hashes.SUMS]
    done = [each for each, _ in calls]
    assert len(calls) == len(sizes)
    assert done == sorted(done)
    assert calls[-1] == (sum(sizes), sum(sizes))


@pytest.mark.parametrize("name", ["line\nbreak", "back\\slash"])
def test_a_name_that_would_be_escaped_is_refused(model: Path, name: str) -> None:
    (model / name).write_text("")
    with pytest.raises(Problem) as caught:
        hashes.write(model)
    assert repr(name) in caught.value.what
    assert not (model / hashes.SUMS).exists()


def test_a_file_that_cannot_be_read_is_named_and_no_list_is_written(model: Path) -> None:
    (model / "link").symlink_to("gone")
    with pytest.raises(Problem) as caught:
        hashes.write(model)
    assert caught.value.where == str(model / "link")
    assert not (model / hashes.SUMS).exists()
