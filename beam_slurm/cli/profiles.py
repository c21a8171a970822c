"""``beam-slurm profiles``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console


@click.group(epilog="\b\nExamples:\n  beam-slurm profiles list\n  beam-slurm profiles show demo\n")
def profiles() -> None:
    """List the profiles, or show one with the origin of its values."""


@profiles.command("list")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def list_profiles(as_json: bool) -> None:
    """Every profile that comes with beam-slurm."""
    import json

    from beam_slurm import profiles as room

    rows = []
    for name in room.names():
        found = room.resolve(name, use_site=False).profile
        rows.append(
            {
                "name": name,
                "framework": found.framework.name,
                "nodes": found.hardware.nodes,
                "gpus_per_node": found.hardware.gpus_per_node,
                "gpu": found.hardware.gpu,
                "schedule": found.recipe.schedule,
                "description": found.description,
            }
        )
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("profile", "framework", "nodes × GPUs", "schedule", "what"):
        table.add_column(title, no_wrap=title != "what")
    for row in rows:
        size = f"{row['nodes']} × {row['gpus_per_node']} {row['gpu']}"
        table.add_row(
            *map(str, (row["name"], row["framework"], size, row["schedule"], row["description"]))
        )
    _console().print(table)


@profiles.command("show")
@click.argument("name")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one value.")
@click.option("--site", type=click.Path(path_type=Path), help="Site file.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def show(name: str, settings: tuple[str, ...], site: Path | None, as_json: bool) -> None:
    """One profile with every value, where it comes from, and what is assumed."""
    import json

    from beam_slurm import profiles as room

    resolved = room.resolve(name, site=site, settings=room.parse_settings(settings))
    rows = [
        {"key": key, "value": value, "origin": origin, "assumed": resolved.assumption(key)}
        for key, value, origin in resolved.values()
    ]
    if as_json:
        click.echo(json.dumps({row["key"]: row for row in rows}, indent=1))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("key", "value", "from"):
        table.add_column(title, overflow="fold")
    for row in rows:
        mark = " (assumed)" if row["assumed"] else ""
        table.add_row(str(row["key"]), f"{row['value']}{mark}", row["origin"] or "default")
    console = _console()
    console.print(table)
    for row in rows:
        if row["assumed"]:
            console.print(f"assumed  {row['key']}: {row['assumed']}", style="yellow")


def _console() -> Console:
    from rich.console import Console

    made = Console()
    # In a pipe nobody sees a right margin: keep a row on its line.
    return made if made.is_terminal else Console(width=200)
