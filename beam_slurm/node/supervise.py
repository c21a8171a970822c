"""Verb ``supervise``: run one attempt to its end, and see to what follows.

The batch script becomes this process, so Slurm's signals arrive here and the job's exit code is
what ``main`` returns. It starts the Ray step and the driver step; whoever ends first decides. While
they run it watches that the run gets on, and before the time limit it has the framework save.
"""

import argparse
import contextlib
import json
import os
import signal
import time
import traceback
from types import FrameType
from typing import Any, Dict, List, Optional

from beam_slurm.node import again, attempts, course, events, notify, outcome, ports, pulse, settle
from beam_slurm.node.mask import Mask, names_in
from beam_slurm.node.progress import Progress
from beam_slurm.node.release import Release
from beam_slurm.node.steps import Steps
from beam_slurm.node.stopping import WAYS, Stopping
from beam_slurm.node.watchdog import Limits, Watchdog

DUMP = 25.0  # seconds that the nodes get for stack dumps
LOOK = 1.0  # seconds between two looks at the clock


def main(argv: List[str]) -> int:
    """Run the attempt: ``OPTIONS -- COUNT``, COUNT words of the Ray step, the driver step's."""
    parser = argparse.ArgumentParser(prog="node.pyz supervise")
    course.options(parser)
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--on", required=True, help="the nodes that train: a,b,c")
    parser.add_argument("--guard", type=int, default=0, help="the pid of the guard's srun")
    parser.add_argument("--stop", choices=WAYS, default="interval", help="how it is made to save")
    parser.add_argument("--sentinel", default="", help="the file that makes it save")
    parser.add_argument("--watch", default="", help="seconds: startup,silence,step,pause")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    count, words = int(words[0]), words[1:]
    supervisor = Supervisor(args)
    try:
        supervisor.steps.start(words[:count], words[count:])
        supervisor.until_decided()
        supervisor.tear_down()
        found = outcome.of(supervisor)
    except Exception as problem:  # whatever it is, 128 GPUs must not wait for it
        traceback.print_exc()
        supervisor.steps.kill()
        found = outcome.of_bug(supervisor, problem)
    supervisor.flush()
    return settle.settle(supervisor.rules, args.attempt, found, supervisor.must_end)


