"""One attempt of a run: a pass of the batch script from top to bottom, read from its folder.

    attempt-<k>/
      preflight.json                the nodes as they were found, and which were chosen
      events.jsonl                  what happened
      ray/<node>.log                Ray's log; <node>.logs.tar.gz: all its session logs
      stacks/<node>.txt             where processes were when the run hung
      outcome.json                  how it ended, and how the run goes on

Attempts are numbered through over restarts in one job, requeues and chained jobs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

BAD = ("fail", "warn")  # verdicts of a preflight check that somebody should read
IN_USE = ("head", "runs")  # what preflight says of a node that trains


@dataclass(frozen=True)
class Attempt:
    """An attempt as it was when its outcome was read; {} is none yet."""

    path: Path
    outcome: dict[str, Any]

    @property
    def number(self) -> int:
        """0 is the first."""
        return int(self.path.name[8:])

    @property
    def next(self) -> dict[str, Any]:
        """How the run goes on after it: how, why, job, resumes; {} if it does not, or not yet."""
        return {} if self.undecided else self.outcome.get("next") or {}

    @property
    def undecided(self) -> bool:
        """Whether it has ended, and what follows has still to be found out."""
        return (self.outcome.get("next") or {}).get("how") == "undecided"

    @property
    def job(self) -> str | None:
        """The job that it ran in, as far as it has said so; of an array's task, ARRAY_INDEX."""
        found = self._fact("task") or self._fact("job")
        return str(found) if found else None

    @property
    def restart(self) -> int | None:
        """Slurm's restart count of its job then."""
        found = self._fact("restart")
        return int(found) if found is not None else None

    @property
    def began(self) -> float | None:
        """Epoch seconds."""
        began = self.outcome.get("began") or self._first("batch-started").get("time")
        return float(began) if began is not None else None

    @property
    def ended(self) -> dict[str, Any]:
        """Its last event, which follows its outcome; {} while there is none."""
        return self._first("ended")

    @property
    def started(self) -> bool:
        """Whether its nodes have been chosen, and Ray is started there."""
        return bool(self._first("batch-started"))

    @property
    def entry_started(self) -> bool:
        """Whether the training entry has been started."""
        return bool(self._first("entry-started"))

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """Its events, oldest first: see ``node.events``."""
        try:
            lines = (self.path / "events.jsonl").read_text().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line may be on its way
            if isinstance(event, dict):
                found.append(event)
        return found

    @property
    def step(self) -> int | None:
        """The last step that it has told of; None before the first."""
        told = [event.get("step") for event in self.events if event.get("beam-slurm") == "step"]
        return next((step for step in reversed(told) if isinstance(step, int)), None)

    @property
    def preflight(self) -> dict[str, dict[str, Any]]:
        """Every node of the job: what it is used for, and its checks; {} before that."""
        found = self._preflight.get("nodes")
        return found if isinstance(found, dict) else {}

    @property
    def chosen(self) -> list[str]:
        """The nodes that it runs on; [] if nobody has said so."""
        found = self.outcome.get("nodes")
        return found or [
            name
            for name, node in self.preflight.items()
            if node.get("chosen") or node.get("use") in IN_USE
        ]

    @property
    def inspection(self) -> float | None:
        """How many seconds its preflight took; None before its end."""
        found = self._preflight.get("seconds")
        return float(found) if isinstance(found, int | float) else None

    @property
    def stacks(self) -> list[Path]:
        """Where its processes were when it hung: a file a node."""
        return sorted((self.path / "stacks").glob("*.txt"))

    def remarks(self) -> dict[str, list[dict[str, Any]]]:
        """The checks of preflight that failed or warn, by node; nodes without any are absent."""
        found = {
            name: [check for check in node.get("checks") or [] if check.get("verdict") in BAD]
            for name, node in self.preflight.items()
        }
        return {name: checks for name, checks in found.items() if checks}

    @cached_property
    def _preflight(self) -> dict[str, Any]:
        return read_json(self.path / "preflight.json")

    def _fact(self, name: str) -> Any:
        return self.outcome.get(name, self._first("batch-started").get(name))

    def _first(self, name: str) -> dict[str, Any]:
        return next((event for event in self.events if event.get("beam-slurm") == name), {})


def read(run: Path) -> list[Attempt]:
    """The attempts of the run folder ``run``, in order."""
    found = [path for path in run.glob("attempt-*") if path.name[8:].isdigit()]
    found.sort(key=lambda path: int(path.name[8:]))
    return [_read(path) for path in found]


def _read(path: Path) -> Attempt:
    attempt = Attempt(path, read_json(path / "outcome.json"))
    return attempt if attempt.outcome else Attempt(path, _seen_early(attempt))


def _seen_early(attempt: Attempt) -> dict[str, Any]:
    """The outcome of a success that is not to be seen yet; {} if there is no such thing.

    For a minute an NFS client may go on believing that a file is absent which it has asked for
    before, but it opens one that it knows as the server has it: the event is there earlier. Of
    another end the outcome alone says what it was and whether the run goes on.
    """
    ended = attempt.ended
    if not ended or ended.get("code") != 0:
        return {}
    cause = "the entry finished"
    return {"state": "succeeded", "exit_code": 0, "cause": cause, "ended": ended["time"]}


def job(attempts: Sequence[Attempt], first: str | None) -> str | None:
    """The job that counts now: the chained one, else that of the newest attempt, else ``first``."""
    for attempt in reversed(attempts):
        if found := attempt.next.get("job") or attempt.job:
            return str(found)
    return first


def jobs(attempts: Sequence[Attempt], first: str | None) -> list[str]:
    """All jobs of a run, each once, in the order of its attempts."""
    found = [first]
    for attempt in attempts:
        found += [attempt.job, attempt.next.get("job")]
    return list(dict.fromkeys(str(name) for name in found if name))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; {} if there is none, or not yet a whole one."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
