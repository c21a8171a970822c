"""A conversion's output folder: not there, or whole and proved.

What is written lies in ``DIR.part`` until it is proved. The file ``.conversion.json`` in it says
what it is made of, and is locked meanwhile: an interrupted conversion of the same checkpoint goes
on, one of another is cleared away, and two never write to one folder. Empty, it was made at the
job's submission: so a node can tell that it writes where the login node will look.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from beam_slurm.after import hashes, lock
from beam_slurm.after.errors import Problem, few

MARK = ".conversion.json"  # hidden: no hash is made of it
SAY_EVERY = 10.0  # seconds


def part_of(output: Path) -> Path:
    return output.with_name(output.name + ".part")


def check(output: Path, need: int) -> None:
    """Refuse an output folder that is in use or has no room; nothing is made.

    Args:
        need: bytes that will be written.

    Raises:
        Problem: it holds something, is no folder, is being written, or its disk has less free.
    """
    try:
        _check_unused(output)
        refuse_unwritable(output)
        have = _free(output) + _written(part_of(output))
    except OSError as error:
        raise Problem(
            "the output folder cannot be used", where=str(output), why=str(error)
        ) from None
    if have < need and not shutil.disk_usage(_there(output)).total:  # /proc and its like
        raise _unmade(output, f"{_there(output)} is on no disk")
    if have < need:
        raise Problem(
            "there is not enough space for the conversion",
            where=str(output),
            why=f"it needs {need / 1e9:,.1f} GB, and {have / 1e9:,.1f} GB are free",
            do="free space, or give a folder elsewhere with -o",
        )


def refuse_unwritable(output: Path) -> None:
    """Raise if this user cannot make a file or folder where the output is to be.

    Raises:
        Problem: the folder that is there may not be written, or is a file.
    """
    there = _there(output.absolute().parent)
    if not there.is_dir():
        raise _unmade(output, f"{there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _unmade(output, f"you may not write into {there}")


def _unmade(output: Path, why: str) -> Problem:
    return Problem(
        "the output cannot be written",
        where=str(output),
        why=why,
        do="give a folder elsewhere with -o",
    )


def _check_unused(output: Path) -> None:
    if output.is_dir() and any(output.iterdir()):
        raise Problem(
            "the output folder is not empty",
            where=str(output),
            do="give another folder with -o, or remove this one",
        )
    part = part_of(output)
    for path in (output, part):
        if path.is_symlink() or (path.exists() and not path.is_dir()):  # a rename replaces no link
            raise Problem(
                "the output is there and no folder",
                where=str(path),
                do="give another one with -o",
            )
    if part.is_dir() and any(part.iterdir()):
        if not (part / MARK).is_file():
            raise Problem(
                "the output folder cannot be made",
                where=str(part),
                why=f"it holds something that is of no conversion: it has no {MARK}",
                do="remove it, or give another folder with -o",
            )
        with (part / MARK).open("r+b") as mark:
            lock.take(mark, part, "conversion")


class Incomplete(Problem):
    """What was written lacks something; it stays as ``DIR.part``, for whoever wants to know why."""


@contextmanager
def begin(output: Path, origin: dict[str, Any]) -> Iterator[Path]:
    """The folder to write to, locked; what an earlier conversion of ``origin`` left is in it.

    An error in what is converted leaves no folder, an interruption does.

    Args:
        origin: what the output is made of, as JSON has it.
    """
    part = part_of(output)
    try:
        part.mkdir(parents=True, exist_ok=True)
        with (part / MARK).open("a+b") as mark:
            lock.take(mark, part, "conversion")
            mark.seek(0)
            if mark.read().decode(errors="replace") != _text(origin):
                for entry in part.iterdir():
                    if entry.name != MARK:
                        _remove(entry)
                mark.truncate(0)
                mark.write(_text(origin).encode())
                mark.flush()
            for passing in part.glob("*.tmp"):
                passing.unlink()  # what was being written when it was broken off
            try:
                yield part
            except Incomplete:
                raise
            except Problem:
                shutil.rmtree(part)
                raise
    except OSError as error:
        raise Problem(
            "the conversion was broken off",
            where=str(part),
            why=str(error),
            do="start it again: it goes on from what is there",
        ) from None


def forget(output: Path) -> None:
    """Remove a part that no conversion has begun to write: the login node has made its mark."""
    part = part_of(output)
    with suppress(OSError):
        if not (part / MARK).stat().st_size:
            (part / MARK).unlink()
            part.rmdir()


def finish(output: Path, prove: Callable[[Path], list[str]]) -> None:
    """Prove what was written, note every file's hash and give the folder its name.

    Raises:
        Incomplete: with what it lacks; or a file could not be read, which may go by.
    """
    part = part_of(output)
    try:
        problems = prove(part)
        if not problems:
            hashes.write(part, _Told())
    except Problem as problem:
        again = "start it again: it goes on from what is there"
        raise Incomplete(problem.what, problem.where, problem.why, problem.do or again) from None
    if problems:
        raise Incomplete(
            "the conversion is not complete",
            where=str(part),
            why=few(problems, "; ", most=5),
            do="look at the lines above; nothing has its final name",
        )
    _open_to_readers(part)
    for path in [*part.rglob("*"), part]:
        _flush(path)
    part.rename(output)
    (output / MARK).unlink()  # until then this is a conversion that can go on


def copy_companions(model: Path, part: Path, tokenizer_only: bool = False) -> None:
    """All that belongs to a model and is no weights: configuration, tokenizer, chat template.

    Args:
        tokenizer_only: without configuration, which an adapter takes from its model.
    """
    weights = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")
    tokenizer = ("tokenizer", "special_tokens", "added_tokens", "vocab", "merges", "chat_template")
    for entry in sorted(model.iterdir()):
        wanted = entry.name.startswith(tokenizer) if tokenizer_only else entry.name != hashes.SUMS
        no_weights = not entry.name.startswith(".") and not entry.name.endswith(weights)
        if entry.is_file() and wanted and no_weights:
            shutil.copyfile(entry, part / entry.name)


def _open_to_readers(part: Path) -> None:
    """Let whoever may read the hash list read what it lists: safetensors makes private files."""
    mode = (part / hashes.SUMS).stat().st_mode
    for path in part.rglob("*"):
        # What is linked is the framework's, too.
        if path.is_file() and not path.is_symlink() and path.stat().st_nlink == 1:
            path.chmod(mode)


class _Told:
    """Says how much is hashed, every few seconds and at the end."""

    def __init__(self) -> None:
        self.said = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if done == total or time.monotonic() - self.said > SAY_EVERY:
            self.said = time.monotonic()
            print(f"hashed: {done / 1e9:,.1f} of {total / 1e9:,.1f} GB", flush=True)


def _text(origin: dict[str, Any]) -> str:
    return json.dumps(origin, sort_keys=True) + "\n"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _free(path: Path) -> int:
    return shutil.disk_usage(_there(path)).free


def _there(path: Path) -> Path:
    """The path, or the first above it that is there."""
    while not path.exists():
        path = path.parent
    return path


def _written(part: Path) -> int:
    return sum(path.stat().st_size for path in part.rglob("*") if path.is_file())


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
