"""Before the time is up: have the framework save, and end the run once it has."""

import argparse
import contextlib
import os
import signal
import time
from typing import Callable, Optional

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

    def __init__(
        self, args: argparse.Namespace, steps: Steps, complete: Callable[[], bool]
    ) -> None:
        """``complete`` says whether the entry is done anyway, and only has to end."""
        self.args = args
        self.steps = steps
        self.complete = complete
        self.began = False
        self.done = False
        self.before = None  # type: Optional[int]  # the newest checkpoint as the last minutes began
        self.until = 0.0
        self.looked = 0.0

    def begin(self, ends: float) -> None:
        """Have the framework save; all must be over at ``ends``, in epoch seconds."""
        self.began = True
        self.before = self._latest()
        left = min(ends - time.time(), self.args.lead)
        wait = max(left - min(MARGIN, left / 2), 0)
        self.until = time.time() + wait
        events.record(self.args.attempt, events.make("warning", left=round(wait, 1)))
        events.say("the time is nearly up: %.0f s for a last checkpoint" % wait)
        if self.args.stop == "signal":
            self.steps.driver.send_signal(signal.SIGUSR1)
        elif self.args.stop == "sentinel":
            with contextlib.suppress(OSError):
                open(self.args.sentinel, "w").close()

    def look(self) -> None:
        """See whether the wait is over."""
        if time.time() > self.until:
            events.say("no more time to wait for a checkpoint")
            self.done = True
        elif self.args.checkpoints and time.time() - self.looked > EVERY:
            self.looked = time.time()
            found = self._latest()
            # Whoever was asked by a signal ends by itself when it has saved, and so does one that
            # has done its last step.
            by_itself = self.args.stop == "signal" or self.complete()
            if found != self.before and found is not None and not by_itself:
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

    def _latest(self) -> Optional[int]:
        if not self.args.checkpoints:
            return None
        return checkpoint.latest(self.args.framework, self.args.checkpoints).step
