"""``beam-slurm cancel``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="\b\nExample:\n  beam-slurm cancel b300-colocated-7c1f9e\n")
@click.argument("run")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
def cancel(run: str, folder: Path | None) -> None:
    """End a run: its job, all its steps, everything on its nodes. Ended already is no error.

    A run that waits for its next attempt is ended as well, in the queue or as a chained job.
    """
    from beam_slurm import profiles, runs
    from beam_slurm.cancel import cancel as end

    click.echo(end(runs.find(run, profiles.runs_folder(folder))))
