"""``beam-slurm cancel``."""

from __future__ import annotations

from pathlib import Path

import click

EXAMPLES = """\b
Examples:
  beam-slurm cancel b300-colocated-7c1f9e
  beam-slurm cancel lr-3f2a1b              a sweep with all its points
  beam-slurm cancel lr-3f2a1b-0007         one of them
  beam-slurm cancel evaluate-aime2025-9c   an evaluation of several checkpoints
"""


@click.command(epilog=EXAMPLES)
@click.argument("run")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
def cancel(run: str, folder: Path | None) -> None:
    """End a run or a sweep: jobs, steps, everything on the nodes. Ended already is no error.

    A run that waits for its next attempt is ended as well, in the queue or as a chained job. So is
    what waits for it (submit --then); a conversion whose checkpoint is saved already goes on.
    """
    from beam_slurm import ending, profiles, runs
    from beam_slurm.sweep import ending as sweep_ending
    from beam_slurm.sweep import folder as sweeps

    where = profiles.runs_folder(folder)
    sweep = sweeps.look(run, where, among_runs=True)
    click.echo(sweep_ending.end(sweep) if sweep else ending.end(runs.find(run, where)))
