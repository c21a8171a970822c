"""From points that were checked to arrays: the folder first, then chunk by chunk.

A chunk is written into sweep.json before sbatch is called and gets its job's id after it. Whatever
happens in between, ``submit`` called again finds the array by its comment, or submits what Slurm
never took; and a point that was taken twice all the same runs once (``task.claimed``).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beam_slurm import runs, slurm
from beam_slurm import submit as single
from beam_slurm.errors import BeamSlurmError
from beam_slurm.records import surroundings
from beam_slurm.sweep import folder, here, limits, planning
from beam_slurm.sweep.file import Sweep
from beam_slurm.sweep.folder import Chunk, Content, Directive, Entry, Folder
from beam_slurm.sweep.limits import Limits
from beam_slurm.sweep.planning import Planned
from beam_slurm.sweep.points import expand
from beam_slurm.sweep.task import CLAIM


def prepare(sweep: Sweep | None, planned: Sequence[Planned], parallel: int | None) -> Folder:
    """The sweep's folder with the runs of all points in it; nothing is submitted yet.

    Args:
        sweep: the file that the points were made of, if there is one.
        planned: the points, all with a run in this folder.
        parallel: how many may run at the same time; None: all.

    Raises:
        BeamSlurmError: it cannot be made; then nothing is left of it.
    """
    path = planned[0].request.run.parent
    kinds: dict[tuple[Directive, ...], int] = {}
    for each in planned:
        kinds.setdefault(each.directives, len(kinds))
    content = Content(
        file=str(sweep.path.resolve()) if sweep else None,
        sha256=sweep.sha256 if sweep else None,
        executor="local" if planned[0].request.local else "slurm",
        profile=", ".join(dict.fromkeys(each.request.profile.name for each in planned)),
        created=folder.now(),
        max_parallel=parallel,
        points=[_entry(each, kinds[each.directives]) for each in planned],
        kinds=[list(kind) for kind in kinds],
    )
    runs.lay_out(path, {}, int(planned[0].request.profile.site.run_mode, 8))
    try:
        _runs(planned, path.name)
        return folder.create(path, sweep, content)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def start(sweep: Sweep | None, planned: Sequence[Planned], parallel: int | None) -> Folder:
    """Make the folder and submit; what is refused as a whole leaves nothing behind.

    Args are those of ``prepare``.

    Raises:
        BeamSlurmError: see ``submit``.
    """
    of = prepare(sweep, planned, parallel)
    try:
        submit(of)
    except BeamSlurmError:
        if not of.content.chunks and of.content.queue is None:
            for each in planned:
                single.discard(each.request.run, each.request)
            shutil.rmtree(of.path, ignore_errors=True)
        raise
    return of


def submit(of: Folder) -> None:
    """Submit what is not submitted yet, as far as the cluster takes it now; ``of`` then knows.

    Raises:
        BeamSlurmError: Slurm refuses, or nobody knows; with what is in the queue already.
    """
    if of.local:
        here.start(of)
        return
    with of.locked():
        for number, chunk in enumerate(of.content.chunks):
            if chunk.job is None:
                chunk.job = slurm.find(chunk.token) or _begun(of, chunk)
                if chunk.job is None:
                    _send(of, number)
                of.save()
            _record(of, chunk)
        if of.content.cancelled or not of.left():
            return
        allowed = limits.ask(_site(of))
        while (left := of.left()) and allowed.room:
            alike = [entry.run for entry in left if entry.kind == left[0].kind][: allowed.room]
            number = len(of.content.chunks)
            of.content.chunks.append(Chunk(f"beam-slurm:{of.id}:{number}", alike))
            of.save()
            _send(of, number)
            _record(of, of.content.chunks[number])
            allowed = Limits(allowed.array, allowed.jobs, allowed.queued + len(alike))


def go_on(of: Folder, again: Sequence[int] = (), site: Path | None = None) -> None:
    """Submit what is left, also of a sweep that was cancelled, and the points ``again``.

    Each of those gets a folder of its own that takes the place of the one before. They are made
    anew from the sweep file and from profile and site file as these are now: what made them fail
    may have been mended there.

    Raises:
        BeamSlurmError: before anything is changed, or from ``submit``.
    """
    with of.locked():
        for each in _repeated(of, again, site):
            kind = list(each.directives)
            if kind not in of.content.kinds:
                of.content.kinds.append(kind)
            of.content.points[each.point.index] = _entry(each, of.content.kinds.index(kind))
        of.content.cancelled = False
        of.save()
    submit(of)


def _repeated(of: Folder, indices: Sequence[int], site: Path | None) -> list[Planned]:
    """The points once more, their folders made."""
    if not indices:
        return []
    sweep = of.sweep()
    same, points = planning.fixed(sweep, site), expand(sweep)
    where = {"root": of.path.parent, "local": of.local}
    planned = [
        planning.one(
            sweep,
            same,
            points[index],
            run_id=f"{of.id}/{_again(of.content.points[index].run)}",
            **where,
        )
        for index in indices
    ]
    planning.check(planned)
    _runs(planned, of.id)
    return planned


def _again(run: str) -> str:
    """The name of a run's repetition: ...-0007-r1, then -r2."""
    first, dash, count = run.rpartition("-r")
    return f"{first}-r{int(count) + 1}" if dash and count.isdigit() else f"{run}-r1"


