"""``beam-slurm watch``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

EXAMPLES = """\b
Examples:
  beam-slurm watch                        the newest run
  beam-slurm watch b300-colocated-7c1f9e  one run; its start, or the job's id, is enough
  beam-slurm watch b300-colocated | tee   plain lines, as submit --wait prints them

\b
Keys:
  up, down or n  Ray's own log of one node after the other
  l              back to the driver's log
  c              cancel the run; asks first
  q              quit; the run goes on
  ?              all keys, and what the signs mean
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", required=False)
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
def watch(run: str | None, folder: Path | None) -> None:
    """See what a run does, full screen: its queue, way up, metrics, nodes, restarts and log.

    Without RUN: the newest run. Exit code: 0 if you quit while it goes on; the run's own once it
    is over; 130 after Ctrl-C. Where there is no terminal, it stays until the run is over.
    """
    from beam_slurm import profiles, runs
    from beam_slurm.report import text
    from beam_slurm.watch import watch as look

    sys.exit(look(runs.find(run, profiles.runs_folder(folder)), text.console()))
