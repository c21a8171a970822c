"""What is kept on disk about a cluster, and the lock that one command at a time holds."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from beam_slurm.cluster.spec import ClusterSpec
from beam_slurm.errors import BeamSlurmError

DEFAULT_ROOT = Path("/var/lib/beam-slurm/clusters")
MAKING, UP = "making", "up"


def clusters_root() -> Path:
    """The folder of all clusters; ``BEAM_SLURM_CLUSTERS`` moves it."""
    return Path(os.environ.get("BEAM_SLURM_CLUSTERS") or DEFAULT_ROOT)


def boot_id() -> str:
    """This boot of the machine: after another boot no recorded process is ours."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@dataclass(frozen=True)
class ClusterState:
    """All that ``down`` must know; written before the first thing is made.

    Args:
        spec: the size that was asked for.
        bridge: name of the bridge; the names of links and cgroups start with it.
        subnet: the hosts' network, such as 10.77.0.0/24.
        cgroups: the cluster's folder in each cgroup hierarchy, by the hierarchy's mount point.
        boot: the boot of the machine that it was made in.
        phase: ``making`` until every host was seen idle, then ``up``.
    """

    spec: ClusterSpec
    bridge: str
    subnet: str
    cgroups: dict[str, str]
    boot: str
    phase: str = MAKING

    def save(self, folder: Path) -> None:
        """Write to ``folder``; a reader sees the old text or the new, never half of it."""
        temporary = folder / "cluster.json.new"
        temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        temporary.replace(folder / "cluster.json")

    @classmethod
    def load(cls, folder: Path) -> ClusterState | None:
        """Return what ``folder`` records, or None where there is no record."""
        try:
            data: dict[str, Any] = json.loads((folder / "cluster.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise BeamSlurmError(
                "clusters belong to root",
                where=str(folder),
                remedy="run the same command with sudo",
            ) from error
        return cls(**{**data, "spec": ClusterSpec.from_json(data["spec"])})


@contextmanager
def locked(path: Path, *, patience_s: float = 120.0) -> Iterator[None]:
    """Hold the lock file ``path``, which is made and removed here.

    Raises:
        BeamSlurmError: another command held it for all of ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    while True:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # a `down` may remove the folder in between
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            if _try_lock(descriptor, path):
                break
            os.close(descriptor)
        if time.monotonic() > deadline:
            raise BeamSlurmError(
                "another beam-slurm command is changing this cluster",
                where=str(path),
                remedy="wait for it, or see who holds the lock: fuser -v " + str(path),
            )
        time.sleep(0.05)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)
        for folder in (path.parent, path.parent.parent):
            with suppress(OSError):  # not empty: there are other clusters
                folder.rmdir()


def _try_lock(descriptor: int, path: Path) -> bool:
    """Lock the open file unless another holds it or has removed it from ``path`` meanwhile."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False
