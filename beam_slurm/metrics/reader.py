"""Follows what a run measures: its logs, and the files that its framework leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from beam_slurm.metrics.demo import DemoParser
from beam_slurm.metrics.history import History
from beam_slurm.metrics.known import Known
from beam_slurm.metrics.miles import EVENTS, EventsParser, MilesParser
from beam_slurm.metrics.nemo_rl import NemoRLParser
from beam_slurm.metrics.skyrl import EXPORTS, SkyRLParser
from beam_slurm.metrics.source import Source
from beam_slurm.runs import Run


class Reader(Protocol):
    """Follows what a run measures, while it runs or afterwards."""

    @property
    def history(self) -> History:
        """All that was read."""

    def read(self) -> bool:
        """Take in what is new since the last call; whether there was anything. Never waits."""


class MilesReader:
    """The log says which steps there are; the events, where they are dumped, say more of them.

    Each process has a file of events. None of them knows what the others have done, and after a
    resume it may be a while before one writes again.
    """

    def __init__(self, run: Run, known: Known) -> None:
        self._known = known
        self._folder = known.output / EVENTS
        self._log = Source(lambda: run.logs, lambda: MilesParser(known))
        self._events: dict[Path, Source] = {}
        self.history = History()

    def read(self) -> bool:
        """Take in what is new."""
        for path in sorted(self._folder.glob("*.jsonl")):
            if path not in self._events:
                self._events[path] = self._source(path)
        # The log first: what the events say of its newest step is there then.
        found = [source.read() for source in (self._log, *self._events.values())]
        if any(found):
            self.history = self._log.history
            for path in sorted(self._events):
                self.history = self.history.refined(self._events[path].history)
        return any(found)

    def _source(self, path: Path) -> Source:
        return Source(lambda: [path], lambda: EventsParser(self._known))


def reader(run: Run) -> Reader | None:
    """The reader of a run; None if this version knows no framework of that name.

    Callers that get None say so to the user: see ``not_read``.
    """
    known = Known.of(run)
    framework = run.manifest.get("framework")
    if framework == "nemo-rl":
        return Source(lambda: run.logs, lambda: NemoRLParser(known))
    if framework == "skyrl":
        return Source(lambda: run.logs, lambda: SkyRLParser(known))
    if framework == "miles":
        return MilesReader(run, known)
    if framework == "demo":
        path = known.output / "metrics.jsonl"
        return Source(lambda: [path], lambda: DemoParser(known.gpus))
    return None


def sources(run: Run) -> list[Path]:
    """All files that a reader, of whatever framework, may read of a run."""
    evaluations = run.output / EXPORTS / "dumped_evals"
    return [
        *run.logs,
        run.output / "metrics.jsonl",
        *sorted((run.output / EVENTS).glob("*.jsonl")),
        *sorted(evaluations.glob("*/aggregated_results.jsonl")),
    ]


def not_read(run: Run) -> str:
    """What to tell the user when ``reader`` has none for a run."""
    if "task" in run.manifest:
        return "no training, so there is no course of metrics; its lines: beam-slurm logs"
    return (
        f"this version of beam-slurm reads no metrics of {run.manifest.get('framework')} runs; "
        f"its own logs are in {run.output} and in beam-slurm logs"
    )
