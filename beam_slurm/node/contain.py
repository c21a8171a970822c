"""Verb ``contain``: run this task's program in a container, and leave no container behind.

Stands between srun and the runtime's own command line, which is written out in the job's script:

    node.pyz contain [options] -- docker run ... IMAGE python3 node.pyz ray ...

The runtime's client runs in the foreground of the task. To its words this verb adds what only the
node knows: the container's name and labels, the GPUs of a job that shares the node, and Apptainer's
home folder. Signals are handed on, and the container's exit code is the task's.

A daemon's containers do not end with the task that asked for them. So every way out of here
removes the container, in less than Slurm's KillWait of 30 seconds. What a killed ``ray`` has left
on the node may belong to the container's root, so a second container removes it. If this process
itself is killed, the supervisor's ``--clean`` pass finds the containers of the job by their label;
if nobody is left to do that, the program in the container ends by itself (lifeline).
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Dict, Iterator, List, Optional, Tuple

from beam_slurm.node import events, fit, lifeline, processes
from beam_slurm.node.drive import NOT_UP
from beam_slurm.node.gpus import given
from beam_slurm.node.ray import STOP

DAEMONS = ("docker", "podman")  # their containers have names, and outlive their client
ENDS = (STOP, signal.SIGTERM, signal.SIGINT)

GRACE = 15  # seconds that a container gets to end by itself once it was told to
REMOVE = 8.0  # seconds that the runtime gets to remove it then
LINGER = 1.0  # seconds to read what the runtime's client said before it ended

MEMLOCK = "--ulimit=memlock=-1"
# The runtimes' own exit codes, Apptainer's last: the container has not started.
REFUSED = (125, 126, 127, 255)
LABEL = "beam-slurm"
ROLES = ("ray", "drive")  # the verbs that run in containers
CLEAN = "--clean"  # the word that the supervisor adds for its clean pass


def main(argv: List[str]) -> int:
    """Run the container; its exit code."""
    parser = argparse.ArgumentParser(prog="node.pyz contain")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that the job has on this node")
    parser.add_argument(
        "--assign", choices=("nvidia", "cdi"), help="hand over only the job's GPUs, in this way"
    )
    parser.add_argument("--needs", action="append", default=[], help="a mount: SOURCE:TARGET[:ro]")
    parser.add_argument("--env", action="append", default=[], help="a variable's name (apptainer)")
    parser.add_argument("--home", default="", help="made and removed, for each role (apptainer)")
    parser.add_argument("--interactive", action="store_true", help="a person's (apptainer)")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    task = Task(words, args.home, args.interactive)
    for number in (*ENDS, signal.SIGUSR1):
        signal.signal(number, task.forward)
    if args.interactive:
        signal.signal(signal.SIGINT, lambda number, frame: None)  # the shell has got it, too
    processes.adopt_orphans()
    processes.raise_limits()  # Podman and Apptainer hand ours on
    if task.role == "ray" and words[-1] == CLEAN:  # elsewhere it is a word of the entry's
        task.remove_all()
    try:
        return task.run(task.complete(words, args), _environment(args.env))
    except fit.Unfit as problem:
        return task.failed(str(problem), NOT_UP)
    finally:
        if task.home:
            fit.remove_folder(task.home)


def _environment(names: List[str]) -> Dict[str, str]:
    """The client's environment; ``names`` are what Apptainer hands in, and nothing else of it."""
    hands_in = ("APPTAINERENV_", "SINGULARITYENV_")
    made = {name: value for name, value in os.environ.items() if not name.startswith(hands_in)}
    made.update((hands_in[0] + name, os.environ[name]) for name in names if name in os.environ)
    return made


