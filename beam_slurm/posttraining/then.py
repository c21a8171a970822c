"""What follows a run by itself: jobs that wait in the queue for its success, or its checkpoints.

    train ── afterok ──▶ convert ── afterok ──▶ evaluate        of the last step
      └── step N is saved ──▶ convert ── afterok ──▶ evaluate   with :every N

Each is a run with a folder of its own. If the one before fails or is cancelled, Slurm removes those
behind it; if it goes on in another job, it takes them along (``node.again``). With ``:every N`` the
supervisor of the run releases each conversion as soon as its checkpoint is whole
(``node.release``): what was released goes on, whatever becomes of the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from beam_slurm import checks, posttraining, resume, runs, submit
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.node import checkpoint, followers
from beam_slurm.node.followers import Follower
from beam_slurm.posttraining import converting, evaluating, source
from beam_slurm.records import surroundings
from beam_slurm.runs import Run

SHAPE = re.compile(
    r"convert(?P<evaluate>,evaluate)?(?P<early>:every (?P<every>[1-9]\d{0,8}))?(?P<report>,report)?"
)
EVERY = re.compile(r":every [1-9]\d{0,8}(,|$)")
MOST = 50  # checkpoints of one chain: two jobs each, which count against the user's limit


@dataclass(frozen=True)
class Chain:
    """What ``--then`` asks for.

    Attributes:
        evaluate: each converted model is scored.
        every: training steps between two conversions; None: of the last step alone.
        report: the run is drawn when all is over.
    """

    evaluate: bool
    every: int | None
    report: bool


@dataclass(frozen=True)
class Link:
    """What follows one checkpoint.

    Attributes:
        step: training steps behind it.
        requests: its conversion, and what follows that.
        waits: what the first one waits for, less its job's id.
    """

    step: int
    requests: tuple[JobRequest, ...]
    waits: Follower


def parse(text: str) -> Chain:
    """``convert,evaluate:every 20,report`` or a part of it, taken apart.

    Raises:
        BeamSlurmError: it is something else.
    """
    words = ",".join(word.strip() for word in text.split(","))
    found = SHAPE.fullmatch(words)
    if found is None:
        why = "the one needs the other, in this order: convert,evaluate:every N,report"
        if not words:
            why = "it is empty"
        elif ":" in words and not EVERY.search(words):
            why = ":every N takes a whole number of training steps, at least 1"
        raise BeamSlurmError(
            f"--then {text!r} is no chain",
            why=why,
            remedy='--then convert,evaluate, or with quotes --then "convert,evaluate:every 20"',
        )
    every = int(found["every"]) if found["every"] else None
    return Chain(bool(found["evaluate"]), every, bool(found["report"]))


def exporting(request: JobRequest, chain: Chain) -> tuple[str, ...]:
    """Words for the end of the entry by which a run exports what the chain will read.

    () if its checkpoints can be read.

    Raises:
        BeamSlurmError: the words behind -- say it already.
    """
    export = request.launch.export
    if export is None:
        return ()
    if said := [word for word in request.overrides if word.startswith(f"{export.option}=")]:
        raise BeamSlurmError(
            f"{said[0]} and --then say the same thing",
            remedy=f"leave out {said[0]}: --then has the run export what it reads",
        )
    return (f"{export.option}={chain.every or request.profile.recipe.steps}",)


def plan(request: JobRequest, chain: Chain) -> list[Link]:
    """What follows a run that has not been submitted yet, checkpoint by checkpoint.

    Raises:
        BeamSlurmError: what is asked for cannot follow it; known before anything is submitted.
    """
    if request.local:
        raise BeamSlurmError("--then needs Slurm: without it, no job waits for another")
    source.to_come(request, request.profile.recipe.steps)  # it saves some
    return [_link(request, chain, step) for step in _steps(request, chain.every)]


def _link(request: JobRequest, chain: Chain, step: int) -> Link:
    recipe, launch = request.profile.recipe, request.launch
    at, root = source.to_come(request, step), request.run.parent
    # An adapter alone cannot be scored; an export has it in its weights.
    merge = chain.evaluate and recipe.training == "lora" and launch.export is None
    output = Path(str(launch.checkpoints)).parent / "hf" / f"step_{step}"
    task = converting.task(at, "hf", output, merge)
    made = [posttraining.request(at, task, root=root)]
    if chain.evaluate:
        model = replace(at, path=Path(task.output))
        task = evaluating.task(model, evaluating.Settings.of(recipe), None)
        made.append(posttraining.request(model, task, root=root))
    early = chain.every is not None
    exported = str(at.path) if early and launch.export else ""
    return Link(step, tuple(made), Follower("", step if early else None, exported))


def _steps(request: JobRequest, every: int | None) -> list[int]:
    """The steps whose checkpoints are converted: those that the run will save, not older ones.

    Raises:
        BeamSlurmError: there would be none of them, too many, or they would be gone too early.
    """
    recipe, name = request.profile.recipe, request.profile.framework.name
    if every is None:
        return [recipe.steps]
    saved = recipe.checkpoint.every
    if every > recipe.steps:
        raise BeamSlurmError(
            f"--then :every {every} is never reached",
            why=f"the run has {recipe.steps} steps",
            remedy="leave out :every, for the last step alone",
        )
    if every % saved:
        raise BeamSlurmError(
            f"--then :every {every} asks for steps without a checkpoint",
            why=f"one is saved every {saved} steps",
            remedy=f":every {-(-every // saved) * saved}, or --save-every {every}",
        )
    done = checkpoint.latest(name, str(request.launch.checkpoints)).step or 0
    found = [step for step in range(every, recipe.steps, every) if step > done]
    found.append(recipe.steps)
    if len(found) > MOST:
        least = -(-recipe.steps // (MOST * saved)) * saved
        raise BeamSlurmError(
            f"--then :every {every} is {len(found)} checkpoints, each with jobs of its own",
            why=f"{MOST} are the most: users may have only so many jobs in the queue",
            remedy=f":every {least} or more",
        )
    if recipe.checkpoint.keep == 1 and len(found) > 1 and request.launch.export is None:
        raise BeamSlurmError(
            "the run would delete checkpoints before they are converted",
            why=f"recipe.checkpoint.keep is 1: that of step {found[0]} goes when step "
            f"{found[0] + saved} is saved",
            remedy="--set recipe.checkpoint.keep=N, with room for a conversion's wait in the queue",
        )
    return found


def doubts(request: JobRequest, links: Sequence[Link]) -> list[str]:
    """What may be a surprise about a chain that can be submitted, a sentence each."""
    checkpoints, said = request.profile.recipe.checkpoint, []
    keep, saved = checkpoints.keep, checkpoints.every
    if request.launch.export:
        size = f"{evaluating.BF16 / 1e12:.1f} TB"
        count = f"once, {size}" if len(links) == 1 else f"{len(links)} times, {size} each"
        said.append(
            f"for --then the run exports the whole model {count}, into "
            f"{request.launch.export.folder}: its checkpoints hold adapters that only the same "
            "ranks can read"
        )
    elif keep and len(links) > 1:
        stays = saved if request.profile.framework.name == "nemo-rl" else keep * saved
        which = "the best" if request.profile.framework.name == "nemo-rl" else "the newest"
        said.append(
            f"recipe.checkpoint.keep={keep} keeps {which}: a checkpoint may be deleted {stays} "
            "steps later, and a conversion that waits longer in the queue fails"
        )
    if doubt := checks.engineless(links[0].requests[-1], recorded=False):
        said.append(doubt)
    return said


def check(links: Sequence[Link]) -> None:
    """Raise for what is wrong with them, before the run itself is submitted.

    The first link speaks for all: the others differ in their steps and folders alone.

    Raises:
        BeamSlurmError: as ``submit.check`` does.
    """
    for request in links[0].requests:
        submit.check(request)
    known = list(runs.all_runs(links[0].requests[0].run.parent))
    for link in links[1:]:
        for request in link.requests:
            resume.output(request, known)


def follow(run: Run, links: Sequence[Link]) -> list[Run]:
    """Submit what follows ``run``, each behind the one before it; the jobs' own runs.

    Raises:
        BeamSlurmError: one is refused; those before it, and the run itself, go on.
    """
    made: list[Run] = []
    waiting: list[Follower] = []
    requests = [request for link in links for request in link.requests]
    known = iter(surroundings.gather_all(requests))
    try:
        for link in links:
            before = run
            for request in link.requests:
                around = next(known)
                follower = submit.submit(request, around, after=before.job, follows=before.id)
                if before is run:
                    waiting.append(link.waits._replace(job=str(follower.job)))
                else:
                    followers.write(str(before.path), [Follower(str(follower.job))])
                before = follower
                made.append(follower)
                run.record(then=[each.id for each in made])
    except BeamSlurmError as error:
        raise BeamSlurmError(
            f"{run.id} is submitted, but only {len(made)} of the {len(requests)} jobs behind it: "
            f"{error.what}",
            where=error.where,
            why=error.why,
            remedy=f"all that is submitted goes on; the rest by hand when it is over, beam-slurm "
            f"convert {run.id}; to end it: beam-slurm cancel {run.id}",
        ) from error
    finally:
        # Once and as a whole: by now the run may be training, and its supervisor keeps the file.
        followers.write(str(run.path), waiting)
    return made