class Supervisor:
    """One attempt: its steps, how far it has come, and what became of it.

    Attributes:
        first: the step that ended first, "" if none had when it was decided.
        cancelled: Slurm or a person has asked for the end.
        preempted: a job of a higher priority is about to take the nodes.
        stuck: why the watchdog thinks that nothing goes on any more, "" if it does not.
        ends: when it must be over, in epoch seconds.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.rules = course.rules(args)
        self.attempt = args.attempt  # type: str
        self.nodes = args.on.split(",")  # type: List[str]
        self.began = time.time()
        self.job = os.environ["SLURM_JOB_ID"]
        self.restart = again.restarts()
        secrets = os.environ.get("BEAM_SLURM_SECRETS", "").split()
        self.mask = Mask(names_in(os.environ, secrets))
        self.progress = Progress(args.framework)
        self.first = ""
        self.cancelled = False
        self.told = False  # by a signal to end that the outcome does not tell of
        self.warned = False
        self.preempted = False
        self.stuck = ""
        self.lost = []  # type: List[Dict[str, Any]]
        self.pulse = None  # type: Optional[pulse.Pulse]
        # The webhook is for what ends an attempt, not for what runs in it.
        inherited = notify.others(self.rules.hook)
        self.steps = Steps(self.attempt, self._show, self._heard, self._hear_event, inherited)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._cancel)
        signal.signal(signal.SIGUSR1, self._warn)
        self.history = attempts.history(self.rules.run)
        self.ends = course.ends(self.rules, self.known(), self.history)
        self.stopping = Stopping(args, self.steps, self.complete)
        self.release = Release(self.rules.run, self.rules.framework, self.rules.checkpoints)
        self.watchdog = None  # type: Optional[Watchdog]  # begins with the entry

    def until_decided(self) -> None:
        """Wait until a step has ended, a node has failed, or the end is wanted."""
        steps = self.steps
        while not (steps.failure or self.cancelled or steps.ended or self.stopping.done):
            steps.turn(LOOK)
            self._look()
            if self.stuck:
                break
        if steps.guessed:  # scancel ends the steps and this process at once: who is first is chance
            deadline = time.monotonic() + 1
            while not self.cancelled and time.monotonic() < deadline:
                steps.turn(max(0.0, deadline - time.monotonic()))
        self.first = steps.ended

    def tear_down(self) -> None:
        """End what still runs, and what killed tasks have left on the nodes."""
        self.release.end()
        self.steps.tear_down(not self.cancelled, self.nodes)
        if self._left_something() and not self.cancelled and not self.steps.lost:
            self.steps.clean()
        self.stopping.tidy()
        if self.args.guard:
            with contextlib.suppress(OSError):
                os.kill(self.args.guard, signal.SIGTERM)

    def known(self) -> again.Fields:
        """What the controller says of the job; nothing where there is none."""
        return again.fields(again.own()) if self.rules.again != "local" else {}

    def complete(self) -> bool:
        """Whether the entry has done what it was started for, as far as it has told."""
        return self.progress.finished or (self.progress.last or 0) >= self.rules.steps

    def flush(self) -> None:
        """Put into the log what was held back as the possible beginning of a secret."""
        _write(self.mask.flush())

    @property
    def said(self) -> Dict[str, Dict[str, Any]]:
        """The last event of each kind."""
        return {event["beam-slurm"]: event for event in attempts.told(self.attempt)}

    def _look(self) -> None:
        """What no output tells: the time, and silence."""
        for event in self.lost:
            self.steps.fail(event)
        self._compare_versions()
        if not self.stopping.began and (self.warned or time.time() > self.ends - self.rules.lead):
            self._begin_to_stop()
        if self.stopping.began:
            self.stopping.look()
        elif self.watchdog and not self.steps.ended:
            self._watch(self.watchdog, time.monotonic())

    def _begin_to_stop(self) -> None:
        """The time is nearly up, or the job is to be preempted: the controller knows which.

        It may also know of more time: limits can be changed.
        """
        known = self.known()
        self.ends = course.ends(self.rules, known, self.history) if known else self.ends
        self.preempted = again.preempted(known, self.began)
        if self.warned or self.preempted or time.time() > self.ends - self.rules.lead:
            self.stopping.begin(self.ends)

    def _watch(self, watchdog: Watchdog, now: float) -> None:
        why = watchdog.stuck(now)
        if why and self.stopping.saved_since(self.limits.silence):
            watchdog.checkpoint(now)
            why = watchdog.stuck(now)
        if why:
            self._dump(why)

    def _compare_versions(self) -> None:
        """Ray's nodes work together only with the same Ray and the same Python."""
        told = {e["node"]: e for e in self.steps.events if e["beam-slurm"] == "versions"}
        head = told.get(self.nodes[0])
        for node, event in told.items():
            if head and (event["ray"], event["python"]) != (head["ray"], head["python"]):
                why = "it has Ray %s on Python %s, %s has Ray %s on Python %s" % (
                    *(event["ray"], event["python"], self.nodes[0]),
                    *(head["ray"], head["python"]),
                )
                self.steps.fail(events.make("node-failed", node=node, why=why))
                return

    def _dump(self, why: str) -> None:
        """Nothing goes on any more: let each node write down what its processes are doing."""
        self.stuck = why
        events.record(self.attempt, events.make("stuck", why=why))
        events.say("stuck: %s; stack dumps go to %s/stacks" % (why, self.attempt))
        self.steps.ray.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + DUMP
        while not self.cancelled and time.monotonic() < deadline:
            dumped = {e["node"] for e in self.steps.events if e["beam-slurm"] == "stacks"}
            if self.steps.ended or dumped >= set(self.nodes):
                return
            self.steps.turn(max(0.0, deadline - time.monotonic()))

    def _show(self, line: bytes) -> None:
        _write(self.mask.whole(line))

    def _heard(self, data: bytes) -> None:
        """Follow the run by what its driver says."""
        _write(self.mask.feed(data))
        before, lines = self.progress.last, self.progress.heard
        phase = self.progress.phase
        self.progress.feed(data)
        if self.progress.last != before:
            events.record(self.attempt, events.make("step", step=self.progress.last))
        if self.watchdog:
            now = time.monotonic()
            if self.progress.last is not None and self.progress.last != before:
                self.watchdog.step(now, self.progress.last)
            elif self.progress.heard != lines:
                self.watchdog.line(now)
            if self.progress.phase != phase:
                self.watchdog.phase(now, self.progress.phase)

    def _hear_event(self, name: str) -> None:
        if name == "ray-up" and self.pulse is None:
            self._feel_pulse()
        elif name == "entry-started":
            self.release.begin()
            if self.args.watch:
                self.limits = Limits(*map(float, self.args.watch.split(",")))
                self.watchdog = Watchdog(self.limits, time.monotonic())

    def _feel_pulse(self) -> None:
        try:
            with open(os.path.join(self.attempt, "address.json")) as file:
                known = json.load(file)
        except (OSError, ValueError):
            return
        port = ports.of_raylet(known["gcs"])
        others = {node: (ip, port) for node, ip in known["addresses"].items()}
        self.pulse = pulse.Pulse(others, self._lose)
        self.pulse.start()

    def answers(self, node: str) -> bool:
        """Whether a node that was silent answers now."""
        return (
            self.pulse is not None
            and node in self.pulse.nodes
            and pulse.answers(self.pulse.nodes[node])
        )

    def _lose(self, node: str, why: str) -> None:
        self.lost.append(events.make("node-failed", node=node, why=why, lost=True))
        self.steps.notice()

    def _left_something(self) -> bool:
        """Whether a task ended without a chance to tidy up."""
        if self.steps.ray.returncode not in (0, 1):
            return True
        # What was below a killed driver ended with its step, except for a daemon's container.
        spoke = {"entry-ended", "entry-failed", "gate-failed"} & set(self.said)
        return "contain" in self.steps.ray_words and not spoke

    def must_end(self) -> bool:
        """Whether the end of the job was asked for, beyond what the outcome tells of."""
        return self.told

    def _cancel(self, number: int, frame: Optional[FrameType]) -> None:
        running = not self.steps.over and (self.steps.failure is None or self.steps.guessed)
        if running:
            self.cancelled = True
        else:
            self.told = self.told or not self.cancelled

    def _warn(self, number: int, frame: Optional[FrameType]) -> None:
        self.warned = True


def _write(data: bytes) -> None:
    """Into the job's log, at once; a full disk is no reason to leave the run alone."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(1, data) :]
