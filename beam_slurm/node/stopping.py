"""Before the time is up: have the framework save, and end the run once it has."""

import argparse
import contextlib
import os
import signal
import time
from typing import Optional

from beam_slurm.node import checkpoint, events
from beam_slurm.node.steps import Steps

# How a framework is made to save: a signal to its entry, a file that it looks for, a time that it
# was told at its start, or not at all: then its next interval must do.
WAYS = ("signal", "sentinel", "deadline", "interval")

MARGIN = 45.0  # seconds before the end that the teardown gets, at most half of the lead
EVERY = 2.0  # seconds between two looks at the checkpoints


class Stopping:
    """The last minutes of an attempt whose time is up.

    Attributes:
        began: whether they have begun.
        done: the driver is to be ended now.
    """

    def __init__(self, args: argparse.Namespace, ends: float, steps: Steps) -> None:
        self.args = args
        self.ends = ends
        self.steps = steps
        self.began = False
        self.done = False
        self.before = None  # type: Optional[int]  # the newest checkpoint as the last minutes began
        self.until = 0.0
        self.looked = 0.0

    def look(self) -> None:
        """Begin, and later see whether the wait is over."""
        if not self.began:
            self._begin()
        if time.time() > self.until:
            events.say("no more time to wait for a checkpoint")
            self.done = True
        elif self.args.checkpoints and time.time() - self.looked > EVERY:
            self.looked = time.time()
            found = self._latest()
            # Whoever was asked by a signal ends by itself when it has saved.
            # So does one that has done its last step.
            asked = self.args.stop == "signal" or found == self.args.steps
            if found != self.before and found is not None and not asked:
                events.say("saved: the checkpoint of step %d is whole" % found)
                self.done = True

    def tidy(self) -> None:
        """Take back what was asked for: the next attempt would take it for its own."""
        if self.args.sentinel:
            with contextlib.suppress(OSError):
                os.unlink(self.args.sentinel)

    def saved_since(self, seconds: float) -> bool:
        """Whether anything was written where checkpoints go in the last ``seconds``."""
        since = time.time() - seconds
        for folder, _, names in os.walk(self.args.checkpoints or os.devnull):
            for name in names:
                with contextlib.suppress(OSError):
                    if os.stat(os.path.join(folder, name)).st_mtime > since:
                        return True
        return False

    def _begin(self) -> None:
        self.began = True
        self.before = self._latest()
        left = self.ends - time.time()
        wait = (self.args.lead if left == float("inf") else left) - min(MARGIN, self.args.lead / 2)
        self.until = time.time() + max(wait, 0)
        events.record(self.args.attempt, events.make("warning", left=round(max(wait, 0), 1)))
        events.say("the time is nearly up: %.0f s for a last checkpoint" % max(wait, 0))
        if self.args.stop == "signal":
            self.steps.driver.send_signal(signal.SIGUSR1)
        elif self.args.stop == "sentinel":
            with contextlib.suppress(OSError):
                open(self.args.sentinel, "w").close()

    def _latest(self) -> Optional[int]:
        if not self.args.checkpoints:
            return None
        return checkpoint.latest(self.args.framework, self.args.checkpoints).step
