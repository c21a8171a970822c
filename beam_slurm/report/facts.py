"""The facts of one run, gathered once: status, report, the figure and --wait show these."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from beam_slurm import attempts, metrics, slurm, state
from beam_slurm.attempts import Attempt
from beam_slurm.errors import BeamSlurmError
from beam_slurm.metrics import History, kept
from beam_slurm.node.checkpoint import EVALUATION
from beam_slurm.report import common
from beam_slurm.report.common import Scored
from beam_slurm.report.courses import step_seconds
from beam_slurm.report.phases import BringUp, Phase
from beam_slurm.runs import Run
from beam_slurm.state import State

RECENT = 10  # steps that the time left is estimated from


@dataclass(frozen=True)
class Facts:
    """Everything that is known of a run now.

    ``history`` is None where nobody here reads the framework's metrics; ``no_metrics`` says so.
    ``common`` are the evaluations of its checkpoints, its own if it is one; None where nobody has
    looked for them, see ``with_common``.
    """

    run: Run
    manifest: dict[str, Any]
    profile: dict[str, Any]  # the resolved profile as it was submitted
    state: State
    attempts: Sequence[Attempt]
    history: History | None
    no_metrics: str = ""
    common: Sequence[Scored] | None = None

    @property
    def evaluates(self) -> bool:
        """Whether it has not trained a model but scored one."""
        return self.manifest.get("framework") == EVALUATION

    @property
    def task(self) -> dict[str, Any]:
        """What it does with a checkpoint in place of training; {} if it trains."""
        found = self.manifest.get("task")
        return found if isinstance(found, dict) else {}

    @property
    def trained(self) -> str | None:
        """The run whose model it has scored or converted; None if nobody knows."""
        found = self.task.get("run")
        return found if isinstance(found, str) else None

    @property
    def attempt(self) -> Attempt | None:
        """The newest one."""
        return self.attempts[-1] if self.attempts else None

    @property
    def outcome(self) -> dict[str, Any]:
        """The newest attempt's; {} while there is none."""
        return self.attempt.outcome if self.attempt else {}

    @property
    def last_words(self) -> dict[str, Any]:
        """The outcome that tells the run's end; {} if there is none, or it was another's doing."""
        told = self.state.witnessed or self.state.word == "failed"
        return self.outcome if told else {}

    @cached_property
    def bring_up(self) -> BringUp:
        """The newest attempt's way up."""
        return BringUp.of(self.attempt.events if self.attempt else ())

    @property
    def job(self) -> str | None:
        """The job that counts now."""
        return attempts.job(self.attempts, self.manifest.get("job"))

    @property
    def followers(self) -> list[Run]:
        """What was submitted to follow this run, see ``submit --then``."""
        told = self.manifest.get("then")
        names = [name for name in told if isinstance(name, str)] if isinstance(told, list) else []
        return [Run(self.run.path.parent / name) for name in names]

    @property
    def blamed(self) -> list[str]:
        """Nodes that further attempts leave out."""
        return sorted({name for it in self.attempts for name in it.outcome.get("blamed") or []})

    def expected(self, nodes: Sequence[str]) -> list[str]:
        """The nodes that are to join Ray, of the job's ``nodes``; [] while its spares may be."""
        if self.attempt and self.attempt.chosen:
            return self.attempt.chosen
        return list(nodes) if len(nodes) == self.manifest.get("nodes") else []

    @property
    def made(self) -> Path:
        """The folder that a conversion or evaluation makes."""
        told = self.task.get("output")
        return self.run.here(told) if isinstance(told, str) else self.run.output

    @property
    def step(self) -> int | None:
        """The last step that is done; of an evaluation, how many responses are there.

        None where there is none, or nobody knows.
        """
        if not self.task:
            last = self.history.last if self.history else None
            return last.step if last else None
        if self.state.word == "succeeded":
            return self.manifest.get("steps")
        return max((it.step for it in self.attempts if it.step is not None), default=None)

    @property
    def steps(self) -> int | None:
        """How many steps the run will have: its own word, else the manifest's."""
        last = self.history.last if self.history else None
        return (last.steps if last else None) or self.manifest.get("steps")

    @property
    def gpus(self) -> int:
        """All GPUs of the run."""
        return int(self.manifest.get("nodes") or 0) * int(self.manifest.get("gpus_per_node") or 0)

    @property
    def size(self) -> str:
        """The run's nodes and GPUs, for people."""
        nodes, gpus = self.manifest.get("nodes", "?"), self.manifest.get("gpus_per_node", "?")
        return f"{nodes} node{'' if nodes == 1 else 's'} × {gpus} GPU{'' if gpus == 1 else 's'}"

    @property
    def seconds(self) -> float | None:
        """From the first attempt's start to the end, or to now while it goes on."""
        began = self.attempts[0].began if self.attempts else None
        if self.state.word in ("pending", "starting", "running"):
            ended: float | None = time.time()
        else:
            ended = self.outcome.get("ended") or self._heard()
        return (
            None
            if began is None or ended is None
            else max(round(float(ended) - float(began), 3), 0.0)
        )

    def _heard(self) -> float | None:
        """When it last said something: a step its time, else its log is the witness."""
        last = self.history.last if self.history else None
        if last and last.time is not None:
            return last.time
        try:
            return self.run.log.stat().st_mtime if last and self.run.log else None
        except OSError:
            return None

    def phases(self) -> list[Phase]:
        """The newest attempt's legs, or the one that has begun since it ended."""
        if self.outcome and not self.state.ended:
            waits = self.state.word == "pending"
            return [Phase("queue", float(self.outcome["ended"]), None)] if waits else []
        nodes = int(self.manifest.get("nodes") or 1)
        return self.bring_up.phases(nodes, self._queued(), self._begun())

    def _begun(self) -> float | None:
        """When the newest attempt, or the first one while it has no folder, began its preflight."""
        up, job = self.bring_up, self.state.job
        if up.inspected and self.attempt and self.attempt.inspection is not None:
            return up.inspected - self.attempt.inspection
        if up.inspected or up.batch:
            return None
        if self.outcome:
            return self.attempt.began if self.attempt else None
        before = self.attempts[-2] if len(self.attempts) > 1 else None
        if before and before.next.get("how") == "here":
            return float(before.outcome["ended"])
        return slurm.epoch(job.start) if job and not job.waits and job.nodes else None

    def _queued(self) -> float | None:
        """When the newest attempt began to wait in the queue; None if it did not."""
        if len(self.attempts) < 2:
            return self.run.created
        before = self.attempts[-2]
        waited = before.next.get("how") not in (None, "here")
        return float(before.outcome["ended"]) if waited else None


