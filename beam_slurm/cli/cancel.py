"""``beam-slurm cancel``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="\b\nExample:\n  beam-slurm cancel b300-colocated-7c1f9e\n")
@click.argument("run")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
def cancel(run: str, folder: Path | None) -> None:
    """End a run: its job, all its steps, everything on its nodes. Ended already is no error."""
    import os
    import signal

    from beam_slurm import profiles, runs, slurm

    found = runs.find(run, profiles.runs_folder(folder))
    if found.state().ended:
        click.echo(f"{found.id} is over already")
        return
    manifest = found.manifest
    if manifest.get("executor") == "local":
        os.kill(manifest["pid"], signal.SIGTERM)
    else:
        slurm.cancel(manifest["job"])
    click.echo(f"cancelling {found.id}")
