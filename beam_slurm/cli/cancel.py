"""``beam-slurm cancel``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="\b\nExample:\n  beam-slurm cancel b300-colocated-7c1f9e\n")
@click.argument("run")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where run folders lie.")
def cancel(run: str, folder: Path | None) -> None:
    """End a run: its job, all its steps, everything on its nodes. Ended already is no error.

    A run that waits for its next attempt is ended as well, in the queue or as a chained job.
    """
    import contextlib
    import os
    import signal

    from beam_slurm import profiles, runs, slurm
    from beam_slurm.errors import BeamSlurmError

    found = runs.find(run, profiles.runs_folder(folder))
    state = found.state()
    if state.ended:
        click.echo(f"{found.id} is over already")
        return
    if state.job and state.job.ended:  # whether another job goes on, its outcome will say
        raise BeamSlurmError(
            f"{found.id} cannot be cancelled yet",
            why=state.why,
            remedy=f"in a minute: beam-slurm cancel {found.id}",
        )
    manifest = found.manifest
    if manifest.get("executor") == "local":
        with contextlib.suppress(ProcessLookupError):  # it has ended in this very moment
            os.kill(manifest["pid"], signal.SIGTERM)
        click.echo(f"cancelling {found.id}: process {manifest['pid']}, {state.word}")
        return
    done: list[str] = []
    # Once more after the first: the job may have chained another one in this very moment.
    while (job := found.job) and job not in done:
        slurm.cancel(job)
        done.append(job)
    click.echo(f"cancelling {found.id}: job {', '.join(done)}, {state.word}")
