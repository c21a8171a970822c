"""``beam-slurm init``."""

from __future__ import annotations

from pathlib import Path

import click

EXAMPLES = """\b
Examples:
  beam-slurm init                              write ./site.yaml
  beam-slurm init --partition b300             for another partition
  beam-slurm init -o ~/.config/beam-slurm/site.yaml
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("site.yaml"),
    show_default=True,
    help="Where to write it.",
)
@click.option("--partition", help="Partition to use.  [default: the best one with GPUs]")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
@click.option(
    "--json", "as_json", is_flag=True, help="What was found and what is missing, as JSON."
)
def init(output: Path, partition: str | None, force: bool, as_json: bool) -> None:
    """Look at this cluster and write site.yaml.

    What Slurm and this machine tell is set. What only you can know stands in the file as a comment
    with an example and the reason.
    """
    import json

    from beam_slurm import discover, sitefile

    cluster = discover.look()
    runs = discover.runs_folder(Path.cwd(), cluster.mounts)
    file = sitefile.build(cluster, runs, partition)
    sitefile.write(output, file.text, force=force)
    if as_json:
        asked = dict(file.asked)
        click.echo(json.dumps({"file": str(output), "found": file.found, "asked": asked}, indent=1))
        return
    click.echo(f"wrote {output}")
    for key, value in file.found.items():
        click.echo(f"  {key:<12}  {json.dumps(value) if isinstance(value, dict) else value}")
    click.echo("for the large profiles, fill in:")
    for key, what in file.asked:
        click.echo(f"  {key:<16}  {what}")
    click.echo(
        "next    beam-slurm doctor" + ("" if _found_by_itself(output) else f" --site {output}")
    )


def _found_by_itself(output: Path) -> bool:
    from beam_slurm import profiles

    found = profiles.site_file()
    return found is not None and found.exists() and found.samefile(output)
