"""Where a run's time went: what its GPUs were held for, and how long it waited without them.

    created ── queue ──▶ preflight, Ray ─▶ entry: loads ─▶ steps ───────────▶ the end
               no GPUs   bring-up          load            training │ lost    rest

Of an attempt that did not succeed, the training after the checkpoint that the run went on from is
lost: it was done again, or is gone. So is the time in which it hung.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from beam_slurm.attempts import Attempt
from beam_slurm.report.facts import Facts
from beam_slurm.report.phases import BringUp

KINDS: Mapping[str, str] = {
    "training": "training: its evaluations and checkpoints are in it",
    "load": "load: from the entry's start to its first step",
    "bring-up": "bring-up: preflight, Ray, and the pause before a restart",
    "lost": "lost: training after the last checkpoint of an attempt that failed",
    "rest": "rest: from the entry's end to the attempt's",
    "spares": "spares: nodes of the job that did not train, for they were spare, unfit or blamed",
}


@dataclass(frozen=True)
class Spent:
    """Seconds in the queue, and GPU-hours by kind, see ``KINDS``; of one attempt, or of a run."""

    queue: float = 0.0
    hours: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """GPU-hours of all kinds."""
        return sum(self.hours.values())

    def __bool__(self) -> bool:
        return bool(self.queue or self.total)


def of(facts: Facts) -> Spent:
    """What the whole run has spent until now."""
    parts = by_attempt(facts)
    return Spent(
        sum(part.queue for part in parts),
        {kind: sum(part.hours.get(kind, 0.0) for part in parts) for kind in KINDS},
    )


def by_attempt(facts: Facts) -> list[Spent]:
    """What each attempt has spent; of a run that still waits for its first one, one of no hours."""
    found = []
    before = None
    for attempt, after in zip_longest(facts.attempts, facts.attempts[1:]):
        span = _Span.of(facts, attempt, before, after)
        found.append(span.spent(facts))
        before = span
    since = before.end if before else facts.run.created
    if facts.state.word == "pending" and since:
        found.append(Spent(queue=max(time.time() - since, 0.0)))
    return found


@dataclass(frozen=True)
class _Span:
    """One attempt's way in epoch seconds; what has not come about is where it ended."""

    attempt: Attempt
    queued: float  # when it began to wait, or as ``begin``
    begin: float
    entry: float
    train: float  # when its first step began
    kept: float  # the end of the last step that counts
    entry_end: float
    end: float

    @classmethod
    def of(
        cls, facts: Facts, attempt: Attempt, before: _Span | None, after: Attempt | None
    ) -> _Span:
        up = BringUp.of(attempt.events)
        steps = steps_of(facts, attempt)
        end = _end(facts, attempt, steps, after)
        inspected = up.inspected - (attempt.inspection or 0) if up.inspected else None
        begin = min((t for t in (inspected, up.batch, attempt.began) if t is not None), default=end)
        queued = begin
        if before and before.attempt.next.get("how") == "here":
            begin = before.end  # its job held the GPUs all the time
            queued = begin
        elif before:
            queued = before.end
        elif facts.manifest.get("executor") != "local":
            queued = facts.run.created or begin
        entry = up.entry or end
        first = next(iter(steps.items()), None)
        train = max(first[1] - _pace(facts, first[0]), entry) if first else end
        entry_end = min(up.entry_ended or end, end)
        kept = entry_end
        if _failed(facts, attempt, after):
            saved = _saved(facts, attempt, after)
            kept = max((t for step, t in steps.items() if step <= saved), default=train)
            entry_end = end  # that it hung, and that its end took long, is the failure's
        return cls(attempt, *_ascending(queued, begin, entry, train, kept, entry_end, end))

    def spent(self, facts: Facts) -> Spent:
        gpus = int(facts.manifest.get("gpus_per_node") or 0)
        nodes = int(facts.manifest.get("nodes") or 0)
        hour = gpus * nodes / 3600
        kinds = {
            "bring-up": (self.entry - self.begin) * hour,
            "load": (self.train - self.entry) * hour,
            "training": (self.kept - self.train) * hour,
            "lost": (self.entry_end - self.kept) * hour,
            "rest": (self.end - self.entry_end) * hour,
            "spares": (self.end - self.begin)
            * gpus
            * max(len(self.attempt.preflight) - nodes, 0)
            / 3600,
        }
        return Spent(self.begin - self.queued, {kind: kinds[kind] for kind in KINDS})


def _ascending(*times: float) -> list[float]:
    """The clocks of two hosts may disagree a little: no leg is shorter than nothing."""
    found: list[float] = []
    for moment in times:
        found.append(max([moment, *found[-1:]]))
    return found


def steps_of(facts: Facts, attempt: Attempt) -> dict[int, float]:
    """When each step of an attempt was done: by its events; without those, by its metrics."""
    told = {
        event["step"]: float(event["time"])
        for event in attempt.events
        if event.get("beam-slurm") == "step" and isinstance(event.get("step"), int)
    }
    began = attempt.began
    if told or began is None or facts.history is None:
        return told
    end = attempt.outcome.get("ended") or time.time()
    return {s.step: s.time for s in facts.history.steps if s.time and began <= s.time <= end}


def _end(
    facts: Facts, attempt: Attempt, steps: Mapping[int, float], after: Attempt | None
) -> float:
    """When an attempt ended: by its own word, else by the last sign of it."""
    if attempt.outcome.get("ended") is not None:
        return float(attempt.outcome["ended"])
    if after is None and facts.state.word in ("starting", "running"):
        return time.time()
    times = [
        event["time"] for event in attempt.events if isinstance(event.get("time"), int | float)
    ]
    return float(max([*times, *steps.values(), attempt.began or 0.0]))


def _pace(facts: Facts, step: int) -> float:
    """How long a step took; 0 if nobody has measured it."""
    steps = facts.history.steps if facts.history else []
    found = next((s.step_time or 0.0 for s in steps if s.step == step), 0.0)
    return found if math.isfinite(found) else 0.0


def _failed(facts: Facts, attempt: Attempt, after: Attempt | None) -> bool:
    """Whether work of an attempt may be lost: not while it goes on, nor where it succeeded."""
    if after is not None or attempt.next:
        return True
    return facts.state.ended and facts.state.word != "succeeded"


def _saved(facts: Facts, attempt: Attempt, after: Attempt | None) -> int:
    """The last step of an attempt that counts: the next one went on from it, or it was saved."""
    followed = steps_of(facts, after) if after else {}
    if followed:
        return min(followed) - 1
    if attempt.next:
        return int(attempt.next.get("resumes") or 0)
    if facts.history is not None and facts.history.checkpoints:
        return facts.history.checkpoints[-1].step
    # Not every framework says what it has saved; what the profile asks for is the best word left.
    recipe = facts.profile.get("recipe")
    rule = recipe.get("checkpoint") if isinstance(recipe, dict) else None
    if not isinstance(rule, dict) or not rule.get("enabled") or not rule.get("every"):
        return 0
    last = int((attempt.outcome.get("steps") or {}).get("last") or 0)
    return last - last % int(rule["every"])
