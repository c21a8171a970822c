"""``beam-slurm dashboard``."""

from __future__ import annotations

from pathlib import Path

import click

EXAMPLES = """\b
Examples:
  beam-slurm dashboard b300-colocated-7c1f9e           how to reach it from your own machine
  beam-slurm dashboard b300-colocated-7c1f9e --open    on a machine that has a browser
"""


@click.command(epilog=EXAMPLES)
@click.argument("run")
@click.option("--open", "opens", is_flag=True, help="Open it in this machine's browser.")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
def dashboard(run: str, opens: bool, folder: Path | None) -> None:
    """Say how to reach a run's Ray dashboard, or open it.

    It listens on the private network only. The tunnel ends with the run's attempt: ask again
    after a restart.
    """
    import webbrowser

    from beam_slurm import attach, profiles, runs
    from beam_slurm.errors import BeamSlurmError

    found = attach.dashboard(runs.find(run, profiles.runs_folder(folder)))
    if opens:
        if not found.answers():
            raise BeamSlurmError(
                f"this machine does not reach the dashboard of {run}",
                why=f"nothing answers at {found.direct}"
                if found.host
                else "without a token it listens on the head alone",
                remedy=f"on your own machine: {found.tunnel}; then open {found.url}",
            )
        if not webbrowser.open(found.direct):
            raise BeamSlurmError(
                "there is no browser on this machine",
                remedy=f"on your own machine: {found.tunnel}; then open {found.url}",
            )
        click.echo(f"opened  {found.direct}")
    else:
        click.echo(f"tunnel  {found.tunnel}")
        click.echo("        on your own machine, with the name by which you log in here")
        click.echo(f"open    {found.url}")
    if found.token:
        click.echo(f"token   the page asks for it once: paste what cat {found.token} prints here")
