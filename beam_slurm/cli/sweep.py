"""``beam-slurm sweep``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.sweep.folder import Folder
    from beam_slurm.sweep.planning import Planned

EXAMPLES = """\b
Examples:
  beam-slurm sweep lr.yaml --dry-run              the points, the arrays, the GPU-hours
  beam-slurm sweep lr.yaml --dry-run -o first.sbatch
  beam-slurm sweep lr.yaml --max-parallel 4 --wait
  beam-slurm sweep lr.yaml --max-gpu-hours 5000 --trim
  beam-slurm sweep status lr-3f2a1b               also of an evaluation of several checkpoints
  beam-slurm sweep results lr-3f2a1b -o lr.png
  beam-slurm sweep lr-3f2a1b --retry-failed       those alone
  beam-slurm sweep lr-3f2a1b --resume             what is not submitted, or was cancelled
  beam-slurm cancel lr-3f2a1b

\b
A sweep file:
  profile: h200-colocated
  set: {recipe.steps: 100}
  over:
    recipe.learning_rate: {log_uniform: [1e-6, 1e-5], points: 3}
    "policy.optimizer.kwargs.weight_decay={}": [0.0, 0.1]    # a word behind --
  seeds: [1, 2]
  objective: {metric: accuracy/aime2025, over: best}
  max_parallel: 2
"""


class _Unnamed(click.Context):
    """Messages name the group alone: its command ``run`` is what nobody types."""

    @property
    def command_path(self) -> str:
        return self.parent.command_path if self.parent else ""


class _Run(click.Command):
    context_class = _Unnamed


class _Sweeping(click.Group):
    """A group whose first word may be a sweep file: then it is its command ``run``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] FILE | status SWEEP | results SWEEP")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands["run"].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(cls=_Sweeping, epilog=EXAMPLES)
def sweep() -> None:
    """Submit a profile at many points, each a whole run, and see which is best.

    FILE says what varies. With --resume and --retry-failed it may be a sweep's id or folder, too.
    """


@sweep.command(cls=_Run, hidden=True)
@click.argument("name", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Show points, arrays and GPU-hours, submit nothing.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="--dry-run: the first point's script."
)
@click.option("--max-parallel", type=click.IntRange(1), help="Points that may run at a time.")
@click.option("--max-gpu-hours", type=float, help="Refuse what may cost more, all points together.")
@click.option("--trim", is_flag=True, help="Submit the first points that fit into that instead.")
@click.option("--resume", is_flag=True, help="Submit what is not submitted, or was cancelled.")
@click.option("--retry-failed", is_flag=True, help="Run a sweep's failed points again.")
@click.option("--force", is_flag=True, help="Submit although a point's plan has errors.")
@click.option("--wait", is_flag=True, help="Stay until it is over; early_stop works meanwhile.")
@click.option("--local", is_flag=True, help="Run on this machine, without Slurm.")
@click.option("--site", type=click.Path(path_type=Path), help="Site file, as for submit.")
@click.option("--runs", "where", type=click.Path(path_type=Path), help="Where run folders lie.")
def run(
    name: str,
    dry_run: bool,
    output: Path | None,
    resume: bool,
    retry_failed: bool,
    wait: bool,
    site: Path | None,
    where: Path | None,
    **fresh: Any,
) -> None:
    """Submit a sweep, or go on with one."""
    from beam_slurm.report import text
    from beam_slurm.sweep.waiting import wait as stay

    if output and not dry_run:
        raise click.UsageError("--output goes with --dry-run")
    if resume or retry_failed:
        given = [f"--{key.replace('_', '-')}" for key, value in fresh.items() if value]
        if given or dry_run:
            what = given[0] if given else "--dry-run"
            raise click.UsageError(f"{what} is for a new sweep: this one goes on as it began")
        of = _go_on(name, where, site, retry_failed)
    else:
        found = _new(name, site, where, dry_run=dry_run, output=output, **fresh)
        if found is None:
            return
        of = found
    if of is None:
        return
    show(of, wait)
    if wait:
        sys.exit(stay(of, text.console()))


