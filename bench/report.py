"""What the launches say together: a table, and a verdict on each target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from measure import Launch
from rich.console import Console
from rich.table import Table

DASHBOARD_ON, DASHBOARD_OFF = 1.0, 0.85  # bring-up, as a multiple of the floor's
END = 3.0  # seconds

FLOOR = "/ floor"
COLUMNS = ("hosts", "runs", "bring-up", FLOOR, "usable", FLOOR, "end", "steps", "calls", "+ nodes'")

Value = Callable[[Launch], float | None]


@dataclass(frozen=True)
class Verdict:
    """One target: what was measured, and whether it holds."""

    text: str
    holds: bool


def show(launches: Sequence[Launch], console: Console) -> None:
    """Print the table and, below it, which calls are counted."""
    table = Table(title="Medians (least to most) of all rounds; times in seconds")
    table.add_column("launcher")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for hosts in sorted({one.hosts for one in launches}):
        floor = _of(launches, "floor", hosts)
        for launcher in dict.fromkeys(one.launcher for one in launches):
            group = _of(launches, launcher, hosts)
            tried = sum((one.launcher, one.hosts) == (launcher, hosts) for one in launches)
            if not tried:
                continue
            table.add_row(
                launcher,
                str(hosts),
                f"{len(group)}/{tried}",
                _spread(group, _bring_up),
                _ratio(group, floor, _bring_up),
                _spread(group, _usable),
                _ratio(group, floor, _usable),
                (">" if any(one.capped for one in group) else "") + _spread(group, _end),
                _spread(group, lambda one: one.steps, 0),
                _spread(group, _calls, 0),
                _spread(group, lambda one: sum(one.node_calls.values()), 0),
            )
    console.print(table)
    for title, names in (
        ("calls", {name for one in launches for name in one.calls}),
        ("+ nodes'", {name for one in launches for name in one.node_calls}),
    ):
        console.print(f"{title}: {', '.join(sorted(names))}", highlight=False)
    for one in launches:
        if one.problem:
            console.print(f"round {one.round}, {one.launcher}: {one.problem}", style="red")


def verdicts(launches: Sequence[Launch], hosts: int) -> list[Verdict]:
    """Every target that these launches can decide."""
    found = []
    floor = _median(_of(launches, "floor", hosts), _bring_up)
    for launcher, most in (("ours", DASHBOARD_ON), ("ours-no-dashboard", DASHBOARD_OFF)):
        group = _of(launches, launcher, hosts)
        took, end = _median(group, _bring_up), _median(group, _end)
        if took and floor:
            text = f"{launcher}: bring-up is {took / floor:.2f} x the floor's, at most {most:.2f}"
            found.append(Verdict(text, took / floor <= most))
        if end is not None:
            text = f"{launcher}: the job is over {end:.1f} s after the driver, at most {END:.0f}"
            found.append(Verdict(text, end <= END and not any(one.capped for one in group)))
    small, *larger = sorted({one.hosts for one in launches if one.launcher == "ours"}) or [0]
    for size in larger:
        before, after = _of(launches, "ours", small), _of(launches, "ours", size)
        for name, value in (("steps", _steps), ("controller calls", _calls)):
            least, most_now = _median(before, value), _median(after, value)
            if least is not None and most_now is not None:
                text = f"ours: {name} with {small} and {size} hosts: {least:g} and {most_now:g}"
                found.append(Verdict(text + ", no more", most_now <= least))
    failed = [one for one in launches if one.problem and one.launcher != "symmetric-run"]
    if failed:
        found.append(Verdict(f"{len(failed)} launches of ours or of the floor failed", False))
    return found


def _of(launches: Sequence[Launch], launcher: str, hosts: int) -> list[Launch]:
    """The launches that went well."""
    return [
        one
        for one in launches
        if (one.launcher, one.hosts) == (launcher, hosts) and not one.problem
    ]


def _bring_up(one: Launch) -> float | None:
    return one.bring_up


def _usable(one: Launch) -> float | None:
    return one.usable


def _end(one: Launch) -> float | None:
    return one.end


def _steps(one: Launch) -> float:
    return one.steps


def _calls(one: Launch) -> float:
    return sum(one.calls.values())


def _values(group: Sequence[Launch], value: Value) -> list[float]:
    return [found for one in group if (found := value(one)) is not None]


def _median(group: Sequence[Launch], value: Value) -> float | None:
    values = _values(group, value)
    return median(values) if values else None


def _ratio(group: Sequence[Launch], floor: Sequence[Launch], value: Value) -> str:
    took, least = _median(group, value), _median(floor, value)
    return f"{took / least:.2f}" if took and least else "-"


def _spread(group: Sequence[Launch], value: Value, digits: int = 1) -> str:
    """``median (least-most)``; the median alone if all are alike."""
    values = _values(group, value)
    if not values:
        return "-"
    least, middle, most = (f"{v:.{digits}f}" for v in (min(values), median(values), max(values)))
    return middle if least == most else f"{middle} ({least}-{most})"
