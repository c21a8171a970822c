"""Verb ``supervise``: run the Ray step and the driver step; whoever ends first decides.

The batch script becomes this process, so Slurm's signals arrive here and the job's exit code is
what ``main`` returns: the driver's, or 69 if Ray failed beneath it. outcome.json tells the rest.
"""

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Any, Dict, List, Optional

from beam_slurm.node import events
from beam_slurm.node.drive import NOT_UP
from beam_slurm.node.ray import STOP
from beam_slurm.node.raylog import how

TEARDOWN = 10.0  # seconds that the steps get to end by themselves once the run is over
CANCELLED = 128 + signal.SIGTERM

# How srun names the node that a message is about.
SRUN = re.compile(r"^srun: error: (?:Task launch for \S+ failed on node )?([\w.-]+): (.+)$")
NODE_FAILURE = re.compile(r"^srun: error: (Node failure) on ([\w.-]+)")


def main(argv: List[str]) -> int:
    """``ATTEMPT COUNT`` and then COUNT words of the Ray step and those of the driver step."""
    attempt, count, words = argv[0], int(argv[1]), argv[2:]
    supervisor = Supervisor(attempt)
    supervisor.start(words[:count], words[count:])
    supervisor.until_decided()
    supervisor.tear_down()
    outcome = supervisor.outcome()
    events.write_file(os.path.join(attempt, "outcome.json"), json.dumps(outcome, indent=1) + "\n")
    _remove(os.path.join(attempt, "ray.token"))
    events.record(attempt, events.make("ended", code=outcome["exit_code"]))
    events.say("%s: %s (exit code %d)" % (outcome["state"], outcome["cause"], outcome["exit_code"]))
    return int(outcome["exit_code"])


