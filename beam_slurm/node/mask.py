"""Known secret values never reach a log: a stream of bytes goes through with ``***`` for each.

A framework may print what it was given (Miles prints its W&B key), and an error message may repeat
a request or an environment in another spelling. So each value is looked for as it is and as a URL,
JSON, base64, Python or a shell would write it.
"""

import base64
import copy
import json
import re
import shlex
import urllib.parse
from typing import Iterable, List, Mapping, Set, Tuple

STARS = b"***"
SHORTEST = 6  # characters; a shorter value stands in every other text by chance


def names_in(environ: Mapping[str, str], names: Iterable[str]) -> List[bytes]:
    """The values of the variables ``names``, as bytes; those not set are left out."""
    return [environ[name].encode(errors="surrogateescape") for name in names if environ.get(name)]


class Mask:
    """Replaces every occurrence of the given values in a stream.

    Occurrences that overlap become one ``***``, so of two values that begin alike the longer one is
    covered whole. One object masks one stream at a time; ``flush`` makes it ready for the next.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        forms = {form for value in values for form in _forms(value)}
        self.forms = sorted(forms, key=len, reverse=True)
        self.longest = len(self.forms[0]) if self.forms else 0
        self._held = b""
        self._covered = 0  # bytes at the start of what is held that an earlier *** stands for

    def feed(self, data: bytes) -> bytes:
        """What can be said of the stream so far.

        Held back is only the end that may be the beginning of a value.
        """
        return self._mask(data, last=False)

    def flush(self) -> bytes:
        """The rest, at the end of the stream."""
        return self._mask(b"", last=True)

    def again(self) -> "Mask":
        """The same values for another stream."""
        other = copy.copy(self)
        other._held, other._covered = b"", 0
        return other

    def whole(self, data: bytes) -> bytes:
        """A text that is no part of the stream."""
        other = self.again()
        return other.feed(data) + other.flush()

    def _mask(self, data: bytes, last: bool) -> bytes:
        data, covered = self._held + data, self._covered
        end = len(data) if last else len(data) - self._open(data)
        self._held, self._covered = data[end:], max(covered - end, 0)
        parts = []
        at = min(covered, end)
        for begin, stop in self._spans(data, covered):
            if begin < end and stop > covered:
                parts += [data[at:begin], STARS] if begin >= covered else []
                at = min(stop, end)
                self._covered = max(stop - end, 0)
        parts.append(data[at:end])
        return b"".join(parts)

    def _spans(self, data: bytes, covered: int) -> List[Tuple[int, int]]:
        """Where values are, in order, overlapping ones as one; what is covered already is one."""
        found = [(0, covered)] if covered else []
        for form in self.forms:
            at = data.find(form)
            while at >= 0:
                found.append((at, at + len(form)))
                at = data.find(form, at + 1)
        spans = []  # type: List[Tuple[int, int]]
        for begin, stop in sorted(found):
            if spans and begin < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
            else:
                spans.append((begin, stop))
        return spans

    def _open(self, data: bytes) -> int:
        """The length of the longest end of ``data`` that is the beginning of a value."""
        most = 0
        for form in self.forms:
            at = data.find(form[:1], max(len(data) - len(form) + 1, 0))
            while 0 <= at < len(data) - most:
                if form.startswith(data[at:]):
                    most = len(data) - at
                    break
                at = data.find(form[:1], at + 1)
        return most


def _forms(value: bytes) -> Set[bytes]:
    """The spellings of a value; none if it is too short."""
    bare = value.strip()
    text = bare.decode(errors="surrogateescape")
    if len(text) < SHORTEST:
        return set()
    quoted = [urllib.parse.quote(bare, safe=safe) for safe in ("", "/")]
    percents = [re.sub("%..", lambda part: part.group().lower(), word) for word in quoted]
    encoded = [base64.b64encode(bare), base64.urlsafe_b64encode(bare)]
    spelled = [
        text,
        *quoted,
        *percents,
        urllib.parse.quote_plus(bare),
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        repr(text)[1:-1],
        repr(bare)[2:-1],
        shlex.quote(text).strip("'"),
        text.replace("'", "'\\''"),
    ]
    found = {word.encode(errors="surrogateescape") for word in spelled}
    return found | set(encoded) | {word.rstrip(b"=") for word in encoded}
