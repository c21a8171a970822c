"""One picture of a run, exactly as large as the terminal: what matters, then as much log as fits.

Nothing of what a run has written is obeyed by the terminal: whatever is shown is printable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from beam_slurm import metrics
from beam_slurm.metrics import History
from beam_slurm.report import attempts, live, overview, text
from beam_slurm.report.facts import Facts, next_steps
from beam_slurm.watch import nodes
from beam_slurm.watch.gathering import Log, Look

OLD = 10.0  # seconds without news that are worth a word
SHOWN = ("reward", "accuracy", "response_length", "logprob_diff", "step_time")
SETS = 3  # evaluated sets that are worth a line
WIDE = 110  # columns from which metrics stand side by side
TALL = 32  # rows from which there is room for air
TURNING = Text("›", "cyan")

Line = list[Segment]

KEYS = (
    ("↓ or n, ↑", "Ray's own log of the next node, of the one before"),
    ("l", "back to the driver's log"),
    ("c", "cancel the run: everything on its nodes ends; asks first"),
    ("q", "quit: the run goes on"),
    ("Ctrl-Z", "suspend, and come back with fg"),
    ("?", "this page"),
)


@dataclass
class Section:
    """Some lines under a title. What does not fit is cut at the end, down to ``least`` lines."""

    title: str
    lines: list[Line]
    least: int = 1


@dataclass(frozen=True)
class Frame:
    """What is on the screen.

    Attributes:
        run: the run's id.
        look: what is known of it; None before anything is.
        log: the end of the log that is followed.
        followed: the node whose log that is to be; None is the driver.
        question: waits for y or n.
        remark: an answer to what was asked for.
        helps: whether the keys are explained instead of showing the log.
        now: epoch seconds.
        monotonic: seconds, by the same clock as ``look.time``.
    """

    run: str
    look: Look | None
    log: Log = field(default_factory=Log)
    followed: str | None = None
    question: str = ""
    remark: str = ""
    helps: bool = False
    now: float = 0.0
    monotonic: float = 0.0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        page = _Page(console, options.update(width=max(width - 2, 1), height=None), height >= TALL)
        least = 4 + 2 * page.airy
        room = max(height - 1 - least, 1)  # for all but the log and the last line
        shown = page.fitted(list(self._sections(page)), room)[:room]
        rest = max(height - 1 - len(shown), 0)
        shown += self._help(page, rest) if self.helps else self._log(page, rest)
        shown = [*shown[: height - 1], page.line(self._foot())]
        for at, line in enumerate(shown):
            yield from Segment.adjust_line_length([Segment(" "), *_safe(line)], width)
            if at < len(shown) - 1:
                yield Segment.line()

    def _sections(self, page: _Page) -> Iterator[Section]:
        look = self.look
        if look is None:
            yield Section("", page.lines(Text.assemble((self.run, "bold"), "  …")))
            return
        facts = look.facts
        yield Section("", page.lines(*_head(facts, look, self.monotonic, page.width)), least=2)
        if facts.bring_up.entry and not (facts.outcome and not facts.state.ended):
            yield Section("", page.lines(overview.phases(facts)), least=2)
        else:
            legs = live.legs(facts, look.nodes, self.now, TURNING)
            yield Section("", page.lines(legs), least=2)
        history = facts.history if facts.history and facts.history.last else None
        if facts.step is not None:
            wide = max(min(page.width - 52, 60), 10)
            age = None if facts.state.ended else _age(facts, self.now)
            yield Section("", page.lines(live.bar(facts, wide), *([age] if age else [])))
        if facts.state.ended:
            lines = page.lines(_outcome(facts))
            yield Section("outcome", lines, least=min(len(lines), 8))
        if history:
            yield Section("metrics", page.lines(_metrics(history, page.width)), least=2)
        elif facts.no_metrics and facts.bring_up.entry:
            yield Section("", page.lines(Text(facts.no_metrics, "dim")))
        if endings := list(_attempts(facts)):
            yield Section("restarts", page.lines(*endings))
        if facts.state.word != "pending" and (known := names(look)):
            rows = 6 if page.airy else 2
            grid = nodes.grid(facts, known, page.width, rows, self.followed)
            yield Section("nodes", page.lines(*grid, *nodes.problems(facts)))

    def _log(self, page: _Page, rows: int) -> list[Line]:
        """Its end, in exactly so many rows."""
        where = f"{self.followed}: Ray" if self.followed else "log"
        mine = self.log.node == self.followed
        title = page.title(where, self.log.title if mine else "…")
        count = max(rows - len(title), 0)
        lines = self.log.lines[-count:] if mine and count else ()
        shown = [page.line(Text(text.printable(line))) for line in lines]
        return [*title, *shown, *[[] for _ in range(count - len(shown))]]

    def _help(self, page: _Page, rows: int) -> list[Line]:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        for key, what in KEYS:
            grid.add_row(key, what)
        signs = Table.grid(padding=(0, 2))
        for sign, style, means in nodes.SIGNS.values():
            signs.add_row(Text(sign, style), Text(f"this node {means}", "dim"))
        shown = [*page.title("keys"), *page.lines(grid), *page.title("signs"), *page.lines(signs)]
        return [*shown[:rows], *[[] for _ in range(rows - len(shown))]]

    def _foot(self) -> Text:
        if self.question:
            return Text(self.question, "bold yellow")
        if self.remark:
            return Text(self.remark, "yellow")
        keys = (("↑↓", "a node's log"), ("l", "driver's log"), ("c", "cancel"), ("q", "quit"))
        foot = Text()
        for key, what in (*keys, ("?", "help")):
            foot.append(key, "bold").append(f" {what}   ", "dim")
        return foot


def names(look: Look) -> list[str]:
    """The nodes that can be followed."""
    return nodes.names(look.facts, look.nodes)


class _Page:
    """Renders into lines of one width."""

    def __init__(self, console: Console, options: ConsoleOptions, airy: bool) -> None:
        self._console, self._options = console, options
        self.width = options.max_width
        self.airy = airy

    def lines(self, *shown: RenderableType) -> list[Line]:
        """Each renderable's own lines, wrapped where they are too long."""
        return [line for it in shown for line in self._console.render_lines(it, self._options)]

    def line(self, shown: Text) -> Line:
        """One line, cut where it is too long."""
        shown.truncate(self.width, overflow="ellipsis")
        return [it for it in shown.render(self._console) if it.text]

    def title(self, name: str, more: str = "") -> list[Line]:
        """A rule with a name in it, air above it if there is room."""
        shown = Text.assemble(("── ", "dim"), name)
        if more:
            shown.append(f"  {more}", "dim")
        shown.truncate(max(self.width - 4, 1), overflow="ellipsis")
        shown.append(" " + "─" * max(self.width - shown.cell_len - 1, 0), "dim")
        return [*([[]] if self.airy else []), self.line(shown)]

    def fitted(self, sections: list[Section], room: int) -> list[Line]:
        """All sections in ``room`` lines: the longest are cut first."""
        titles = sum(len(self.title(it.title)) for it in sections if it.title)
        while titles + sum(len(it.lines) for it in sections) > room:
            longest = max(sections, key=lambda it: len(it.lines) - it.least)
            if len(longest.lines) <= longest.least:
                break
            longest.lines.pop()
        return [
            line
            for it in sections
            for line in ([*self.title(it.title), *it.lines] if it.title else it.lines)
        ]


