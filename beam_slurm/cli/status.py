"""``beam-slurm status``."""

from __future__ import annotations

from pathlib import Path

import click

from beam_slurm.cli.sweep import status as sweep_status

EXAMPLES = """\b
Examples:
  beam-slurm status                       the newest runs
  beam-slurm status b300-colocated-7c1f9e one run; its start, or the job's id, is enough
  beam-slurm status lr-3f2a1b             a sweep, as beam-slurm sweep status shows it
  beam-slurm status evaluate-aime2025-9c  several checkpoints and their scores
  beam-slurm status --json | jq '.[] | select(.state == "failed") | .id'
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", required=False)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every run, not only the newest 20 and what runs; those that follow another one, too.",
)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
def status(run: str | None, everything: bool, as_json: bool, folder: Path | None) -> None:
    """Show the newest runs, or one RUN in detail: its state and why, its way up, what to do next.

    A sweep is one line of all runs, and a table of its points.
    """
    import json

    from beam_slurm import profiles, runs
    from beam_slurm.report import listing, overview, text
    from beam_slurm.report.asjson import as_json as plain
    from beam_slurm.report.facts import gather, gather_all
    from beam_slurm.report.phases import host_names
    from beam_slurm.sweep import folder as sweeps
    from beam_slurm.sweep import view

    root = profiles.runs_folder(folder)
    if run and (sweep := sweeps.look(run, root, among_runs=True)):
        click.get_current_context().invoke(sweep_status, name=str(sweep.path), as_json=as_json)
        return
    if run:
        facts = gather(runs.find(run, root))
        if as_json:
            click.echo(json.dumps(plain(facts), indent=1))
            return
        starting = facts.state.word == "starting" and facts.state.job is not None
        nodes = host_names(facts.state.job.nodes) if starting and facts.state.job else []
        text.console().print(overview.detail(facts, nodes))
        return
    known = list(runs.all_runs(root, points=False))
    of_sweeps = sweeps.newest(root)
    listed = listing.Listing(known) if everything else listing.newest(known)
    found, problem = gather_all(listed.shown)
    if as_json:
        told = [*map(plain, found), *map(view.as_json, of_sweeps)]
        click.echo(json.dumps(told, indent=1))
        return
    if not known and not of_sweeps:
        click.echo(f"there is no run in {root} yet; beam-slurm submit makes one")
        return
    if known:
        text.console().print(overview.table(found))
    for path in of_sweeps[: None if everything else listing.NEWEST]:
        text.console().print(view.line(path))
    if listed.more:
        click.echo(f"{listed.more}: beam-slurm status --all")
    if problem:
        click.echo(f"note: from the runs' own files alone: {problem}", err=True)
