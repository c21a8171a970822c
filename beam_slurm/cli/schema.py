"""``beam-slurm schema``."""

from __future__ import annotations

from pathlib import Path

import click

EXAMPLES = """\b
Examples:
  beam-slurm schema site -o site.schema.json
  beam-slurm schema profile | jq '.properties | keys'
"""


@click.command(epilog=EXAMPLES)
@click.argument("kind", type=click.Choice(["profile", "site"]))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write it to this file.")
def schema(kind: str, output: Path | None) -> None:
    """Print the JSON schema of profiles or site files, for editors.

    With -o, the line to put at the top of a YAML file is printed: editors complete and check the
    file by it.
    """
    import json

    from beam_slurm import jsonschema
    from beam_slurm.errors import BeamSlurmError

    text = json.dumps(getattr(jsonschema, kind)(), indent=1)
    if output is None:
        click.echo(text)
        return
    try:
        output.write_text(text + "\n")
    except OSError as error:
        raise BeamSlurmError(f"cannot write {output}", why=error.strerror) from error
    click.echo(jsonschema.header(output))
