"""The attempts of a run in words: how each ended, how the run went on, what its nodes were like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from rich.table import Table

from beam_slurm.attempts import Attempt
from beam_slurm.report import text
from beam_slurm.report.facts import Facts
from beam_slurm.state import labelled

SHOWN = 6  # newest attempts
FEW = 3  # names of nodes that are worth the room
HOW = {
    "here": "restarted in its job",
    "requeue": "requeued",
    "slurm": "requeued by Slurm",
    "chain": "chained",
}
LOST = "left no outcome: its first node died, or Slurm requeued the job"


def endings(attempts: Sequence[Attempt]) -> Iterator[tuple[Attempt, str]]:
    """Each attempt after which the run went on, or is to go on, and that in one line."""
    followed = {before.number for before, _ in pairwise(attempts)}
    for attempt in attempts:
        if attempt.number not in followed and not attempt.next:
            continue
        name = f"attempt {attempt.number}"
        job = f" as job {attempt.next['job']}" if attempt.next.get("how") == "chain" else ""
        why = f": {attempt.next['why']}" if attempt.next.get("why") else ""
        goes_on = f"goes on in attempt {attempt.number + 1}{job}{why}"
        yield attempt, f"{name} {told(attempt) or LOST}; {goes_on}"


def told(attempt: Attempt) -> str:
    """How it ended, in its own words; "" if it has said nothing."""
    outcome = attempt.outcome
    if not outcome:
        return ""
    return f"{labelled(outcome['state'], outcome.get('class', ''))}: {outcome.get('cause')}"


def table(facts: Facts) -> Table:
    """The newest attempts: where and when, how it ended, what then, a line each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right")
    grid.add_column(overflow="fold")
    if earlier := len(facts.attempts[:-SHOWN]):
        where = f"{facts.run.path}/attempt-*/outcome.json"
        grid.add_row("…", f"{earlier} earlier one{'s' if earlier > 1 else ''}: {where}")
    for attempt in facts.attempts[-SHOWN:]:
        said = [_about(attempt), told(attempt) or silent(facts, attempt), then(attempt)]
        grid.add_row(str(attempt.number), "\n".join(filter(None, said)))
    return grid


def _about(attempt: Attempt) -> str:
    """Its job, nodes, time and steps, as far as they are known."""
    took, done = seconds(attempt), steps(attempt)
    facts = [
        f"job {attempt.job}" if attempt.job else "",
        f"on {nodes(attempt.chosen)}" if attempt.chosen else "",
        f"from {text.date(attempt.began)}" if attempt.began else "",
        text.duration(took) if took is not None else "",
        f"steps {done}" if done else "",
    ]
    return ", ".join(filter(None, facts))


def nodes(names: Sequence[str]) -> str:
    """A few names, or how many there are."""
    if len(names) > FEW:
        return f"{len(names)} nodes: {names[0]} … {names[-1]}"
    return " ".join(names)


def seconds(attempt: Attempt) -> float | None:
    """How long it took; None while it is under way, or if it never said."""
    ended = attempt.outcome.get("ended")
    return None if ended is None or attempt.began is None else float(ended) - attempt.began


def steps(attempt: Attempt) -> str:
    """The training steps that it did, "" if it did none."""
    done = attempt.outcome.get("steps") or {}
    if done.get("last") is None:
        return ""
    return f"{done.get('first')}–{done['last']}"


def then(attempt: Attempt) -> str:
    """How the run went on after it, or why it did not."""
    if attempt.next:
        how = HOW.get(attempt.next.get("how", ""), "goes on")
        if attempt.next.get("how") == "chain" and attempt.next.get("job"):
            how += f" as job {attempt.next['job']}"
        at = attempt.next.get("resumes")
        return f"{how}: {attempt.next.get('why')}" + (f", from step {at}" if at else "")
    stopped = attempt.outcome.get("stopped")
    return f"stopped: {stopped}" if stopped else ""


def remarks(attempt: Attempt) -> list[str]:
    """What preflight found that was not in order, one line for all nodes that share it."""
    found: dict[str, list[str]] = {}
    for node, checks in attempt.remarks().items():
        for check in checks:
            found.setdefault(_check(check), []).append(node)
    return [f"{nodes(names)}: {said}" for said, names in found.items()]


def as_json(attempt: Attempt) -> dict[str, Any]:
    """An attempt for machines."""
    outcome = attempt.outcome
    told = ("state", "class", "component", "node", "exit_code", "cause", "do", "ended", "steps")
    return {
        "number": attempt.number,
        "folder": str(attempt.path),
        "job": attempt.job,
        "restart": attempt.restart,
        "nodes": attempt.chosen,
        "began": attempt.began,
        **{name: outcome.get(name) for name in told},
        "blamed": outcome.get("blamed") or [],
        "next": attempt.next or None,
        "stopped": outcome.get("stopped") or None,
        "preflight": attempt.remarks(),
    }


def silent(facts: Facts, attempt: Attempt) -> str:
    """Of an attempt without outcome: it is lost, or goes on."""
    under_way = attempt is facts.attempt and facts.state.word in ("starting", "running")
    return facts.state.word if under_way else "lost"


def _check(check: dict[str, Any]) -> str:
    said = f"{check.get('name')} {check.get('verdict')}: have {check.get('have')}"
    need = f", need {check['need']}" if check.get("need") else ""
    return said + need + (f"; {check['do']}" if check.get("do") else "")
