"""What ``status`` shows: all runs as a table, one run in detail."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from beam_slurm.report import attempts, common, text
from beam_slurm.report.courses import step_seconds
from beam_slurm.report.facts import Facts, moved, next_steps, seconds_left, states
from beam_slurm.report.phases import missing
from beam_slurm.runs import Run
from beam_slurm.state import State

COLOURS = {
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "yellow",
    "pending": "yellow",
    "starting": "cyan",
    "running": "cyan",
    "unknown": "magenta",
}


def word(state: State) -> Text:
    """The state's word in its colour."""
    return Text(state.word, COLOURS.get(state.word, ""))


def label(state: State) -> Text:
    """The word, and the class of a failure."""
    return Text(text.safe(state.label), COLOURS.get(state.word, ""))


def table(found: Sequence[Facts]) -> Table:
    """One line a run; ``then`` is how many follow it."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    again = any(len(facts.attempts) > 1 for facts in found)
    titles = ["run", "profile", "state", "job", "nodes", "step", "reward", "created"]
    if again:
        titles.insert(4, "attempt")
    then = any(facts.followers for facts in found)
    titles += ["then"] if then else []
    for title in titles:
        right = title in ("job", "attempt", "nodes", "step", "reward", "then")
        grid.add_column(title, justify="right" if right else "left", no_wrap=True)
    for facts in found:
        last = facts.history.last if facts.history else None
        # Where nothing reads the metrics, "?" says that the run may well have some.
        none = "–" if facts.history is not None or facts.task else "?"
        grid.add_row(
            text.safe(facts.run.id),
            text.safe(facts.manifest.get("profile", "–")),
            label(facts.state),
            text.safe(job_of(facts)),
            *([str(facts.attempt.number if facts.attempt else "–")] if again else []),
            text.safe(facts.manifest.get("nodes", "–")),
            text.safe(progress(facts, none)),
            text.number(last.reward) if last else none,
            text.date(facts.run.created),
            *([str(len(facts.followers) or "")] if then else []),
        )
    return grid


def detail(facts: Facts, nodes: Sequence[str] = ()) -> RenderableType:
    """One run: where it is, how it got there, what it measured, what to do next.

    Args:
        facts: the run.
        nodes: names of the job's nodes, to say who is missing while they come up.
    """
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _rows(facts, nodes):
        grid.add_row(name, text.safe(value) if isinstance(value, str) else value)
    head = Text.assemble((text.safe(facts.run.id), "bold"), "  ", label(facts.state))
    if facts.state.word in ("starting", "running") and facts.attempt and facts.attempt.number:
        head.append(f" in attempt {facts.attempt.number}")
    if facts.state.why:
        head.append(f"  {text.safe(facts.state.why)}")
    return Group(head, grid)


def progress(facts: Facts, none: str = "–") -> str:
    """How many of its steps are done; ``none`` where nobody knows of any."""
    return f"{none if facts.step is None else facts.step}/{facts.steps or '?'}"


def job_of(facts: Facts) -> str:
    """The id of the job that counts now, or the process of a run without Slurm."""
    if facts.manifest.get("executor") == "local":
        pid = facts.manifest.get("pid")
        return f"pid {pid}" if pid else "–"
    return facts.job or "–"


def _rows(facts: Facts, nodes: Sequence[str]) -> list[tuple[str, RenderableType]]:
    rows: list[tuple[str, RenderableType]] = [
        ("profile", f"{facts.manifest.get('profile', '–')} ({facts.manifest.get('framework')})"),
        ("size", facts.size),
        ("created", text.date(facts.run.created)),
        ("job", job_of(facts)),
        *_task(facts),
    ]
    job = facts.state.job
    if job and job.waits:
        rows.append(("waits for", job.reason or "Slurm has not said yet"))
        rows.append(("may start", job.start.replace("T", " ") or "Slurm has no estimate yet"))
    elif job and job.nodes:
        rows.append(("on", job.nodes))
    absent = missing(dict(facts.bring_up.up), facts.expected(nodes))
    if facts.state.word == "starting" and facts.bring_up.batch and not facts.outcome and absent:
        rows.append(("missing", ", ".join(absent)))
    if shown := phases(facts):
        rows.append(("phases", shown))
    rows += _attempts(facts)
    rows += _measured(facts)
    rows += outcome(facts)
    rows += _followers(facts.followers)
    rows.append(("folder", str(facts.run.path)))
    rows += [("moved", said) for said in moved(facts.run, facts.state.ended)]
    if facts.run.log:
        rows.append(("log", str(facts.run.log)))
    if commands := next_steps(facts):
        rows.append(("next", "\n".join(commands)))
    return rows


def _task(facts: Facts) -> list[tuple[str, RenderableType]]:
    """What is converted or scored, and where that goes; nothing of a run that trains."""
    task = facts.task
    if not task:
        return []
    step = f", step {task['step']}" if task.get("step") is not None else ""
    of = f" of {facts.trained}{step}" if facts.trained else ""
    return [("checkpoint", f"{task.get('checkpoint')}{of}"), ("output", str(facts.made))]


def _followers(runs: Sequence[Run]) -> list[tuple[str, RenderableType]]:
    """The jobs that wait for the run, or have followed it: of which step, how they stand, and the
    score of an evaluation."""
    rows: list[tuple[str, RenderableType]] = []
    for run, found in zip(runs, states(runs)[0], strict=True):
        task = run.manifest.get("task")
        step = task.get("step") if isinstance(task, dict) else None
        of = "" if step is None else f"step {text.safe(step)}  "
        why = f": {text.safe(found.why)}" if found.why and found.word != "succeeded" else ""
        score = "".join(f"  {name} {told}" for name, told in measurements(run, found)[:1])
        rows.append(("then", Text.assemble(f"{text.safe(run.id)}  {of}", label(found), why, score)))
    return rows


def phases(facts: Facts) -> Text:
    """One leg after the other with its duration; the one that goes on ends in "…"."""
    shown = Text()
    for phase in facts.phases():
        if shown:
            shown.append(" → ", "dim")
        shown.append(phase.name)
        if phase.note and (phase.name, phase.note[:2]) != ("nodes", "0 "):
            shown.append(f" {phase.note}")
        time = " …" if phase.seconds is None else f" {text.duration(phase.seconds)}"
        shown.append(time, "bold" if phase.seconds is not None else "cyan")
    return shown


def measurements(run: Run, state: State) -> list[tuple[str, str]]:
    """What an evaluation has found, score by score; nothing of a conversion, and none too early."""
    scored = common.result(run, state)
    return [
        (name, f"{value}  95 % interval {interval}" if interval else value)
        for name, value, interval in (common.rows(scored) if scored else ())
    ]


def _measured(facts: Facts) -> list[tuple[str, RenderableType]]:
    history = facts.history
    if "task" in facts.manifest:
        done = [] if facts.step is None or not facts.evaluates else [("responses", progress(facts))]
        return [*done, *measurements(facts.run, facts.state)]
    if history is None:
        return [("metrics", facts.no_metrics)]
    rows: list[tuple[str, RenderableType]] = []
    if last := history.last:
        pace = f"{text.duration(step_seconds(history, 10))} a step"
        left = None if facts.state.ended else seconds_left(facts)
        about = "" if left is None else f", about {text.duration(left)} left"
        rows.append(("step", f"{progress(facts)}, {pace}{about}"))
        line = text.sparkline([step.reward for step in history.steps])
        rows.append(("reward", Text.assemble(f"{text.number(last.reward)}  ", (line, "cyan"))))
        rows.append(("response", f"{text.number(last.response_length)} tokens"))
    if found := history.evaluation:
        where = f"{found.set} after step {found.step}"
        rows.append(("accuracy", f"{text.percent(found.accuracy)} on {where}"))
    if history.checkpoints:
        checkpoint = history.checkpoints[-1]
        path = f": {checkpoint.path}" if checkpoint.path else ""
        rows.append(("checkpoint", f"step {checkpoint.step}{path}"))
    return rows


def _attempts(facts: Facts) -> list[tuple[str, RenderableType]]:
    """Nothing of all that where the first attempt is the only one and nobody is to blame."""
    rows: list[tuple[str, RenderableType]] = []
    if len(facts.attempts) > 1 or (facts.attempt and facts.attempt.next):
        rows.append(("attempts", attempts.table(facts)))
    if facts.blamed:
        rows.append(("blamed", " ".join(facts.blamed)))
    if facts.attempt and (found := attempts.remarks(facts.attempt)):
        rows.append(("preflight", "\n".join(found)))
    return rows


def outcome(facts: Facts) -> list[tuple[str, RenderableType]]:
    """How it ended and what to do about it, row by row; of one that goes on, for how long."""
    told = facts.last_words
    rows: list[tuple[str, RenderableType]] = []
    if facts.seconds is not None:
        rows.append(("took" if facts.state.ended else "since start", text.duration(facts.seconds)))
    if not told or not facts.state.ended or facts.state.word == "succeeded":
        return rows
    node = f" on {told['node']}" if told.get("node") else ""
    rows.append(("where", f"{told.get('component')}{node}"))
    if (cause := str(told.get("cause") or "")) not in facts.state.why:  # else the head says it
        rows.append(("why", Text(text.safe(cause), "red")))
    rows += [(key, text.safe(told[key])) for key in ("stopped", "do") if told.get(key)]
    rows.append(("exit code", str(told.get("exit_code"))))
    if told.get("class") == "time":
        rows.append(("output", str(facts.run.output)))
    if facts.attempt and (stacks := facts.attempt.stacks):
        hosts = [path.stem for path in stacks]
        rows.append(("stacks", f"{attempts.nodes(hosts)} in {stacks[0].parent}"))
    if told.get("log"):
        rows.append(("its log", str(facts.run.here(told["log"]))))
    if told.get("lines"):
        rows.append(("last lines", Text("\n".join(map(text.safe, told["lines"])), "dim")))
    return rows