def _new(
    name: str,
    site: Path | None,
    where: Path | None,
    *,
    dry_run: bool,
    output: Path | None,
    max_parallel: int | None,
    max_gpu_hours: float | None,
    trim: bool,
    force: bool,
    local: bool,
) -> Folder | None:
    """A new sweep; None after a dry run."""
    from beam_slurm import runs
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.sweep import file, planning, submission
    from beam_slurm.sweep.stopping import Judge

    path = Path(name)
    if path.is_dir() or not path.exists():
        raise BeamSlurmError(
            f"there is no sweep file {name}" if not path.is_dir() else f"{name} is a folder",
            remedy="to go on with a sweep: --resume or --retry-failed",
        )
    read = file.read(path)
    planned = planning.make(read, runs.new_id(read.name), site=site, root=where, local=local)
    most = read.file.max_gpu_hours if max_gpu_hours is None else max_gpu_hours
    planned, refused = _budget(planned, most, trim)
    refused = _findings(planned, force) or refused
    parallel = max_parallel or read.file.max_parallel
    if dry_run:
        _dry_run(read.name, planned, parallel, output)
        if refused:
            click.echo(f"it would be refused: {refused.what}", err=True)
        return None
    if refused:
        raise refused
    if read.file.early_stop and read.file.objective:
        Judge(read.file.early_stop, read.file.objective)  # raises without Optuna
    planning.check(planned)
    return submission.start(read, planned, parallel)


def _go_on(name: str, where: Path | None, site: Path | None, retry: bool) -> Folder | None:
    """A sweep that was submitted before; None if there is nothing to do."""
    from beam_slurm import profiles
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.sweep import file, folder, submission
    from beam_slurm.sweep.states import Observer

    of = folder.find(name, profiles.runs_folder(where))
    original = Path(of.content.file) if of.content.file else None
    edited = bool(original and original.is_file() and file.digest(original) != of.content.sha256)
    if edited and Path(name).is_file():
        raise BeamSlurmError(
            f"{name} was edited after it was submitted as {of.id}",
            why="its points would not be those that run",
            remedy=f"as a sweep of its own: beam-slurm sweep {name}; to go on with the old one: "
            f"beam-slurm sweep {of.id} --{'retry-failed' if retry else 'resume'}; "
            f"what is different: diff {of.path / folder.COPY} {name}",
        )
    if edited:
        click.echo(f"note: {original} was edited since; this goes on as it was submitted", err=True)
    if original:
        of.sweep()  # raises if its copy was edited
    observer = Observer()
    looks = observer.look(of) if retry or of.content.cancelled else []
    if observer.note:  # what runs would be taken for lost, and run twice
        raise BeamSlurmError(
            f"nobody can say now which {of.noun}s {'have failed' if retry else 'were cancelled'}",
            why=observer.note,
            remedy="nothing was submitted; try again when Slurm answers",
        )
    again = [look.index for look in looks if (look.failed if retry else look.cancelled)]
    if not again and retry:
        click.echo(f"no {of.noun} of {of.id} has failed")
        return None
    if site and not again:
        raise click.UsageError("--site is for points that run again, and there are none")
    submission.go_on(of, again, site)
    if again:
        click.echo(f"again: points {', '.join(map(str, again))}")
    return of