class Supervisor:
    """Two steps of one job, what they say, and what becomes of them."""

    def __init__(self, attempt: str) -> None:
        self.attempt = attempt
        self.began = time.time()
        self.cancelled = False
        self.killing = False  # from here on, what srun says of dying tasks is our own doing
        self.failure = None  # type: Optional[Dict[str, Any]]
        self.guessed = False  # the failure is but srun's remark about an exit code
        self.first = ""  # the step that ended first
        self.rest = b""
        self.selector = selectors.DefaultSelector()
        # A signal writes to this pipe, so that waiting for output notices it.
        self.wake, waker = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._cancel)
        signal.signal(signal.SIGINT, self._cancel)
        self.selector.register(self.wake, selectors.EVENT_READ)

    def start(self, ray: List[str], driver: List[str]) -> None:
        """Start both steps at once. Ray's output comes here, the driver's goes to the job's log."""
        self.ray_words = ray
        self.ray = subprocess.Popen(
            ray, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.driver = subprocess.Popen(driver, stdin=subprocess.DEVNULL)
        assert self.ray.stdout is not None
        self.output = self.ray.stdout.fileno()
        os.set_blocking(self.output, False)
        self.selector.register(self.output, selectors.EVENT_READ)

    def until_decided(self) -> None:
        """Wait until a step has ended, a node has failed or the job is cancelled."""
        while not (self.failure or self.cancelled or self._ended()):
            self._turn(None)
        if self.guessed:  # scancel ends the steps and this process at once: who is first is chance
            deadline = time.monotonic() + 1
            while not self.cancelled and time.monotonic() < deadline:
                self._turn(deadline - time.monotonic())
        self.first = self._ended()

    def tear_down(self) -> None:
        """End what still runs: first as a request, after TEARDOWN seconds by srun's kill."""
        if self.failure and self.driver.poll() is None:
            self.driver.terminate()
        if self.ray.poll() is None:
            self.ray.send_signal(STOP)
        for last_word in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + TEARDOWN
            while self._running() and time.monotonic() < deadline:
                self._turn(deadline - time.monotonic())
            for step in self._running():
                self.killing = True
                step.send_signal(last_word)
        self._read()
        if self._lost() and not self.cancelled:
            self._clean()

    def _lost(self) -> bool:
        """Whether a task ended without a chance to tidy up."""
        if self.ray.returncode not in (0, 1):
            return True
        # What was below a killed driver ended with its step, except for a daemon's container.
        spoke = {"entry-ended", "entry-failed", "gate-failed"} & set(_said(self.attempt))
        return "contain" in self.ray_words and not spoke

    def _clean(self) -> None:
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

    def outcome(self) -> Dict[str, Any]:
        """Who failed first, where, why, and the job's exit code."""
        code = _shell_code(self.driver.returncode)
        found = {
            "state": "failed",
            "component": "entry",
            "node": None,
            "exit_code": code,
            "cause": "",
            "log": None,
            "lines": [],
            "began": round(self.began, 3),
            "ended": round(time.time(), 3),
        }  # type: Dict[str, Any]
        said = _said(self.attempt)
        if self.cancelled:
            found.update(
                state="cancelled", exit_code=CANCELLED, component="slurm", cause="the job was ended"
            )
        elif self.first == "driver" and code == 0:
            found.update(state="succeeded", cause="the entry finished")
        elif self.failure:
            # The driver's own code if it ended by itself; srun's if we ended it means nothing.
            found.update(
                component="ray",
                node=self.failure.get("node"),
                cause="%s: %s" % (self.failure.get("node"), self.failure.get("why")),
                log=self.failure.get("log"),
                lines=self.failure.get("lines", []),
                exit_code=code if self.first == "driver" and code else NOT_UP,
            )
        elif self.first == "ray":
            found.update(
                component="ray",
                cause="the Ray step ended (srun's exit code %s)" % self.ray.returncode,
                exit_code=NOT_UP,
            )
        elif "gate-failed" in said:
            found.update(component="gate", cause=said["gate-failed"]["why"])
        elif "entry-failed" in said:
            found.update(cause=said["entry-failed"]["why"])
        elif "entry-ended" in said:
            found.update(cause="the entry " + how(code))
        else:
            found.update(component="slurm", cause="the driver step " + how(code))
        return found

    def _cancel(self, number: int, frame: Optional[FrameType]) -> None:
        self.cancelled = self.cancelled or self.failure is None or self.guessed

    def _ended(self) -> str:
        if self.driver.poll() is not None:
            return "driver"
        return "ray" if self.ray.poll() is not None else ""

    def _running(self) -> List["subprocess.Popen[bytes]"]:
        return [step for step in (self.driver, self.ray) if step.poll() is None]

    def _turn(self, seconds: Optional[float]) -> None:
        """Wait for output, a signal or the end of a child, at most ``seconds``."""
        for key, _ in self.selector.select(seconds):
            if key.fd == self.wake:
                os.read(self.wake, 512)
            else:
                self._read()

    def _read(self) -> None:
        """Take in what the Ray step has said since."""
        while True:
            try:
                part = os.read(self.output, 65536)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            if not part:
                if self.output in self.selector.get_map():
                    self.selector.unregister(self.output)
                return
            *lines, self.rest = (self.rest + part).split(b"\n")
            for line in lines:
                self._hear(line.decode(errors="replace"))

    def _hear(self, line: str) -> None:
        event = events.parse(line)
        if event is None:
            print(line, file=sys.stderr, flush=True)
            self._hear_srun(line)
            return
        if event["beam-slurm"] == "node-failed":
            events.say("%s: %s" % (event.get("node"), event.get("why")))
            for text in event.get("lines", []):
                events.say("  | " + text)
            # Once the run is decided, that is our own doing. But Ray's word on a death that came
            # before, with its log, may come after the end of the entry that died of it.
            if self.cancelled or (self.first == "driver" and "log" not in event):
                return
            self._fail(event)
        events.record(self.attempt, event)

    def _hear_srun(self, line: str) -> None:
        told, lost = SRUN.match(line), NODE_FAILURE.match(line)
        if lost:  # Slurm then ends the job, as scancel would
            event = events.make("node-failed", node=lost.group(2), why=lost.group(1))
            self.cancelled = False
            self._fail(event)
        elif told and not (
            self.failure or self.killing or self.cancelled or self.first == "driver"
        ):
            event = events.make("node-failed", node=told.group(1), why=told.group(2))
            self._fail(event, guessed=True)
        else:
            return
        events.record(self.attempt, event)

    def _fail(self, event: Dict[str, Any], guessed: bool = False) -> None:
        """The first failure is the cause; a node's own word is worth more than srun's remark."""
        if self.failure is None or self.guessed:
            self.failure, self.guessed = event, guessed


def _said(attempt: str) -> Dict[str, Dict[str, Any]]:
    """The last event of each kind in this attempt."""
    try:
        with open(os.path.join(attempt, "events.jsonl")) as file:
            found = [events.parse(line) for line in file]
    except OSError:
        return {}
    return {event["beam-slurm"]: event for event in found if event}


def _shell_code(code: int) -> int:
    return 128 - code if code < 0 else code


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
