"""One row of the table of causes."""

from typing import NamedTuple, Tuple

# A line of a lower rank counts before all lines of a higher one, wherever they stand: a rank that
# waits for one that ran out of memory says "NCCL" first.
CAUSE, EFFECT, VAGUE = range(3)


class Rule(NamedTuple):
    """One row: a sign, its class, and the next step."""

    cls: str
    rank: int
    sign: str  # for people
    patterns: Tuple[str, ...]  # regular expressions, searched in one line without its prefixes
    do: str
