"""What follows a run by itself: jobs that wait in the queue for its success.

    train ── afterok ──▶ convert ── afterok ──▶ evaluate

Each is a run with a folder of its own. If the one before fails or is cancelled, Slurm removes those
behind it; if it goes on in another job, it takes them along (``node.again``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from beam_slurm import posttraining, submit
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.node.again import FOLLOWERS
from beam_slurm.posttraining import converting, evaluating, source
from beam_slurm.runs import Run

WORDS = ("convert", "evaluate")


def parse(text: str) -> tuple[str, ...]:
    """``convert`` or ``convert,evaluate``, taken apart.

    Raises:
        BeamSlurmError: it is something else.
    """
    words = tuple(word.strip() for word in text.split(","))
    if words not in (WORDS, WORDS[:1]):
        raise BeamSlurmError(
            f"--then {text} is no chain",
            remedy="--then convert, or --then convert,evaluate: the one needs the other",
        )
    return words


def plan(request: JobRequest, words: Sequence[str]) -> list[JobRequest]:
    """The requests of what follows the one of a run.

    Raises:
        BeamSlurmError: what is asked for cannot follow it; known before anything is submitted.
    """
    if request.local:
        raise BeamSlurmError("--then needs Slurm: without it, no job waits for another")
    at, root = source.last(request), request.run.parent
    made = []
    for word in words:
        if word == "convert":
            task = converting.task(at, "hf", None, merge_lora=False)
            made.append(posttraining.request(at, task, root=root))
            at = replace(at, path=Path(task.output))
        else:
            task = evaluating.task(at, evaluating.Settings.of(request.profile.recipe), None)
            made.append(posttraining.request(at, task, root=root))
    return made


def follow(run: Run, planned: Sequence[JobRequest]) -> list[Run]:
    """Submit what follows ``run``, each behind the one before it; the jobs' own runs.

    Raises:
        BeamSlurmError: one is refused; those before it, and the run itself, go on.
    """
    made: list[Run] = []
    for request in planned:
        before = made[-1] if made else run
        follower = submit.submit(request, after=before.job, follows=before.id)
        (before.path / FOLLOWERS).write_text(f"{follower.job}\n")
        made.append(follower)
        run.record(then=[each.id for each in made])
    return made
