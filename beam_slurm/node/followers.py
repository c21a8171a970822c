"""The jobs that wait for a run, in its folder: ``submit --then`` writes them down.

A line each: ``JOB`` waits for the run's success, ``JOB STEP`` no longer than for the checkpoint of
that step, ``JOB STEP FOLDER`` for the model that the framework exports there. What does not wait
for the run any more is not in the file. One writer at a time: the submission makes it, once and as
a whole, and from then on the supervisor keeps it.
"""

import os
from typing import Iterable, List, NamedTuple, Optional

from beam_slurm.node import events

FILE = "followers"


class Follower(NamedTuple):
    """A job that waits.

    Attributes:
        job: its id.
        step: training steps of the checkpoint that it waits for; None if it waits for the end.
        model: the exported model that it reads in place of a checkpoint; "" if it does not.
    """

    job: str
    step: Optional[int] = None
    model: str = ""


def read(run: str) -> List[Follower]:
    """What waits for a run; [] if nothing does, or nobody can say."""
    try:
        with open(os.path.join(run, FILE)) as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        job, step, model = [*line.split(" ", 2), "", ""][:3]
        if job:
            found.append(Follower(job, int(step) if step.isdigit() else None, model))
    return found


def write(run: str, waiting: Iterable[Follower]) -> None:
    """Write down what waits for a run, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    lines = [
        " ".join([job, *([str(step)] if step is not None else []), *([model] if model else [])])
        for job, step, model in waiting
    ]
    events.write_file(os.path.join(run, FILE), "".join(line + "\n" for line in lines), 0o666)
