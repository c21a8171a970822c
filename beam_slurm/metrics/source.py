"""Where a run's measurements come from: files in the order of time, and who understands them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from beam_slurm.metrics.history import History
from beam_slurm.metrics.lines import Lines, ReplacedError
from beam_slurm.metrics.schema import Record, Resumed
from beam_slurm.node.progress import COLOUR, RAY

# A number as Python and pprint print it, with its unit or inside tensor(...); not half of one.
NUMBER = (
    r"(?:[a-z][\w.]*\()?"
    r"([-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?(?![\d.])|(?:nan|inf(?:inity)?)(?=s?\b)))"
)

# A step's number. Nobody counts further, and int() refuses thousands of digits.
COUNT = r"(\d{1,9})(?!\d)"


class Parser:
    """Understands the lines of one kind of file, one after the other.

    ``words``: each line that it understands holds one of them. They should be rare in the file.
    """

    words: Sequence[bytes] = ()

    def parse(self, line: bytes) -> Iterable[Record]:
        """What a complete line says; nothing for any other line. Never raises."""
        raise NotImplementedError

    def late(self) -> Iterable[Record]:
        """What earlier lines have promised and is there only now."""
        return ()


class Source:
    """Files of one kind, read in order as they grow, and the history that they tell.

    Each ``read`` goes on where the last one ended. Files that are not there yet do no harm; if one
    has been replaced, all is read again.
    """

    def __init__(self, files: Callable[[], Sequence[Path]], parser: Callable[[], Parser]) -> None:
        self._files = files
        self._make = parser
        self._start()

    def read(self) -> bool:
        """Take in what is new; whether there was anything."""
        try:
            return self._read()
        except ReplacedError:
            self._start()
            return self.read()

    def _start(self) -> None:
        self.history = History()
        self._parser = self._make()
        self._lines: dict[Path, Lines] = {}

    def _read(self) -> bool:
        found = False
        for path in self._files():
            lines = self._lines.setdefault(path, Lines(path, self._parser.words))
            for line in lines.read():
                found |= self._add(self._parser.parse(line))
        return found | self._add(self._parser.late())

    def _add(self, records: Iterable[Record]) -> bool:
        found = False
        for record in records:
            self.history.add(record)
            found = True
        return found


class LogParser(Parser):
    """What all logs of a job have in common: Ray's prefixes, colours, and where an attempt begins.

    ``preflight`` says so in the log of every attempt but the first, whatever the framework says.
    """

    own: Sequence[bytes] = ()  # of the framework

    def __init__(self) -> None:
        self.words = (b"beam-slurm: ", *self.own)

    def parse(self, line: bytes) -> Iterator[Record]:
        """What a line says; see ``said``."""
        text = line.decode(errors="replace")
        text = (COLOUR.sub("", text) if "\x1b" in text else text).strip()
        if begins := _BEGINS.match(text):
            after = int(begins[1] or 0)
            yield Resumed(after)
            self.begins(after)
            return
        ray = RAY.match(text)
        yield from self.said(text[ray.end() :].lstrip() if ray else text)

    def begins(self, after: int) -> None:
        """The framework is started, to go on after ``after`` steps if it finds them too."""

    def said(self, text: str) -> Iterator[Record]:
        """What a line of the framework says, without colours and Ray's prefix."""
        raise NotImplementedError


_BEGINS = re.compile(
    rf"beam-slurm: (?:goes on after step {COUNT}: |"
    r"nothing was saved yet: it begins at the first step)"
)
