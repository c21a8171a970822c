"""The Ray step and the driver step of one attempt: two sruns, what they say, and their end."""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from types import FrameType
from typing import Any, Callable, Dict, List, Optional

from beam_slurm.node import again, events
from beam_slurm.node.ray import STOP

TEARDOWN = 10.0  # seconds that the steps get to end by themselves once the run is over

# How srun names the node that a message is about.
SRUN = re.compile(r"^srun: error: (?:Task launch for \S+ failed on node )?([\w.-]+): (.+)$")
NODE_FAILURE = re.compile(r"^srun: error: (Node failure) on ([\w.-]+)")
# Why Slurm itself ends a step or the job.
BY_SLURM = re.compile(
    rb"\*\*\* (?:STEP|JOB) [^\n]* CANCELLED AT [^\n]*? DUE TO ([A-Z ]*[A-Z])[^\n]* \*\*\*"
)

STEP = re.compile(rb"StepId=(\d+\.\d+)")

MARK = events.MARK.encode()
LONGEST = 64 * 1024  # bytes of an event; more is no event of ours


class Steps:
    """Two steps that run at once.

    Attributes:
        failure: the event of the node that failed first.
        guessed: the failure is but srun's remark about an exit code.
        by_slurm: Slurm's own word on why it ended a step, "" if it has said none.
    """

    def __init__(
        self,
        attempt: str,
        show: Callable[[bytes], None],
        heard: Callable[[bytes], None],
        happened: Callable[[str], None],
        environment: Optional[Dict[str, str]] = None,
    ) -> None:
        """Make them, but do not start them.

        Args:
            attempt: its folder.
            show: takes whole lines for the job's log.
            heard: takes what the driver says.
            happened: takes the names of events.
            environment: what the steps inherit; None is all that this process has.
        """
        self.attempt = attempt
        self.show = show
        self.heard = heard
        self.happened = happened
        self.environment = environment
        self.failure = None  # type: Optional[Dict[str, Any]]
        self.guessed = False
        self.by_slurm = ""
        self.events = []  # type: List[Dict[str, Any]]
        self.ids = set()  # type: set[str]  # the steps' own, as far as srun has told them
        self.lost = set()  # type: set[str]  # nodes that cannot answer any more
        self.cleared = set()  # type: set[str]  # nodes that have said their last word
        self.killing = False  # from here on, what srun says of dying tasks is our own doing
        self.over = False  # decided: what nodes say now is of the teardown
        self.first = ""  # the step that had ended by then
        self.rest = b""  # of the Ray step: a line that has no end yet
        self.held = b""  # of the driver: what may be an event
        self.line = b""  # of the driver: a line that has no end yet
        self.selector = selectors.DefaultSelector()
        # A signal writes to this pipe, so that waiting for output notices it.
        self.wake, self.waker = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.waker, False)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noticed)
        self.selector.register(self.wake, selectors.EVENT_READ)

    def start(self, ray: List[str], driver: List[str]) -> None:
        """Start both steps at once."""
        self.ray_words = ray
        self.ray = self._start(ray, self._hear_ray)
        self.driver = self._start(driver, self._hear_driver)

    def _start(self, words: List[str], heard: Callable[[bytes], None]) -> "subprocess.Popen[bytes]":
        step = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
        )
        assert step.stdout is not None
        os.set_blocking(step.stdout.fileno(), False)
        self.selector.register(step.stdout.fileno(), selectors.EVENT_READ, heard)
        return step

    @property
    def ended(self) -> str:
        """The step that has ended: driver, ray, or "" while both run."""
        if self.driver.poll() is not None:
            return "driver"
        return "ray" if self.ray.poll() is not None else ""

    def turn(self, seconds: Optional[float]) -> None:
        """Wait for output, a signal or the end of a step, at most ``seconds``."""
        for key, _ in self.selector.select(seconds):
            if key.fd == self.wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, 512)
            else:
                self._read(key.fd, key.data)

    def notice(self) -> None:
        """Let ``turn`` return; from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.waker, b"\0")

    def fail(self, event: Dict[str, Any], guessed: bool = False) -> None:
        """The first failure is the cause; a node's own word is worth more than srun's remark."""
        if event.get("lost"):
            self.lost.add(str(event["node"]))
        if self.failure is None or self.guessed:
            self.failure, self.guessed = event, guessed
            events.record(self.attempt, event)

    def tear_down(self, end_driver: bool, nodes: List[str]) -> None:
        """End what still runs: first as a request, then by srun's kill.

        Args:
            end_driver: the entry is told to end too; else it has, or is told by Slurm.
            nodes: all nodes, the head first; nobody waits for those that are lost.
        """
        self.over, self.first = True, self.ended
        if end_driver and self.driver.poll() is None:
            self.driver.terminate()
        if self.ray.poll() is None:
            self.ray.send_signal(STOP)
        for last_word in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + TEARDOWN
            while self._running() and time.monotonic() < deadline:
                ended = self.driver.poll() is not None or nodes[0] in self.lost
                if self.lost and ended and set(nodes) - self.lost <= self.cleared:
                    deadline = min(deadline, time.monotonic() + 1)
                self.turn(max(0.0, min(deadline - time.monotonic(), 0.5)))
            for step in self._running():
                self.killing = True
                step.send_signal(last_word)
        for step in self._running():
            with contextlib.suppress(subprocess.TimeoutExpired):
                step.wait(2)
        if self.lost:  # an srun that waits for the lost node's word may have left others running
            for name in sorted(self.ids):
                again.end_step(name)
        for step in (self.driver, self.ray):
            assert step.stdout is not None
            key = self.selector.get_map().get(step.stdout.fileno())
            if key:
                self._read(key.fd, key.data)
        self._remark(self.line)
        self.heard(self.held)

    def kill(self) -> None:
        """End both, whatever they say; one of them may not have begun."""
        begun = [step for name in ("driver", "ray") if (step := getattr(self, name, None))]
        for step in begun:
            step.terminate()
        for step in begun:
            try:
                step.wait(TEARDOWN)
            except subprocess.TimeoutExpired:
                step.kill()

    def clean(self) -> None:
        """A task that was killed could not tidy up, and srun killed the others with it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*self.ray_words, "--clean"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=3 * TEARDOWN,
                check=False,
            )

    def _running(self) -> List["subprocess.Popen[bytes]"]:
        return [step for step in (self.driver, self.ray) if step.poll() is None]

    def _read(self, handle: int, heard: Callable[[bytes], None]) -> None:
        """Take in what a step has said since."""
        while True:
            try:
                part = os.read(handle, 65536)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            if not part:
                self.selector.unregister(handle)
                return
            heard(part)

    def _hear_ray(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            event = events.parse(text)
            if event:
                self._take(event)
                continue
            self.show(line + b"\n")
            self._remark(line)
            self._guess(line)

    def _hear_driver(self, data: bytes) -> None:
        """Hand on what the driver says, but for the events in it."""
        self.held += data
        out = b""
        while True:
            at = self.held.find(MARK)
            if at < 0:
                at = len(self.held) - _begun(self.held)
                out, self.held = out + self.held[:at], self.held[at:]
                break
            end = self.held.find(b"\n", at)
            out += self.held[:at]
            self.held = self.held[at:]
            if end < 0:
                if len(self.held) > LONGEST:
                    out, self.held = out + self.held, b""
                break
            line, self.held = self.held[: end - at], self.held[end - at + 1 :]
            event = events.parse(line.decode(errors="replace"))
            if event:
                self._take(event)
            else:
                out += line + b"\n"
        *lines, self.line = (self.line + out).split(b"\n")
        for line in lines:
            self._remark(line)
        self.line = self.line[:LONGEST]
        self.heard(out)

    def _take(self, event: Dict[str, Any]) -> None:
        kind = event["beam-slurm"]
        if kind == "node-cleared":
            self.cleared.add(str(event.get("node")))
            return
        if kind == "node-failed":
            said = ["%s: %s" % (event.get("node"), event.get("why"))]
            for text in said + ["  | " + line for line in event.get("lines", [])]:
                self.show(b"beam-slurm: %s\n" % text.encode())
            # Once the run is decided, that is our own doing. But Ray's word on a death that came
            # before, with its log, may come after the end of the entry that died of it.
            if self.over and self.first != "ray" and "log" not in event:
                return
            self.fail(event)
            return
        self.events.append(event)
        events.record(self.attempt, event)
        self.happened(kind)

    def _remark(self, line: bytes) -> None:
        """What srun and slurmstepd say of nodes and the job."""
        ended = BY_SLURM.search(line)
        if ended:
            self.by_slurm = ended.group(1).decode()
        self.ids.update(told.decode() for told in STEP.findall(line))
        lost = NODE_FAILURE.match(line.decode(errors="replace"))
        if lost:
            self.fail(events.make("node-failed", node=lost.group(2), why=lost.group(1), lost=True))

    def _guess(self, line: bytes) -> None:
        """A task of the Ray step has ended; of the driver step that is the entry's own end."""
        told = SRUN.match(line.decode(errors="replace"))
        if told and not (self.failure or self.killing or self.over):
            self.fail(
                events.make("node-failed", node=told.group(1), why=told.group(2)), guessed=True
            )


def _noticed(number: int, frame: Optional[FrameType]) -> None:
    """The wakeup pipe has it."""


def _begun(data: bytes) -> int:
    """How many bytes at the end may be the beginning of an event."""
    for length in range(len(MARK) - 1, 0, -1):
        if data.endswith(MARK[:length]):
            return length
    return 0
