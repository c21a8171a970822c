"""``beam-slurm evaluate``."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beam_slurm.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beam_slurm.sweep.folder import Folder
    from beam_slurm.sweep.planning import Planned

EXAMPLES = """\b
Examples:
  beam-slurm evaluate b300-colocated-7c1f9e --set aime2025       its newest converted checkpoint
  beam-slurm evaluate b300-colocated-7c1f9e --set mine --data mine.jsonl --samples 16 --wait
  beam-slurm evaluate /shared/models/Beam --profile b300-colocated --set aime2025

\b
Several checkpoints, as one array:
  beam-slurm evaluate b300-colocated-7c1f9e --step 20 --step 40 --set aime2025
  beam-slurm evaluate b300-colocated-7c1f9e --step all --set aime2025 --wait
  beam-slurm evaluate b300-colocated-7c1f9e h200-async-a03b51 --set aime2025
  beam-slurm status evaluate-aime2025-3f2a1b                     all of them, with their scores
  beam-slurm cancel evaluate-aime2025-3f2a1b
"""


def _steps(context: object, option: object, words: tuple[str, ...]) -> Sequence[int] | None:
    """The steps that are named, each once; None for all."""
    if words == ("all",):
        return None
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise click.BadParameter("a number of training steps, or once: all")
    return list(dict.fromkeys(map(int, words)))


def _finite(context: object, option: object, value: float) -> float:
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number that a model could be asked with")
    return value


@click.command(epilog=EXAMPLES)
@click.argument("models", metavar="RUN|FOLDER...", nargs=-1, required=True)
@click.option("--set", "name", required=True, help="The problems: aime2025, or a name for --data.")
@click.option("--data", type=click.Path(path_type=Path), help="A JSONL or Parquet file of them.")
@click.option("--samples", type=click.IntRange(1), default=8, show_default=True)
@click.option("--max-tokens", type=click.IntRange(1), default=4096, show_default=True)
@click.option(
    "--temperature", type=click.FloatRange(0), default=1.0, show_default=True, callback=_finite
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    callback=_finite,
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="For responses and scores. Of several checkpoints: a folder that is there, in which each "
    "gets its own.  [default: beside each model]",
)
@click.option(
    "--step",
    "steps",
    multiple=True,
    metavar="N|all",
    callback=_steps,
    help="The converted checkpoint of that step; may be repeated. all: every one.  "
    "[default: the newest]",
)
@click.option("--profile", help="Nodes, image and framework, if a FOLDER is named.")
@click.option("--dry-run", is_flag=True, help="Print the (first) script that would be submitted.")
@click.option("--wait", is_flag=True, help="Stay until it is over; its exit code is the job's.")
@click.option("--local", is_flag=True, help="Run on this machine, without Slurm.")
@click.option("--json", "as_json", is_flag=True, help="Print runs' ids, jobs and folders as JSON.")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
@click.option("--site", type=click.Path(path_type=Path), help="Site file, for --profile.")
def evaluate(
    models: tuple[str, ...],
    name: str,
    data: Path | None,
    output: Path | None,
    steps: Sequence[int] | None,
    profile: str | None,
    site: Path | None,
    dry_run: bool,
    wait: bool,
    local: bool,
    as_json: bool,
    folder: Path | None,
    **sampling: Any,
) -> None:
    """Score models on a set of problems, the same way whoever trained them.

    Several are one job array, and each a run of its own; all are checked before any is submitted.
    With --wait, the exit code is that of the first that fails; --local takes one after the other.
    Responses are kept one by one: an evaluation that was interrupted goes on where it stopped.
    """
    if sampling["temperature"] == 0 and sampling["samples"] > 1:
        raise click.UsageError("at --temperature 0 all samples are the same: add --samples 1")
    from beam_slurm import posttraining, profiles
    from beam_slurm.cli.submit import offer
    from beam_slurm.posttraining import evaluating, several

    resolved = options.folders_profile(profile, site)
    root = profiles.runs_folder(folder)
    found = several.find(models, root, steps, resolved)
    asked = evaluating.Settings(name, data.absolute() if data else None, **sampling)
    if len(found) > 1:
        planned = several.plan(found, asked, output, root=root, local=local)
        _offer(planned, dry_run, wait, as_json)
        return
    task = evaluating.task(found[0], asked, output)
    request = posttraining.request(found[0], task, local=local, root=folder)
    offer(request, dry_run, force=False, wait=wait, as_json=as_json)


def _offer(planned: Sequence[Planned], dry_run: bool, wait: bool, as_json: bool) -> None:
    """Submit several as one sweep, or show what that would be and the first one's script."""
    from beam_slurm.cli.submit import offer, remark
    from beam_slurm.cli.sweep import show, show_plan

    if dry_run:
        offer(planned[0].request, dry_run, force=False, wait=wait, as_json=as_json)
        show_plan(planned[0].request.run.parent.name, planned, err=True)
        return
    from beam_slurm.report import text
    from beam_slurm.sweep import planning, submission
    from beam_slurm.sweep.waiting import wait as stay

    remark(*(each.request for each in planned))
    planning.check(planned)
    of = submission.start(None, planned, None)
    if as_json:
        _tell(of)
    else:
        show(of, wait)
    if wait:
        sys.exit(stay(of, text.console(stderr=as_json)))


def _tell(of: Folder) -> None:
    import json

    from beam_slurm.runs import Run

    jobs = of.jobs()
    told = [
        {
            "run": entry.run,
            "job": jobs.get(entry.run),
            "folder": str(of.path / entry.run),
            "output": str(Run(of.path / entry.run).output),
        }
        for entry in of.content.points
    ]
    arrays = [chunk.job for chunk in of.content.chunks]
    click.echo(json.dumps({"sweep": of.id, "jobs": arrays, "folder": str(of.path), "runs": told}))
