"""Verb ``ray``: this node's part of the Ray cluster, one task on every node of one step.

A child imports Ray's command line while the head is still starting, waits for the head's port and
then becomes ``ray start --block``. This process stays small: it keeps the node's private temp
folder, says on its standard output what went wrong, and leaves no process behind.
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
import time
from types import FrameType
from typing import Any, Dict, List, Optional, Set

from beam_slurm.node import address, agent, events, fit, gcs, ports, processes, raylog

DAEMONS = {"raylet", "gcs_server"}  # without them there is no Ray
WATCHERS = {"dashboard.py", "monitor.py", "log_monitor.py"}

STOP = signal.SIGUSR2  # the supervisor's "the run is over": srun hands it to every task

SIGNALS = (STOP, signal.SIGTERM, signal.SIGINT)

PLAIN = ("--log-style=pretty", "--log-color=false")  # a log for files, and for raylog


class Died(Exception):
    """A daemon ended while ``ray start`` still waits for it; ``lines`` are its own last words."""

    def __init__(self, why: str, lines: List[str]) -> None:
        super().__init__(why)
        self.lines = lines


class Stop(Exception):
    """A signal asked this node to end."""


def main(argv: List[str]) -> int:
    """Start Ray here and stay until it is stopped (0) or dies (1)."""
    parser = argparse.ArgumentParser(prog="node.pyz ray")
    parser.add_argument("--nodes", required=True, help="all nodes of the job, head first: a,b,c")
    parser.add_argument("--gpus", type=int, required=True, help="GPUs of each node")
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--temp", required=True, help="node-local folder, made and removed here")
    parser.add_argument("--scratch", default="", help="the same on the node's own NVMe")
    parser.add_argument("--scratch-need", type=int, default=0, help="bytes that must be free there")
    parser.add_argument("--interface", default="")
    parser.add_argument("--prefix", default="")
    parser.add_argument("--resources", default="{}", help="Ray custom resources of each node, JSON")
    parser.add_argument(
        "--object-store", type=int, default=0, help="bytes of shared memory for objects"
    )
    parser.add_argument("--deadline", type=float, required=True, help="seconds to wait for head")
    parser.add_argument("--dashboard", default="", help="address:port of the dashboard, head only")
    parser.add_argument("--clean", action="store_true", help="only remove what a killed task left")
    args = parser.parse_args(argv)

    folders = [path for path in (args.temp, args.scratch) if path]
    if args.clean:
        for path in folders:
            fit.remove_folder(path)
        return 0
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    log = os.path.join(args.attempt, "ray", name + ".log")
    for number in SIGNALS:
        signal.signal(number, _stop)
    processes.adopt_orphans()
    child = 0
    processes.raise_limits()
    try:
        fit.check(args.gpus, args.object_store)
        fit.private_folder(args.temp)
        if args.scratch:
            fit.private_folder(args.scratch, args.scratch_need)
        command = _command(args, name)
        deadline = time.monotonic() + args.deadline
        while True:
            child = _fork(command, args, log)
            code = _watch(child, args.temp)
            if not raylog.was_slow(raylog.read(log)) or time.monotonic() > deadline:
                break
            processes.end_all(0)
        _report(name, log, code)
        return _await_stop()
    except Stop:
        return _stopped(name, log, child)
    except (Died, fit.Unfit, address.NoAddress, ports.NoPorts, OSError) as problem:
        lines = problem.lines if isinstance(problem, Died) else []
        events.tell(events.make("node-failed", node=name, why=str(problem), lines=lines))
        return _await_stop()
    finally:
        for number in SIGNALS:
            signal.signal(number, _deaf)
        processes.end_all(0)  # Ray has nothing to save; its own grace is for shared clusters
        for path in folders:
            fit.remove_folder(path)


def _stop(number: int, frame: Optional[FrameType]) -> None:
    for other in SIGNALS:
        signal.signal(other, _deaf)  # scancel and the supervisor may both ask
    raise Stop


def _deaf(number: int, frame: Optional[FrameType]) -> None:
    """Not SIG_IGN: Python complains of a signal that came just before it."""


def _command(args: argparse.Namespace, name: str) -> List[str]:
    """The words of ``ray start`` for this node."""
    head = name == args.nodes.split(",")[0]
    head_ip, gcs = os.environ["RAY_ADDRESS"].rsplit(":", 1)
    ip = head_ip if head else address.own(args.interface, args.prefix, toward=head_ip)
    index = args.nodes.split(",").index(name)
    options = {
        "node-ip-address": ip,
        "node-name": name,  # the gate counts nodes by this
        "num-cpus": address.cpus(os.environ["SLURM_JOB_CPUS_PER_NODE"])[index],
        "num-gpus": args.gpus,
        "resources": args.resources,
    }  # type: Dict[str, Any]
    options.update(ports.for_node(ip, int(os.environ["SLURM_JOB_ID"]), int(gcs), head))
    if args.object_store:
        options["object-store-memory"] = args.object_store
    if not head:
        options["address"] = os.environ["RAY_ADDRESS"]
        return _words(options)
    # Ray opens its own folder to everybody; the one around it stays ours.
    options.update({"port": gcs, "temp-dir": os.path.join(args.temp, "ray")})
    if args.dashboard:
        # Not include-dashboard=true: then Ray would wait for it before it starts its raylet.
        options["dashboard-host"], options["dashboard-port"] = args.dashboard.rsplit(":", 1)
    else:
        options["include-dashboard"] = "false"
        return ["--head", "--no-monitor", *_words(options)]  # it only serves `ray status`
    return ["--head", *_words(options)]


def _words(options: Dict[str, Any]) -> List[str]:
    return ["--%s=%s" % pair for pair in options.items()]


def _agent_port(words: List[str]) -> int:
    option = "--dashboard-agent-listen-port="
    return int(next(word for word in words if word.startswith(option))[len(option) :])


def _fork(command: List[str], args: argparse.Namespace, log: str) -> int:
    """Start the child that becomes ``ray start``; its output goes to ``log``."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        # Nobody waits for the dashboard: it comes up while the nodes join. Ray's own log calls
        # that a failure to start it.
        os.environ.setdefault("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "0")
        # Two of the head's servers take fixed ports unless told otherwise.
        os.environ.update(ports.metrics_of_head(int(os.environ["RAY_ADDRESS"].rpartition(":")[2])))
        os.environ["TMPDIR"] = args.temp  # what Ray and its workers leave there goes with it
        ray = _command_line()
        agent.announce(_agent_port(command))
        if "--head" not in command:
            _await_head(args.deadline)
        sys.argv = ["ray", "start", *PLAIN, "--block", "--disable-usage-stats", *command]
        print("$", " ".join(sys.argv), flush=True)
        ray.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as problem:
        print("%s: %s" % (type(problem).__name__, problem), flush=True)
    finally:
        sys.stdout.flush()
        os._exit(code)


def _command_line() -> Any:
    """Ray's command line, without what no job needs; a Ray that lacks these names is left alone.

    Its client server would be one more port and a second of the head's start, and the commands
    of its dashboard are slow to import: Ray itself allows for their absence.
    """
    for unused in ("util.state.state_cli", "dashboard.modules.job.cli", "serve.scripts"):
        sys.modules["ray." + unused] = None  # type: ignore[assignment]
    from ray.scripts import scripts

    if hasattr(scripts, "get_ray_client_dependency_error"):
        scripts.get_ray_client_dependency_error = lambda: "not wanted"
    return scripts


def _await_head(seconds: float) -> None:
    """Return when the head itself is a node of Ray: until then a worker's raylet may not start.

    ``ray start`` would wait for that too, but looks only every other second, forty seconds long.
    """
    client = gcs.connect(seconds)
    deadline = time.monotonic() + seconds
    while not gcs.alive(client) and time.monotonic() < deadline:
        time.sleep(0.05)


def _watch(child: int, temp: str) -> int:
    """Wait for the end of ``ray start``; its exit code.

    Raises:
        Died: while it waits for its raylet it does not notice that the raylet is dead already.
    """
    deadline = 0.0
    known = set()  # type: Set[int]
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return processes.code(status)
        daemons = processes.children(child)
        _yield_to_training(set(daemons) - known)
        known.update(daemons)
        dead = {processes.name(pid) for pid in daemons if processes.has_ended(pid)} & DAEMONS
        if dead and not deadline:
            deadline = time.monotonic() + 2  # time for its own, better word on it
        elif dead and time.monotonic() > deadline:
            lines = [line for name in sorted(dead) for line in raylog.last_words(temp, name)]
            raise Died("Ray's %s ended while Ray was starting" % ", ".join(sorted(dead)), lines)
        time.sleep(0.1)


def _yield_to_training(pids: Set[int]) -> None:
    """Let those of Ray's daemons that only watch run when nothing else wants the CPU.

    They start together with what the nodes have to wait for, and later beside the training.
    """
    for pid in pids:
        if any(os.path.basename(word) in WATCHERS for word in processes.words(pid)[:4]):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, pid, 10)


def _await_stop() -> int:
    """Hold the failed node's task until all are told to stop: srun kills the others otherwise,
    and a killed task cannot remove its temp folder."""
    with contextlib.suppress(Stop):
        time.sleep(5)
    return 1


def _stopped(name: str, log: str, child: int) -> int:
    """The run is over. If Ray died here just before, that is the news, and its cause."""
    if not child or not raylog.has_started(raylog.read(log)) or _has_raylet():
        return 0
    # ``ray start --block`` looks once a second; let it say how the raylet ended.
    deadline = time.monotonic() + 2
    code = 1
    try:
        while time.monotonic() < deadline:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = processes.code(status)
                break
            time.sleep(0.05)
    except ChildProcessError:
        pass
    _report(name, log, code)
    return 1


def _has_raylet() -> bool:
    return any(processes.name(pid) == "raylet" for pid in processes.descendants())


def _report(name: str, log: str, code: int) -> None:
    """Say that Ray ended here although nobody asked it to."""
    lines = raylog.read(log)
    why = raylog.cause(lines, code)
    last = lines[-raylog.TAIL :]
    events.tell(events.make("node-failed", node=name, why=why, code=code, log=log, lines=last))
