"""Verb ``ray``: this node's part of the Ray cluster, one task on every node of one step.

A child becomes ``ray start --block`` (raystart). This process stays small: it keeps the node's
private temp folder, says on its standard output what went wrong, writes down what Ray is doing when
it is asked to, saves Ray's logs, and leaves no process behind.
"""

import argparse
import contextlib
import os
import signal
import socket
import time
from types import FrameType
from typing import List, Optional, Set

from beam_slurm.node import (
    address,
    attempts,
    events,
    fit,
    keep,
    mask,
    ports,
    processes,
    raylog,
    raystart,
    stacks,
)

DAEMONS = {"raylet", "gcs_server"}  # without them there is no Ray
WATCHERS = {"dashboard.py", "monitor.py", "log_monitor.py"}

STOP = signal.SIGUSR2  # the supervisor's "the run is over": srun hands it to every task

DUMP = signal.SIGUSR1  # its "write down what you are doing"

ENDS = (STOP, signal.SIGTERM, signal.SIGINT)

LEISURE, HURRY = 10.0, 2.0  # seconds to save Ray's logs


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
    parser.add_argument("--cpus", type=int, required=True, help="CPUs of each node")
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
    task = Task(args)
    for number in ENDS:
        signal.signal(number, task.stop)
    signal.signal(DUMP, task.want_stacks)
    processes.adopt_orphans()
    processes.raise_limits()
    try:
        return task.run()
    finally:
        for number in (*ENDS, DUMP):
            signal.signal(number, _deaf)
        processes.end_all(0)  # Ray has nothing to save; its own grace is for shared clusters
        with contextlib.suppress(OSError):  # of a supervisor whose host has died
            task.keep_logs()
        for path in folders:
            fit.remove_folder(path)
        events.tell(events.make("node-cleared", node=task.name))


class Task:
    """This node's task, from its folder to its last word."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.log = raystart.log_of(args.attempt, self.name)
        names = os.environ.get("BEAM_SLURM_SECRETS", "").split()
        self.mask = mask.Mask(mask.names_in(os.environ, names))
        self.child = 0
        self.hurry = False  # Slurm ends the step: it kills what is not over soon
        self.wants_stacks = False

    def run(self) -> int:
        """Start Ray and stay until it is stopped (0) or dies (1)."""
        args = self.args
        try:
            fit.check(args.gpus, args.object_store)
            # Slurm kills the steps of a first node that has died, and nobody has tidied up.
            for name in attempts.names_before(args.attempt):
                fit.remove_folder(os.path.join(os.path.dirname(args.temp), "beam-" + name))
            fit.private_folder(args.temp)
            if args.scratch:
                fit.private_folder(args.scratch, args.scratch_need)
            words = raystart.command(args, self.name)
            deadline = time.monotonic() + args.deadline
            while True:
                self.child = raystart.fork(words, args, self.name, (*ENDS, DUMP))
                code = self.watch()
                if not raylog.was_slow(raylog.read(self.log)) or time.monotonic() > deadline:
                    break
                processes.end_all(0)
            self.report(code)
            return _await_stop()
        except Stop:
            return self.stopped()
        except (Died, fit.Unfit, address.NoAddress, ports.NoPorts, OSError) as problem:
            lines = problem.lines if isinstance(problem, Died) else []
            events.tell(events.make("node-failed", node=self.name, why=str(problem), lines=lines))
            return _await_stop()

    def stop(self, number: int, frame: Optional[FrameType]) -> None:
        """A signal has asked for the end."""
        for other in ENDS:
            signal.signal(other, _deaf)  # scancel and the supervisor may both ask
        self.hurry = number != STOP
        raise Stop

    def want_stacks(self, number: int, frame: Optional[FrameType]) -> None:
        """A signal has asked what the processes here are doing."""
        self.wants_stacks = True

    def keep_logs(self) -> None:
        """Save Ray's own logs: they are gone with the temp folder."""
        if not self.child:
            return
        target = os.path.join(self.args.attempt, "ray", self.name + ".logs.tar.gz")
        seconds = HURRY if self.hurry else LEISURE
        left_out = keep.keep(self.args.temp, target, self.mask, seconds=seconds)
        if left_out:
            print("beam-slurm: %s: Ray's logs: %s" % (self.name, left_out), flush=True)

    def watch(self) -> int:
        """Wait for the end of ``ray start``; its exit code.

        Raises:
            Died: while it waits for its raylet it does not notice that the raylet is dead already.
        """
        deadline = 0.0
        known = set()  # type: Set[int]
        while True:
            pid, status = os.waitpid(self.child, os.WNOHANG)
            if pid:
                return processes.code(status)
            if self.wants_stacks:
                self.dump_stacks()
            daemons = processes.children(self.child)
            _yield_to_training(set(daemons) - known)
            known.update(daemons)
            dead = {processes.name(pid) for pid in daemons if processes.has_ended(pid)} & DAEMONS
            if dead and not deadline:
                deadline = time.monotonic() + 2  # time for its own, better word on it
            elif dead and time.monotonic() > deadline:
                lines = [
                    line
                    for name in sorted(dead)
                    for line in raylog.last_words(self.args.temp, name)
                ]
                raise Died("Ray's %s ended while Ray was starting" % ", ".join(sorted(dead)), lines)
            time.sleep(0.1)

    def stopped(self) -> int:
        """The run is over. If Ray died here just before, that is the news, and its cause."""
        if not self.child or not raylog.has_started(raylog.read(self.log)) or _has_raylet():
            return 0
        # ``ray start --block`` looks once a second; let it say how the raylet ended.
        deadline = time.monotonic() + 2
        code = 1
        try:
            while time.monotonic() < deadline:
                pid, status = os.waitpid(self.child, os.WNOHANG)
                if pid:
                    code = processes.code(status)
                    break
                time.sleep(0.05)
        except ChildProcessError:
            pass
        self.report(code)
        return 1

    def report(self, code: int) -> None:
        """Say that Ray ended here although nobody asked it to."""
        lines = raylog.read(self.log)
        why = raylog.cause(lines, code)
        last = lines[-raylog.TAIL :]
        events.tell(
            events.make("node-failed", node=self.name, why=why, code=code, log=self.log, lines=last)
        )

    def dump_stacks(self) -> None:
        """Write down what the job's processes on this node are doing."""
        self.wants_stacks = False
        try:
            path = stacks.dump(
                self.args.attempt, os.environ["SLURM_JOB_ID"], self.name, mask=self.mask
            )
        except OSError as problem:
            path = "none: %s" % problem
        events.tell(events.make("stacks", node=self.name, path=path))


def _deaf(number: int, frame: Optional[FrameType]) -> None:
    """Not SIG_IGN: Python complains of a signal that came just before it."""


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


def _has_raylet() -> bool:
    return any(processes.name(pid) == "raylet" for pid in processes.descendants())
