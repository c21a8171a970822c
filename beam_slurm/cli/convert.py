"""``beam-slurm convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from beam_slurm.cli import options

EXAMPLES = """\b
Examples:
  beam-slurm convert b300-colocated-7c1f9e                       the newest whole checkpoint
  beam-slurm convert b300-colocated-7c1f9e --step 100 -o /shared/beam-100 --wait
  beam-slurm convert /shared/outputs/first/checkpoints --profile b300-colocated
  beam-slurm convert /shared/models/Beam --to megatron --profile h200-async -o /shared/beam-mcore
"""


@click.command(epilog=EXAMPLES)
@click.argument("checkpoint", metavar="RUN|CHECKPOINT")
@click.option("--to", type=click.Choice(["hf", "megatron"]), default="hf", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The folder to make.")
@click.option("--step", type=int, help="The checkpoint of that step.  [default: the newest]")
@click.option("--merge-lora", is_flag=True, help="Adapters become part of the weights.")
@click.option("--profile", help="How the run was launched, if CHECKPOINT is a folder.")
@click.option("--dry-run", is_flag=True, help="Print the script that would be submitted.")
@click.option("--wait", is_flag=True, help="Stay until it is over; its exit code is the job's.")
@click.option("--local", is_flag=True, help="Run on this machine, without Slurm.")
@click.option("--json", "as_json", is_flag=True, help="Print the job's run id and folder as JSON.")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
@options.changes
def convert(
    checkpoint: str,
    to: Literal["hf", "megatron"],
    output: Path | None,
    step: int | None,
    merge_lora: bool,
    profile: str | None,
    dry_run: bool,
    wait: bool,
    local: bool,
    as_json: bool,
    folder: Path | None,
    site: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Make a Hugging Face folder of a checkpoint, in a job of its own.

    What was made is proved complete, tensor by tensor, before it gets its name.
    """
    from beam_slurm import posttraining, profiles
    from beam_slurm.cli.submit import offer
    from beam_slurm.posttraining import converting, source

    changes = profiles.parse_settings(settings)
    resolved = options.folders_profile(profile, site, changes)
    # The way back begins with a Hugging Face folder, the way forth with a framework's checkpoint.
    look = source.model if to == "megatron" else source.find
    found = look(checkpoint, profiles.runs_folder(folder), step, resolved, changes)
    task = converting.task(found, to, output, merge_lora)
    request = posttraining.request(found, task, local=local, root=folder)
    offer(request, dry_run, force=False, wait=wait, as_json=as_json)
