"""One step on all nodes that are asked: what it says, and the canaries of shared folders.

Where Slurm runs its Prolog at the first step on a node, the batch host has had its own and answers
at once; the others may take a minute to begin. So time counts from the first of them to answer.
"""

import contextlib
import os
import queue
import secrets
import socket
import subprocess
import sys
import threading
import time
from typing import Dict, List, Mapping, Tuple

from beam_slurm.node import canary, check, events, inspect
from beam_slurm.node.check import FAIL, Check
from beam_slurm.node.steps import NODE_FAILURE, SRUN
from beam_slurm.node.verdicts import Report

PROLOG = 6  # times ``seconds`` that the first of the other nodes gets to begin
KILL = 5.0  # seconds that srun gets to end its step
CANCEL = 1.0  # scancel ends the step and this process at once: who is first is chance
FACTS = ("address", "gcs", "dashboard", "clock", "python")


class Inspection:
    """One step on all nodes that are asked, and what they say.

    Args:
        nodes: their names.
        words: the step's command line; ``srun`` is told the nodes.
        seconds: how long the step may take, from when it begins on any node but this one.
    """

    def __init__(self, nodes: List[str], words: List[str], seconds: float) -> None:
        self.nodes = nodes
        self.word = secrets.token_hex(8)
        self.words = [*_on(nodes, words), "--canary", self.word]
        self.folders = inspect.parser().parse_args(words[words.index("inspect") + 1 :]).shared
        self.seconds = seconds
        self.others = set(nodes) - {os.environ.get("SLURMD_NODENAME") or socket.gethostname()}
        self.waited = seconds  # until the silent ones were given up
        self.reports = {}  # type: Dict[str, Report]
        self.remarks = {}  # type: Dict[str, str]
        self.ended = False  # the step has, by itself
        self.last = ""  # what the step said last that was no event

    def run(self) -> Dict[str, Report]:
        """The report of every node that has said something."""
        if not self.nodes:
            return {}
        try:
            problems = canary.plant(self.folders, self.word)
            self._step()
            if self.ended and self._silent():
                time.sleep(CANCEL)
            for node, report in self.reports.items():
                self._look_for_canaries(node)
                if problems and report.offset is not None:
                    self._cannot_plant(node, problems)
        finally:
            canary.lift(self.folders, self.word, self.nodes)
        silent = self._silent()
        for node in silent:
            # What was said last is about all of them or about somebody else.
            why = self.remarks.get(node) or (self.last if len(silent) == len(self.nodes) else "")
            silence = "no answer" + ("" if self.ended else " within %.0f s" % self.waited)
            silence += ": " + why if why else ""
            report = self.reports.get(node, Report([], {}, {}))
            self.reports[node] = report._replace(silence=silence)
        return self.reports

    def _silent(self) -> List[str]:
        """The nodes that have not said their last word."""
        nobody = Report([], {}, {})
        return [n for n in self.nodes if self.reports.get(n, nobody).offset is None]

    def _step(self) -> None:
        """Run the step until all its output is read, or the time is over."""
        try:
            step = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            self.last, self.ended = "%s: %s" % (self.words[0], error.strerror), True
            return
        lines = queue.Queue()  # type: queue.Queue[Tuple[float, bytes]]
        threading.Thread(target=_read, args=(step, lines), daemon=True).start()
        try:
            self._listen(lines)
        finally:
            _stop(step, KILL if self.ended else 0)

    def _listen(self, lines: "queue.Queue[Tuple[float, bytes]]") -> None:
        began = time.monotonic()
        deadline, begun, told = began + self.seconds, not self.others, False
        while True:
            try:
                arrived, line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                if begun or told:
                    self.waited = time.monotonic() - began
                    return
                told, deadline = True, began + PROLOG * self.seconds
                events.say(
                    "no other node has begun its inspection within %.0f s; a Prolog of the site may"
                    " run there: waiting up to %.0f s" % (self.seconds, PROLOG * self.seconds)
                )
                continue
            if not line:
                self.ended = True
                return
            self._hear(line.decode(errors="replace").rstrip("\n"), arrived)
            if not begun and not self.others.isdisjoint(self.reports):
                begun, deadline = True, time.monotonic() + self.seconds

    def _hear(self, line: str, arrived: float) -> None:
        event = events.parse(line)
        if event is None or event.get("node") not in self.nodes:
            if line.strip():
                print(line, file=sys.stderr, flush=True)
                self.last = line.strip()
                told, lost = SRUN.match(line), NODE_FAILURE.match(line)
                if lost:
                    self.remarks[lost.group(2)] = lost.group(1)
                elif told:
                    self.remarks[told.group(1)] = told.group(2)
            return
        node = event["node"]
        report = self.reports.setdefault(node, Report([], {}, {}))
        if event["beam-slurm"] == "checked":
            report.checks.append(check.of(event))
        elif event["beam-slurm"] == "fingerprint":
            report.fingerprints[event["path"]] = event["is"]
        elif event["beam-slurm"] == "inspected":
            self.reports[node] = report._replace(
                facts={name: event[name] for name in FACTS if name in event},
                offset=event["clock"] - arrived,
                unseen=self.folders,
            )
            self._look_for_canaries(node)

    def _look_for_canaries(self, node: str) -> None:
        """Here too what this node has written must be seen; a node waits a while for that."""
        report = self.reports[node]
        if report.unseen:
            unseen = [f for f in report.unseen if not canary.collect(f, self.word, node)]
            self.reports[node] = report._replace(unseen=unseen)

    def _cannot_plant(self, node: str, problems: Mapping[str, str]) -> None:
        """Without our own canary nobody could find it: that is the word to be told."""
        have = "; ".join("the batch host, %s: %s" % problem for problem in problems.items())
        do = "set site.paths.outputs and site.paths.runs to folders that you can write"
        told = Check("outputs", FAIL, have, "one shared folder on all nodes, writable", do)
        report = self.reports[node]
        checks = [told if one.name == "outputs" else one for one in report.checks]
        self.reports[node] = report._replace(checks=checks, unseen=())


def _on(nodes: List[str], words: List[str]) -> List[str]:
    """The step's words, and where it is to run."""
    if os.path.basename(words[0]) != "srun":
        return list(words)
    count = len(nodes)
    where = ["--nodes=%d" % count, "--ntasks=%d" % count, "--nodelist=" + ",".join(nodes)]
    return [words[0], *where, *words[1:]]


def _read(step: "subprocess.Popen[bytes]", lines: "queue.Queue[Tuple[float, bytes]]") -> None:
    """Every line with the time at which it came, and b"" at the end."""
    assert step.stdout is not None
    for line in step.stdout:
        lines.put((time.time(), line))
    lines.put((time.time(), b""))


def _stop(step: "subprocess.Popen[bytes]", patience: float) -> None:
    """Wait for srun, then end it, and the step with it; what hangs on a node is Slurm's to end."""
    for end in (None, step.terminate, step.kill):
        if end:
            end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            step.wait(KILL if end else patience)
            return
