"""Proof that a folder is the same shared storage on every node.

The batch host makes a file with a random word in each folder. A node that sees it makes one of its
own, which the batch host must see in turn and then removes. Names are new each time: a network
file system may remember for half a minute that an old one is (not) there.
"""

import contextlib
import os
import time
from typing import Dict, Iterable

PREFIX = ".beam-canary-"
STALE = 3600.0  # seconds after which another run's canary must have been left behind


def plant(folders: Iterable[str], word: str) -> Dict[str, str]:
    """Make the batch host's file in each folder, and the folder; those where it could not: why."""
    problems = {}
    for folder in folders:
        try:
            os.makedirs(folder, exist_ok=True)
            _sweep(folder)
            _make(_path(folder, word), word)
        except OSError as error:
            problems[folder] = error.strerror or str(error)
    return problems


def answer(folder: str, word: str, node: str) -> str:
    """Look for the batch host's file and make this node's; "", or what is wrong."""
    try:
        with open(_path(folder, word)) as file:
            if file.read() != word:
                return "is another folder than on the batch host"
    except FileNotFoundError:
        there = os.path.isdir(folder)
        return "is another folder than on the batch host" if there else "is not there"
    except OSError as error:
        return "cannot be read: %s" % error.strerror
    try:
        _make(_path(folder, word, node), word)
    except OSError as error:
        return "cannot be written: %s" % error.strerror
    return ""


def wait(folders: Iterable[str], word: str, node: str, seconds: float) -> None:
    """Wait until the batch host has removed this node's files; after ``seconds`` do it here."""
    own = [_path(folder, word, node) for folder in folders]
    deadline = time.monotonic() + seconds
    while any(map(os.path.exists, own)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for path in own:
        with contextlib.suppress(OSError):
            os.unlink(path)


def collect(folder: str, word: str, node: str) -> bool:
    """On the batch host: remove a node's file; whether it was there."""
    try:
        os.unlink(_path(folder, word, node))
    except OSError:
        return False
    return True


def lift(folders: Iterable[str], word: str, nodes: Iterable[str]) -> None:
    """Remove every file of this word that can be seen."""
    names = list(nodes)
    for folder in folders:
        for path in [_path(folder, word), *(_path(folder, word, node) for node in names)]:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _path(folder: str, word: str, node: str = "") -> str:
    return os.path.join(folder, PREFIX + word + ("-" + node if node else ""))


def _make(path: str, word: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, word.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(folder: str) -> None:
    """Remove what a batch host that was killed has left."""
    stale = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE:
                        stale.append(entry.path)
    for path in stale:
        with contextlib.suppress(OSError):
            os.unlink(path)