def _budget(
    planned: list[Planned], most: float | None, trim: bool
) -> tuple[list[Planned], BeamSlurmError | None]:
    """The points that the budget leaves, and why it refuses them all."""
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.report import text
    from beam_slurm.sweep import planning

    if trim and most is None:
        raise click.UsageError("--trim goes with --max-gpu-hours, or max_gpu_hours in the file")
    total = planning.hours(planned)
    if most is None or total <= most:
        return planned, None
    kept = planning.within(planned, most)
    cost = text.number(planning.hours(kept))
    if trim and kept:
        click.echo(
            f"trimmed: the first {len(kept)} of {len(planned)} points, {cost} GPU-hours of "
            f"{text.number(total)}; {text.number(most)} are allowed",
            err=True,
        )
        return kept, None
    part = f"--trim keeps the first {len(kept)} ({cost} GPU-hours), or " if kept else ""
    return planned, BeamSlurmError(
        f"{text.count(len(planned), 'point')} may cost {text.number(total)} GPU-hours, "
        f"over {text.number(most)}",
        why="each counts with all its nodes over its whole time limit",
        remedy=f"{part}set job.time to what a point needs, or vary less",
    )


def _findings(planned: Sequence[Planned], force: bool) -> BeamSlurmError | None:
    """Say what the plans find wrong, each finding once; why they refuse the sweep."""
    from beam_slurm.cli.plan import show_findings
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.report import text

    first: dict[Any, Planned] = {}
    for each in planned:
        for finding in each.findings:
            if finding.severity != "note":
                first.setdefault(finding, each)
    show_findings(text.console(stderr=True), tuple(first))
    wrong = [each for finding, each in first.items() if finding.severity == "error"]
    if not wrong or force:
        return None
    point = wrong[0].point
    return BeamSlurmError(
        f"point {point.index} ({point.label}) cannot work as it is: nothing was submitted",
        why="see the errors of its plan above",
        remedy="change that, leave the point out with except, or --force",
    )


def _dry_run(
    name: str, planned: Sequence[Planned], parallel: int | None, output: Path | None
) -> None:
    import os

    from beam_slurm.errors import BeamSlurmError

    if output:
        try:
            output.write_bytes(os.fsencode(str(planned[0].request)))
        except OSError as error:
            raise BeamSlurmError(f"cannot write {output}", why=error.strerror) from error
    show_plan(name, planned, parallel)


def show_plan(
    name: str, planned: Sequence[Planned], parallel: int | None = None, *, err: bool = False
) -> None:
    """The points of what would be submitted as ``name``, its arrays, and what it may cost."""
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.report import text
    from beam_slurm.sweep import limits, planning, view

    request = planned[0].request
    text.console(stderr=err).print(view.plan(planned))
    try:
        found = limits.Limits() if request.local else limits.ask(request.profile.site)
    except BeamSlurmError as error:
        found = limits.Limits()
        click.echo(f"note: arrays as Slurm allows them by itself, for {error.what}", err=True)
    if not request.local:
        for line in view.chunks(planned, found, parallel):
            click.echo(line, err=err)
    cost = text.number(planning.hours(planned))
    count = text.count(len(planned), planned[0].noun)
    click.echo(f"{name}: {count}, at most {cost} GPU-hours", err=err)
    if found.jobs is not None and len(planned) > found.jobs - found.queued:
        click.echo(
            f"note: of your {found.jobs} jobs in the queue {found.queued} are there already: the "
            "rest follows with --resume, or by itself with --wait",
            err=True,
        )


def show(of: Folder, wait: bool) -> None:
    """What was submitted, and what to type next."""
    from beam_slurm.report import text
    from beam_slurm.sweep import view

    console = text.console()
    console.print(view.head(of))
    click.echo(f"folder  {of.path}")
    left = 0 if of.local else len(of.left())
    if left:
        after = "follow as there is room" if wait else f"beam-slurm sweep {of.id} --resume, later"
        click.echo(
            f"left    {text.count(left, of.noun)}: you may not have more jobs in the queue; {after}"
        )
    if of.early_stop and not wait:
        click.echo(f"note    early_stop works with: beam-slurm sweep {of.id} --resume --wait")
    if not wait:
        click.echo(f"next    beam-slurm sweep status {of.id}")


