"""One host: a set of namespaces with an address, a munged and a Slurm daemon."""

from __future__ import annotations

import ipaddress
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from beam_slurm.cluster import cgroups, config, init, network
from beam_slurm.cluster.process import MARK, ProcessId, base_environment
from beam_slurm.cluster.spec import CONTROLLER
from beam_slurm.cluster.state import ClusterState
from beam_slurm.errors import BeamSlurmError

CLIENT = "client"


@dataclass(frozen=True)
class Host:
    """A host of the cluster whose state folder is ``root``.

    The controller is a host as well; so is, but for the namespaces, the munged of the real
    machine (`CLIENT`), by which Slurm's commands prove there who they are.
    """

    name: str
    root: Path
    state: ClusterState

    @property
    def folder(self) -> Path:
        """The host's files."""
        return self.root / "hosts" / self.name

    @property
    def address(self) -> str:
        """The host's address on the bridge."""
        return network.addresses(self.state.subnet, self.state.spec)[self.name]

    @property
    def cgroups(self) -> dict[str, str]:
        """The host's cgroup in each hierarchy, by mount point."""
        return {mount: f"{base}/{self.name}" for mount, base in self.state.cgroups.items()}

    @property
    def cgroup_folders(self) -> list[Path]:
        """The host's cgroups."""
        return [Path(folder) for folder in self.cgroups.values()]

    def process(self) -> ProcessId | None:
        """The process that holds the host together (`unshare`), if the host runs."""
        return ProcessId.load(self.folder / "pid")

    def first_process(self) -> int | None:
        """Process 1 of the host, by its number outside."""
        holder = self.process()
        return holder.child() if holder else None

    def failure(self) -> str | None:
        """Why the host did not come up, as far as it could say so itself."""
        file = self.folder / "failed"
        return file.read_text(encoding="utf-8").strip() if file.exists() else None

    def begin(self) -> Starting:
        """Start the host as far as its namespaces; it then waits for `Starting.go`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "failed").unlink(missing_ok=True)
        cgroups.remove(self.cgroup_folders)  # of the host's life before
        for folder in self.cgroup_folders:
            cgroups.make(folder)
        self._write_spec()
        argv = ["launch", str(self.folder / "spec.json")]
        if self.name == CLIENT:
            argv = ["daemon", argv[1], *config.munged_argv(self.root, CLIENT), "--foreground"]
        return Starting(self, _script(argv, self.root))

    def stop(self) -> None:
        """Cut the host off and end all its processes at once."""
        network.unplug(self.state.bridge, self.name)
        holder = self.process()
        cgroups.kill_all(self.cgroup_folders, [holder.pid] if holder else [])
        (self.folder / "pid").unlink(missing_ok=True)

    def enter_argv(self, argv: Sequence[str], folder: str) -> list[str]:
        """The command that runs ``argv`` inside the host, in the working folder ``folder``."""
        first = self.first_process()
        if first is None:
            raise BeamSlurmError(
                f"{self.name} does not run",
                remedy=f"start it: beam-slurm cluster start-host {self.name}",
            )
        spaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", f"--wdns={folder}"]
        inside = ["nsenter", f"--target={first}", *spaces, "--", *argv]
        return [*_script_argv(), "enter", str(self.folder / "spec.json"), *inside]

    def _write_spec(self) -> None:
        """Write what `init` is to do."""
        root, outside = self.root, self.name == CLIENT
        spec: dict[str, object] = {
            "host": self.name,
            "cgroups": self.cgroups,
            "log": str(root / "log" / f"{self.name}.log"),
        }
        if not outside:
            prefix = ipaddress.IPv4Network(self.state.subnet).prefixlen
            binds = [[str(root / "etc" / "hosts"), "/etc/hosts"]]
            if Path("/etc/slurm").is_dir():  # for jobs without SLURM_CONF (sbatch --export=NONE)
                binds.append([str(root / "etc"), "/etc/slurm"])
            controls = self.name == CONTROLLER
            spec |= {
                "failed": str(self.folder / "failed"),
                "aside": str(root / "aside"),
                "run": str(root / "munge"),
                "binds": binds,
                "shared": self.state.spec.shared,
                "network": [
                    ["ip", "addr", "add", f"{self.address}/{prefix}", "dev", "eth0"],
                    ["ip", "link", "set", "lo", "up"],
                    ["ip", "link", "set", "eth0", "up"],
                ],
                "munged": config.munged_argv(root, self.name),
                "daemon": ["slurmctld", "-D"] if controls else ["slurmd", "-D", "-N", self.name],
            }
        (self.folder / "spec.json").write_text(json.dumps(spec, indent=1), encoding="utf-8")


class Starting:
    """A host that has begun to start. Hosts are begun all together and awaited one by one."""

    def __init__(self, host: Host, launcher: subprocess.Popen[str]) -> None:
        self.host = host
        self._launcher = launcher

    def go(self, *, patience_s: float = 20.0) -> None:
        """Record the host's process, plug in its cable, and let it go on.

        Raises:
            BeamSlurmError: the host's namespaces could not be made.
        """
        host, launcher = self.host, self._launcher
        to_host, from_host = launcher.stdin, launcher.stdout
        if to_host is None or from_host is None:
            raise self._error("it has no pipes")
        with to_host, from_host:
            deadline = time.monotonic() + patience_s
            pid = int(self._read(from_host, "pid ", deadline))
            process = ProcessId.of(pid)
            if process is None:
                raise self._error("it ended at once")
            process.save(host.folder / "pid")
            if host.name != CLIENT:
                self._read(from_host, "ready", deadline)
                for folder in host.cgroup_folders:
                    cgroups.settle(folder)
                network.plug_in(host.state.bridge, host.name, host.address, pid)
            to_host.write("go\n")
            to_host.flush()
        launcher.wait()

    def give_up(self) -> None:
        """Let a host that was begun end by itself."""
        for pipe in (self._launcher.stdin, self._launcher.stdout):
            if pipe:
                pipe.close()
        self._launcher.wait()

    def _read(self, pipe: IO[str], word: str, deadline: float) -> str:
        """Read the next line, which begins with ``word``; return what follows it."""
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        line = _read_line(pipe) if ready else ""
        if not line.startswith(word):
            raise self._error(line.strip() or "it ended" if ready else "it does not answer")
        return line.removeprefix(word).strip()

    def _error(self, why: str) -> BeamSlurmError:
        log = self.host.folder / "start.log"
        words = log.read_text("utf-8", "replace").strip() if log.exists() else ""
        return BeamSlurmError(
            f"{self.host.name} could not be started", why=words or why, exit_code=1
        )


def _read_line(pipe: IO[str]) -> str:
    """Read one line and not a byte more: `select` does not see what Python has buffered."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(pipe.fileno(), 1)):
        line += byte
    return line.decode("utf-8", "replace")


def _script_argv() -> list[str]:
    # The interpreter itself, not a link in a virtualenv below /tmp, which the hosts do not see.
    python = os.path.realpath(sys.executable)
    return [python, "-I", "-S", str(Path(init.__file__).resolve())]


def _script(argv: list[str], root: Path) -> subprocess.Popen[str]:
    """Start `init` with the cluster's mark in its environment."""
    env = {
        **base_environment(),
        "SLURM_CONF": str(root / "etc" / "slurm.conf"),
        MARK: str(root),
    }
    log = Path(argv[1]).with_name("start.log")
    with log.open("w", encoding="utf-8") as errors:
        return subprocess.Popen(
            [*_script_argv(), *argv],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
