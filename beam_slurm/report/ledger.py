"""What ``runs list`` and ``runs prune`` show: many runs, from what is cheap to read of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from beam_slurm.records.prune import Candidate
from beam_slurm.report import text
from beam_slurm.report.overview import label
from beam_slurm.report.text import safe
from beam_slurm.runs import Run
from beam_slurm.state import State


def as_json(run: Run, state: State) -> dict[str, Any]:
    """One run for machines."""
    manifest = run.manifest
    return {
        "id": run.id,
        "folder": str(run.path),
        "moved_from": str(run.moved) if run.moved else None,
        "version": manifest.get("version", 1) if manifest else None,
        "problem": run.damage or None,
        **{name: manifest.get(name) for name in ("profile", "framework", "rerun_of")},
        "created": run.created,
        "state": state.word,
        "class": state.kind or None,
        "why": state.why,
        "job": run.job,
        "nodes": manifest.get("nodes"),
        "gpus_per_node": manifest.get("gpus_per_node"),
        "step": _step(run),
        "steps": manifest.get("steps"),
    }


def table(rows: Sequence[dict[str, Any]], states: Sequence[State]) -> Table:
    """One line a run."""
    grid = _grid("run", "profile", "state", "nodes × GPUs", "step", "created", "")
    for row, state in zip(rows, states, strict=True):
        grid.add_row(
            safe(row["id"]),
            safe(row["profile"] or "–"),
            label(state),
            safe(f"{row['nodes'] or '?'} × {row['gpus_per_node'] or '?'}"),
            safe(f"{row['step'] if row['step'] is not None else '–'}/{row['steps'] or '?'}"),
            text.date(row["created"]),
            safe(_note(row)),
        )
    return grid


def doomed(found: Sequence[Candidate], now: float) -> Table:
    """What would go and what stays, with why."""
    grid = _grid("run", "state", "ended", "free", "")
    for one in found:
        note = f"stays: {one.stays}" if one.stays else ""
        if one.outside and not one.stays:
            note = f"its output stays: {one.outside}"
        ago = f"{text.duration(now - one.ended)} ago" if one.state.ended else "–"
        freed = "–" if one.stays else text.size(one.size)
        grid.add_row(safe(one.run.id), label(one.state), ago, freed, safe(note))
    return grid


def _grid(*titles: str) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        right = title in ("nodes × GPUs", "step", "free")
        grid.add_column(title, justify="right" if right else "left", no_wrap=bool(title))
    return grid


def _note(row: dict[str, Any]) -> str:
    if row["problem"]:
        return "its manifest cannot be read"
    if row["moved_from"]:
        return f"moved here from {row['moved_from']}"
    return f"rerun of {row['rerun_of']}" if row["rerun_of"] else ""


def _step(run: Run) -> int | None:
    """The last step that an attempt has told of at its end; None before that."""
    told = [(attempt.outcome.get("steps") or {}).get("last") for attempt in run.attempts]
    return max((step for step in told if isinstance(step, int)), default=None)
