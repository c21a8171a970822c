"""Verb ``contain``: run this task's program in a container, and leave no container behind.

Stands between srun and the runtime's own command line, which is written out in the job's script:

    node.pyz contain [options] -- docker run ... IMAGE python3 node.pyz ray ...

The runtime's client runs in the foreground of the task. To its words this verb adds what only the
node knows: the container's name and labels, and the GPUs of a job that shares the node. Signals
are handed on, and the container's exit code is the task's.

A daemon's containers do not end with the task that asked for them. So every way out of here
removes the container, in less than Slurm's KillWait of 30 seconds. If this process itself is
killed, the supervisor's ``--clean`` pass finds the containers of the job by their label; if nobody
is left to do that, the program in the container ends by itself (lifeline).
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from types import FrameType
from typing import Any, Dict, List, Optional, Tuple

from beam_slurm.node import events, fit, lifeline, processes
from beam_slurm.node.drive import NOT_UP
from beam_slurm.node.ray import STOP

DAEMONS = ("docker", "podman")  # their containers have names, and outlive their client
ENDS = (STOP, signal.SIGTERM, signal.SIGINT)

GRACE = 15  # seconds that a container gets to end by itself once it was told to
REMOVE = 8.0  # seconds that the runtime gets to remove it then

MEMLOCK = "--ulimit=memlock=-1"
REFUSED = (125, 126, 127)  # the runtime's own exit codes: its container has not started
LABEL = "beam-slurm"


class Late(Exception):
    """The container has not ended in time."""


def main(argv: List[str]) -> int:
    """Run the container; its exit code."""
    parser = argparse.ArgumentParser(prog="node.pyz contain")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that the job has on this node")
    parser.add_argument(
        "--assign", choices=("nvidia", "cdi"), help="hand over only the job's GPUs, in this way"
    )
    parser.add_argument("--needs", action="append", default=[], help="a mount: SOURCE:TARGET[:ro]")
    parser.add_argument("--env", action="append", default=[], help="a variable's name (apptainer)")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    task = Task(words)
    for number in (*ENDS, signal.SIGUSR1):
        signal.signal(number, task.forward)
    processes.adopt_orphans()
    processes.raise_limits()  # Podman and Apptainer hand ours on
    if words[-1] == "--clean":
        task.remove_all()
    try:
        words = task.complete(words, args)
    except fit.Unfit as problem:
        return task.failed(str(problem), NOT_UP)
    environment = dict(os.environ)
    environment.update(
        ("APPTAINERENV_" + name, os.environ[name]) for name in args.env if name in os.environ
    )
    return task.run(words, environment)


class Task:
    """One container, by the words of the runtime's command line and the program's behind them."""

    def __init__(self, words: List[str]) -> None:
        self.runtime = words[0]
        me = sys.argv[0]  # the program in the container is this one, with another verb
        self.role = words[words.index(me) + 1] if me in words[:-1] else "task"
        self.node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        attempt = (os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_RESTART_COUNT") or "0")
        self.label = "%s=%s" % (LABEL, "-".join((*attempt, self.node)))
        self.name = "-".join(("beam", *attempt, self.node, self.role))
        self.named = self.runtime in DAEMONS
        self.client = None  # type: Optional[subprocess.Popen[bytes]]
        self.stopped = False  # somebody has asked for the end

    def complete(self, words: List[str], args: argparse.Namespace) -> List[str]:
        """The runtime's words with what only this node can add.

        Raises:
            fit.Unfit: the runtime, a mount's source or the GPUs are not here.
        """
        if shutil.which(self.runtime) is None:
            raise fit.Unfit("%s is not on PATH here" % self.runtime)
        for mount in args.needs:
            source = mount.split(":")[0]
            if not os.path.exists(source):
                # Docker would make an empty folder of that name, as root.
                raise fit.Unfit("%s is not here, and %s is to be mounted" % (source, mount))
        own = []  # type: List[str]
        if self.named:
            own += ["--name=" + self.name, "--label=" + self.label]
            own += ["--interactive", "--env=%s=1" % lifeline.VARIABLE]
        own += _devices(args.gpus, args.assign)
        return [*words[:2], *own, *words[2:]]

    def run(self, words: List[str], environment: Dict[str, str]) -> int:
        """Run the container and see it gone; its exit code as a shell would say it."""
        signal.signal(signal.SIGALRM, _late)
        try:
            code, last = self._attempt(words, environment)
            refused = code in REFUSED and "response from daemon" in last and "rlimit" in last
            if refused and MEMLOCK in words:
                events.say(
                    "%s: %s cannot lift the limit of locked memory, it stays the daemon's"
                    % (self.node, self.runtime)
                )
                self._remove()
                words = [word for word in words if word != MEMLOCK]
                code, last = self._attempt(words, environment)
        except Late:
            code, last = 128 + signal.SIGKILL, "it did not end within %d s" % GRACE
        finally:
            signal.alarm(0)
            self._remove()
            processes.end_all(0)
        if self.role == "ray" and code not in (0, 1):  # at 0 and 1 Ray's task has spoken itself
            return self.failed(
                "%s ended with code %d: %s" % (self.runtime, code, _word(last)), code
            )
        return code

    def failed(self, why: str, code: int) -> int:
        """Say why this node cannot do it; only the Ray step's words reach the supervisor."""
        if self.role != "ray":
            events.say("%s: %s" % (self.node, why))
            return code
        events.tell(events.make("node-failed", node=self.node, why=why, code=code))
        # srun kills the other tasks as soon as this one ends: until then they are told to stop.
        deadline = time.monotonic() + 5
        while not self.stopped and time.monotonic() < deadline:
            time.sleep(0.05)
        return 1

    def forward(self, number: int, frame: Optional[FrameType]) -> None:
        """Hand a signal on to the container; from the first request to end on, its time runs."""
        self.stopped = self.stopped or number in ENDS
        if self.client and self.client.returncode is None:
            if number in ENDS:
                signal.alarm(signal.alarm(0) or GRACE)  # a second request is no second grace
            self.client.send_signal(number)

    def remove_all(self) -> None:
        """Remove what killed tasks of this attempt left on this node."""
        if not self.named:
            return
        found = self._ask("ps", "--all", "--quiet", "--filter=label=" + self.label).split()
        if found:
            self._ask("rm", "--force", *found)

    def _attempt(self, words: List[str], environment: Dict[str, str]) -> Tuple[int, str]:
        """(exit code, the last that was said on standard error) of one run of the client."""
        if self.stopped:
            return 1, ""
        self.client = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.PIPE if self.named else subprocess.DEVNULL,  # the lifeline
            stderr=subprocess.PIPE,
        )
        assert self.client.stderr is not None
        last = b""
        while True:
            part = os.read(self.client.stderr.fileno(), 65536)
            if not part:
                break
            os.write(2, part)
            last = (last + part)[-4000:]
        code = self.client.wait()
        return (128 - code if code < 0 else code), last.decode(errors="replace")

    def _remove(self) -> None:
        if self.client and self.client.poll() is None:
            self.client.kill()
            self.client.wait()
        if self.named:
            self._ask("rm", "--force", self.name)

    def _ask(self, *words: str) -> str:
        """The runtime's answer, "" if it has none in time."""
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            done = subprocess.run(
                [self.runtime, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=REMOVE,
                check=False,
            )
            return done.stdout.decode(errors="replace")
        events.say("%s: %s does not answer: %s" % (self.node, self.runtime, " ".join(words)))
        return ""


def _devices(gpus: int, assign: Optional[str]) -> List[str]:
    """The words that hand the job's GPUs over, none where the script hands over all.

    Raises:
        fit.Unfit: Slurm has given this step none, or not as many as the job wants.
    """
    if not gpus:
        return []
    fit.check(gpus, 0)
    if not assign:
        return []
    # By their numbers on the node: where cgroups hide the others, CUDA_VISIBLE_DEVICES counts anew.
    given = next(
        (
            os.environ[name]
            for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
            if os.environ.get(name)
        ),
        "",
    )
    found = [device.strip() for device in given.split(",") if device.strip()]
    if len(found) != gpus:
        raise fit.Unfit(
            "Slurm has given this step %d GPUs (%s), the job wants %d a node"
            % (len(found), given or "none named", gpus)
        )
    if assign == "cdi":
        return ["--device=nvidia.com/gpu=" + device for device in found]
    return ['--gpus="device=%s"' % ",".join(found)]  # the quotes are for Docker's own parser


def _word(text: str) -> str:
    """The last line that says something; Docker's last one points to its manual."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "--help" not in line), "not a word")


def _late(number: int, frame: Optional[FrameType]) -> Any:
    raise Late
