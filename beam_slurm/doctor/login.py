"""What this shell hands on, and the python3 that the job's script calls."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from beam_slurm import checks
from beam_slurm.doctor.checks import Check, passed
from beam_slurm.doctor.subject import Subject
from beam_slurm.errors import BeamSlurmError

OLDEST = (3, 8)

WANDB = {"nemo-rl": "logger.wandb_enabled=false", "skyrl": "trainer.logger=console"}
"""Frameworks whose recipes log to W&B, and the words by which they do not."""


def check(subject: Subject) -> Iterator[Check]:
    """Secrets, W&B's key where a framework asks for it, python3."""
    site, name = subject.site, subject.profile.framework.name
    try:
        checks.secrets(site)
        held = checks.held(site)
    except BeamSlurmError as error:
        yield Check("secrets", "fail", error.what, error.why or "", error.remedy or "")
        held = None
    else:
        if site.secret_names or site.secrets_file:
            there = (
                "all there" if held is not None else f"{site.secrets_file} is not seen from here"
            )
            yield passed("secrets", there)
    if name in WANDB and held is not None:
        if "WANDB_API_KEY" in held:
            yield passed("WANDB_API_KEY", "is set")
        else:
            yield Check(
                "WANDB_API_KEY",
                "warn",
                "is not set in this shell",
                "the recipe logs to W&B",
                f"export WANDB_API_KEY=...; or submit ... -- {WANDB[name]}",
            )
    yield _python()


def _python() -> Check:
    found = shutil.which("python3")
    need, remedy = "3.8 or newer", "load a newer Python in site.setup, such as: module load python"
    if not found:
        return Check("python3", "warn", "not on this machine's PATH", need, remedy)
    program = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    done = subprocess.run([found, "-c", program], capture_output=True, text=True, check=False)
    number = done.stdout.strip()
    if tuple(map(int, number.split(".")[:2])) < OLDEST if number else True:
        return Check("python3", "warn", f"{number or 'does not run'} here", need, remedy)
    return passed("python3", number)
