"""Whether a training is stuck: times in, a reason out. It reads no clock and no file.

Until the first step only ``startup`` counts, as loading a large model says little for long. From
then on a run must say something within ``silence`` and do a step within ``step``. While it
evaluates or saves it has ``pause`` more for both, and what it took of that is not held against the
step that follows.
"""

from typing import NamedTuple, Optional, Tuple

# Seconds that a look may come after it was due; later ones come from a watcher that was itself
# stopped, and what it did not see in that time it cannot hold against the run.
LATE = 30.0


class Limits(NamedTuple):
    """How long what may take, each in seconds.

    Attributes:
        startup: from the start to the first step.
        silence: without a line of the log, a step or a checkpoint.
        step: without a step, whatever the log says.
        pause: more, while it evaluates or saves.
    """

    startup: float
    silence: float
    step: float
    pause: float


class Watchdog:
    """Is told of events and asked for a verdict; all times are of one monotonic clock."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._sign = now  # of life, the last one
        self._stepped = now  # or the start
        self._last: Optional[int] = None
        self._phase = ""
        self._entered = now
        self._granted = 0.0  # seconds of pauses since the last step
        self._looked = now

    def line(self, now: float) -> None:
        """The log has a new line."""
        self._look(now)
        self._sign = now

    def checkpoint(self, now: float) -> None:
        """There is a new checkpoint."""
        self.line(now)

    def step(self, now: float, last: int) -> None:
        """Step ``last`` is done."""
        self.line(now)
        self._stepped = self._entered = now
        self._granted = 0.0
        self._last = last

    def phase(self, now: float, name: str) -> None:
        """It now is "evaluating" or "saving", or back at training: ""."""
        self.line(now)
        if name == self._phase:
            return
        if self._phase:
            self._granted += min(now - self._entered, self._limits.pause)
        self._phase = name
        self._entered = now

    def stuck(self, now: float) -> str:
        """Why it is stuck, in one line; "" while it is not."""
        self._look(now)
        until, since, what = self._next()
        if now < until:
            return ""
        return "%s for %s; %s" % (what, _spell(now - since), self._where())

    def due(self, now: float) -> float:
        """Seconds until it may be stuck, if nothing comes: when to ask next. 0 if it is by now."""
        self._look(now)
        return max(0.0, self._next()[0] - now)

    def _next(self) -> Tuple[float, float, str]:
        """(the earliest time when it is stuck, since when, without what)."""
        pause = self._limits.pause if self._phase else 0.0
        more = self._granted + pause
        if self._last is None:
            return self._stepped + self._limits.startup + more, self._stepped, "no first step"
        return min(
            (
                self._sign + self._limits.silence + pause,
                self._sign,
                "no line of the log, step or checkpoint",
            ),
            (self._stepped + self._limits.step + more, self._stepped, "no step"),
        )

    def _where(self) -> str:
        where = "none was done" if self._last is None else "the last step was %d" % self._last
        return where + (", and it is %s" % self._phase if self._phase else "")

    def _look(self, now: float) -> None:
        """Leave out the time since the last look where that came far too late."""
        if now > max(self._next()[0], self._looked) + LATE:
            lost = now - self._looked
            self._sign += lost
            self._stepped += lost
            self._entered += lost
        self._looked = now


def _spell(seconds: float) -> str:
    return "%d s" % seconds if seconds < 120 else "%d min" % (seconds // 60)
