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

    Without RUN: the newest run's. A run of several jobs has a log each: all are printed in order,
    with -n the newest one's end.
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

    paths = [ray_log(run, node)] if node else run.logs
    if not paths:
        state = state_of(run)
        raise BeamSlurmError(
            f"{run.id} has no log yet",
            why=f"it is {state.word}" + (f": {state.why}" if state.why else ""),
            remedy=f"beam-slurm logs {run.id} -f waits for it",
        )
    tail = Tail(_write, _tell)
    for path in paths if lines is None else paths[-1:]:
        tail.copy(path, lines, _title(run, path))
    if node:
        _mention(paths[-1])


def _follow(run: Run, lines: int | None, node: str | None) -> None:
    import time

    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.logs import Tail, ray_log
    from beam_slurm.waiting import Watch

    tail, watch = Tail(_write, _tell), Watch(run)
    waiting = ""
    known = 0  # files that were there the last time
    while True:
        state = watch.state()  # before the copy: what came before the end is copied for sure
        paths = run.logs
        if node:
            try:
                paths = [ray_log(run, node)]
            except BeamSlurmError:
                if state.ended or (run.attempt and any((run.attempt / "ray").glob("*.log"))):
                    raise
                paths = []
        if not known and lines is not None:
            known = len(paths)
        for path in paths[max(known - 1, 0) :]:  # the last one's end comes before the next one
            tail.copy(path, lines, _title(run, path))
        known = len(paths)
        now = f"{state.word} {state.why}".rstrip()
        if not paths and now != waiting:
            _tell(f"waiting for the log: the run is {now}")
            waiting = now
        if state.ended:
            if not paths:
                _tell(f"{run.id} is over and left no log: {state.word} {state.why}".rstrip())
            elif node:
                _mention(paths[-1])
            return
        time.sleep(0.5)


def _title(run: Run, path: Path) -> str:
    """Which of several files this is."""
    several = len(run.logs) > 1 if path.parent == run.path else len(run.attempts) > 1
    return str(path.relative_to(run.path)) if several else ""


def _mention(log: Path) -> None:
    from beam_slurm.logs import kept

    for path in kept(log):
        _tell(f"see also {path}")


def _write(data: bytes) -> None:
    """Bytes as they are: a log may hold anything."""
    import sys

    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _tell(text: str) -> None:
    click.echo(f"beam-slurm: {text}", err=True)
