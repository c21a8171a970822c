"""``beam-slurm report``."""

from __future__ import annotations

from pathlib import Path

import click

EXAMPLES = """\b
Examples:
  beam-slurm report b300-colocated-7c1f9e           table here, figure in its folder
  beam-slurm report b300-colocated -o reward.png    the figure elsewhere
  beam-slurm report b300-colocated --json           the numbers, no figure
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the PNG goes.  [default: report.png in the run's folder]",
)
@click.option("--json", "as_json", is_flag=True, help="For machines; draws only with --output.")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
def report(run: str | None, output: Path | None, as_json: bool, folder: Path | None) -> None:
    """Draw a run: reward, held-out accuracy, response length and step time over its steps.

    Without RUN: the newest one. The figure needs matplotlib: pip install 'beam-slurm[report]'.
    """
    import json

    from beam_slurm import profiles, runs
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.report import figure, terminal, text
    from beam_slurm.report.asjson import as_json as plain
    from beam_slurm.report.facts import gather

    facts = gather(runs.find(run, profiles.runs_folder(folder)))
    if facts.history is None:
        raise BeamSlurmError(f"{facts.run.id} cannot be drawn", why=facts.no_metrics)
    if not facts.history:
        raise BeamSlurmError(
            f"{facts.run.id} has measured nothing yet",
            why=f"it is {facts.state.word}" + (f": {facts.state.why}" if facts.state.why else ""),
            remedy=f"beam-slurm status {facts.run.id}",
        )
    if as_json:
        click.echo(json.dumps(plain(facts), indent=1))
        if output is None:
            return
    else:
        text.console().print(terminal.show(facts, facts.history))
    path = output or facts.run.path / "report.png"
    figure.draw(facts, facts.history, path)
    click.echo(f"figure  {path}", err=as_json)
