"""JSON objects, one a line, and the numbers in them."""

from __future__ import annotations

import json
from typing import Any

MOST = 999_999_999
"""No step, and no count of responses, is higher; int() refuses thousands of digits."""


def read_json(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None for anything else."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def number(value: Any) -> float | None:
    """JSON's numbers, and Python's nan and inf; a huge integer is inf as it would be in C."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def integer(value: Any) -> int | None:
    """A whole number up to ``MOST``; None for anything else."""
    found = number(value)
    if found is None or not found.is_integer() or abs(found) > MOST:
        return None
    return int(found)
