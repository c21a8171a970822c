"""Removing a cluster, in whatever state it is found."""

from __future__ import annotations

import shutil
from pathlib import Path

from beam_slurm.cluster import cgroups, network
from beam_slurm.cluster.process import ProcessId, await_reaped, marked, run
from beam_slurm.cluster.state import ClusterState, boot_id


def remove(root: Path, state: ClusterState | None) -> bool:
    """Remove all that belongs to the cluster in ``root``. Return whether there was anything.

    Processes are found three ways, never by name: by the cluster's cgroups, by recorded number
    and start time, and by the mark in the environment of those that start just now.

    Args:
        root: the cluster's state folder; it may be incomplete or missing.
        state: what it records; None if it was not written yet, so that nothing else was made.
    """
    if not root.exists():
        return False
    folders: list[Path] = []
    recorded: set[ProcessId] = set()
    if state and state.boot == boot_id():
        folders = [Path(base) for base in state.cgroups.values()]
        recorded = {found for file in root.glob("hosts/*/pid") if (found := ProcessId.load(file))}
    cgroups.kill_all(folders, {process.pid for process in recorded} | marked(root))
    if state and state.boot == boot_id():
        network.remove_links(state.bridge)
    cgroups.remove(folders)
    for mount in mounts_below(root):
        # Else removing the files would follow the mount into what is not the cluster's.
        run(["umount", "--lazy", str(mount)])
    shutil.rmtree(root)
    await_reaped(recorded)
    return True


def mounts_below(root: Path) -> list[Path]:
    """Mount points at or below ``root``, the deepest first. A cluster itself makes none."""
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    points = [Path(line.split()[4].replace("\\040", " ")) for line in text.splitlines()]
    return sorted((p for p in points if p.is_relative_to(root)), reverse=True)
