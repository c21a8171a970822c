"""``beam-slurm evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

EXAMPLES = """\b
Examples:
  beam-slurm evaluate b300-colocated-7c1f9e --set aime2025       its newest converted checkpoint
  beam-slurm evaluate b300-colocated-7c1f9e --set mine --data mine.jsonl --samples 16 --wait
  beam-slurm evaluate /shared/models/Beam --profile b300-colocated --set aime2025
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", metavar="RUN|FOLDER")
@click.option("--set", "name", required=True, help="The problems: aime2025, or a name for --data.")
@click.option("--data", type=click.Path(path_type=Path), help="A JSONL or Parquet file of them.")
@click.option("--samples", type=click.IntRange(1), default=8, show_default=True)
@click.option("--max-tokens", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--temperature", type=click.FloatRange(0), default=1.0, show_default=True)
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="For responses and scores.")
@click.option("--step", type=int, help="The converted checkpoint of that step.")
@click.option("--profile", help="Nodes, image and framework, if a FOLDER is named.")
@click.option("--dry-run", is_flag=True, help="Print the script that would be submitted.")
@click.option("--wait", is_flag=True, help="Stay until it is over; its exit code is the job's.")
@click.option("--local", is_flag=True, help="Run on this machine, without Slurm.")
@click.option("--json", "as_json", is_flag=True, help="Print the job's run id and folder as JSON.")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
@click.option("--site", type=click.Path(path_type=Path), help="Site file, for --profile.")
def evaluate(
    model: str,
    name: str,
    data: Path | None,
    output: Path | None,
    step: int | None,
    profile: str | None,
    site: Path | None,
    dry_run: bool,
    wait: bool,
    local: bool,
    as_json: bool,
    folder: Path | None,
    **sampling: Any,
) -> None:
    """Score a model on a set of problems, the same way whoever trained it.

    Responses are kept one by one: an evaluation that was interrupted goes on where it stopped.
    """
    if sampling["temperature"] == 0 and sampling["samples"] > 1:
        raise click.UsageError("at --temperature 0 all samples are the same: add --samples 1")
    from beam_slurm import posttraining, profiles
    from beam_slurm.cli.submit import offer
    from beam_slurm.posttraining import evaluating, source

    resolved = profiles.resolve(profile, site=site) if profile else None
    found = source.model(
        model,
        profiles.runs_folder(folder),
        step,
        resolved,
    )
    asked = evaluating.Settings(name, data.absolute() if data else None, **sampling)
    task = evaluating.task(found, asked, output)
    request = posttraining.request(found, task, local=local, root=folder)
    offer(request, dry_run, force=False, wait=wait, as_json=as_json)
