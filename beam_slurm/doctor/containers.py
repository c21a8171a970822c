"""The container runtime and the image, as far as a login node can tell."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from beam_slurm.discover import Cluster
from beam_slurm.doctor.checks import Check, passed
from beam_slurm.doctor.subject import Subject


def check(subject: Subject, cluster: Cluster | None) -> Iterator[Check]:
    """Nothing for a run without a container but its virtual environment."""
    if subject.bare or subject.profile.framework.name == "demo":
        yield _venv(subject)
    if subject.bare:
        return
    if cluster:  # without Slurm nobody knows about pyxis
        yield _runtime(subject.site.container, cluster)
    for name, image in subject.images.items():
        if image.startswith("/"):
            yield _image(name, Path(image))


def _runtime(container: str, cluster: Cluster) -> Check:
    if container == "pyxis":
        if "pyxis" in cluster.runtimes:
            return passed("runtime", "srun knows --container-image")
        others = [name for name in cluster.runtimes if name != "enroot"]
        instead = f"; or --set site.container={others[0]}" if others else ""
        remedy = f"ask the site for pyxis{instead}"
        return Check("runtime", "fail", "this srun has no --container-image", "pyxis", remedy)
    if container in cluster.runtimes:
        return passed("runtime", f"{container} is here; the nodes need it too")
    remedy = "look on the nodes: beam-slurm doctor --on-nodes"
    return Check("runtime", "warn", f"{container} is not on this machine's PATH", container, remedy)


def _image(name: str, path: Path) -> Check:
    what = f"site.images.{name}"
    if not path.exists():
        remedy = f"put it there, on shared storage, or correct {what}"
        return Check("image", "fail", f"{path} is not there", what, remedy)
    if not os.access(path, os.R_OK) or (path.is_file() and not path.stat().st_size):
        remedy = "copy it anew, readable for you"
        return Check("image", "fail", f"{path} is empty or not readable", what, remedy)
    return passed("image", str(path))


def _venv(subject: Subject) -> Check:
    folder = Path(subject.site.paths.venv or sys.prefix)
    if shutil.which(str(folder / "bin" / "python")):
        return passed("venv", str(folder))
    return Check(
        "venv",
        "fail",
        f"{folder}/bin/python is not there",
        "a virtual environment on shared storage",
        "make one, and set site.paths.venv to it",
    )
