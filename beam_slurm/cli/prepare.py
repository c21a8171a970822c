"""``beam-slurm prepare``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from beam_slurm.cli import options

if TYPE_CHECKING:
    from beam_slurm.prepare import PrepareRequest

EXAMPLES = """\b
Examples:
  beam-slurm prepare --profile b300-colocated --dry-run   read the script first
  beam-slurm prepare --profile b300-colocated --wait      one job without GPUs
  beam-slurm prepare --profile b300-colocated --here      on this machine, in a venv
  beam-slurm prepare --profile b300-colocated --check     is everything there and whole?
"""


@click.command(epilog=EXAMPLES)
@options.profile
@click.option("--here", is_flag=True, help="On this machine, without Slurm and container.")
@click.option("--dry-run", is_flag=True, help="Print the script that would be submitted.")
@click.option("--wait", is_flag=True, help="Stay until it is over; show its log.")
@click.option("--check", is_flag=True, help="Only verify; exit code 2 if something is missing.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def prepare(
    settings: tuple[str, ...],
    here: bool,
    dry_run: bool,
    wait: bool,
    check: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Download and convert model and data, once, and verify them.

    What is whole is left alone: running it again is cheap.
    """
    from beam_slurm import checks
    from beam_slurm import prepare as room

    if check and (dry_run or wait or here):
        raise click.UsageError("--check goes alone: it changes nothing")
    bare = ("site.container=bare",) if here else ()
    resolved = options.resolve(settings=(*settings, *bare), **chosen)
    request = room.make_request(resolved, here=here)
    if not request.verdicts:
        _tell_nothing(request, as_json)
    elif dry_run and not request.complete:
        _dry_run(request)
    else:
        checks.missing(request.profile.name, request.unplaced)
        if check or request.complete:
            _verdict(request, as_json)
        else:
            _start(request, wait, as_json)


def _tell_nothing(request: PrepareRequest, as_json: bool) -> None:
    if as_json:
        _json(request)
    else:
        click.echo(
            f"{request.profile.name}: {request.preparation.title} needs no model and no data"
        )


def _dry_run(request: PrepareRequest) -> None:
    if request.missing:
        names = ", ".join(key for key, _ in request.missing)
        click.secho("warning: ", fg="yellow", nl=False, err=True)
        click.echo(f"placeholders stand for what the site file has not said yet: {names}", err=True)
    click.echo(str(request), nl=False)


def _verdict(request: PrepareRequest, as_json: bool) -> None:
    if as_json:
        _json(request)
    else:
        for verdict in request.verdicts:
            click.echo(
                f"{verdict.asset:<9} {'FAIL' if verdict.problems else 'pass'}  {verdict.folder}"
            )
            for problem in verdict.problems:
                click.echo(f"          {problem}")
    sys.exit(0 if request.complete else 2)


def _start(request: PrepareRequest, wait: bool, as_json: bool) -> None:
    from beam_slurm import prepare as room
    from beam_slurm.logs import Tail

    for verdict in request.verdicts:
        for problem in verdict.problems:
            click.echo(f"{verdict.asset:<9} {problem}", err=True)
    if request.here:
        room.run_here(request, sys.stderr.fileno() if as_json else None)
        if as_json:
            _json(request)
        return
    job = room.start(request)
    if as_json:
        _json(request, job=job, folder=str(request.folder))
    else:
        click.echo(f"{request.folder.name}  job {job}")
        click.echo(f"folder  {request.folder}")
        if not wait:
            click.echo(f"next    tail -F {request.folder}/job-{job}.log")
    if wait:
        # The log goes where people look, and leaves a pipe to the one JSON answer.
        stream = sys.stderr.buffer if as_json else sys.stdout.buffer

        def write(data: bytes) -> None:
            stream.write(data)
            stream.flush()

        def tell(text: str) -> None:
            click.echo(f"beam-slurm: {text}", err=True)

        room.stay(request, job, Tail(write, tell), tell)


def _json(request: PrepareRequest, **facts: str) -> None:
    """What this machine saw before anything was done, and the job that mends it."""
    import json

    seen = {
        verdict.asset: {"folder": verdict.folder, "problems": list(verdict.problems)}
        for verdict in request.verdicts
    }
    click.echo(json.dumps({"complete": request.complete, **seen, **facts}, indent=1))
