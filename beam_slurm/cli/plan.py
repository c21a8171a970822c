"""``beam-slurm plan``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from beam_slurm.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from beam_slurm.plan import Figure, Finding

EXAMPLES = """\b
Examples:
  beam-slurm plan --profile h200-async
  beam-slurm plan --profile h200-colocated --nodes 8       why that fails
  beam-slurm plan --profile b200-bf16 --set recipe.optimizer.state=host
  beam-slurm plan --profile b200-bf16 --json | jq '.findings[] | select(.severity == "error")'
"""

STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


@click.command(epilog=EXAMPLES)
@options.profile
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def plan(as_json: bool, **chosen: Any) -> None:
    """Check a profile's arithmetic: parallelism, memory, storage, GPU-hours.

    Exit code 0 if nothing is known that must fail, else 2.
    """
    import dataclasses
    import json

    from beam_slurm.measure import planned
    from beam_slurm.plan.result import count
    from beam_slurm.report import text

    resolved = options.resolve(**chosen)
    made = planned(resolved.profile)
    if as_json:
        facts = {
            "profile": made.profile,
            "ok": made.ok,
            "findings": [dataclasses.asdict(finding) for finding in made.findings],
            "figures": [dataclasses.asdict(figure) for figure in made.figures],
        }
        click.echo(json.dumps(facts, indent=1))
    else:
        console = text.console()
        show_figures(console, made.figures)
        if made.findings:
            console.print()
        show_findings(console, made.findings)
        assumed = [key for key in resolved.profile.assumed if resolved.assumption(key)]
        if assumed:
            head = f"{'assumed':<8} {', '.join(assumed)}"
            console.print(head, style=STYLES["note"], soft_wrap=True)
            console.print(
                f"{'do':>8} beam-slurm profiles show {chosen['profile']} says why; --set changes it"
            )
        verdict = "no errors" if made.ok else count(len(made.errors), "error")
        console.print(f"{made.profile}: {verdict}", style="bold" if made.ok else STYLES["error"])
    if not made.ok:
        sys.exit(2)


def show_figures(console: Console, figures: tuple[Figure, ...]) -> None:
    """The table of needs: what there is, and what is left."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("what", no_wrap=True)
    for title in ("need", "have", "headroom"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("how", overflow="fold")
    for figure in figures:
        left = None if figure.have is None else figure.have - figure.need
        table.add_row(
            figure.name,
            f"{_number(figure.need)} {figure.unit}".rstrip(),
            "" if figure.have is None else _number(figure.have),
            "" if left is None else _number(left),
            figure.how,
            style=STYLES["error"] if left is not None and left < 0 else None,
        )
    console.print(table)


def _number(value: float) -> str:
    """Three digits, but a whole number whole."""
    from beam_slurm.report.text import number

    return f"{value:,.0f}" if value == round(value) else number(value)


def show_findings(console: Console, findings: tuple[Finding, ...]) -> None:
    """One line a finding, and its remedy below."""
    for finding in findings:
        head = f"{finding.severity:<8} {finding.rule}: {finding.text}"
        console.print(head, style=STYLES[finding.severity], soft_wrap=True)
        if finding.remedy:
            console.print(f"{'do':>8} {finding.remedy}", soft_wrap=True)