def _entry(each: Planned, kind: int) -> Entry:
    return Entry(each.point.values, each.point.seed, each.request.run.name, kind)


def _runs(planned: Sequence[Planned], sweep_id: str) -> None:
    """The run folders of these points."""
    around = surroundings.gather_all([each.request for each in planned])
    for each, found in zip(planned, around, strict=True):
        point = each.point
        facts = {"id": sweep_id, "index": point.index, "values": point.values, "seed": point.seed}
        single.prepare(each.request, found, sweep=facts)


def _send(of: Folder, number: int) -> None:
    """Submit a chunk and write down its job."""
    chunk = of.content.chunks[number]
    try:
        chunk.job = _sbatch(of, number)
    except slurm.Uncertain as problem:
        raise BeamSlurmError(
            f"nobody can say whether array {number} of {of.id} was submitted",
            where=str(of.path),
            why=str(problem),
            remedy=f"when Slurm answers again: beam-slurm sweep {of.id} --resume; it looks for the "
            f"array by its comment {chunk.token}, and submits what is not there",
        ) from None
    except BeamSlurmError as error:
        del of.content.chunks[number:]  # it was refused: its points are not submitted
        of.save()
        raise _with_others(of, error) from error
    of.save()


def _begun(of: Folder, chunk: Chunk) -> str | None:
    """The array that has run one of the chunk's points: it is over, and Slurm knows no more."""
    for run in chunk.runs:
        claim = of.path / run / CLAIM
        if claim.is_symlink():
            return str(claim.readlink())
    return None


def _sbatch(of: Folder, number: int) -> str:
    from beam_slurm.sweep.arrays import ArrayExecutor

    chunk, parallel = of.content.chunks[number], of.content.max_parallel
    kind = next(entry.kind for entry in of.content.points if entry.run == chunk.runs[0])
    script = ArrayExecutor(of.arrays).write(
        f"chunk-{number:03}", chunk.runs, of.content.kinds[kind], chunk.token, parallel
    )
    # Each array counts its own running tasks: only one after the other do all of them together
    # keep to max_parallel. Nodes may idle at the end of a chunk; never are there too many points.
    before = of.content.chunks[number - 1].job if number and parallel else None
    options = [f"--dependency=afterany:{before}"] if before else []
    return slurm.submit(script, chunk.token, *options)


def _with_others(of: Folder, error: BeamSlurmError) -> BeamSlurmError:
    """The error, and what of the sweep is in the queue in spite of it."""
    sent = [chunk for chunk in of.content.chunks if chunk.job]
    if not sent:
        return error
    tasks = sum(len(chunk.runs) for chunk in sent)
    arrays = ", ".join(str(chunk.job) for chunk in sent)
    return BeamSlurmError(
        error.what,
        where=error.where,
        why=error.why,
        remedy=f"{tasks} of {len(of.content.points)} {of.noun}s are submitted, as {arrays}; "
        f"the others: beam-slurm sweep --resume {of.id}; end them: beam-slurm cancel {of.id}"
        + (f"; {error.remedy}" if error.remedy else ""),
    )


def _record(of: Folder, chunk: Chunk) -> None:
    """Write each point's job into its manifest, where every other command looks for it."""
    for at, name in enumerate(chunk.runs):
        run, task = runs.Run(of.path / name), f"{chunk.job}_{at}"
        if run.manifest.get("job") != task:
            run.record(job=task)


def _site(of: Folder) -> Any:
    """Account and quality of service of the points, which the user's limits depend on."""
    from beam_slurm.schema import Site

    kind = dict(of.content.kinds[0])
    return Site(account=kind.get("account"), qos=kind.get("qos"))
