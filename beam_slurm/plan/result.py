"""What a plan says: findings, figures, and how numbers are written in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing that a rule has to say.

    Attributes:
        severity: an error ends the run sooner or later; a warning costs time or results; a note
            is worth knowing.
        rule: the rule's name, for programs and tests.
        text: what is the matter, with the numbers.
        remedy: the way out; empty where there is nothing to do.
    """

    severity: Severity
    rule: str
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Figure:
    """One number that was worked out.

    Attributes:
        name: what it is.
        need: how much the run needs, in ``unit``.
        have: how much there is; None if nobody has said, or where nothing can run short.
        unit: GB and TB are 10^9 and 10^12 bytes.
        how: how ``need`` was computed, with what was assumed.
    """

    name: str
    need: float
    have: float | None
    unit: str
    how: str


@dataclass(frozen=True)
class Room:
    """What the caller measured. ``outputs_gb``: free on site.paths.outputs, in 10^9 bytes."""

    outputs_gb: float | None = None


@dataclass(frozen=True)
class Plan:
    """All findings, errors first, and all figures of one profile."""

    profile: str
    findings: tuple[Finding, ...]
    figures: tuple[Figure, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is known that must fail."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that must make the run fail."""
        return tuple(finding for finding in self.findings if finding.severity == "error")


Findings = Iterator[Finding]


def error(rule: str, text: str, remedy: str) -> Finding:
    """A finding that must make the run fail."""
    return Finding("error", rule, text, remedy)


def warning(rule: str, text: str, remedy: str) -> Finding:
    """A finding that costs time or results."""
    return Finding("warning", rule, text, remedy)


def note(rule: str, text: str, remedy: str = "") -> Finding:
    """A finding that is worth knowing."""
    return Finding("note", rule, text, remedy)


def size(count: float) -> str:
    """Bytes for people: "752 GB", "7.02 TB", "17.4 GB"."""
    unit, name = (1e12, "TB") if count >= 999.5e9 else (1e9, "GB")
    value = count / unit
    return f"{value:.0f} {name}" if value >= 100 else f"{value:.3g} {name}"


def count(number: int, noun: str) -> str:
    """ "1 node", "2 nodes"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def parts(named: dict[str, float]) -> str:
    """Bytes by name as one sum, without what is nothing: "weights 17.4 GB + state 752 GB"."""
    return " + ".join(f"{name} {size(count)}" for name, count in named.items() if count)
