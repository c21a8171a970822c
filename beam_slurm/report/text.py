"""Numbers, times and small plots as text, and the console that they go to."""

from __future__ import annotations

import io
import math
import re
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console

# What a terminal obeys instead of showing it: colours, movements, titles.
_SEQUENCES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
)

BARS = "▁▂▃▄▅▆▇█"
WIDE = 200  # columns where no terminal says how wide it is: pipes and files take long lines


def console(stderr: bool = False) -> Console:
    """A console: colours on terminals only (and NO_COLOR wins), no wrapping in pipes."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")  # an ASCII terminal gets ? instead of a crash
    # Host lists and log lines have brackets and colons of their own: no markup.
    width = None if stream.isatty() else WIDE
    return Console(highlight=False, markup=False, emoji=False, width=width, stderr=stderr)


def number(value: float | None, digits: int = 3) -> str:
    """A number with ``digits`` significant digits; "–" for what is not known."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    decimals = digits - 1 - (math.floor(math.log10(abs(value))) if value else 0)
    # Below a thousandth the exponent reads better than a row of zeros.
    return f"{value:.{min(decimals, digits)}f}" if decimals <= digits + 2 else f"{value:.1e}"


def count(number: int, noun: str) -> str:
    """How many there are of something: "1 point", "6 points"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def percent(value: float | None) -> str:
    """0 to 1 as per cent with one decimal."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{100 * value:.1f} %"


def duration(seconds: float | None) -> str:
    """Seconds in the two units that matter: 0.8 s, 48 s, 3 min 20 s, 2 h 05 min, 1 d 3 h."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def size(count: float) -> str:
    """Bytes in powers of ten: 512 B, 48 kB, 1.2 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{number(count) if unit != 'B' else int(count)} {unit}"
        count /= 1000
    return f"{number(count)} TB"


def date(epoch: float | None) -> str:
    """Local date and time to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(epoch)) if epoch else "–"


def clock(epoch: float) -> str:
    """Local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(epoch))


def sparkline(values: Sequence[float | None], width: int = 24) -> str:
    """A row of bars, lowest to highest value; of more than ``width`` values, means of groups."""
    found = [value for value in values if value is not None and math.isfinite(value)]
    if not found:
        return ""
    groups = min(width, len(found))
    edges = [len(found) * at // groups for at in range(groups + 1)]
    parts = [found[a:b] for a, b in pairwise(edges)]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    if high == low:
        return BARS[3] * groups
    return "".join(BARS[round((mean - low) / (high - low) * 7)] for mean in means)


def printable(words: object) -> str:
    """Anything as one line, as a terminal would show it in the end; nothing that it would obey."""
    line = str(words).encode("utf-8", "replace").decode()  # a name on disk need not be UTF-8
    line = _SEQUENCES.sub("", line)
    line = line.rstrip("\r").rpartition("\r")[2].expandtabs()  # a progress bar's last word
    return "".join(it if it.isprintable() else " " if it.isspace() else "" for it in line)


def safe(words: object) -> str:
    """Words of a record, line by line, with nothing that a terminal would obey."""
    # Of a progress bar only the end is printable; a record is shown as a whole.
    lines = str(words).replace("\r", " ").split("\n")
    return "\n".join(map(printable, lines))


def plot(values: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """Points (x, y) as ``height`` rows of braille, ``width`` characters each: 2 × 4 dots apiece."""
    dots = [[0] * width for _ in range(height)]
    (x0, x1), (y0, y1) = ((min(axis), max(axis)) for axis in zip(*values, strict=True))
    for x, y in values:
        column = round((x - x0) / (x1 - x0) * (2 * width - 1)) if x1 > x0 else 0
        row = round((y1 - y) / (y1 - y0) * (4 * height - 1)) if y1 > y0 else 2 * height
        dots[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
    return ["".join(chr(0x2800 + dot) for dot in line) for line in dots]


_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # Unicode's bits, row by column
