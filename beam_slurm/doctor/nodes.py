"""``--on-nodes``: one short job that lets every node say what it has.

It is submitted with the run's own #SBATCH lines, so it lands where the run would. Everything that
it leaves lies in one hidden folder beside the runs and is removed.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beam_slurm import mounts, slurm
from beam_slurm.doctor.checks import Check
from beam_slurm.doctor.subject import Subject
from beam_slurm.doctor.verdicts import judge
from beam_slurm.errors import BeamSlurmError
from beam_slurm.node import events
from beam_slurm.node.examine import fingerprint, gather
from beam_slurm.pack import node_program

MINUTES = 5  # of the job itself, beside its time in the queue
STRAGGLER = 15.0  # seconds that a log line may come after the end on slow shared storage
OFTEN, SELDOM = 0.5, 5.0  # seconds between two questions, at first and after a minute

# The run's own affair: its name and log, and what would repeat, delay or announce the job.
_OURS = re.compile(
    r"#SBATCH --(?:job-name|comment|time|chdir|output|error|open-mode"
    r"|array|dependency|begin|mail-type|mail-user|signal|requeue|no-requeue|no-kill)\b"
)


@dataclass
class Examination:
    """What the nodes said.

    Attributes:
        nodes: checks of each node by its name.
        problem: why nodes are missing, None if all have answered.
    """

    nodes: dict[str, list[Check]] = field(default_factory=dict)
    problem: Check | None = None

    @property
    def checks(self) -> list[Check]:
        """All of them together."""
        told = [check for checks in self.nodes.values() for check in checks]
        return [*told, *([self.problem] if self.problem else [])]


def examine(subject: Subject, patience: float, say: Callable[[str], None]) -> Examination:
    """Run the job and judge what comes back; the job and its files are gone afterwards.

    Args:
        subject: what is examined; it has a request.
        patience: seconds until the job is given up and cancelled, its wait in the queue included.
        say: takes a line when something happens.

    Raises:
        BeamSlurmError: the job cannot be submitted, or does not end in time.
    """
    request = subject.request
    assert request is not None
    root = request.run.parent
    token = secrets.token_hex(4)
    folder = root / f".doctor-{token}"
    ask = question(subject, folder, token)
    first = not root.exists()
    try:
        _write(folder, str(request), subject, ask)
        job_id = _submit(folder, f"beam-slurm-doctor:{token}")
        say(f"job {job_id} asks {subject.profile.hardware.nodes} nodes")
        job = _await(job_id, patience, say)
        answers = _answers(folder / "job.log", subject.profile.hardware.nodes)
        return _examined(subject, ask, answers, job, folder / "job.log")
    finally:
        for path in ask["seen"].values():
            Path(path).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        if first and root.is_dir() and not any(root.iterdir()):
            root.rmdir()


def question(subject: Subject, folder: Path, token: str) -> dict[str, Any]:
    """What a node is to look at, by name; see ``node.examine``."""
    site = subject.site
    paths = {name: str(path) for name in ("nemo_rl", "skyrl", "miles", "datasets")
             if (path := subject.path(name))}  # fmt: skip
    if subject.model:
        paths["model"] = str(subject.model)
    if not subject.bare:
        images = subject.images.items()
        paths |= {f"image {name}": image for name, image in images if image.startswith("/")}
    if subject.bare or subject.profile.framework.name == "demo":
        paths["venv"] = f"{site.paths.venv or sys.prefix}/bin/python"
    writable, seen = {"runs": str(folder), "tmp": site.paths.tmp}, {}
    if outputs := subject.path("outputs"):
        writable["outputs"] = str(outputs)
        seen["outputs"] = str(outputs / f".beam-doctor-{token}")
    launch = subject.request.launch if subject.request else None
    scratch = subject.path("scratch") if launch and launch.scratch else None
    if not subject.bare:
        paths |= {f"mount {m.source}": m.source for m in map(mounts.parse, site.mounts)}
    commands = {"pyxis": ["enroot"], "bare": []}.get(site.container, [site.container])
    return {
        "paths": paths,
        "writable": writable,
        "seen": seen,
        "commands": [] if subject.bare else commands,
        "disks": {"scratch": str(scratch)} if scratch else {},
        "interface": site.network.interface,
        "prefix": site.network.prefix,
    }


def script(request: str, folder: Path, nodes: int, setup: list[str]) -> str:
    """The job: the request's directives but for its name, time and log; one task a node."""
    kept = [
        line
        for line in request.splitlines()
        if line.startswith("#SBATCH") and not _OURS.match(line)
    ]
    own = {
        "job-name": "beam-doctor",
        "comment": f"beam-slurm-doctor:{folder.name.rpartition('-')[2]}",
        "time": MINUTES,
        "chdir": folder,
        "output": f"{folder}/job.log",
    }
    inside = shlex.quote(str(folder))
    return "\n".join(
        [
            "#!/bin/bash",
            *kept,
            *(f"#SBATCH --{name}={value}" for name, value in own.items()),
            *setup,
            # One silent node must not end the others.
            f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --cpus-per-task=1"
            " --mpi=none --kill-on-bad-exit=0 --wait=0 \\",
            f"  python3 {inside}/node.pyz examine {inside}/ask.json",
            "",
        ]
    )


