"""From a sweep file to arrays: every point checked first, then the folder, then chunk by chunk.

A chunk is written into sweep.json before sbatch is called and gets its job's id after it. Whatever
happens in between, ``submit`` called again finds the array by its comment, or submits what Slurm
never took; and a point that was taken twice all the same runs once (``task.claimed``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm import checks, job, measure, plan, profiles, resume, runs, secret, slurm
from beam_slurm import submit as single
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.profiles import Resolved
from beam_slurm.records import surroundings
from beam_slurm.records.surroundings import Surroundings
from beam_slurm.sweep import folder, limits
from beam_slurm.sweep.file import Sweep, split
from beam_slurm.sweep.folder import Chunk, Content, Directive, Entry, Folder
from beam_slurm.sweep.limits import Limits
from beam_slurm.sweep.points import Point, expand, settings, words
from beam_slurm.sweep.task import CLAIM
from beam_slurm.yamlfile import Key

# What each point has of its own; an array's tasks have all other options in common.
_OWN = ("comment", "chdir", "output")


@dataclass(frozen=True)
class Planned:
    """A point that was checked: its request, its options without its own, what it may cost."""

    point: Point
    request: JobRequest
    directives: tuple[Directive, ...]
    gpu_hours: float
    findings: tuple[plan.Finding, ...]


def make(
    sweep: Sweep,
    sweep_id: str,
    *,
    site: Path | None = None,
    root: Path | None = None,
    local: bool = False,
) -> list[Planned]:
    """The requests of all points; nothing is written and Slurm is not asked.

    Raises:
        BeamSlurmError: for the first point that cannot be launched, with the line of the file.
    """
    fixed = _fixed(sweep, site)
    return [
        _planned(
            sweep,
            fixed,
            point,
            run_id=f"{sweep_id}/{sweep_id}-{point.index:04}",
            root=root,
            local=local,
        )
        for point in expand(sweep)
    ]


def hours(planned: Iterable[Planned]) -> float:
    """GPU-hours of all points, each over its whole time limit."""
    return sum(each.gpu_hours for each in planned)


def within(planned: Sequence[Planned], most: float) -> list[Planned]:
    """The first points that cost no more than ``most`` GPU-hours together."""
    kept: list[Planned] = []
    total = 0.0
    for each in planned:
        total += each.gpu_hours
        if total > most:
            break
        kept.append(each)
    return kept


def check(planned: Sequence[Planned]) -> None:
    """What ``submit`` refuses, for all points, before any of them is submitted.

    Raises:
        BeamSlurmError: with the point that it is about.
    """
    _outputs_differ(planned)
    known = set()
    for each in planned:
        request = each.request
        with _about(each.point):
            checks.missing(request.profile.name, request.missing)
            checks.times(request.profile)
            checks.secrets(request.profile.site)
            resume.output(request)
            if not request.local and (alike := _alike(each)) not in known:
                checks.cluster(request)
                known.add(alike)


def prepare(sweep: Sweep, planned: Sequence[Planned], parallel: int | None) -> Folder:
    """The sweep's folder with the runs of all points in it; nothing is submitted yet.

    Raises:
        BeamSlurmError: it cannot be made; then nothing is left of it.
    """
    path = planned[0].request.run.parent
    kinds: dict[tuple[Directive, ...], int] = {}
    for each in planned:
        kinds.setdefault(each.directives, len(kinds))
    content = Content(
        file=str(sweep.path.resolve()),
        sha256=sweep.sha256,
        executor="local" if planned[0].request.local else "slurm",
        profile=planned[0].request.profile.name,
        created=folder.now(),
        max_parallel=parallel,
        points=[_entry(each, kinds[each.directives]) for each in planned],
        kinds=[list(kind) for kind in kinds],
    )
    runs.lay_out(path, {}, int(planned[0].request.profile.site.run_mode, 8))
    try:
        around = surroundings.gather(planned[0].request)
        for each in planned:
            _run(each, path.name, around)
        return folder.create(path, sweep, content)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def start(sweep: Sweep, planned: Sequence[Planned], parallel: int | None) -> Folder:
    """Make the folder and submit; what is refused as a whole leaves nothing behind.

    Raises:
        BeamSlurmError: see ``submit``.
    """
    of = prepare(sweep, planned, parallel)
    try:
        submit(of)
    except BeamSlurmError:
        if not of.content.chunks and of.content.queue is None:
            shutil.rmtree(of.path, ignore_errors=True)
        raise
    return of


def submit(of: Folder) -> None:
    """Submit what is not submitted yet, as far as the cluster takes it now; ``of`` then knows.

    Raises:
        BeamSlurmError: Slurm refuses, or nobody knows; with what is in the queue already.
    """
    if of.local:
        _start_queue(of)
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


def go_on(of: Folder) -> None:
    """Submit what is left, also of a sweep that was cancelled; raises as ``submit`` does."""
    with of.locked():
        of.content.cancelled = False
        of.save()
    submit(of)


def retry(of: Folder, indices: Sequence[int], site: Path | None) -> None:
    """Run points again, each in a folder of its own that takes the place of the failed one.

    They are made anew from the sweep file and from profile and site file as these are now: what
    made them fail may have been mended there.

    Raises:
        BeamSlurmError: before anything is changed, or from ``submit``.
    """
    sweep = of.sweep()
    fixed = _fixed(sweep, site)
    points = expand(sweep)
    with of.locked():
        content = of.content
        planned = []
        for index in indices:
            run = f"{of.id}/{_again(content.points[index].run)}"
            planned.append(
                _planned(
                    sweep, fixed, points[index], run_id=run, root=of.path.parent, local=of.local
                )
            )
        check(planned)
        around = surroundings.gather(planned[0].request)
        for each in planned:
            kind = list(each.directives)
            if kind not in content.kinds:
                content.kinds.append(kind)
            _run(each, of.id, around)
            content.points[each.point.index] = _entry(each, content.kinds.index(kind))
        content.cancelled = False
        of.save()
    submit(of)


def _again(run: str) -> str:
    """The name of a run's repetition: ...-0007-r1, then -r2."""
    first, dash, count = run.rpartition("-r")
    return f"{first}-r{int(count) + 1}" if dash and count.isdigit() else f"{run}-r1"


