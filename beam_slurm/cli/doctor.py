"""``beam-slurm doctor``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beam_slurm.cli import options

if TYPE_CHECKING:
    from beam_slurm.doctor.checks import Check
    from beam_slurm.doctor.nodes import Examination

EXAMPLES = """\b
Examples:
  beam-slurm doctor                                      this site alone
  beam-slurm doctor --profile b300-colocated             what that run needs
  beam-slurm doctor --profile b300-colocated --on-nodes  and ask the nodes, by a job of 5 minutes
  beam-slurm doctor --json | jq '.checks[] | select(.verdict != "pass")'
"""

COLOURS = {"pass": "green", "warn": "yellow", "fail": "red"}


@click.command(epilog=EXAMPLES)
@click.option("--profile", help="A name (see profiles list), or the path of a YAML file.")
@options.settings
@click.option("--on-nodes", is_flag=True, help="Submit a job of 5 minutes that asks every node.")
@click.option(
    "--timeout",
    default=900,
    show_default=True,
    metavar="SECONDS",
    help="When --on-nodes gives up and cancels its job.",
)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def doctor(
    profile: str | None,
    site: Path | None,
    on_nodes: bool,
    timeout: int,
    as_json: bool,
    **given: Any,
) -> None:
    """Check everything a run needs, before the queue.

    Exit code 0 if nothing failed, else 2. Nothing is changed; --on-nodes costs one short job.
    """
    import json
    from dataclasses import asdict

    from beam_slurm import doctor as room
    from beam_slurm.doctor import nodes
    from beam_slurm.doctor.checks import failed

    report = room.examine(profile, site, options.parse(**given))
    if not as_json:
        _show(report.checks)
    asked = nodes.Examination()
    if on_nodes and (report.blocked or report.subject.request is None):
        click.echo("the nodes are not asked: first mend what failed", err=True)
    elif on_nodes:
        asked = nodes.examine(report.subject, timeout, lambda line: click.echo(line, err=True))
        if not as_json:
            _show_nodes(asked)
    bad = failed([*report.checks, *asked.checks])
    if as_json:
        facts = {
            "ok": not bad,
            "checks": [asdict(check) for check in report.checks],
            "job": asdict(asked.problem) if asked.problem else None,
            "nodes": {n: [asdict(check) for check in found] for n, found in asked.nodes.items()},
        }
        click.echo(json.dumps(facts, indent=1))
    else:
        _sum_up([*report.checks, *asked.checks], on_nodes)
    sys.exit(2 if bad else 0)


def _show(checks: list[Check]) -> None:
    """One line a check; what is needed and what to do below those that do not pass."""
    wide = max(len(check.name) for check in checks)
    for check in checks:
        click.secho(check.verdict, fg=COLOURS[check.verdict], nl=False)
        click.echo(f"  {check.name:<{wide}}  {check.have}")
        if check.verdict != "pass":
            if check.need:
                click.echo(f"      needs: {check.need}")
            click.echo(f"      do:    {check.remedy}")


def _show_nodes(asked: Examination) -> None:
    """Nodes by checks; below, each thing that is wrong once, with the nodes that it is wrong on."""
    names = list(dict.fromkeys(c.name for checks in asked.nodes.values() for c in checks))
    wide = max((len(node) for node in asked.nodes), default=4)
    click.echo()
    click.echo("  ".join(["node".ljust(wide), *names]))
    for node, checks in asked.nodes.items():
        said = {check.name: check.verdict for check in checks}
        click.echo(node.ljust(wide), nl=False)
        for name in names:
            word = said.get(name, "-")
            click.secho("  " + word.ljust(len(name)), fg=COLOURS.get(word), nl=False)
        click.echo()
    found: dict[Check, list[str]] = {}
    for node, checks in asked.nodes.items():
        for check in checks:
            if check.verdict != "pass":
                found.setdefault(check, []).append(node)
    for check, nodes in found.items():
        click.echo()
        click.secho(check.verdict, fg=COLOURS[check.verdict], nl=False)
        click.echo(f"  {check.name} on {', '.join(nodes)}: {check.have}")
        if check.need:
            click.echo(f"      needs: {check.need}")
        click.echo(f"      do:    {check.remedy}")
    if asked.problem:
        click.echo()
        _show([asked.problem])


def _sum_up(checks: list[Check], on_nodes: bool) -> None:
    count = {word: sum(check.verdict == word for check in checks) for word in COLOURS}
    click.echo(f"\n{count['pass']} pass, {count['warn']} warn, {count['fail']} fail")
    if not count["fail"] and not on_nodes:
        click.echo("next    beam-slurm doctor --on-nodes asks the nodes themselves")
