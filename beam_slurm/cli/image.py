"""``beam-slurm image``."""

from __future__ import annotations

from pathlib import Path

import click

EXAMPLES = """\b
Examples:
  beam-slurm image import nvcr.io/nvidia/nemo-rl:v0.4 -o /shared/images/nemo-rl.sqsh
  beam-slurm image import radixark/miles:beam -o /shared/images/miles.sif --dry-run
"""


@click.group(epilog=EXAMPLES)
def image() -> None:
    """Container images as files on shared storage."""


@image.command("import", epilog=EXAMPLES)
@click.argument("reference", metavar="IMAGE")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="The file to make, on shared storage: .sqsh for pyxis, .sif for Apptainer.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one value.")
@click.option("--site", type=click.Path(path_type=Path), help="Site file.")
@click.option("--dry-run", is_flag=True, help="Print the script that would be submitted.")
@click.option("--wait", is_flag=True, help="Stay until the file is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the job and the file as JSON.")
def import_(
    reference: str,
    output: Path,
    settings: tuple[str, ...],
    site: Path | None,
    dry_run: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Import a container image once, as a small job, for all nodes and runs."""
    import json

    from beam_slurm import conflicts, imports, profiles

    resolved = profiles.resolve("demo", site=site, settings=profiles.parse_settings(settings))
    conflicts.refuse(resolved)
    made = imports.make(resolved.profile.site, reference, output)
    if dry_run:
        click.echo(str(made), nl=False)
        return
    job = imports.submit(made)
    if as_json:
        click.echo(json.dumps({"job": job, "file": str(made.file)}))
    else:
        click.echo(f"job {job}  makes {made.file}")
        click.echo(f"log    {made.log.replace('%j', job)}")
    if wait:
        imports.wait(made, job)
