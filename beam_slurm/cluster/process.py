"""Running helpers, and telling one process from another that later gets the same number."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from beam_slurm.errors import BeamSlurmError

MARK = "BEAM_SLURM_CLUSTER_DIR"


def base_environment() -> dict[str, str]:
    """A clean environment for daemons: nothing of the caller's virtualenv or job leaks in."""
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"
    return {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8"}


def run(
    argv: Sequence[str], *, check: bool = True, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a helper of the machine to its end.

    Raises:
        BeamSlurmError: it failed and ``check`` is set; the helper's own words are the cause.
    """
    done = subprocess.run(
        argv,
        env=env or base_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if check and done.returncode:
        raise BeamSlurmError(
            f"`{' '.join(argv)}` failed with exit code {done.returncode}",
            why=done.stderr.strip() or done.stdout.strip() or None,
            exit_code=1,
        )
    return done


@dataclass(frozen=True)
class ProcessId:
    """A process by number and start time (clock ticks since boot), which no other shares."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The identity of the living process ``pid``; None if there is none, or a zombie."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The name in brackets may hold spaces and brackets itself: count from its end.
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessId.of(self.pid) == self

    def save(self, path: Path) -> None:
        """Record it in a file."""
        path.write_text(f"{self.pid} {self.started}\n", encoding="ascii")

    @classmethod
    def load(cls, path: Path) -> ProcessId | None:
        """The recorded process if it still runs."""
        try:
            pid, started = path.read_text(encoding="ascii").split()
        except (FileNotFoundError, ValueError):  # a killed `up` may leave an empty file
            return None
        found = cls(int(pid), int(started))
        return found if found.alive() else None

    def child(self) -> int | None:
        """The number of its first child."""
        with suppress(OSError, ValueError, IndexError):
            path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
            return int(path.read_text(encoding="ascii").split()[0])
        return None


def await_reaped(processes: Iterable[ProcessId], *, patience_s: float = 2.5) -> None:
    """Wait until the dead have left the process list.

    That is for process 1 of the machine to see to. Some look only every few seconds, others, such
    as a container's ``sleep``, never do: a zombie that remains is no error.
    """
    deadline = time.monotonic() + patience_s
    for process in processes:
        while Path(f"/proc/{process.pid}").exists() and not ProcessId.of(process.pid):
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)


def marked(folder: Path) -> set[int]:
    """Processes that carry the cluster's mark in their environment."""
    mark = f"{MARK}={folder}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return found - {os.getpid()}


def kill(pids: Iterable[int]) -> None:
    """End processes at once. The caller has made sure whose they are."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