def _write(folder: Path, request: str, subject: Subject, ask: dict[str, Any]) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        (folder / "node.pyz").write_bytes(node_program())
        (folder / "ask.json").write_text(json.dumps(ask))
        nodes = subject.profile.hardware.nodes
        text = script(request, folder, nodes, list(subject.site.setup))
        (folder / "script.sbatch").write_text(text)
        for path in ask["seen"].values():
            Path(path).touch(mode=0o600)
    except OSError as error:
        raise BeamSlurmError(
            f"cannot write {error.filename}",
            why=error.strerror,
            remedy="set site.paths.runs and site.paths.outputs to folders of yours",
        ) from error


def _submit(folder: Path, token: str) -> str:
    try:
        return slurm.submit(folder / "script.sbatch", token)
    except slurm.Uncertain as problem:
        raise problem.error(token) from None


def _await(job_id: str, patience: float, say: Callable[[str], None]) -> slurm.Job:
    """Ask until the job is over; whatever else ends the wait ends the job too."""
    began = time.monotonic()
    said, silence, over = "", "", False
    try:
        while True:
            try:
                job = slurm.job(job_id)
            except BeamSlurmError as error:
                silence = f"{error.what}: {error.why}"  # a controller that restarts comes back
            else:
                silence = ""
                if job is None or job.ended:
                    over = True
                    return job or slurm.Job(job_id, "UNKNOWN")
                word = f"{job.state.lower()} {job.reason}".strip()
                if word != said:
                    say(f"job {job_id}: {word}")
                    said = word
            passed = time.monotonic() - began
            if passed > patience:
                raise BeamSlurmError(
                    f"job {job_id} did not end within {patience:.0f} s, it is cancelled",
                    why=silence or said,
                    remedy="wait longer with --timeout SECONDS, or come back when nodes are free",
                )
            time.sleep(min(SELDOM, OFTEN + passed / 60 * (SELDOM - OFTEN)))
    finally:
        if not over:
            with contextlib.suppress(BeamSlurmError):  # its own limit ends it all the same
                slurm.cancel(job_id)


def _answers(log: Path, nodes: int) -> dict[str, dict[str, Any]]:
    """The facts of each node that has told all; a slow file system gets a moment."""
    deadline = time.monotonic() + STRAGGLER
    while True:
        text = log.read_text(errors="replace") if log.exists() else ""
        told = [event for line in text.splitlines() if (event := events.parse(line))]
        found = gather(told)
        if len(found) + _lost(text) >= nodes or time.monotonic() > deadline:
            return found
        time.sleep(OFTEN)


def _lost(text: str) -> int:
    """How many tasks srun has given up: there is nothing to wait for."""
    tasks = re.findall(r"^srun: error: \S+: tasks? ([\d,-]+): ", text, re.M)
    ranges = [part.partition("-") for found in tasks for part in found.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)


def _examined(
    subject: Subject,
    ask: dict[str, Any],
    answers: dict[str, dict[str, Any]],
    job: slurm.Job,
    log: Path,
) -> Examination:
    mine = {name: fingerprint(path) for name, path in ask["paths"].items()}
    found = Examination(judge(subject, ask, mine, answers))
    hosts = slurm.ask("scontrol", "show", "hostnames", job.nodes).split() if job.nodes else []
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line for line in text.splitlines() if not events.parse(line)]
    other = [line for line in lines if not line.startswith("srun:")]
    for host in hosts:
        if host not in answers:
            about = [line for line in lines if re.search(rf"\b{re.escape(host)}\b", line)]
            have = "; ".join(about[-1:] + other[-1:]) or "it said nothing"
            remedy = (
                f"can it see {log.parent.parent}? srun --nodelist={host} ls {log.parent.parent}"
            )
            silent = Check("answer", "fail", have, "the node runs node.pyz", remedy)
            found.nodes[host] = [silent]
    if len(found.nodes) < subject.profile.hardware.nodes:
        have = f"Slurm: {job.state} {job.exit_code} {job.reason}".rstrip()
        if job.exit_code == "0:53" or not log.exists():
            have += f"; its log {log} was not to be seen here"
        elif lines:
            have += f"; last in its log: {lines[-1]}"
        remedy = "site.paths.runs must be a folder that every node sees"
        found.problem = Check("job", "fail", have, "every node answers", remedy)
    return found
