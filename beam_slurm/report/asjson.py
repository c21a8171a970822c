"""The facts of a run for machines: what ``status --json`` and ``report --json`` print."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from beam_slurm.report import attempts, common, hours
from beam_slurm.report.courses import courses, step_seconds
from beam_slurm.report.facts import Facts, next_steps, seconds_left


def as_json(facts: Facts) -> dict[str, Any]:
    """The facts as plain values; nan and inf become null, for JSON has none."""
    history, state, spent = facts.history, facts.state, hours.of(facts)
    last = history.last if history else None
    measured: dict[str, Any] | None = None
    if history is not None:
        measured = {
            "step": last.step if last else None,
            "last": asdict(last) if last else None,
            "evaluation": asdict(history.evaluation) if history.evaluation else None,
            "courses": {
                name: asdict(found) for name, found in courses(history).items() if found is not None
            },
            "step_time_median": step_seconds(history),
            "seconds_left": None if state.ended else seconds_left(facts),
            "checkpoints": [asdict(checkpoint) for checkpoint in history.checkpoints],
        }
    found = {
        "id": facts.run.id,
        "folder": str(facts.run.path),
        **{
            name: facts.manifest.get(name)
            for name in ("profile", "framework", "executor", "nodes", "gpus_per_node")
        },
        "task": facts.task or None,
        "then": [run.id for run in facts.followers],
        "created": facts.run.created,
        "step": facts.step,
        "steps": facts.steps,
        "state": state.word,
        "why": state.why,
        "class": state.kind or None,
        "exit_code": state.exit_code,
        "do": facts.last_words.get("do") or None,
        "stopped": facts.last_words.get("stopped") or None,
        "job": asdict(state.job) if state.job else {"id": facts.job},
        "attempt": facts.attempt.path.name if facts.attempt else None,
        "attempts": [attempts.as_json(attempt) for attempt in facts.attempts],
        "blamed": facts.blamed,
        "seconds": facts.seconds,
        "phases": [
            {"name": p.name, "began": p.began, "seconds": p.seconds} for p in facts.phases()
        ],
        "gpu_hours": dict(spent.hours),
        "queue_seconds": spent.queue,
        "nodes_up": [name for name, _ in facts.bring_up.up],
        "metrics": measured,
        **({} if facts.common is None else {"common": list(map(common.as_json, facts.common))}),
        "no_metrics": facts.no_metrics or None,
        "outcome": facts.outcome or None,
        "log": str(facts.run.log) if facts.run.log else None,
        "next": next_steps(facts),
    }
    clean = _finite(found)
    assert isinstance(clean, dict)
    return clean


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
