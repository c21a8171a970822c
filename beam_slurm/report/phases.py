"""A run's way from the queue to the training loop, read from an attempt's events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from beam_slurm import slurm
from beam_slurm.errors import BeamSlurmError

Event = dict[str, Any]


@dataclass(frozen=True)
class Phase:
    """One leg: ``began`` and ``ended`` are epoch seconds, ``ended`` None while it goes on."""

    name: str  # queue, preflight, nodes, ray, entry, run, end
    began: float
    ended: float | None
    note: str = ""

    @property
    def seconds(self) -> float | None:
        """How long it took; the clocks of two hosts may disagree a little, so never below 0."""
        return None if self.ended is None else max(round(self.ended - self.began, 3), 0.0)


@dataclass(frozen=True)
class BringUp:
    """What the events of one attempt say. Times are epoch seconds, None is "not yet"."""

    inspected: float | None = None  # when preflight had judged the nodes
    fit: tuple[str, ...] = ()
    unfit: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (node, the checks that it failed)
    batch: float | None = None
    head: str | None = None
    up: tuple[tuple[str, float], ...] = ()  # nodes that joined Ray, and when
    ray: float | None = None
    entry: float | None = None
    entry_ended: float | None = None
    ended: float | None = None
    failed: tuple[tuple[str, str], ...] = ()  # (node, why) in the order that they were told

    @classmethod
    def of(cls, events: Iterable[Event]) -> BringUp:
        """Read the events; their order does not matter, unknown ones are passed over."""
        first: dict[str, Event] = {}
        up: dict[str, float] = {}
        failed: dict[str, str] = {}
        for event in events:
            if not isinstance(event, dict) or not isinstance(event.get("time"), int | float):
                continue
            name = str(event.get("beam-slurm"))
            first.setdefault(name, event)
            if name == "node-up":
                up.setdefault(str(event.get("node")), event["time"])
            elif name == "node-failed":
                failed.setdefault(str(event.get("node")), str(event.get("why") or ""))
        times = {name: float(event["time"]) for name, event in first.items()}
        judged = first.get("preflight", {})
        return cls(
            inspected=times.get("preflight"),
            fit=tuple(judged.get("fit") or ()),
            unfit=tuple(
                (node, tuple(names)) for node, names in (judged.get("unfit") or {}).items()
            ),
            batch=times.get("batch-started"),
            head=first.get("batch-started", {}).get("node"),
            up=tuple(sorted(up.items(), key=lambda item: item[1])),
            ray=times.get("ray-up"),
            entry=times.get("entry-started"),
            entry_ended=times.get("entry-ended"),
            ended=times.get("ended"),
            failed=tuple(failed.items()),
        )

    @property
    def fitness(self) -> str:
        """How many nodes preflight has found fit; "" while it goes on."""
        return f"{len(self.fit)} of {len(self.fit) + len(self.unfit)}" if self.inspected else ""

    def phases(
        self, nodes: int, submitted: float | None = None, begun: float | None = None
    ) -> list[Phase]:
        """The legs that have begun, in order.

        Args:
            nodes: how many nodes the run has.
            submitted: when the run was submitted; None leaves the queue out (a later attempt).
            begun: when its nodes began to be inspected; None where nobody knows.
        """
        found = []
        begun = begun or self.inspected or self.batch
        if submitted is not None:
            found.append(Phase("queue", submitted, begun or self.ended))
        if begun is not None and (self.inspected or self.batch is None):
            note = f"{self.fitness} fit," if self.inspected else ""
            found.append(Phase("preflight", begun, self.inspected or self.batch, note))
        all_up = self.up[nodes - 1][1] if len(self.up) >= nodes else self.ray
        legs = [
            ("ray", all_up, self.ray),
            ("entry", self.ray, self.entry),
            ("run", self.entry, self.entry_ended),
            ("end", self.entry_ended, self.ended),
        ]
        if self.batch is not None:
            found.append(Phase("nodes", self.batch, all_up, f"{len(self.up)} of {nodes}"))
        found += [Phase(name, began, ended) for name, began, ended in legs if began is not None]
        # A leg that failed ends as well.
        if self.ended is not None and found and found[-1].ended is None:
            last = found.pop()
            found.append(Phase(last.name, last.began, self.ended, last.note))
        return found


def missing(up: Iterable[str], nodes: Iterable[str]) -> list[str]:
    """Nodes of the job that have not joined Ray."""
    there = set(up)
    return [name for name in nodes if name not in there]


def host_names(expression: str) -> list[str]:
    """Slurm's host list, one name each; [] if nobody here can expand it."""
    if not expression:
        return []
    try:
        return slurm.ask("scontrol", "show", "hostnames", expression).split()
    except BeamSlurmError:
        return []
