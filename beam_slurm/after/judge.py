"""math-verify in a process of its own, which can be ended.

Whether two expressions are the same has no bound in time: of a tower of powers sympy computes
every digit. math-verify's own limit is a signal: it works in the main thread only, and not while
Python computes one such number. So a process compares, one pair a line, and is ended if it takes
too long; the next pair starts another. It also ends when whoever started it does.

It takes math-verify and what that needs from ``PACKED`` if that lies beside ``after.pyz``, as it
does in a run folder: then no image's own math-verify, sympy or antlr4 decides a score. Only this
process sees them: the engine has those of its image.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import resource
import selectors
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

from beam_slurm.after.errors import Problem

# Seconds of its own computing for one comparison; an honest one takes milliseconds. What others
# compute meanwhile does not count: on a busy host right answers would become wrong ones.
LIMIT = 5.0
PATIENCE = 300.0  # seconds for any answer, and to import sympy, which from shared storage is slow
PACKED = "math-verify.zip"
MEMORY = 4 * 1024**3  # bytes of address space that a comparison may take


class Judge:
    """Compares answers; for any number of threads, one comparison at a time.

    Args:
        limit: seconds of its own computing that a comparison may take.
    """

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._version = ""
        atexit.register(self.close)

    def version(self) -> str:
        """The version of math-verify.

        Raises:
            Problem: it cannot be imported.
        """
        with self._lock:
            self._started()
            return self._version

    def same(self, gold: str, given: str) -> bool:
        """Whether ``given`` is the answer ``gold``; False if that cannot be told in time.

        Raises:
            Problem: math-verify cannot be imported.
        """
        with self._lock:
            process = self._started()
            told = _exchange(process, json.dumps([gold, given]), self._limit)
            if not told:
                self._end()
            return told == "true"

    def close(self) -> None:
        """End the process; the next question starts another."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *_packed()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            # The first pair is no question: the answer to it is the version.
            told = _exchange(self._process, "", PATIENCE)
            greeting = json.loads(told) if told else {"why": "it does not start"}
            if "version" not in greeting:
                self._end()
                raise Problem(
                    "answers cannot be checked here: math-verify does not work",
                    why=greeting["why"],
                    do="pip install 'beam-slurm[evaluate]' where evaluations are submitted: "
                    "jobs bring it along from there",
                )
            self._version = greeting["version"]
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _packed() -> list[str]:
    """``PACKED`` beside the archive that this runs from; none where it runs from files."""
    archive = getattr(__spec__.loader, "archive", None) if __spec__ else None
    beside = Path(archive).with_name(PACKED) if archive else None
    return [str(beside)] if beside and beside.is_file() else []


def _exchange(process: subprocess.Popen[bytes], line: str, limit: float) -> str:
    """The line that ``process`` says to ``line``; "" if it has died, or has computed for ``limit``
    seconds and said none."""
    assert process.stdin
    assert process.stdout
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
    until, began = time.monotonic() + PATIENCE, _computed(process.pid)
    told = b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while not told.endswith(b"\n"):
            left = min(limit - _computed(process.pid) + began, until - time.monotonic())
            if left <= 0:
                return ""
            if not ready.select(left):
                continue
            some = os.read(process.stdout.fileno(), 65536)
            if not some:
                return ""
            told += some
    return told.decode().strip()


def _computed(pid: int) -> float:
    """Seconds that a process has computed so far, to a hundredth; 0 of one that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()  # the program's name may hold anything, spaces too
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve() -> None:
    """The process: a pair a line in, ``true`` or ``false`` a line out; first, what it is.

    Its arguments are where it looks for math-verify before anywhere else.
    """
    sys.path[:0] = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing that a library prints is taken for an answer
    sys.stdin.readline()
    try:
        import math_verify  # noqa: F401

        print(json.dumps({"version": metadata.version("math-verify")}), file=answers)
    except Exception as error:
        print(json.dumps({"why": f"{type(error).__name__}: {error}"}), file=answers)
        return
    logging.disable()  # math-verify tells of each answer that it cannot read
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    for line in sys.stdin:
        print(json.dumps(same(*json.loads(line))), file=answers)


def same(gold: str, given: str) -> bool:
    """Whether ``given`` is the answer ``gold``, without a limit of time."""
    from math_verify import LatexExtractionConfig, parse, verify

    how = [LatexExtractionConfig(boxed_match_priority=0)]
    try:
        expected, found = (
            parse(rf"\boxed{{{text}}}", how, parsing_timeout=None) for text in (gold, given)
        )
        return bool(verify(expected, found, timeout_seconds=None))
    except Exception:  # of a model's text anything may come; what cannot be read is not right
        return False


if __name__ == "__main__":
    serve()
