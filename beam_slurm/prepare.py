"""Model and problems, once: what is missing, one job that makes it, and the proof that it is whole.

``str(request)`` is the script, as everywhere. The job asks for one node and no GPU; what verifies
already is left out of it, and where nothing is missing nothing is submitted.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from beam_slurm import (
    assets,
    checks,
    conflicts,
    containers,
    frameworks,
    logs,
    runs,
    script,
    slurm,
    waiting,
)
from beam_slurm.errors import BeamSlurmError
from beam_slurm.frameworks.launch import Missing
from beam_slurm.frameworks.preparation import Asset, Preparation
from beam_slurm.pack import node_program
from beam_slurm.profiles import Resolved
from beam_slurm.schema import Profile

SCRIPT = "script.sbatch"

CPUS, MEMORY = 8, "32G"  # hf download's eight threads; the cleaning of some 10,000 problems

YOUNG = 60.0  # seconds in which a job is looked at often


@dataclass(frozen=True)
class Verdict:
    """What is wrong with one asset.

    Attributes:
        asset: model or datasets.
        folder: as this machine sees it.
        problems: sentences; none if it is whole.
    """

    asset: Asset
    folder: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class PrepareRequest:
    """One preparation: typed, frozen, complete.

    Attributes:
        profile: the resolved profile.
        preparation: the steps that are still to be done.
        verdicts: what this machine saw before.
        folder: absolute path of its own folder among the runs.
        missing: what the site file must still say, as (key, what it is).
        here: run on this machine, without Slurm and container.
    """

    profile: Profile
    preparation: Preparation
    verdicts: tuple[Verdict, ...]
    folder: Path
    missing: tuple[tuple[str, str], ...] = ()
    here: bool = False

    @property
    def unplaced(self) -> tuple[tuple[str, str], ...]:
        """What of ``missing`` even a look at model and data must know."""
        keys = ("site.paths.models", "site.paths.datasets")
        return tuple(item for item in self.missing if item[0] in keys)

    @property
    def complete(self) -> bool:
        """Whether everything is there and whole."""
        return not self.unplaced and not any(verdict.problems for verdict in self.verdicts)

    @property
    def token(self) -> str:
        """The job's comment, by which it can be found again."""
        return f"beam-slurm:{self.folder.name}"

    def __str__(self) -> str:
        return render(self)


def make_request(
    resolved: Resolved, *, here: bool = False, run_id: str | None = None
) -> PrepareRequest:
    """Look at what is there, and say what is to be done.

    Raises:
        BeamSlurmError: the profile says what it may not.
    """
    profile = resolved.profile
    missing = Missing()
    preparation = frameworks.prepare(resolved, missing)
    contained = preparation.container is not None
    conflicts.refuse(resolved, preparation.mounts, contained=contained)
    verdicts = verify(preparation)
    whole = [verdict.asset for verdict in verdicts if not verdict.problems]
    name = run_id or runs.new_id(f"prepare-{profile.name}")
    return PrepareRequest(
        profile,
        preparation.without(whole),
        verdicts,
        runs.root(profile.site.paths.runs).absolute() / name,
        tuple(missing.items),
        here,
    )


def verify(preparation: Preparation) -> tuple[Verdict, ...]:
    """Look at the model and the problems from this machine: names, sizes and headers."""
    found = []
    if preparation.model:
        problems = assets.check_model(Path(preparation.model))
        found.append(Verdict("model", preparation.model, tuple(problems)))
    if preparation.datasets:
        problems = assets.check_datasets(preparation.framework, Path(preparation.datasets))
        found.append(Verdict("datasets", preparation.datasets, tuple(problems)))
    return tuple(found)


def render(request: PrepareRequest) -> str:
    """The whole script of a preparation."""
    profile, preparation = request.profile, request.preparation
    site = profile.site
    environment = {"PYTHONUNBUFFERED": "1", **preparation.environment, **site.environment}
    assert preparation.model
    assert preparation.datasets
    return script.render(
        "prepare.sbatch.j2",
        profile=profile,
        launch=preparation,
        here=request.here,
        run=str(request.folder),
        directives=_directives(request),
        unset_directives=script.unplaced(site),
        setup=[script.Raw(line) for line in site.setup],
        environment=sorted(environment.items()),
        unset=sorted({"PYTHONHOME", "PYTHONPATH"} - set(environment)),
        folders=sorted({str(PurePosixPath(preparation.model).parent), preparation.datasets}),
        cpus=CPUS,
        **containers.secrets(site, preparation.secrets),
        **containers.values(site, preparation.container, preparation.mounts, sorted(environment)),
    )


