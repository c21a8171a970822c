"""One precondition as data: what is there, what is needed, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["pass", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One precondition.

    Attributes:
        name: two or three words, such as "GPU type".
        verdict: warn is a risk that this machine cannot decide about; fail stops the run.
        have: what was found.
        need: what the run wants; "" where ``have`` says all.
        remedy: what to do; "" only if it passes.
    """

    name: str
    verdict: Verdict
    have: str
    need: str = ""
    remedy: str = ""


def passed(name: str, have: str) -> Check:
    """A precondition that holds."""
    return Check(name, "pass", have)


def failed(checks: Iterable[Check]) -> list[Check]:
    """Those that stop the run."""
    return [check for check in checks if check.verdict == "fail"]
