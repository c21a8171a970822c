"""What follows training: which checkpoint, what becomes of it, and the job that does it."""

from __future__ import annotations

from typing import Any

from beam_slurm import job, profiles
from beam_slurm.job import JobRequest
from beam_slurm.posttraining.source import Source
from beam_slurm.task import Task
from beam_slurm.yamlfile import Key


def request(source: Source, task: Task, name: str | None = None, **where: Any) -> JobRequest:
    """The request of a job that does ``task``, launched as the run that wrote the checkpoint was.

    Args:
        source: the checkpoint.
        task: what is done with it.
        name: the job's; left out, one made of the source's.
        where: ``job.make_request``'s run_id, local and root.

    Raises:
        BeamSlurmError: it cannot be launched.
    """
    values: list[tuple[Key, Any]] = [
        (("hardware", "nodes"), task.nodes),
        (("job", "name"), name or f"{source.name}-{task.label}"[:64]),
        (("job", "spares"), 0),
        (("job", "total_time"), None),
        (("job", "output_dir"), None),
    ]
    resolved = profiles.changed(
        source.resolved, [(key, value, f"beam-slurm {task.name}") for key, value in values]
    )
    return job.instead(job.make_request(resolved, **where), task)
