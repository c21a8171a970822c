"""The few lines of a large file that matter, read as it grows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

CHUNK = 1024 * 1024  # bytes that are read at once
LONGEST = 64 * 1024  # bytes of a line that are looked at; what is beyond is passed over


class ReplacedError(Exception):
    """The file is another one than before, or has become shorter: what it said no longer holds."""


class Lines:
    """Follows one file, and gives its lines that hold one of a few words.

    A log has gigabytes and says something that matters every few megabytes. So nothing is done
    line by line: chunks are searched for the words, and what surrounds a hit is cut out. A line
    ends at a newline or, as progress bars have it, at a carriage return; one that has not ended yet
    waits for the next read. In memory are one chunk and the start of one line.

    The file is opened anew each time: over NFS only that shows what other hosts have written.
    """

    def __init__(self, path: Path, words: Sequence[bytes]) -> None:
        self.path = path
        self._words = words
        self._offset = 0
        self._inode = 0
        self._rest = b""  # the start of a line that has not ended

    def read(self) -> Iterator[bytes]:
        """The lines since the last call, without their ends. Never waits.

        Raises:
            ReplacedError: see there. Whoever gets it begins again with a new ``Lines``.
        """
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_size < self._offset or about.st_ino != self._inode != 0:
                    raise ReplacedError
                self._inode = about.st_ino
                file.seek(self._offset)
                while chunk := file.read(CHUNK):
                    self._offset += len(chunk)
                    yield from self._feed(chunk)
        except OSError:
            pass  # not there yet, or shared storage hiccups: the next read will tell

    def _feed(self, chunk: bytes) -> Iterator[bytes]:
        begin = _end(chunk, 0)
        if begin < 0:
            self._rest += chunk[: LONGEST - len(self._rest)]
            return
        first = self._rest + chunk[: min(begin, LONGEST - len(self._rest))]
        last = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        self._rest = chunk[last + 1 : last + 1 + LONGEST]
        if any(word in first for word in self._words):
            yield first
        # Lines by where they begin: the words are searched for one after the other.
        found: dict[int, int] = {}
        for word in self._words:
            at = chunk.find(word, begin + 1, last)
            while at >= 0:
                line = chunk.rfind(b"\n", begin, at)
                line = max(line, chunk.rfind(b"\r", max(line, begin), at)) + 1
                end = _end(chunk, at)
                found[line] = end
                at = chunk.find(word, end, last)
        for line in sorted(found):
            whole = found[line] - line <= LONGEST
            text = chunk[line : found[line] if whole else line + LONGEST]
            if whole or any(word in text for word in self._words):
                yield text


def _end(chunk: bytes, start: int) -> int:
    """Where the line ends that holds ``start``; -1 if it does not."""
    newline = chunk.find(b"\n", start)
    back = chunk.find(b"\r", start, newline if newline >= 0 else len(chunk))
    return back if back >= 0 else newline
