"""``beam-slurm submit``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beam_slurm.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beam_slurm.job import JobRequest
    from beam_slurm.posttraining.then import Link
    from beam_slurm.runs import Run
    from beam_slurm.schema import Profile

EXAMPLES = """\b
Examples:
  beam-slurm submit --profile b300-colocated --dry-run | less
  beam-slurm submit --profile b300-colocated --dry-run | sbatch --test-only
  beam-slurm submit --profile b300-colocated --steps 50 --save-every 10 --wait
  beam-slurm submit --profile b300-colocated --mail-type END,FAIL
  beam-slurm submit --profile b300-colocated --save-every 10 --then convert,evaluate,report --wait
  beam-slurm submit --profile b300-colocated --save-every 10 --then "convert,evaluate:every 20"
  beam-slurm submit --profile b200-bf16 --output-dir first --resume --steps 100
  beam-slurm submit --profile b300-colocated -- policy.optimizer.kwargs.lr=2e-6
"""


class Dashed(click.Command):
    """A command that knows which of its words stood behind ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["behind"] = len(args) - args.index("--") - 1 if "--" in args else 0
        return super().parse_args(ctx, args)


@click.command(cls=Dashed, epilog=EXAMPLES)
@options.profile
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in --output-dir.")
@click.option("--dry-run", is_flag=True, help="Print the script that would be submitted.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="--dry-run writes it here.")
@click.option("--force", is_flag=True, help="Submit although the plan has errors.")
@click.option(
    "--then",
    "following",
    metavar="CHAIN",
    help="After its success: convert, or convert,evaluate; of each Nth step while it trains: "
    '"convert,evaluate:every N"; with ,report behind it and --wait the report is drawn.',
)
@click.option("--wait", is_flag=True, help="Stay until all is over; exit as the first that fails.")
@click.option("--local", is_flag=True, help="Run on this machine, without Slurm.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's id, job and folder as JSON.")
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def submit(
    dry_run: bool,
    output: Path | None,
    force: bool,
    following: str | None,
    wait: bool,
    local: bool,
    as_json: bool,
    overrides: tuple[str, ...],
    **chosen: Any,
) -> None:
    """Submit a run, or print its sbatch script.

    Words behind -- go to the end of the training entry's command line as they are.
    """
    from beam_slurm import job

    chain = None
    if following is not None:
        from beam_slurm.posttraining import then

        chain = then.parse(following)
        if chain.report:
            _check_drawing(wait)
    stray = overrides[: len(overrides) - click.get_current_context().meta["behind"]]
    if stray:
        raise click.UsageError(
            f"{stray[0]!r} is no option: settings go behind --set, words for the entry behind --"
        )
    if output and not dry_run:
        raise click.UsageError("--output goes with --dry-run")
    resolved = options.resolve(**chosen)
    request = job.make_request(resolved, overrides=overrides, local=local)
    links: list[Link] = []
    if chain:
        if words := then.exporting(request, chain):
            overrides = (*overrides, *words)
            request = job.make_request(resolved, overrides=overrides, local=local)
        links = then.plan(request, chain)
        for doubt in then.doubts(request, links):
            _warn(doubt)
    draw = chain is not None and chain.report
    offer(request, dry_run, force, wait, as_json, output, links, draw)


def offer(
    request: JobRequest,
    dry_run: bool,
    force: bool,
    wait: bool,
    as_json: bool,
    output: Path | None = None,
    links: Sequence[Link] = (),
    draw: bool = False,
    **more: Any,
) -> None:
    """Submit a request or print its script, after all that is to be said about it.

    The flags are those of ``submit``; ``links`` follow it, and ``draw`` says whether its report
    does; ``more`` is for ``submit.submit``.
    """
    import os

    from beam_slurm import checks
    from beam_slurm.errors import BeamSlurmError

    if as_json and dry_run:
        raise click.UsageError("--json tells of a run, and --dry-run makes none")
    checks.output(request)
    fits = bool(request.task) or _check_plan(request.profile, stop=not (dry_run or force))
    remark(request)
    if dry_run:
        if not fits:
            click.echo("submit would refuse this: see the errors of its plan above", err=True)
        _warn(_placeholders(request.missing))
        for task in (each.task for link in links for each in link.requests):
            if task:
                click.echo(f"then    {task.about}", err=True)
        script = os.fsencode(str(request))  # overrides may be any bytes
        if output:
            try:
                output.write_bytes(script)
            except OSError as error:
                raise BeamSlurmError(f"cannot write {output}", why=error.strerror) from error
        else:
            sys.stdout.buffer.write(script)
            sys.stdout.flush()
        return
    _send(request, links, wait, as_json, draw, **more)


def remark(*requests: JobRequest) -> None:
    """Say what of this shell and of their profiles these requests make no use of, each once."""
    from beam_slurm import checks

    known = (checks.unused, checks.mailless, checks.engineless)
    found = [check(request) for request in requests for check in known]
    for said in dict.fromkeys(found):
        _warn(said)


def _check_plan(profile: Profile, stop: bool) -> bool:
    """Say what the plan finds wrong; raise for its errors if they are to ``stop`` the run.

    Returns whether there are none.
    """
    from beam_slurm.cli import plan
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.measure import planned
    from beam_slurm.report import text

    made = planned(profile)
    said = tuple(finding for finding in made.findings if finding.severity != "note")
    plan.show_findings(text.console(stderr=True), said)
    if stop and not made.ok:
        raise BeamSlurmError(
            f"{profile.name} cannot work as it is: nothing was submitted",
            why="see the errors of its plan above",
            remedy="change that, or --force; beam-slurm plan shows all of it",
        )
    return made.ok


def _placeholders(missing: tuple[tuple[str, str], ...]) -> str | None:
    names = ", ".join(key for key, _ in missing)
    return f"placeholders stand for what the site file has not said yet: {names}" if names else None


def _warn(text: str | None) -> None:
    if text:
        click.secho("warning: ", fg="yellow", nl=False, err=True)
        click.echo(text, err=True)


def _check_drawing(wait: bool) -> None:
    """Refuse a report that nobody could draw, before anything is submitted."""
    from importlib.util import find_spec

    from beam_slurm.errors import BeamSlurmError

    if not wait:
        raise BeamSlurmError(
            "report at the end of --then needs --wait",
            why="it is drawn by the command that waits for the end",
            remedy="add --wait; or leave out report, and beam-slurm report RUN draws it later",
        )
    if find_spec("matplotlib") is None:
        raise BeamSlurmError(
            "--then ...,report needs matplotlib", remedy="pip install 'beam-slurm[report]'"
        )


def _send(
    request: JobRequest,
    links: Sequence[Link],
    wait: bool,
    as_json: bool,
    draw: bool,
    **more: Any,
) -> None:
    """Submit, say so, and stay if that is wished."""
    import json

    from beam_slurm import submit as room

    if links:
        from beam_slurm.posttraining import then

        then.check(links)
    run = room.submit(request, **more)
    behind: list[Run] = []
    if links:
        behind = then.follow(run, links)
    manifest = run.manifest
    if as_json:
        facts = {"run": run.id, "job": manifest.get("job"), "folder": str(run.path)}
        if request.task:
            facts["output"] = request.task.output
        if behind:
            facts["then"] = [each.id for each in behind]
        click.echo(json.dumps(facts))
    else:
        job_id = manifest.get("job")
        click.echo(f"{run.id}  " + (f"job {job_id}" if job_id else f"process {manifest['pid']}"))
        for each in behind:
            told = each.manifest
            click.echo(f"then    {each.id}  job {told['job']}, of step {told['task']['step']}")
        click.echo(f"folder  {run.path}")
        if not wait:
            click.echo(f"next    beam-slurm status {run.id}  |  beam-slurm logs {run.id} -f")
    if wait:
        early = any(link.waits.step is not None for link in links)
        sys.exit(_stay(run, behind, early, as_json, draw))


def _stay(run: Run, behind: Sequence[Run], early: bool, as_json: bool, draw: bool) -> int:
    """Wait for a run and all behind it, and draw it at last; the exit code of the first to fail.

    ``early``: what is behind may go on although the run has failed; else it is gone with it.
    """
    from rich.console import Console

    from beam_slurm.progress import INTERRUPTED, watch

    console = Console(stderr=as_json)
    code = watch(run, console)
    for each in behind if code == 0 or early else ():
        if code == INTERRUPTED:
            break
        if not as_json:
            click.echo(each.id)
        own = watch(each, console)
        code = own if own == INTERRUPTED else code or own
    if draw and code != INTERRUPTED:
        from beam_slurm.cli.report import write
        from beam_slurm.report import terminal, text
        from beam_slurm.report.facts import gather, with_common

        found = with_common([gather(run)], run.path.parent)
        text.console(stderr=as_json).print(terminal.show(found))
        for kind, path in write(found, run.path).items():
            click.echo(f"{kind:<6}  {path}", err=as_json)
    return code
