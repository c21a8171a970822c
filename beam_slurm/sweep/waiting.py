"""``sweep --wait``: stay until all is over, submit what had no room, stop what is hopeless."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from beam_slurm.errors import BeamSlurmError
from beam_slurm.report import text
from beam_slurm.sweep import ending, submission, view
from beam_slurm.sweep.folder import Folder
from beam_slurm.sweep.schema import Objective
from beam_slurm.sweep.states import Look, Observer
from beam_slurm.sweep.stopping import Judge

PAUSE = 5.0  # seconds between two looks, a call to the controller each
ROOM = 60.0  # seconds between two tries to submit what had no room
SHOWN = 25  # points on a terminal: those that run come first
INTERRUPTED = 130


def wait(of: Folder, console: Console, *, sleep: Callable[[float], object] = time.sleep) -> int:
    """Show the sweep until it is over: a live table on a terminal, lines elsewhere.

    Returns:
        0 if every point has succeeded or was stopped early, else the exit code of the first that
        has not, 1 if nobody knows that; 130 after Ctrl-C, which leaves the jobs alone.

    Raises:
        BeamSlurmError: a submission is refused, or Optuna is absent.
    """
    rule, wanted = of.early_stop, of.objective
    judge = Judge(rule, wanted) if rule and wanted else None
    observer, told = Observer(), dict[str, str]()
    tried = time.monotonic()
    try:
        with ExitStack() as stack:
            live = None
            if console.is_terminal and not console.is_dumb_terminal:
                live = stack.enter_context(Live(console=console, auto_refresh=False))
            while True:
                looks = observer.look(of)
                if live:
                    live.update(_frame(of, looks, wanted, observer.note), refresh=True)
                else:
                    _tell(console, looks, told)
                for look, why in judge.judge(looks) if judge else ():
                    _say(console, f"point {look.index}: {why}: {_stop(of, look, why)}")
                if all(look.facts.state.ended for look in looks):
                    break
                if _lacks(of) and time.monotonic() - tried > ROOM:
                    submission.submit(of)  # as far as there is room by now
                    tried = time.monotonic()
                sleep(PAUSE)
                of.reload()
    except KeyboardInterrupt:
        _say(console, "\nnot waiting any longer; the sweep goes on.")
        _say(console, f"look   beam-slurm status {of.id}")
        _say(console, f"end    beam-slurm cancel {of.id}")
        return INTERRUPTED
    if of.content.file is None and live is None:
        console.print(view.table(looks, wanted))  # the scores, which no line has told
    console.print(view.counts(of, looks))
    short = (it.facts.state for it in looks if not it.stopped)
    return next((state.exit_code or 1 for state in short if state.word != "succeeded"), 0)


def _lacks(of: Folder) -> bool:
    """Whether there are points to submit yet."""
    return bool(of.left() or of.undecided()) and not of.local and not of.content.cancelled


def _stop(of: Folder, look: Look, why: str) -> str:
    try:
        return ending.stop(of, look, why)
    except BeamSlurmError as error:  # it ends in this very moment, or Slurm is silent
        return f"not stopped, {error.what}"


def _frame(of: Folder, looks: Sequence[Look], wanted: Objective | None, note: str) -> Group:
    order = {"running": 0, "starting": 1, "failed": 2, "pending": 3}
    by_interest = sorted(looks, key=lambda look: order.get(look.facts.state.word, 4))
    shown = sorted(by_interest[:SHOWN], key=lambda look: look.index)
    more = len(looks) - len(shown)
    lines = [Text(f"and {more} more", "dim")] if more else []
    notes = [Text(note, "yellow")] if note else []
    return Group(view.head(of), view.counts(of, looks), view.table(shown, wanted), *lines, *notes)


def _tell(console: Console, looks: Sequence[Look], told: dict[str, str]) -> None:
    """A line for each point whose state is another one now."""
    for look in looks:
        state = look.facts.state
        before = told.get(look.entry.run, "pending")
        if state.word != before:
            why = f": {state.why}" if state.why and state.word != "succeeded" else ""
            last = look.facts.history.last if look.facts.history else None
            step = f" at step {last.step}" if last else ""
            _say(console, f"{text.clock(time.time())} {look.entry.run}: {state.word}{step}{why}")
        told[look.entry.run] = state.word
    console.file.flush()


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)