def gather(run: Run, state: State | None = None) -> Facts:
    """Read a run's files and ask Slurm, if ``state`` is not known already.

    Where Slurm does not answer, the run's own files must do: see ``state_of``.
    """
    state = state or state_of(run)
    reader, history = metrics.reader(run), None
    if reader and state.ended:
        history = kept.history(run, reader)
    elif reader:
        reader.read()
        history = reader.history
    return Facts(
        run=run,
        manifest=run.manifest,
        profile=run.profile,
        state=state,
        attempts=run.attempts,
        history=history,
        no_metrics="" if reader else metrics.not_read(run),
    )


def gather_all(found: Sequence[Run]) -> tuple[list[Facts], str]:
    """The facts of many runs, and what Slurm said if it did not answer, else ""."""
    known, problem = states(found)
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(gather, found, known)), problem


def with_common(found: Sequence[Facts], root: Path) -> list[Facts]:
    """The same, each with the common evaluations that there are of it; see ``common.find``."""
    scored = common.find([facts.run for facts in found], root)
    return [
        # What lies in the folder of an evaluation may be another one's: see ``common.result``.
        replace(facts, common=[] if facts.evaluates and facts.state.word != "succeeded" else its)
        for facts, its in zip(found, scored, strict=True)
    ]


def states(found: Sequence[Run]) -> tuple[list[State], str]:
    """The states of many runs, and what Slurm said if it did not answer, else "".

    Asks for a few at a time, and for no more once the controller has not answered.
    """
    problems: list[str] = []

    def one(run: Run) -> State:
        local = run.manifest.get("executor") == "local"
        state, problem = _state(run, ask=local or not problems)
        if problem:
            problems.append(problem)
        return state

    with ThreadPoolExecutor(max_workers=4) as pool:
        known = list(pool.map(one, found))
    return known, problems[0] if problems else ""