def _fixed(sweep: Sweep, site: Path | None) -> Resolved:
    """The profile with what is the same for all points.

    A thousand points would tell the site's webhook two thousand times: they are silent unless the
    file says otherwise.
    """
    base = profiles.resolve(sweep.profile, site=site)
    silent: tuple[Key, Any, str] = (("site", "notify", "on"), [], "a point of a sweep")
    values = [
        (split(key), value, sweep.place("set", key)) for key, value in sweep.file.fixed.items()
    ]
    return profiles.changed(base, [silent, *values])


def _planned(sweep: Sweep, fixed: Resolved, point: Point, **where: Any) -> Planned:
    """``where``: ``job.make_request``'s run_id, as SWEEP/RUN, root and local."""
    with _about(point):
        resolved = profiles.changed(fixed, settings(sweep, point))
        request = job.make_request(resolved, overrides=words(sweep, point), **where)
    made = measure.planned(request.profile)
    cost = next(figure.need for figure in made.figures if figure.name == "GPU-hours")
    shared = tuple(pair for pair in job.directives(request) if pair[0] not in _OWN)
    return Planned(point, request, shared, cost, made.findings)


class _about:  # noqa: N801 - it reads as a word of the sentence: with _about(point)
    """Says of an error which point it is about."""

    def __init__(self, point: Point) -> None:
        self.point = point

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BeamSlurmError):
            told, hidden = secret.masked(self.point.label)
            label = f" ({told})" if told and not hidden else ""
            raise BeamSlurmError(
                f"point {self.point.index}{label}: {error.what}",
                where=error.where,
                why=error.why,
                remedy=error.remedy,
            ) from error


def _alike(each: Planned) -> tuple[object, ...]:
    """What ``checks.cluster`` looks at, without the run's own folder: Slurm is asked once of it."""
    launch, run = each.request.launch, str(each.request.run)
    folders = [launch.workdir, str(Path(launch.output).parent)]
    own = tuple(path.replace(run, "") for path in folders)
    return (each.directives, launch.container, launch.mounts, own)


def _outputs_differ(planned: Sequence[Planned]) -> None:
    """Raise if two points would write into one folder."""
    seen: dict[str, Point] = {}
    for each in planned:
        other = seen.setdefault(each.request.launch.output, each.point)
        if other is not each.point:
            raise BeamSlurmError(
                f"points {other.index} and {each.point.index} would both write into "
                f"{each.request.launch.output}",
                why="job.output_dir is the same for both",
                remedy="leave it out: each point has a folder of its own then",
            )


def _entry(each: Planned, kind: int) -> Entry:
    return Entry(each.point.values, each.point.seed, each.request.run.name, kind)


def _run(each: Planned, sweep_id: str, around: Surroundings) -> None:
    point = each.point
    facts = {"id": sweep_id, "index": point.index, "values": point.values, "seed": point.seed}
    single.prepare(each.request, around, sweep=facts)


def _send(of: Folder, number: int) -> None:
    """Submit a chunk and write down its job."""
    chunk = of.content.chunks[number]
    try:
        chunk.job = _sbatch(of, number)
    except slurm.Uncertain as problem:
        raise problem.error(chunk.token, of.path) from None
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
        remedy=f"{tasks} of {len(of.content.points)} points are submitted, as {arrays}; "
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


def _start_queue(of: Folder) -> None:
    """Start the process that runs the points here one after the other, unless it runs already."""
    with of.locked():
        if queue_lives(of):
            return
        with (of.path / "queue.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "beam_slurm.sweep.queue", str(of.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        of.content.queue = child.pid
        of.save()


def queue_lives(of: Folder) -> bool:
    """Whether the process that starts the points on this machine is there."""
    pid = of.content.queue
    if not pid:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    # Its words are not there yet while it becomes Python, and no more when it is over.
    return state != "Z" and (words == [b""] or str(of.path).encode() in words)
