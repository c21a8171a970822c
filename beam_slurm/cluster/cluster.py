"""A Slurm cluster of several hosts on this machine: up, down, and what lies between."""

from __future__ import annotations

import os
import secrets
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beam_slurm.cluster import cgroups, config, network, requirements, teardown
from beam_slurm.cluster.host import CLIENT, Host, Starting
from beam_slurm.cluster.process import base_environment, run
from beam_slurm.cluster.spec import CONTROLLER, DEFAULT_NAME, ClusterSpec, check_name
from beam_slurm.cluster.state import UP, ClusterState, boot_id, clusters_root, locked
from beam_slurm.errors import BeamSlurmError

_POLL_S = 0.05


@dataclass(frozen=True)
class HostStatus:
    """One host as it is now.

    Args:
        name: node1 to nodeN, or ctl.
        address: its address on the bridge.
        running: whether the host itself runs.
        slurm: Slurm's word for the node, such as ``idle``; ``up`` or ``down`` for the controller.
        pid: process 1 of the host by its number on the real machine; None if it does not run.
        processes: number of processes in the host.
    """

    name: str
    address: str
    running: bool
    slurm: str
    pid: int | None
    processes: int


class Cluster:
    """The cluster called ``name``, whether it exists yet or not.

    >>> cluster = Cluster("demo")                         # doctest: +SKIP
    >>> cluster.up(hosts=4, gpus=8, gpu_type="h200")      # doctest: +SKIP
    >>> cluster.run(["srun", "-N4", "hostname"]).stdout   # doctest: +SKIP
    """

    def __init__(self, name: str = DEFAULT_NAME) -> None:
        self.name = check_name(name)
        self.root = clusters_root() / self.name

    def up(  # noqa: PLR0913 - a cluster's size, all with defaults
        self,
        hosts: int = 4,
        gpus: int = 8,
        gpu_type: str = "h200",
        *,
        cpus: int = 16,
        memory_mb: int = 2_000_000,
        extra_conf: Sequence[str] = (),
        shared: Sequence[Path] = (),
        patience_s: float = 60.0,
    ) -> None:
        """Make the cluster, or the hosts of it that do not run; return when all are ready.

        Raises:
            BeamSlurmError: it exists with another size, the machine lacks something, or a host
                is not ready within ``patience_s``; what was made anew is then removed again.
        """
        seen = tuple(str(path.resolve()) for path in shared)
        spec = ClusterSpec(hosts, gpus, gpu_type, cpus, memory_mb, tuple(extra_conf), seen)
        requirements.check()
        with self._locked():
            state = ClusterState.load(self.root)
            if state and self._usable(state):
                self._refuse_other_size(state.spec, spec)
                self._start(state, patience_s)
                return
            # Killed while it was made, or from before a restart of the machine.
            teardown.remove(self.root, state)
            try:
                state = self._prepare(spec)
                self._start(state, patience_s)
            except BaseException as error:
                words = self._last_words() if isinstance(error, BeamSlurmError) else ""
                teardown.remove(self.root, ClusterState.load(self.root))
                if isinstance(error, BeamSlurmError) and words:
                    error.why = f"{error.why}\n{words}" if error.why else words
                raise
            replace(state, phase=UP).save(self.root)

    def down(self) -> bool:
        """Remove the cluster, half made or whole. Return whether there was anything.

        Raises:
            BeamSlurmError: something could not be removed; ``down`` can be run again.
        """
        requirements.check_root()
        if not self.root.exists():
            return False
        with self._locked():
            return teardown.remove(self.root, ClusterState.load(self.root))

    def stop_host(self, host: str) -> None:
        """Take a host's power away: its processes end at once and its peers hear nothing."""
        with self._locked():
            self._host(host).stop()

    def start_host(self, host: str, *, patience_s: float = 60.0) -> None:
        """Start a stopped host again; return when Slurm can use it."""
        with self._locked():
            self._start(self._state(), patience_s, [self._host(host).name])

    def environment(self) -> dict[str, str]:
        """The variables by which Slurm's commands find this cluster."""
        self._state()
        return {"SLURM_CONF": str(self.root / "etc" / "slurm.conf")}

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command outside the hosts, as a user of the cluster does, such as ``srun``.

        Args:
            argv: the command.
            check: raise `subprocess.CalledProcessError` when it fails.
            env: variables besides those of the caller, whose SLURM_* are left out.
            options: further arguments of `subprocess.run`.
        """
        return subprocess.run(
            argv, check=check, env=self._command_environment(env), **_captured(options)
        )

    def exec(
        self,
        host: str,
        argv: Sequence[str],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside a host (node1 to nodeN or ctl); arguments as for `run`."""
        return self.run(self.exec_argv(host, argv), check=check, env=env, **options)

    def exec_argv(self, host: str, argv: Sequence[str], *, folder: str = "/") -> list[str]:
        """The command that runs ``argv`` inside a host, in the working folder ``folder``."""
        return self._host(host).enter_argv(argv, folder)

    def status(self) -> list[HostStatus]:
        """Return the controller and every node, as they are now.

        Raises:
            BeamSlurmError: there is no such cluster.
        """
        state = self._state()
        control = self._host(CONTROLLER)
        slurm = self._slurm_states() if control.process() else {}
        found = []
        for name in (CONTROLLER, *state.spec.nodes):
            host = self._host(name)
            running = host.process() is not None
            word = slurm.get(name, "unknown")
            if name == CONTROLLER:
                word = "up" if slurm else "down"
            count = len(cgroups.processes(host.cgroup_folders))
            found.append(HostStatus(name, host.address, running, word, host.first_process(), count))
        return found

    def spec(self) -> ClusterSpec:
        """The size of the cluster."""
        return self._state().spec

    def _state(self) -> ClusterState:
        state = ClusterState.load(self.root)
        if state is None:
            raise BeamSlurmError(
                f"there is no cluster {self.name}",
                remedy=f"beam-slurm cluster up --name {self.name} --hosts 4",
            )
        return state

    def _host(self, name: str) -> Host:
        state = self._state()
        if name not in (CONTROLLER, *state.spec.nodes):
            raise BeamSlurmError(
                f"cluster {self.name} has no host {name}",
                remedy=f"one of: {CONTROLLER}, {', '.join(state.spec.nodes)}",
            )
        return Host(name, self.root, state)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        requirements.check_root()
        with locked(self.root.with_name(f"{self.name}.lock")):
            yield

    def _usable(self, state: ClusterState) -> bool:
        # A container that was restarted has lost its links, though the machine has not rebooted.
        made = bool(network.links(state.bridge))
        return state.phase == UP and state.boot == boot_id() and made

    def _refuse_other_size(self, has: ClusterSpec, wanted: ClusterSpec) -> None:
        if has != wanted:
            raise BeamSlurmError(
                f"cluster {self.name} is up with another size",
                why=f"it has {has.describe()}; asked for are {wanted.describe()}",
                remedy=f"first `beam-slurm cluster down --name {self.name}`, or choose "
                "another --name",
            )

    def _prepare(self, spec: ClusterSpec) -> ClusterState:
        """Choose a network, record it, and write all files. Nothing runs yet."""
        self.root.mkdir(mode=0o700, parents=True)
        parents = cgroups.parents()
        # One at a time over all clusters, so that two do not choose the same network.
        with locked(self.root.parent / ".choose.lock"):
            bridge, subnet = self._choose_network(parents)
            bases = {mount: f"{folder}/{bridge}" for mount, folder in parents.items()}
            state = ClusterState(spec, bridge, subnet, bases, boot_id())
            state.save(self.root)
        for folder in ("etc", "dev", "log", "run", "state", "spool", "munge", "aside", "hosts"):
            (self.root / folder).mkdir(mode=0o700)
        for i in range(spec.gpus):
            # Character device 1:3 is /dev/null: Slurm asks only that the file exists.
            os.mknod(self.root / "dev" / f"nvidia{i}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        addresses = network.addresses(subnet, spec)
        outside = {socket.gethostname(): network.gateway(subnet)}
        etc = {
            "slurm.conf": config.slurm_conf(self.name, spec, self.root, addresses),
            "gres.conf": config.gres_conf(spec, self.root),
            "cgroup.conf": config.cgroup_conf(cgroups.version(parents)),
            "plugstack.conf": "",
            "hosts": config.hosts_file(addresses, outside),
        }
        for file, text in etc.items():
            (self.root / "etc" / file).write_text(text, encoding="utf-8")
        key = self.root / "munge.key"
        key.touch(mode=0o400)
        key.write_bytes(secrets.token_bytes(128))
        for base in bases.values():
            cgroups.make(Path(base))
        network.make_bridge(bridge, subnet)
        return state

    def _choose_network(self, parents: Mapping[str, str]) -> tuple[str, str]:
        taken = {path.name for path in Path("/sys/class/net").iterdir()}
        taken |= {path.name for folder in parents.values() for path in Path(folder).iterdir()}
        # A cluster that is just being made has recorded its choice but has no link yet.
        states = [ClusterState.load(path) for path in self.root.parent.iterdir() if path.is_dir()]
        taken |= {state.bridge for state in states if state}
        chosen = network.choose(network.networks_in_use(), taken, network.candidates())
        if chosen is None:
            raise BeamSlurmError(
                "there is no free network for the cluster",
                remedy="take clusters down that are no longer used",
            )
        return chosen[0], str(chosen[1])

    def _start(
        self, state: ClusterState, patience_s: float, only: Sequence[str] | None = None
    ) -> None:
        """Start the hosts that do not run, the controller first, and wait until they are ready."""
        names = [CLIENT, CONTROLLER, *(only or state.spec.nodes)]
        hosts = [Host(name, self.root, state) for name in dict.fromkeys(names)]
        deadline = time.monotonic() + patience_s
        begun: list[Starting] = []
        try:
            for host in hosts:
                if not host.process():
                    host.stop()  # what is left of its life before
                    begun.append(host.begin())
            for starting in begun:
                starting.go()
                if starting.host.name == CONTROLLER:
                    # A slurmd that finds no controller tries again only after a second.
                    self._await_port(starting.host, 6817, deadline)
        finally:
            for starting in begun:
                starting.give_up()
        self._await_ready([s.host for s in begun if s.host.name in state.spec.nodes], deadline)

    def _await_port(self, host: Host, port: int, deadline: float) -> None:
        while True:
            try:
                socket.create_connection((host.address, port), timeout=0.2).close()
            except OSError:
                self._check_time([host], deadline)
            else:
                return

    def _await_ready(self, nodes: Sequence[Host], deadline: float) -> None:
        # Slurm may not have noticed that a host was gone, and call it idle before it is back.
        for node in nodes:
            self._await_port(node, 6818, deadline)
        while nodes:
            states = self._slurm_states()
            late = [node for node in nodes if not _can_work(states.get(node.name, "unknown"))]
            if not late:
                return
            self._check_time(late, deadline, states)

    def _check_time(
        self, hosts: Sequence[Host], deadline: float, states: Mapping[str, str] | None = None
    ) -> None:
        """Wait a moment, unless a host has failed or the time is up."""
        for host in hosts:
            if failure := host.failure():
                raise BeamSlurmError(
                    f"{host.name} of cluster {self.name} did not come up", why=failure, exit_code=1
                )
        if time.monotonic() > deadline:
            words = ", ".join(f"{h.name} {(states or {}).get(h.name, 'silent')}" for h in hosts)
            raise BeamSlurmError(f"cluster {self.name} was not ready in time: {words}", exit_code=1)
        time.sleep(_POLL_S)

    def _slurm_states(self) -> dict[str, str]:
        """Slurm's word for each node; empty if the controller does not answer."""
        env = {**base_environment(), **self.environment()}
        done = run(["sinfo", "--noheader", "--Node", "--format=%N %T"], check=False, env=env)
        # A node has a line for each of its partitions.
        return dict(line.split() for line in done.stdout.splitlines())

    def _command_environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
        path = base_environment()["PATH"]
        return {**own, "PATH": path, **self.environment(), **(env or {})}

    def _last_words(self) -> str:
        """The last lines of every log that tell of trouble."""
        words = []
        for log in sorted((self.root / "log").glob("*.log")):
            lines = log.read_text("utf-8", "replace").splitlines()
            bad = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
            words += [f"{log.name}: {line}" for line in (bad or lines)[-2:]]
        return "\n".join(words)


def _can_work(word: str) -> bool:
    # A star stands for "does not answer". A node that someone drains is none of our business.
    return not word.endswith("*") and word not in ("down", "unknown")


def _captured(options: dict[str, Any]) -> dict[str, Any]:
    if not {"stdout", "stderr"} & options.keys():
        options.setdefault("capture_output", True)
    return {"stdin": subprocess.DEVNULL, "text": True, **options}
