"""A cgroup for each host, so that steps of two clusters do not meet in one.

Slurm puts a step under ``/slurm_node1/uid_0/job_1/step_0`` of the machine's cgroups, whichever
cluster it belongs to. Two clusters on one machine would share these: the end of job 1 in one would
be the end of job 1 in the other. So each host gets a cgroup namespace whose root is a cgroup of
its own, in every hierarchy, below the caller's cgroup (whose limits therefore hold on). By the
same folders ``down`` finds every process of the cluster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from beam_slurm.cluster.process import ProcessId, kill
from beam_slurm.errors import BeamSlurmError

LEAF = "init"


def parents() -> dict[str, str]:
    """The caller's own cgroup in each hierarchy, by the hierarchy's mount point.

    Raises:
        BeamSlurmError: the machine shows no cgroups, or they cannot be written.
    """
    found: dict[str, str] = {}
    own = _own_cgroups()
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        mount_root, mount = fields[3], fields[4]
        if kind == "cgroup2":
            path = own.get("")
        elif kind == "cgroup":
            path = next((own[name] for name in own if name and name in options), None)
        else:
            continue
        if path is None or not mount.startswith("/sys/fs/cgroup"):
            continue
        inside = os.path.relpath(path, mount_root)
        folder = Path(mount) if inside.startswith("..") else Path(mount, inside)
        found[mount] = str(folder if folder.is_dir() else Path(mount))
    if not found or not all(os.access(folder, os.W_OK) for folder in found.values()):
        raise BeamSlurmError(
            "the cgroups of this machine cannot be written",
            where="/sys/fs/cgroup",
            why="Slurm ends the processes of a step by their cgroup",
            remedy="run as root of the machine, or in a container started with --privileged",
        )
    return found


def version(mounts: Iterable[str]) -> int:
    """The version Slurm should use: 2 where /sys/fs/cgroup itself is of version 2, else 1."""
    return 2 if "/sys/fs/cgroup" in mounts else 1


def make(folder: Path) -> None:
    """Make a cgroup that processes can join."""
    folder.mkdir(exist_ok=True)
    for name in ("cpuset.cpus", "cpuset.mems"):  # version 1 starts with empty sets
        file = folder / name
        if file.exists() and not file.read_text(encoding="ascii").strip():
            with suppress(OSError):
                file.write_text((folder.parent / name).read_text("ascii"), encoding="ascii")


def settle(folder: Path) -> None:
    """Move a host's first processes from its cgroup to a leaf below, where version 2 wants them.

    There a cgroup that has processes of its own cannot hand controllers on, and Slurm wants to
    hand them on to its steps from the root that the host sees, which is this cgroup.
    """
    if not (folder / "cgroup.subtree_control").exists():
        return
    leaf = folder / LEAF
    leaf.mkdir(exist_ok=True)
    for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
        with suppress(ProcessLookupError):
            (leaf / "cgroup.procs").write_text(pid, encoding="ascii")
    for above in (folder.parent, folder):  # hand on what we have; steps run without, too
        for controller in (above / "cgroup.controllers").read_text("ascii").split():
            with suppress(OSError):
                (above / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")


def processes(folders: Iterable[Path]) -> set[int]:
    """The processes in these cgroups and in all below."""
    found: set[int] = set()
    for folder in folders:
        for below in _tree(folder):
            with suppress(OSError):
                found |= {int(pid) for pid in (below / "cgroup.procs").read_text().split()}
    return found - {0}  # 0 stands for processes of a namespace that we cannot see


def kill_all(
    folders: Iterable[Path], also: Iterable[int] = (), *, patience_s: float = 10.0
) -> None:
    """End every process in these cgroups, and those in ``also``; return when they are gone.

    Raises:
        BeamSlurmError: some process would not die, for example in uninterruptible sleep.
    """
    folders = list(folders)
    rest = {found for pid in also if (found := ProcessId.of(pid))}
    deadline = time.monotonic() + patience_s
    while True:
        rest = {process for process in rest if process.alive()}
        rest |= {found for pid in processes(folders) if (found := ProcessId.of(pid))}
        if not rest:
            return
        if time.monotonic() > deadline:
            raise BeamSlurmError(
                f"processes that do not die: {sorted(process.pid for process in rest)}",
                remedy="look at them with ps, then run `down` again",
                exit_code=1,
            )
        _thaw(folders)
        kill(process.pid for process in rest)
        time.sleep(0.01)


def remove(folders: Iterable[Path], *, patience_s: float = 5.0) -> None:
    """Remove these cgroups and all below; they have no process any more."""
    deadline = time.monotonic() + patience_s
    for folder in folders:
        for below in sorted(_tree(folder), key=lambda path: len(path.parts), reverse=True):
            while below.is_dir():
                try:
                    below.rmdir()
                except OSError as error:  # the last process may still be on its way out
                    if time.monotonic() > deadline:
                        raise BeamSlurmError(
                            "a cgroup cannot be removed", where=str(below), why=str(error)
                        ) from error
                    time.sleep(0.01)


def _own_cgroups() -> dict[str, str]:
    """The caller's cgroup path by controller (version 1) or by "" (version 2)."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    return own


def _tree(folder: Path) -> Iterator[Path]:
    for parent, _, _ in os.walk(folder):
        yield Path(parent)


def _thaw(folders: Iterable[Path]) -> None:
    """A frozen process (version 1; Slurm suspends with it) does not hear SIGKILL."""
    for folder in folders:
        for below in _tree(folder):
            for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                if (below / name).exists():
                    with suppress(OSError):
                        (below / name).write_text(word, encoding="ascii")
