"""What this shell hands on, and the python3 that the job's script calls."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

from beam_slurm.doctor.checks import Check, passed
from beam_slurm.doctor.subject import Subject

OLDEST = (3, 8)


def check(subject: Subject) -> Iterator[Check]:
    """W&B's key where a framework stops without it; python3."""
    if subject.profile.framework.name == "skyrl":
        if os.environ.get("WANDB_API_KEY"):
            yield passed("WANDB_API_KEY", "is set")
        else:
            yield Check(
                "WANDB_API_KEY",
                "warn",
                "is not set in this shell",
                "SkyRL stops without it unless it logs elsewhere",
                "export WANDB_API_KEY=...; or submit ... -- trainer.logger=console",
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