@sweep.command(epilog="\b\nExample:\n  beam-slurm sweep status lr-3f2a1b --all\n")
@click.argument("name", metavar="SWEEP")
@click.option("--all", "everything", is_flag=True, help="Every point, not only the first 50.")
@click.option("--json", "as_json", is_flag=True, help="For machines: every point.")
@click.option("--runs", "where", type=click.Path(path_type=Path), help="Where run folders lie.")
def status(
    name: str, everything: bool = False, as_json: bool = False, where: Path | None = None
) -> None:
    """Where the points are: state, step, objective, time left."""
    import json

    from beam_slurm import profiles
    from beam_slurm.report import text
    from beam_slurm.sweep import folder, results, view
    from beam_slurm.sweep.states import Observer

    of = folder.find(name, profiles.runs_folder(where))
    wanted = of.objective
    observer = Observer()
    looks = observer.look(of)
    if as_json:
        click.echo(json.dumps(results.finite(results.records(looks, wanted)), indent=1))
        return
    console = text.console()
    console.print(view.head(of))
    shown = looks if everything else looks[:50]
    console.print(view.table(shown, wanted))
    if len(shown) < len(looks):
        click.echo(f"{len(looks) - len(shown)} more: beam-slurm sweep status {of.id} --all")
    console.print(view.counts(of, looks))
    if observer.note:
        click.echo(f"note: from the runs' own files alone: {observer.note}", err=True)
    failed = next((look.entry.run for look in looks if look.failed), None)
    if failed:
        again = f"sweep {of.id} --retry-failed" if of.content.file else f"status {failed}"
        click.echo(f"next    beam-slurm {again}")


@sweep.command(epilog="\b\nExample:\n  beam-slurm sweep results lr-3f2a1b -o lr.png\n")
@click.argument("name", metavar="SWEEP")
@click.option("--csv", "as_csv", is_flag=True, help="One line a point, with a head.")
@click.option("--json", "as_json", is_flag=True, help="The same for machines, best point first.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Draw the objective over each key: PNG."
)
@click.option("--runs", "where", type=click.Path(path_type=Path), help="Where run folders lie.")
def results(
    name: str, as_csv: bool, as_json: bool, output: Path | None, where: Path | None
) -> None:
    """Which combination is best: the objective, as a mean over the seeds that have succeeded."""
    import json

    from beam_slurm import profiles
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.report import text
    from beam_slurm.sweep import figure, folder, view
    from beam_slurm.sweep import results as room
    from beam_slurm.sweep.states import Observer

    of = folder.find(name, profiles.runs_folder(where))
    wanted = of.objective
    if wanted is None:
        hint = "the next time: objective: {metric: reward}; " if of.content.file else ""
        raise BeamSlurmError(
            f"{of.id} has no objective",
            where=str(of.path / folder.COPY) if of.content.file else None,
            remedy=f"{hint}all {of.noun}s: beam-slurm sweep status {of.id} --json",
        )
    observer = Observer()
    looks = observer.look(of)
    rows = room.rank(looks, wanted)
    if as_csv:
        click.echo(room.as_csv(room.records(looks, wanted)), nl=False)
    elif as_json:
        best_first = [look for row in rows for look in row.looks]
        click.echo(json.dumps(room.finite(room.records(best_first, wanted)), indent=1))
    else:
        console = text.console()
        console.print(view.head(of))
        console.print(view.ranking(rows, wanted))
        console.print(view.counts(of, looks))
        if rows[0].mean is not None:
            best = rows[0].looks[0].facts.run
            click.echo(f"best    beam-slurm report {best.id}")
            click.echo(f"again   beam-slurm runs rerun {best.id}")
    if observer.note:
        click.echo(f"note: from the runs' own files alone: {observer.note}", err=True)
    if output:
        figure.draw(of, rows, wanted, output)
        click.echo(f"figure  {output}", err=as_csv or as_json)
