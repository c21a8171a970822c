"""What ``submit --wait`` prints where no terminal is: one line for every change."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from beam_slurm.report import attempts, text
from beam_slurm.report.facts import Facts, seconds_left
from beam_slurm.report.live import fitness, queue, who
from beam_slurm.report.overview import progress

PARTS = 10  # of all steps: a line each


class Teller:
    """Remembers what it has said of one run, and says what is new."""

    def __init__(self, run_id: str) -> None:
        self._id = run_id
        self._said: dict[str, object] = {}

    def lines(self, facts: Facts, nodes: Sequence[str], note: str) -> Iterator[str]:
        """The lines that are new, each with the time of day in front."""
        for when, line in self._news(facts, nodes, note):
            yield f"{text.clock(when)}  {line}"

    def _new(self, key: str, value: object) -> bool:
        """Whether ``value`` differs from what was last said of ``key``."""
        if self._said.get(key) == value:
            return False
        self._said[key] = value
        return True

    def _news(self, facts: Facts, nodes: Sequence[str], note: str) -> Iterator[tuple[float, str]]:
        now = time.time()
        if self._new("note", note) and note:
            yield now, f"note: {note}"
        yield from self._attempts(facts)
        waiting = queue(facts)
        if self._new("queue", waiting) and waiting:
            again = f"attempt {facts.attempt.number + 1} of " if facts.attempt else ""
            yield now, f"{again}{self._id} is pending: {waiting}"
        yield from self._way_up(facts, nodes)
        yield from self._training(facts)
        why = facts.state.why if facts.state.word == "running" else ""
        if self._new("why", why) and why:
            yield now, why

    def _attempts(self, facts: Facts) -> Iterator[tuple[float, str]]:
        for attempt, line in attempts.endings(facts.attempts):
            if self._new(f"end of {attempt.number}", True):
                yield attempt.outcome.get("ended") or time.time(), line

    def _way_up(self, facts: Facts, nodes: Sequence[str]) -> Iterator[tuple[float, str]]:
        up = facts.bring_up
        name = facts.attempt.path.name if facts.attempt else ""
        legs = {phase.name: phase for phase in facts.phases()}
        queued, inspected = legs.get("queue"), legs.get("preflight")
        waited = queued.seconds if queued else None
        after = f" after {text.duration(waited)} in the queue" if waited is not None else ""
        if inspected and inspected.ended is None and self._new(f"{name} inspected", True):
            yield inspected.began, f"the nodes are inspected{after}"
        if up.inspected and self._new(f"{name} preflight", True):
            asked = facts.attempt.inspection if facts.attempt else None
            took = f", {text.duration(asked)}" if asked is not None else ""
            yield up.inspected, f"preflight: {fitness(facts, took)}"
        if up.batch and self._new(f"{name} batch", True):
            yield up.batch, f"the batch script has begun on {up.head}{after}"
        if up.up and self._new(f"{name} up", len(up.up)):
            yield up.up[-1][1], f"Ray: {who(facts, nodes)}"
        if up.ray and self._new(f"{name} ray", True):
            seconds = text.duration(up.ray - (up.batch or up.ray))
            yield up.ray, f"Ray is up: {facts.size}, {seconds} after the batch script began"
        if up.entry and self._new(f"{name} entry", True):
            about = f"; {facts.no_metrics}" if facts.no_metrics else ""
            yield up.entry, f"the entry has started{about}"
        for node, why in up.failed:
            if self._new(f"{name} failed {node}", True):
                yield time.time(), f"{node} failed: {why}"

    def _training(self, facts: Facts) -> Iterator[tuple[float, str]]:
        history = facts.history
        last = history.last if history else None
        done = facts.step if facts.evaluates else None
        if done and facts.steps and self._new("part", PARTS * done // facts.steps):
            yield time.time(), f"{progress(facts)} responses"
        if not history or not last:
            return
        for found in history.evaluations:
            if self._new(f"evaluation {found.set} {found.step}", found):
                scored = f"accuracy {text.percent(found.accuracy)} on {found.set}"
                yield found.time or time.time(), f"after step {found.step}: {scored}"
        part = PARTS * last.step // facts.steps if facts.steps else last.step // PARTS
        if self._new("part", part) or (facts.state.ended and self._said["step"] != last.step):
            self._said["step"] = last.step
            left = None if facts.state.ended else seconds_left(facts)
            about = f", about {text.duration(left)} left" if left else ""
            yield (
                last.time or time.time(),
                f"step {progress(facts)}, reward {text.number(last.reward)}, "
                f"{text.duration(last.step_time)} a step{about}",
            )
