"""``beam-slurm shell``."""

from __future__ import annotations

from pathlib import Path

import click

EXAMPLES = """\b
Examples:
  beam-slurm shell b300-colocated-7c1f9e                    on the head
  beam-slurm shell b300-colocated-7c1f9e --node gpu007      on another node
  beam-slurm shell b300-colocated-7c1f9e -- ray status      one command; its exit code is ours
"""


@click.command(epilog=EXAMPLES, context_settings={"ignore_unknown_options": True})
@click.argument("run")
@click.option("--node", metavar="NODE", help="One of the run's nodes.  [default: its head]")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(run: str, node: str | None, folder: Path | None, command: tuple[str, ...]) -> None:
    """Open a shell beside a run, in its environment and container.

    It shares the node's CPUs and GPUs with the run, takes none of them away, and ends with the job
    at the latest. With words behind --, it runs these instead.
    """
    import os

    from beam_slurm import attach, profiles, runs, slurm

    words = attach.shell(runs.find(run, profiles.runs_folder(folder)), node, command)
    os.execvpe(words[0], words, slurm.environment())  # noqa: S606 - the shell takes our place
