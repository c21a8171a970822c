"""The folders of the site file: whether they are there, whole, writable and on shared storage."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from beam_slurm import assets, discover, runs
from beam_slurm.discover import Mount
from beam_slurm.doctor.checks import Check, Verdict, passed
from beam_slurm.doctor.subject import Subject
from beam_slurm.schema import Miles, NemoRL, SkyRL

LOCAL = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108 - where not to be

ENTRIES = {"nemo_rl": "examples/run_grpo.py"}
"""What shows that a checkout is one, where no profile names its script."""


def check(subject: Subject) -> Iterator[Check]:
    """Every folder that matters and is set."""
    for name in ("nemo_rl", "skyrl", "miles"):
        if path := subject.path(name):
            yield _checkout(subject, name, path)
    if subject.model:
        yield _model(subject.model)
    yield from _datasets(subject)
    known = discover.here()
    yield from _writable("runs", runs.root(subject.site.paths.runs), known, made=True)
    if path := subject.path("outputs"):
        yield from _writable("outputs", path, known, made=False)


def _checkout(subject: Subject, name: str, path: Path) -> Check:
    framework = subject.profile.framework
    entry = ENTRIES.get(name, "")
    if isinstance(framework, NemoRL):
        entry = framework.config
    elif isinstance(framework, SkyRL | Miles):
        entry = framework.script
    what = f"checkout {name}"
    remedy = f"clone it there, or correct site.paths.{name}"
    if not path.is_dir():
        return Check(what, "fail", f"{path} is no folder", "", remedy)
    if entry and not (path / entry).is_file():
        remedy = "check out the branch with Beam support; or correct the profile's script"
        return Check(what, "fail", f"{path} has no {entry}", "", remedy)
    return passed(what, str(path))


def _model(path: Path) -> Check:
    if problems := assets.check_model(path):
        remedy = "download what is missing: beam-slurm prepare"
        return Check("model", "fail", _few(problems), "a whole checkpoint", remedy)
    return passed("model", f"{path} is whole")


def _datasets(subject: Subject) -> Iterator[Check]:
    name = subject.profile.framework.name
    folder = subject.path("datasets")
    if subject.alone and folder and not folder.is_dir():
        remedy = "make it with beam-slurm prepare, or correct site.paths.datasets"
        yield Check("datasets", "fail", f"{folder} is no folder", "", remedy)
    if subject.datasets:  # NeMo RL can fetch them itself, with a network
        yield _problems(name, subject.datasets, "warn" if name == "nemo-rl" else "fail")


def _problems(framework: str, folder: Path, verdict: Verdict) -> Check:
    problems = assets.check_datasets(framework, folder)
    if not problems:
        return passed("datasets", f"{folder} is whole")
    remedy = "fetch them before the run: beam-slurm prepare"
    return Check("datasets", verdict, _few(problems), "", remedy)


def _writable(name: str, path: Path, known: tuple[Mount, ...], *, made: bool) -> Iterator[Check]:
    """``made``: submit makes the folder itself."""
    what, key = f"{name} folder", f"site.paths.{name}"
    problem = unwritable(path) if made or path.is_dir() else f"{path} is no folder"
    if problem:
        remedy = f"mkdir -p {path}" if not path.exists() else f"set {key} to a folder of yours"
        remedy = f"set {key} to a folder of yours" if made else remedy
        yield Check(what, "fail", problem, "you can write there", remedy)
        return
    mount = discover.mount_of(path.absolute(), known)
    above = (path.absolute(), *path.absolute().parents)
    own = next((place for place in LOCAL if place in above), None)
    if own or (mount and not mount.shared):
        where = (
            f"{own} is" if own else f"{mount.path if mount else '/'} ({mount and mount.type}) is"
        )
        yield Check(
            what,
            "warn",
            f"{path}: {where} this machine's own",
            "storage that every node sees",
            f"set {key} to a shared folder; beam-slurm doctor --on-nodes finds out",
        )
        return
    yield passed(what, f"{path} is writable")


def unwritable(path: Path) -> str:
    """Why no file can be made in ``path``, or in what of it is there; "" if one was made."""
    place = path.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        return f"{place} is no folder"
    try:
        with tempfile.NamedTemporaryFile(prefix=".beam-doctor-", dir=place) as file:
            file.write(b"beam-slurm doctor\n")
            file.flush()
            os.fsync(file.fileno())  # a full disk or a used-up quota shows here
    except OSError as error:
        return f"{place}: {error.strerror}"
    return ""


def _few(problems: list[str]) -> str:
    more = f"; and {len(problems) - 2} more" if len(problems) > 2 else ""
    return "; ".join(problems[:2]) + more
