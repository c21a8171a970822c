"""``beam-slurm logs``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from beam_slurm.runs import Run

EXAMPLES = """\b
Examples:
  beam-slurm logs                              the newest run's log
  beam-slurm logs b300-colocated-7c1f9e -f     follow it until the run is over
  beam-slurm logs b300-colocated -n 100        its last 100 lines
  beam-slurm logs b300-colocated --ray gpu007  Ray's own log of one node
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until the run ends.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Begin with the last so many lines.")
@click.option("--ray", "node", metavar="NODE", help="Ray's log of this node, not the driver's.")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
def logs(
    run: str | None, follow: bool, lines: int | None, node: str | None, folder: Path | None
) -> None:
    """Print or follow a run's log: the driver's output and beam-slurm's own lines.

    Without RUN: the newest run's.
    """
    import os
    import sys

    from beam_slurm import profiles, runs

    found = runs.find(run, profiles.runs_folder(folder))
    try:
        if follow:
            _follow(found, lines, node)
        else:
            _print(found, lines, node)
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has seen enough; Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)


def _print(run: Run, lines: int | None, node: str | None) -> None:
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.logs import Tail, ray_log
    from beam_slurm.report.facts import state_of

    path = ray_log(run, node) if node else run.log
    if path is None:
        state = state_of(run)
        raise BeamSlurmError(
            f"{run.id} has no log yet",
            why=f"it is {state.word}" + (f": {state.why}" if state.why else ""),
            remedy=f"beam-slurm logs {run.id} -f waits for it",
        )
    Tail(_write, _tell).copy(path, lines)


def _follow(run: Run, lines: int | None, node: str | None) -> None:
    import time

    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.logs import Tail, ray_log
    from beam_slurm.waiting import Watch

    tail, watch = Tail(_write, _tell), Watch(run)
    waiting = ""
    while True:
        state = watch.state()  # before the copy: what came before the end is copied for sure
        path = run.log
        if node:
            try:
                path = ray_log(run, node)
            except BeamSlurmError:
                if state.ended or (run.attempt and any((run.attempt / "ray").glob("*.log"))):
                    raise
                path = None
        if path:
            tail.copy(path, lines)
        elif (now := f"{state.word} {state.why}".rstrip()) != waiting:
            _tell(f"waiting for the log: the run is {now}")
            waiting = now
        if state.ended:
            if path is None:
                _tell(f"{run.id} is over and left no log: {state.word} {state.why}".rstrip())
            return
        time.sleep(0.5)


def _write(data: bytes) -> None:
    """Bytes as they are: a log may hold anything."""
    import sys

    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _tell(text: str) -> None:
    click.echo(f"beam-slurm: {text}", err=True)
