"""``beam-slurm runs``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beam_slurm.records.prune import Candidate
    from beam_slurm.records.record import Record
    from beam_slurm.records.rerun import Drift

STATES = ("pending", "starting", "running", "succeeded", "failed", "cancelled", "unknown")

EXAMPLES = """\b
Examples:
  beam-slurm runs list --state failed
  beam-slurm runs show b300-colocated-7c1f9e
  beam-slurm runs diff b300-colocated-7c1f9e b300-colocated-a03b51
  beam-slurm runs rerun b300-colocated-7c1f9e --dry-run
  beam-slurm runs prune --older-than 30d --dry-run
"""

where = click.option(
    "--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie."
)
as_json = click.option("--json", "as_json", is_flag=True, help="For machines.")
of_profile = click.option("--profile", help="Only runs of this profile.")


@click.group(epilog=EXAMPLES)
def runs() -> None:
    """What ran: list, show and compare records, run one again, remove old ones."""


@runs.command("list", epilog="\b\nExample:\n  beam-slurm runs list --profile demo --state failed\n")
@of_profile
@click.option("--state", "word", type=click.Choice(STATES), help="Only runs in this state.")
@as_json
@where
def list_runs(profile: str | None, word: str | None, as_json: bool, folder: Path | None) -> None:
    """Every run, old ones too.

    status shows how the newest do: their jobs, steps and rewards now.
    """
    import json

    from beam_slurm import profiles
    from beam_slurm.report import facts, ledger, text

    root = profiles.runs_folder(folder)
    known = _of_profile(root, profile)
    states, problem = facts.states(known)
    found = [both for both in zip(known, states, strict=True) if word in (None, both[1].word)]
    rows = [ledger.as_json(run, state) for run, state in found]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        click.echo(f"there is no such run in {root}" if profile or word else f"no run in {root}")
        return
    text.console().print(ledger.table(rows, [state for _, state in found]))
    if problem:
        _note(f"from the runs' own files alone: {problem}")


@runs.command(epilog="\b\nExample:\n  beam-slurm runs show b300-colocated-7c1f9e\n")
@click.argument("run")
@as_json
@where
def show(run: str, as_json: bool, folder: Path | None) -> None:
    """Everything that is recorded of RUN, and the room that it takes.

    Code, image, versions, the nodes of each attempt, every value and where it came from.
    """
    import json

    from beam_slurm.report import facts, record, text

    found = _record(run, folder)
    state = facts.state_of(found.run)
    if as_json:
        click.echo(json.dumps(record.as_json(found, state), indent=1))
        return
    _remarks(found, state.ended)
    text.console().print(record.show(found, state))


@runs.command(epilog="\b\nExample:\n  beam-slurm runs diff b300-colocated-7c1f9e b300-c --script\n")
@click.argument("first")
@click.argument("second")
@click.option("--script", is_flag=True, help="Compare the scripts too, line by line.")
@as_json
@where
def diff(first: str, second: str, script: bool, as_json: bool, folder: Path | None) -> None:
    """What two runs do not share, what matters first.

    The exit code is 0 if there is no difference, 1 if there is one, 2 for an error.
    """
    import json

    from beam_slurm.records import compare
    from beam_slurm.report import record, text

    pair = _record(first, folder), _record(second, folder)
    found = compare.compare(*pair)
    lines = compare.scripts(*pair) if script else []
    if as_json:
        click.echo(json.dumps({**found, **({"script": lines} if script else {})}, indent=1))
    else:
        for one in pair:
            for remark in one.remarks:
                _note(f"{one.run.id}: {remark}")
        for doubt in compare.doubts(*pair):
            _note(doubt)
        if found:
            text.console().print(record.differences(found, (pair[0].run.id, pair[1].run.id)))
        elif not lines:
            click.echo("no difference")
        if lines:
            text.console().print(record.patch(lines), end="")
    sys.exit(1 if found or lines else 0)


@runs.command(
    epilog="\b\nExamples:\n"
    "  beam-slurm runs rerun b300-colocated-7c1f9e --dry-run   the script, and what has changed\n"
    "  beam-slurm runs rerun b300-colocated-7c1f9e --wait\n"
)
@click.argument("run")
@click.option("--output-dir", help="Where the framework writes, if the run had said so itself.")
@click.option("--dry-run", is_flag=True, help="Print the script that would be submitted.")
@click.option("--force", is_flag=True, help="Submit although something has changed since.")
@click.option("--wait", is_flag=True, help="Stay until it is over; its exit code is the run's.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's id, job and folder as JSON.")
@where
def rerun(
    run: str,
    output_dir: str | None,
    dry_run: bool,
    force: bool,
    wait: bool,
    as_json: bool,
    folder: Path | None,
) -> None:
    """Submit RUN again, from its record.

    The script is the same, but for the run's own folder.
    What has changed since is said first: the code, the image, what this beam-slurm makes of the
    profile. Then nothing is submitted without --force.
    """
    from beam_slurm.cli import submit
    from beam_slurm.records import rerun as room
    from beam_slurm.records import surroundings

    found = _record(run, folder)
    given = [(("job", "output_dir"), output_dir)] if output_dir else []
    request = room.request(found, folder, given)
    around = surroundings.gather(request)
    _drifted(found, room.drift(found, around), stop=not (dry_run or force))
    submit.offer(request, dry_run, force, wait, as_json, around=around, rerun_of=found.run.id)


@runs.command(
    epilog="\b\nExamples:\n"
    "  beam-slurm runs prune --older-than 30d --dry-run\n"
    "  beam-slurm runs prune --keep 20 --profile demo --keep-record\n"
)
@click.option("--older-than", metavar="TIME", help="Runs that ended longer ago: 12h, 30d, 8w.")
@click.option("--keep", type=click.IntRange(min=0), help="All but the newest N.")
@of_profile
@click.option("--keep-record", is_flag=True, help="Leave what show, diff and rerun read.")
@click.option("--dry-run", is_flag=True, help="Show what would go, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@where
def prune(
    older_than: str | None,
    keep: int | None,
    profile: str | None,
    keep_record: bool,
    dry_run: bool,
    yes: bool,
    folder: Path | None,
) -> None:
    """Remove the folders of runs that are over. What lies outside of them stays where it is."""
    import time

    from beam_slurm import profiles
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.records import prune as room
    from beam_slurm.report import ledger, text

    if older_than is None and keep is None:
        raise click.UsageError("say which runs: --older-than TIME, --keep N, or both")
    now = time.time()
    before = now - _seconds(older_than) if older_than else None
    root = profiles.runs_folder(folder)
    known = _of_profile(root, profile)
    if theirs := sum(not room.ours(run) for run in known):
        _note(f"{theirs} of {len(known)} runs left out: somebody else's")
    found = room.candidates(known, root, before, keep or 0, keep_record)
    going = [one for one in found if not one.stays]
    if found:
        text.console().print(ledger.doomed(found, now))
    if not going:
        click.echo(f"nothing to remove in {root}")
        return

    def told(some: Sequence[Candidate]) -> tuple[str, str]:
        return text.count(len(some), "run"), text.size(sum(one.size for one in some))

    count, total = told(going)
    if dry_run:
        click.echo(f"would remove {count} and free {total}")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise BeamSlurmError(
                "nothing was removed", why="nobody is here to be asked", remedy="add --yes"
            )
        click.confirm(f"Remove {count} and free {total}?", abort=True)
    gone, problems = [], []
    for one in going:
        try:
            room.remove(one, keep_record)
            gone.append(one)
        except BeamSlurmError as problem:
            problems.append(problem)
    click.echo("removed {}, {} are free".format(*told(gone)))
    for error in problems:
        click.secho("error: ", fg="red", nl=False, err=True)
        click.echo(error, err=True)
    if problems:
        sys.exit(2)


def _of_profile(root: Path, profile: str | None) -> list[Any]:
    from beam_slurm import runs as room

    known = room.all_runs(root)
    return [run for run in known if profile in (None, run.manifest.get("profile"))]


def _record(run: str, folder: Path | None) -> Record:
    from beam_slurm import profiles
    from beam_slurm import runs as room
    from beam_slurm.records.record import Record

    return Record(room.find(run, profiles.runs_folder(folder)))


def _remarks(record: Record, ended: bool) -> None:
    """What a reader must know before he believes the rest."""
    from beam_slurm.report.facts import moved

    for remark in [*record.remarks, *moved(record.run, ended)]:
        _note(remark)


def _note(words: str, title: str = "note") -> None:
    from beam_slurm.report.text import safe

    click.secho(f"{title}: ", fg="yellow", nl=False, err=True)
    click.echo(safe(words), err=True)


def _drifted(record: Record, drift: Drift, stop: bool) -> None:
    """Say what has changed since; raise if that is to ``stop`` the run."""
    from beam_slurm.errors import BeamSlurmError
    from beam_slurm.report import record as view
    from beam_slurm.report import text

    if drift.script:
        text.console(stderr=True).print(view.patch(drift.script), end="")
    for note in drift.notes:
        _note(note)
    if not drift.changes:
        return
    if stop:
        raise BeamSlurmError(
            f"{record.run.id} would not run as it did: nothing was submitted",
            why="\n       ".join(drift.changes),
            remedy="put that back, or --force to run it as things are now",
        )
    for change in drift.changes:
        _note(change, "changed")


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if match is None:
        raise click.UsageError(f"--older-than {text!r} is no time: write 12h, 30d or 8w")
    return int(match[1]) * {"h": 3600.0, "d": 86400.0, "w": 604800.0}[match[2]]