class Task:
    """One container, by the words of the runtime's command line and the program's behind them."""

    def __init__(self, words: List[str], home: str = "", interactive: bool = False) -> None:
        self.runtime = words[0]
        me = sys.argv[0]  # the program in the container is this one, with another verb
        self.role = words[words.index(me) + 1] if me in words[:-1] else "task"
        if interactive:  # several people, or one with several windows
            self.role = "shell-%d" % os.getpid()
        self.interactive = interactive
        self.homes = home  # what the names of all roles begin with
        self.home = "%s-%s" % (home, self.role) if home else ""
        self.node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        attempt = (os.environ["SLURM_JOB_ID"], os.environ.get("BEAM_SLURM_ATTEMPT", "0"))
        self.label = "%s=%s" % (LABEL, "-".join((*attempt, self.node)))
        self.name = "-".join(("beam", *attempt, self.node, self.role))
        self.named = self.runtime in DAEMONS
        self.client = None  # type: Optional[subprocess.Popen[bytes]]
        self.stopped = 0  # the last signal that has asked for the end
        self.late = False  # it was killed, since it has not ended in time

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
        if self.lifeline:
            own += ["--interactive", "--env=%s=1" % lifeline.VARIABLE]
        own += _devices(args.gpus, args.assign)
        if self.home:
            # An image is read-only, and much of what runs in it writes below its home.
            fit.private_folder(self.home)
            own.append("--home=" + self.home)
        return [*words[:2], *own, *words[2:]]

    @property
    def lifeline(self) -> bool:
        """Whether the container's standard input is the line by which it learns of our end."""
        return self.named and self.role in ROLES

    def run(self, words: List[str], environment: Dict[str, str]) -> int:
        """Run the container and see it gone; its exit code as a shell would say it."""
        signal.signal(signal.SIGALRM, self.overdue)
        code, last = self._attempt(words, environment)
        at = words.index(sys.argv[0]) if sys.argv[0] in words else len(words)
        refused = code in REFUSED and "response from daemon" in last and "rlimit" in last
        if refused and MEMLOCK in words[:at]:
            events.say(
                "%s: %s cannot lift the limit of locked memory, it stays the daemon's"
                % (self.node, self.runtime)
            )
            self._remove()
            words = [word for word in words[:at] if word != MEMLOCK] + words[at:]
            code, last = self._attempt(words, environment)
        self._remove()
        processes.end_all(0)
        if self.role != "ray" or code in (0, 1):  # at 0 and 1 Ray's task has spoken itself
            return code
        if self.late:
            last = "it did not end within %d s" % GRACE
        why = "%s ended with code %d: %s" % (self.runtime, code, _word(last))
        deadline = self._tell(why, code)
        tidy = self._tidy(words, environment) or code in REFUSED
        self._await_stop(deadline)
        # Other codes than 0 and 1 tell the supervisor that something is left here.
        return 1 if tidy else code

    def failed(self, why: str, code: int) -> int:
        """Say why this node cannot do it; only the Ray step's words reach the supervisor."""
        if self.role != "ray":
            events.say("%s: %s" % (self.node, why))
            return code
        self._await_stop(self._tell(why, code))
        return 1

    def _tell(self, why: str, code: int) -> float:
        """Tell the supervisor, unless the end was asked for; how long to wait for its answer."""
        if not self.stopped:
            events.tell(events.make("node-failed", node=self.node, why=why, code=code))
        return time.monotonic() + 5

    def _await_stop(self, deadline: float) -> None:
        """srun kills the other tasks as soon as this one ends: until then they are told to stop."""
        while not self.stopped and time.monotonic() < deadline:
            time.sleep(0.05)

    def forward(self, number: int, frame: Optional[FrameType]) -> None:
        """Hand a signal on to the container; from the first request to end on, its time runs."""
        if number in ENDS:
            self.stopped = number
        if self.client and self.client.returncode is None:
            if number in ENDS and not self.late:
                signal.alarm(signal.alarm(0) or GRACE)  # a second request is no second grace
            self.client.send_signal(number)

    def overdue(self, number: int, frame: Optional[FrameType]) -> None:
        """The container has not ended in time: then its client does, and the rest is removal."""
        if self.client and self.client.returncode is None:
            self.late = True
            self.client.kill()

    def remove_all(self) -> None:
        """Remove what killed tasks of this attempt left on this node."""
        if self.homes:
            for role in ROLES:
                fit.remove_folder("%s-%s" % (self.homes, role))
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
            words, env=environment, stdin=self._stdin(), stderr=subprocess.PIPE
        )
        if self.stopped:  # by a signal that came when there was nobody yet to hand it to
            self.forward(self.stopped, None)
        said = bytearray()
        reader = threading.Thread(target=_hand_on, args=(self.client, said), daemon=True)
        reader.start()
        code = self.client.wait()
        signal.alarm(0)
        reader.join(LINGER)  # what survives the client may hold its standard error for ever
        return (128 - code if code < 0 else code), bytes(said).decode(errors="replace")

    def _stdin(self) -> Optional[int]:
        if self.interactive:
            return None
        return subprocess.PIPE if self.lifeline else subprocess.DEVNULL

    def _remove(self) -> None:
        if self.named:
            self._ask("rm", "--force", self.name)

    def _tidy(self, words: List[str], environment: Dict[str, str]) -> bool:
        """Whether another container could remove what the killed one has left on this node."""
        pull = ["--pull=never"] if self.named else []
        with _deaf():
            child = subprocess.Popen(
                [*words[:2], *pull, *words[2:], CLEAN],
                env=environment,
                stdin=self._stdin(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                done = child.wait(REMOVE) == 0
            except subprocess.TimeoutExpired:
                done = False
                child.kill()
                child.wait()
        if not done:
            self._remove()
        return done

    def _ask(self, *words: str) -> str:
        """The runtime's answer, "" if it has none in time."""
        with contextlib.suppress(subprocess.SubprocessError, OSError), _deaf():
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


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Requests to end wait: Slurm may send them to every process of a step, and whoever is started
    here is to bring its removal to an end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hand_on(client: "subprocess.Popen[bytes]", said: bytearray) -> None:
    """Copy the client's standard error to ours, until its end; keep the last of it in ``said``."""
    assert client.stderr is not None
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the main thread's
    while True:
        part = os.read(client.stderr.fileno(), 65536)
        if not part:
            return
        os.write(2, part)
        said += part
        del said[:-4000]


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
    found = given()
    if len(found) != gpus:
        raise fit.Unfit(
            "Slurm has given this step %d GPUs (%s), the job wants %d a node"
            % (len(found), ",".join(found) or "none named", gpus)
        )
    if assign == "cdi":
        return ["--device=nvidia.com/gpu=" + device for device in found]
    return ['--gpus="device=%s"' % ",".join(found)]  # the quotes are for Docker's own parser


def _word(text: str) -> str:
    """The last line that says something; Docker's last one points to its manual."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "--help" not in line), "not a word")