def _directives(request: PrepareRequest) -> list[tuple[str, Any]]:
    """One node, never its GPUs: many sites have a partition for that, and none loses a queue."""
    site = request.profile.site
    return [
        ("job-name", f"prepare-{request.profile.job_name}"[:64]),
        ("comment", request.token),
        *script.placement(site),
        ("nodes", 1),
        ("ntasks", 1),
        ("cpus-per-task", CPUS),
        ("mem", MEMORY),
        ("time", request.profile.job.time),
        ("no-requeue", None),
        ("open-mode", "append"),
        ("chdir", str(request.folder)),
        ("output", f"{request.folder}/job-%j.log"),
        *script.more_directives(site, single=True),
    ]


def start(request: PrepareRequest) -> str:
    """Submit the job and return its id; what is refused leaves nothing behind.

    Raises:
        BeamSlurmError: with the cause and the remedy.
    """
    checks.missing(request.profile.name, request.missing)
    checks.partition(request.profile, 1)
    checks.options(request.profile)
    if request.preparation.container:
        checks.image(request.profile.site.container, request.preparation.container)
    _lay_out(request)
    try:
        return slurm.submit(request.folder / SCRIPT, request.token)
    except slurm.Uncertain as problem:
        raise problem.error(request.token, request.folder) from None
    except BeamSlurmError:
        shutil.rmtree(request.folder, ignore_errors=True)
        raise


def run_here(request: PrepareRequest, output: int | None = None) -> None:
    """Run the script on this machine, its output on ``output`` (a descriptor) or our own.

    Raises:
        BeamSlurmError: it did not come to a good end.
    """
    checks.missing(request.profile.name, request.missing)
    _lay_out(request)
    done = subprocess.run(
        ["bash", str(request.folder / SCRIPT)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        env=slurm.environment(),
        check=False,
    )
    if done.returncode:
        raise BeamSlurmError(
            f"preparing {request.profile.name} has failed with exit code {done.returncode}",
            why="the last lines above say what",
            remedy="the same command again goes on with what is there",
            exit_code=1,
        )
    shutil.rmtree(request.folder, ignore_errors=True)


def stay(request: PrepareRequest, job_id: str, tail: logs.Tail, tell: Callable[[str], Any]) -> None:
    """Follow the job's log until its end.

    Raises:
        BeamSlurmError: it did not come to a good end, or Slurm does not answer.
    """
    log = request.folder / f"job-{job_id}.log"
    began = heard = time.monotonic()
    told = ""
    while True:
        now = ""
        try:
            job = slurm.job(job_id)  # before the copy: what came before the end is copied for sure
            heard = time.monotonic()
        except BeamSlurmError as error:
            if time.monotonic() - heard > waiting.PATIENCE:
                raise
            now = f"{error.what}; asking again"
        else:
            if job is None or job.ended:
                tail.copy(log)
                break
            if job.state == "PENDING":
                now = f"job {job_id} is pending {job.reason}".rstrip()
        tail.copy(log)
        if now and now != told:
            tell(now)
        told = now
        young = time.monotonic() - began < YOUNG
        time.sleep(waiting.OFTEN if young else waiting.SELDOM)
    if job is None or job.state != "COMPLETED":
        lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
        raise BeamSlurmError(
            f"preparing {request.profile.name} has failed",
            where=str(log),
            why=f"job {job_id}: {job.state} {job.exit_code}" if job else f"job {job_id} is gone",
            remedy=f"last in its log: {lines[-1]}" if lines else None,
            exit_code=1,
        )


def _lay_out(request: PrepareRequest) -> None:
    runs.lay_out(request.folder, {SCRIPT: str(request), "node.pyz": node_program()})