def state_of(run: Run) -> State:
    """The run's state; from its files alone if Slurm does not answer."""
    return _state(run, ask=True)[0]


def _state(run: Run, *, ask: bool) -> tuple[State, str]:
    """The state, and what Slurm said if it did not answer."""
    problem = ""
    if ask:
        try:
            return run.state(), ""
        except BeamSlurmError as error:
            # The last line of many is what they end in.
            problem = error.what + (f": {error.why.splitlines()[-1]}" if error.why else "")
    told = state.of_files(run.attempts)
    return told or State("unknown", problem or "Slurm does not answer"), problem


def moved(run: Run, ended: bool) -> list[str]:
    """That a run's folder is not where it was submitted, and who may not know; [] if it is."""
    before = run.moved
    if before is None:
        return []
    said = [f"it was submitted as {before}: the folder was moved, or is seen from elsewhere"]
    if not ended:
        who = ", ".join(f"job {name}" for name in run.jobs) or "its process"
        said.append(f"{who} is not over, and writes to {before} still")
    return said


def seconds_left(facts: Facts) -> float | None:
    """What the steps still to do will take, at the pace of the last ones."""
    last = facts.history.last if facts.history else None
    pace = step_seconds(facts.history, RECENT) if facts.history else None
    if not last or not facts.steps or pace is None:
        return None
    return max(facts.steps - last.step, 0) * pace


def blamed_node(facts: Facts) -> str | None:
    """The node that the run ended on, if it has a log of Ray's."""
    node = facts.last_words.get("node")
    log = facts.attempt.path / "ray" / f"{node}.log" if node and facts.attempt else None
    return str(node) if log and log.is_file() else None


def next_steps(facts: Facts) -> list[str]:
    """What the user can do now, as commands."""
    name, word = facts.run.id, facts.state.word
    if word in ("submitted", "pending"):
        wait = [f"squeue --start --jobs={facts.job}"] if facts.job else []
        return [*wait, f"beam-slurm logs {name} -f", f"beam-slurm cancel {name}"]
    if facts.state.job and facts.state.job.ended and not facts.state.ended:
        return [f"beam-slurm status {name}"]  # in a minute
    if word in ("starting", "running"):
        return [f"beam-slurm logs {name} -f", f"beam-slurm cancel {name}"]
    measured = facts.history and facts.history.last
    report = [f"beam-slurm report {name}"] if measured else []
    if word == "succeeded":
        return [*report, f"beam-slurm logs {name}"]
    node = blamed_node(facts)
    ray = [f"beam-slurm logs {name} --ray {node}"] if node else []
    lines = [f"beam-slurm logs {name} -n 50"] if facts.run.log else []
    if word == "unknown" and facts.job:
        lines.append(f"sacct --jobs={facts.job}")
    stuck = facts.last_words.get("component") == "watchdog"
    stacks = facts.attempt.stacks if stuck and facts.attempt else []
    dumps = [f"less {stacks[0].parent}/*.txt"] if stacks else []
    commands = [*dumps, *ray, *lines, *report]
    before = facts.manifest.get("follows")
    return commands or ([f"beam-slurm status {before}"] if before else [])
