"""``submit --wait``: stay with a run until it is over, and end with its exit code."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from beam_slurm import metrics, state
from beam_slurm.report import live, text
from beam_slurm.report.facts import Facts, next_steps
from beam_slurm.report.overview import label, measurements
from beam_slurm.report.phases import host_names
from beam_slurm.report.plain import Teller
from beam_slurm.runs import Run
from beam_slurm.state import State
from beam_slurm.waiting import Watch

PAUSE = 0.5  # seconds between two looks at the run's files

INTERRUPTED = 130


def watch(
    run: Run,
    console: Console,
    *,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Show the run until it is over: a live view on a terminal, lines elsewhere.

    Returns:
        0 if it succeeded, else its exit code, 1 if nobody knows that; 130 after Ctrl-C, which
        leaves the job alone.

    Raises:
        BeamSlurmError: Slurm has not answered for half an hour.
    """
    watcher = Watcher(run, clock)
    teller = Teller(run.id)
    try:
        with ExitStack() as stack:
            shown = None
            if console.is_terminal and not console.is_dumb_terminal:
                shown = stack.enter_context(Live(console=console, refresh_per_second=8))
                spinner = Spinner("dots", style="cyan")
            while True:
                facts = watcher.look()
                if shown:
                    note = watcher.note
                    frame = live.view(facts, watcher.nodes, time.time(), note, spinner)
                    shown.update(frame, refresh=True)
                else:
                    for line in teller.lines(facts, watcher.nodes, watcher.note):
                        console.print(Text(line), soft_wrap=True)
                        console.file.flush()
                if facts.state.ended:
                    break
                sleep(PAUSE)
    except KeyboardInterrupt:
        leave(run, console)
        return INTERRUPTED
    return end(facts, console)


class Watcher:
    """Gathers a run's facts again and again, reading only what is new of its metrics."""

    def __init__(self, run: Run, clock: Callable[[], float]) -> None:
        self.run = run
        self.nodes: list[str] = []  # the job's, once it has some
        self._expression = ""
        self._watch = Watch(run, clock)
        self._reader = metrics.reader(run)
        self._no_metrics = "" if self._reader else metrics.not_read(run)

    @property
    def note(self) -> str:
        """Why the state may be old, "" if it is not."""
        return self._watch.note

    def look(self) -> Facts:
        """The run now. The state comes first: files that it speaks of are there then.

        Raises:
            BeamSlurmError: Slurm has not answered for half an hour.
        """
        return self._gather(self._watch.state())

    def glance(self) -> Facts:
        """The run as its own files tell it, without waiting for Slurm's answer."""
        told = state.of_files(self.run.attempts)
        return self._gather(told or State("submitted", "Slurm is being asked"))

    def _gather(self, now: State) -> Facts:
        if now.job and now.job.nodes != self._expression:
            self._expression = now.job.nodes
            self.nodes = host_names(now.job.nodes)
        if self._reader:
            self._reader.read()
        return Facts(
            run=self.run,
            manifest=self.run.manifest,
            profile=self.run.profile,
            state=now,
            attempts=self.run.attempts,
            history=self._reader.history if self._reader else None,
            no_metrics=self._no_metrics,
        )


def leave(run: Run, console: Console, cancelled: str = "") -> None:
    """What can be done with a run that goes on, or, if it was cancelled, that it is ending."""
    console.print()
    console.print(Text(f"not waiting any longer; {cancelled or 'the run goes on.'}"))
    console.print(Text(f"look   beam-slurm status {run.id}"))
    if not cancelled:
        console.print(Text(f"end    beam-slurm cancel {run.id}"))


def end(facts: Facts, console: Console) -> int:
    """The outcome in one line, where to look if it is bad, and the exit code."""
    state = facts.state
    code = 0 if state.word == "succeeded" else state.exit_code or 1
    took = f" after {text.duration(facts.seconds)}" if facts.seconds is not None else ""
    line = Text.assemble(
        label(state), f": {state.why}" if state.why else "", f" (exit code {code}){took}"
    )
    console.print(line, soft_wrap=True)
    told = facts.last_words if code else {}
    for tail in told.get("lines") or []:
        console.print(Text(f"  | {tail}", "dim"), soft_wrap=True)
    for key, title in (("stopped", "stop"), ("do", "do  ")):
        if told.get(key):
            console.print(Text(f"{title}   {told[key]}"), soft_wrap=True)
    name = facts.run.id
    if code:
        for step in next_steps(facts)[:1]:
            console.print(Text(f"look   {step}"), soft_wrap=True)
    elif facts.task:
        for score, found in measurements(facts.run, state)[:1]:
            console.print(Text(f"score  {score} {found}"), soft_wrap=True)
        console.print(Text(f"output {facts.made}"), soft_wrap=True)
    elif facts.history:
        console.print(Text(f"draw   beam-slurm report {name}"), soft_wrap=True)
    console.file.flush()
    return code
