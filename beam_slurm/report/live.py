"""What ``submit --wait`` shows on a terminal while it waits: the way up, then the training."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from beam_slurm.metrics import History, Step
from beam_slurm.report import attempts, text
from beam_slurm.report.courses import step_seconds
from beam_slurm.report.facts import RECENT, Facts, seconds_left
from beam_slurm.report.overview import job_of, progress, word
from beam_slurm.report.phases import Phase, missing

WHAT = {
    "queue": "in the queue",
    "preflight": "nodes are inspected",
    "nodes": "nodes join Ray",
    "ray": "Ray is complete",
    "entry": "entry starts",
    "run": "training",
    "end": "ends",
}
FEW = 6  # names of nodes that are worth the room


def view(
    facts: Facts, nodes: Sequence[str], now: float, note: str, spinner: Spinner
) -> RenderableType:
    """The run as it is now.

    Args:
        facts: the run.
        nodes: names of the job's nodes, [] if not known.
        now: epoch seconds.
        note: why this may be old, "" if it is not.
        spinner: turns beside the leg that goes on; the same one every time.
    """
    profile = str(facts.manifest.get("profile", ""))
    about = f"  {profile} · {facts.size} · job {job_of(facts)}  "
    parts: list[RenderableType] = [
        Text.assemble((facts.run.id, "bold"), (about, "dim"), word(facts.state))
    ]
    if facts.state.word == "running" and facts.state.why:
        parts.append(Text(facts.state.why, "yellow"))
    for _, line in list(attempts.endings(facts.attempts))[-attempts.SHOWN :]:
        parts.append(Text(f"✗ {line}", "yellow"))
    parts.append(legs(facts, nodes, now, spinner))
    if facts.step is not None:
        parts.append(bar(facts))
    if facts.history and facts.history.last:
        parts.append(_numbers(facts.history, facts.history.last))
    if not (facts.attempt and facts.attempt.next):  # else its line above says it
        parts += [Text(f"✗ {node}: {why}", "red") for node, why in facts.bring_up.failed]
    if note:
        parts.append(Text(f"note: {note}", "yellow"))
    return Group(*parts)


def legs(facts: Facts, nodes: Sequence[str], now: float, turning: RenderableType) -> Table:
    """The way up, a line a leg; ``turning`` stands beside the one that goes on."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=1)
    grid.add_column(min_width=16)
    grid.add_column(justify="right", min_width=11)
    grid.add_column(style="dim")
    for phase in facts.phases():
        sign = turning if phase.ended is None else Text("✓", "green")
        seconds = now - phase.began if phase.seconds is None else phase.seconds
        remark = Text(_remark(facts, phase, nodes))
        grid.add_row(sign, WHAT[phase.name], text.duration(seconds), remark)
    return grid


def queue(facts: Facts) -> str:
    """Why the job waits and when it may start."""
    job = facts.state.job
    if not job or not job.waits:
        return ""
    start = f", may start {job.start.replace('T', ' ')}" if job.start else ""
    return f"{job.reason or 'Slurm has not said why'}{start}"


def who(facts: Facts, nodes: Sequence[str]) -> str:
    """How many nodes have joined Ray, and who has not."""
    up = dict(facts.bring_up.up)
    absent = missing(up, facts.expected(nodes))
    more = f" and {len(absent) - FEW} more" if len(absent) > FEW else ""
    names = f", missing: {', '.join(absent[:FEW])}{more}" if absent else ""
    return f"{len(up)} of {facts.manifest.get('nodes', '?')} nodes{names}"


def fitness(facts: Facts, took: str = "") -> str:
    """How many nodes are fit, who is not and why; "" before that is known."""
    up = facts.bring_up
    if not up.inspected:
        return ""
    unfit = [f"{node} ({', '.join(checks)})" for node, checks in up.unfit]
    more = f" and {len(unfit) - FEW} more" if len(unfit) > FEW else ""
    names = f"; unfit: {', '.join(unfit[:FEW])}{more}" if unfit else ""
    return f"{up.fitness} nodes are fit{took}{names}"


def _remark(facts: Facts, phase: Phase, nodes: Sequence[str]) -> str:
    if phase.name == "queue" and phase.ended is None:
        return queue(facts)
    if phase.name == "preflight":
        return fitness(facts)
    if phase.name == "nodes":
        return phase.note if phase.ended is not None else who(facts, nodes)
    if phase.name == "ray" and phase.ended is not None:
        return f"{facts.gpus} GPUs"
    return facts.no_metrics if phase.name == "run" else ""


def bar(facts: Facts, width: int = 32) -> Table:
    """How far it has come, at what pace, and how long the rest will take; needs a step."""
    assert facts.step is not None
    left = seconds_left(facts)
    pace = step_seconds(facts.history, RECENT) if facts.history else None
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        ProgressBar(
            total=facts.steps or facts.step,
            completed=facts.step,
            width=width,
            complete_style="cyan",
            finished_style="green",
        ),
        Text(progress(facts), "bold"),
        f"{text.duration(pace)} a step" if pace is not None else "",
        f"{text.duration(left)} left" if left is not None and not facts.state.ended else "",
    )
    return grid


def _numbers(history: History, last: Step) -> Table:
    line = text.sparkline([step.reward for step in history.steps], 32)
    found = history.evaluation
    scored = (
        f"accuracy {text.percent(found.accuracy)} on {found.set} after step {found.step}"
        if found
        else ""
    )
    numbers = Table.grid(padding=(0, 2))
    numbers.add_row(Text(line, "cyan"), f"reward {text.number(last.reward)}", Text(scored))
    return numbers
