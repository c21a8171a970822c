"""What a sweep's points become: a request each and its cost; what is checked before any is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from beam_slurm import checks, job, measure, plan, profiles, resume, runs, secret
from beam_slurm.errors import BeamSlurmError
from beam_slurm.job import JobRequest
from beam_slurm.profiles import Resolved
from beam_slurm.sweep.file import Sweep, split
from beam_slurm.sweep.folder import Directive
from beam_slurm.sweep.points import Point, expand, settings, words
from beam_slurm.yamlfile import Key

# What each point has of its own; an array's tasks have all other options in common.
_OWN = ("comment", "chdir", "output")


@dataclass(frozen=True)
class Planned:
    """A point that can be launched: its request, what it may cost, what is wrong with its plan."""

    point: Point
    request: JobRequest
    gpu_hours: float
    findings: tuple[plan.Finding, ...] = ()

    @property
    def noun(self) -> str:
        """What it is to those who made it."""
        return "checkpoint" if self.request.task else "point"

    @cached_property
    def directives(self) -> tuple[Directive, ...]:
        """Its #SBATCH options without those that are its own."""
        return tuple(pair for pair in job.directives(self.request) if pair[0] not in _OWN)


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
        BeamSlurmError: for the first point that cannot be launched, or that is no run of its own,
            with the line of the file.
    """
    same = fixed(sweep, site)
    planned = [
        one(
            sweep,
            same,
            point,
            run_id=f"{sweep_id}/{sweep_id}-{point.index:04}",
            root=root,
            local=local,
        )
        for point in expand(sweep)
    ]
    _outputs_differ(planned)
    _scripts_differ(sweep, planned)
    return planned


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
    kinds: dict[tuple[object, ...], Planned] = {}
    # Whoever may write where a point would: the runs beside the sweep's folder, and those in it.
    known = list(runs.all_runs(planned[0].request.run.parents[1]))
    for each in planned:
        request = each.request
        with _about(each.point):
            checks.missing(request.profile.name, request.missing)
            checks.times(request.profile)
            checks.secrets(request.profile.site)
            resume.output(request, known)
        if not request.local:
            kinds.setdefault(_alike(each), each)
    for each in kinds.values():
        # Where all are alike, what is wrong is wrong with none of them in particular.
        about: AbstractContextManager[None] = (
            _about(each.point) if len(kinds) > 1 else nullcontext()
        )
        with about:
            checks.cluster(each.request)


def fixed(sweep: Sweep, site: Path | None) -> Resolved:
    """The profile with what is the same for all points.

    A thousand points would tell the site's webhook two thousand times: they are silent unless the
    file says otherwise.
    """
    try:
        base = profiles.resolve(sweep.profile, site=site)
    except BeamSlurmError as error:
        if error.where:
            raise
        where = sweep.place("profile")
        raise BeamSlurmError(error.what, where=where, why=error.why, remedy=error.remedy) from error
    silent: tuple[Key, Any, str] = (("site", "notify", "on"), [], "a point of a sweep")
    values = [
        (split(key), value, sweep.place("set", key)) for key, value in sweep.file.fixed.items()
    ]
    return profiles.changed(base, [silent, *values])


def one(sweep: Sweep, fixed: Resolved, point: Point, **where: Any) -> Planned:
    """``where``: ``job.make_request``'s run_id, as SWEEP/RUN, root and local."""
    with _about(point):
        resolved = profiles.changed(fixed, settings(sweep, point))
        request = job.make_request(resolved, overrides=words(sweep, point), **where)
    made = measure.planned(request.profile)
    cost = next(figure.need for figure in made.figures if figure.name == "GPU-hours")
    return Planned(point, request, cost, made.findings)


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
    """What ``checks.cluster`` looks at, without the run's own folder: it is asked once of it."""
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


def _scripts_differ(sweep: Sweep, planned: Sequence[Planned]) -> None:
    """Raise if two points would run the same: what is varied does not reach the entry.

    Two seeds are two runs even so: without one, an entry draws other numbers each time.
    """
    seen: dict[tuple[str, int | None], Point] = {}
    for each in planned:
        point = each.point
        script = job.render(each.request).replace(each.request.run.name, "RUN")
        other = seen.setdefault((script, point.seed), point)
        if other is point:
            continue
        pair = {**other.values, **point.values}
        keys = [key for key in pair if other.values.get(key) != point.values.get(key)]
        first = next(iter([*keys, *point.values]), "")
        at = {**other.origin, **point.origin}.get(first, ("points",))
        why = "they have the same values"
        if keys:
            why = f"their scripts do not differ: {', '.join(keys)} changes no word of the entry"
        raise BeamSlurmError(
            f"points {other.index} and {point.index} are the same run",
            where=sweep.place(*at),
            why=why,
            remedy='vary a word of the entry instead: "--name={}": [...]' if keys else None,
        )
