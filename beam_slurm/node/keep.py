"""Ray's session logs of this node, kept in one file on shared storage: the rest goes with the job.

This runs on every way out, also in the seconds between SIGTERM and SIGKILL. So it is bounded in
bytes and in time, takes the newest logs first, and whatever goes wrong is a word in its answer.
"""

import contextlib
import io
import os
import stat
import tarfile
import time
from typing import BinaryIO, Iterator, List, NamedTuple

from beam_slurm.node.mask import Mask

CHUNK = 1 << 18  # bytes between two looks at the clock
LATEST = "session_latest"


class Log(NamedTuple):
    """One file of Ray's."""

    path: str
    name: str  # below the session's logs
    changed: float  # epoch seconds


class Bounds(NamedTuple):
    """What an archive may take."""

    deadline: float  # monotonic seconds
    files: int
    most: int  # bytes, before compression
    each: int


class Overdue(Exception):
    """The time is up."""


def keep(  # noqa: PLR0913
    temp: str,
    target: str,
    mask: Mask,
    files: int = 2000,
    seconds: float = 10.0,
    most: int = 32 << 20,
    each: int = 1 << 20,
) -> str:
    """Pack ``temp``/ray/session_latest/logs into ``target`` (.tar.gz, 0600), whole or not at all.

    Args:
        temp: the job's folder on this node.
        target: on shared storage, in a folder that exists; replaced if it is there.
        mask: takes known secrets out of what is packed.
        files: how many files at most.
        seconds: after this the archive is closed with what it holds.
        most: bytes of all files together, before compression.
        each: bytes of one file; of a longer one the end is kept.

    Returns:
        What was left out and why, one line; "" if nothing was.
    """
    bounds = Bounds(time.monotonic() + seconds, files, most, each)
    part = target + ".part"
    try:
        logs = newest_first(os.path.join(temp, "ray"), bounds.deadline)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb", CHUNK) as file:
            left = _pack(file, os.path.basename(target).split(".tar")[0], logs, mask, bounds)
        os.replace(part, target)
        return left
    except Exception as problem:  # an end must not fail over its own record
        with contextlib.suppress(OSError):
            os.unlink(part)
        return "Ray's logs were not kept: %s" % (problem or type(problem).__name__)


def newest_first(ray: str, deadline: float) -> List[Log]:
    """The files of the latest session's logs below ``ray`` that are not empty; no links.

    Raises:
        OSError: there is no such folder.
        Overdue: they could not be listed until ``deadline`` (monotonic seconds).
    """
    logs = os.path.join(_session(ray), "logs")
    return sorted(_walk(logs, "", deadline), key=lambda log: (-log.changed, log.name))


def _session(ray: str) -> str:
    """The folder of the latest session: Ray's own link counts only for a folder beside it."""
    try:
        name = os.path.basename(os.readlink(os.path.join(ray, LATEST)))
    except OSError:  # Ray died before it made the link
        name = max((name for name in os.listdir(ray) if name.startswith("session_2")), default="")
    session = os.path.join(ray, name)
    if not name or not stat.S_ISDIR(os.lstat(session).st_mode):
        raise OSError("there is no session in %s" % ray)
    return session


def _walk(folder: str, within: str, deadline: float) -> Iterator[Log]:
    with os.scandir(folder) as entries:
        for entry in entries:
            _look_at_the_clock(deadline)
            name = os.path.join(within, entry.name)
            with contextlib.suppress(FileNotFoundError):  # Ray rotates them meanwhile
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(entry.path, name, deadline)
                elif entry.is_file(follow_symlinks=False):
                    about = entry.stat(follow_symlinks=False)
                    if about.st_size:  # every worker has an .err, and most stay empty
                        yield Log(entry.path, name, about.st_mtime)


def _pack(file: BinaryIO, root: str, logs: List[Log], mask: Mask, bounds: Bounds) -> str:
    """Write the archive; what was left out."""
    room, unread, kept = bounds.most, 0, 0
    why = ""
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for log in logs[: bounds.files]:
            if room <= 0:
                why = "%d bytes are full" % bounds.most
                break
            try:
                text = _end_of(log.path, min(bounds.each, room), mask.again(), bounds.deadline)
            except Overdue as problem:
                why = str(problem)
                break
            except OSError as problem:
                unread, why = unread + 1, str(problem)
                continue
            about = tarfile.TarInfo(os.path.join(root, log.name))
            about.size, about.mtime, about.mode = len(text), int(log.changed), 0o600
            archive.addfile(about, io.BytesIO(text))
            room, kept = room - len(text), kept + 1
    if kept == len(logs):
        return ""
    why = why or "more than %d" % bounds.files
    return "%d of %d of Ray's logs were left out: %s" % (len(logs) - kept, len(logs), why)


def _end_of(path: str, limit: int, mask: Mask, deadline: float) -> bytes:
    """The last ``limit`` bytes of a file, masked, behind a line that says how many were cut.

    Raises:
        OSError: it is no regular file or cannot be read.
        Overdue: at ``deadline``.
    """
    _look_at_the_clock(deadline)
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb", 0) as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError("%s is no regular file" % path)
        cut = max(about.st_size - limit, 0)
        # The cut may fall into a value: the mask must see where it begins.
        before = min(mask.longest, cut)
        file.seek(cut - before)
        mask.feed(file.read(before))
        parts = [b"[beam-slurm: %d bytes cut here]\n" % cut] if cut else []
        rest = about.st_size - cut
        while rest > 0:
            _look_at_the_clock(deadline)
            data = file.read(min(CHUNK, rest))
            if not data:
                break
            rest -= len(data)
            parts.append(mask.feed(data))
    return b"".join([*parts, mask.flush()])


def _look_at_the_clock(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise Overdue("the time was up")
