"""The nodes of a run as the screen shows them: one sign each, and what is wrong with whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from beam_slurm.report import attempts
from beam_slurm.report.facts import Facts

SIGNS = {
    "joined": ("●", "green", "is part of Ray"),
    "warned": ("!", "yellow", "is part of Ray, and preflight warns of something"),
    "awaited": ("◌", "yellow", "has not joined Ray yet"),
    "spare": ("○", "dim", "is a spare"),
    "failed": ("✗", "bold red", "has failed"),
    "unfit": ("✗", "red", "is unfit: see below"),
    "blamed": ("✗", "dim red", "is left out: an earlier attempt blames it"),
    "unknown": ("·", "dim", "has not answered yet"),
}
"""What can be said of a node: its sign, the sign's style, and what that means."""

SAID = ("spare", "failed", "unfit", "blamed")  # worth a word beside the name


def names(facts: Facts, allocated: Sequence[str]) -> list[str]:
    """All nodes of the newest attempt: of the job, else those that have said something."""
    if not facts.attempt:
        return list(allocated)
    joined = [name for name, _ in facts.bring_up.up]
    return list(facts.attempt.preflight) or list(allocated) or joined


def verdict(facts: Facts, node: str) -> str:
    """What can be said of a node now: a key of SIGNS."""
    attempt = facts.attempt
    about = attempt.preflight.get(node, {}) if attempt else {}
    if node in dict(facts.bring_up.failed):
        return "failed"
    if about.get("use") in ("unfit", "blamed", "spare"):
        return str(about["use"])
    if node in dict(facts.bring_up.up):
        warned = any(check.get("verdict") == "warn" for check in about.get("checks") or [])
        return "warned" if warned else "joined"
    return "awaited" if facts.bring_up.batch else "unknown"


def grid(
    facts: Facts, known: Sequence[str], width: int, rows: int, followed: str | None
) -> list[Text]:
    """The nodes in ``rows`` lines at most: of many, those around the followed one."""
    cells = [_cell(facts, name, name == followed) for name in known]
    wide = max((cell.cell_len for cell in cells), default=0) + 3
    columns = max((width + 3) // wide, 1)
    room = columns * rows
    if len(cells) > room:  # some are given up for "and 112 more"
        room = max(room - -(-len(f"and {len(cells)} more") // wide), 1)
    first = known.index(followed) // room * room if followed in known else 0
    shown = cells[first : first + room]
    lines = [Text() for _ in range(-(-len(shown) // columns))]
    for at, cell in enumerate(shown):
        lines[at // columns].append_text(cell).append(" " * (wide - cell.cell_len))
    if hidden := len(cells) - len(shown):
        lines[-1].append(f"and {hidden} more", "dim")
    return lines


def problems(facts: Facts) -> Iterator[Text]:
    """What is wrong with whom, one line for all nodes that share it."""
    for node, why in facts.bring_up.failed:
        yield Text(f"✗ {node}: {why}", "red")
    for line in attempts.remarks(facts.attempt) if facts.attempt else ():
        yield Text(f"! {line}", "yellow")
    if facts.blamed:
        yield Text(f"blamed, and left out from now on: {attempts.nodes(facts.blamed)}", "yellow")


def _cell(facts: Facts, node: str, followed: bool) -> Text:
    what = verdict(facts, node)
    sign, style, _ = SIGNS[what]
    word = what if what in SAID else "head" if node == facts.bring_up.head else ""
    cell = Text.assemble((sign, style), " ", (node, "reverse" if followed else ""))
    return cell.append(f" {word}", "dim") if word else cell