def _safe(line: Iterable[Segment]) -> Iterator[Segment]:
    for text_, style, _ in line:
        yield Segment(text.printable(text_), style)


def _head(facts: Facts, look: Look, monotonic: float, width: int) -> Iterator[Text]:
    left = Text.assemble((facts.run.id, "bold"), "  ", overview.label(facts.state))
    if facts.attempt and facts.attempt.number:
        left.append(f"  attempt {facts.attempt.number}", "dim")
    profile = facts.manifest.get("profile", "–")
    right = Text(f"{profile} · {facts.size} · job {overview.job_of(facts)}", "dim")
    room = width - left.cell_len - right.cell_len
    if room >= 2:
        yield left.append(" " * room).append_text(right)
    else:
        yield left
        yield right
    if facts.state.why and facts.state.word in ("submitted", "starting", "running"):
        yield Text(facts.state.why, "yellow")  # the queue and the end are told below
    silent = monotonic - look.time
    if look.note:
        yield Text(f"note: {look.note}", "yellow")
    elif silent > OLD and not facts.state.ended:
        yield Text(f"no news for {text.duration(silent)}: Slurm or the storage is slow", "yellow")


def _age(facts: Facts, now: float) -> Text | None:
    """Since when it runs, and how old the last step is: a run that is stuck shows it here."""
    last = facts.history.last if facts.history else None
    began = facts.attempts[0].began if facts.attempts else None
    if not last or last.time is None or began is None:
        return None
    return Text(
        f"{text.duration(now - began)} since start, last step {text.duration(now - last.time)} ago",
        "dim",
    )


def _metrics(history: History, width: int) -> Table:
    """A sparkline and the last value of each; side by side where there is room."""
    columns = 2 if width >= WIDE else 1
    wide = max(min(width // columns - 44, 32), 8)
    cells = [
        (Text(label), value, Text(text.sparkline(values, wide), "cyan"))
        for label, values, value in _rows(history)
    ]
    grid = Table.grid(padding=(0, 3))
    for _ in range(columns):
        grid.add_column(min_width=20, no_wrap=True)
        grid.add_column(min_width=14, no_wrap=True)
        grid.add_column(min_width=wide, no_wrap=True)
    for at in range(0, len(cells), columns):
        grid.add_row(*(part for cell in cells[at : at + columns] for part in cell))
    return grid


def _rows(history: History) -> Iterator[tuple[str, list[float | None], Text]]:
    sets = list(dict.fromkeys(record.set for record in history.evaluations))[:SETS]
    for name in SHOWN:
        for which in sets if name == "accuracy" else [""]:
            series = metrics.series(history, f"{name}/{which}" if which else name)
            if series:
                label = f"accuracy {which}" if which else metrics.find(name)[0].text
                yield label, [value for _, value in series], _value(name, *series[-1])


def _value(name: str, step: int, value: float) -> Text:
    if name == "accuracy":
        return Text.assemble((text.percent(value), "bold"), (f" at {step}", "dim"))
    if name == "step_time":
        return Text(text.duration(value), "bold")
    unit = metrics.find(name)[0].unit
    return Text.assemble((text.number(value), "bold"), (f" {unit}" if unit else "", "dim"))


def _attempts(facts: Facts) -> Iterator[Text]:
    for _, line in reversed(list(attempts.endings(facts.attempts))[-attempts.SHOWN :]):
        yield Text(f"↻ {line}", "yellow")


def _outcome(facts: Facts) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("state", Text.assemble(overview.label(facts.state), f": {facts.state.why}"))
    for name, value in overview.outcome(facts):
        if name != "last lines":  # the log has them
            grid.add_row(name, value)
    for command in next_steps(facts)[:1]:
        grid.add_row("next", command)
    return grid
