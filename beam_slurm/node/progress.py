"""How far a training is, from the lines that its framework prints.

One table of patterns per framework, of the lines that its main branch prints. Steps are counted as
the framework counts them, from 1, and a step counts once its update is done:

* NeMo RL tells when a step *begins*. Without async its count starts anew with each epoch: steps of
  earlier epochs are added, and the total is known only where there is one epoch.
* SkyRL numbers no step. Those that trained are counted from the checkpoint that it resumed from;
  each checkpoint that it saves sets the count right, should a line have been lost.
* Miles counts rollouts from 0, and its ``step`` lines count updates, several a rollout: only the
  trainer's ``rollout`` (it begins to train on it) and ``perf`` lines (it has) are taken.

Ray's prefixes, colours, lines that come twice and lines that are cut off do no harm.
"""

import re
from collections import deque
from typing import Deque, Dict, List, Match, Optional, Pattern, Tuple

LONGEST = 8192  # bytes of a line that are looked at; what is beyond is passed over
KEPT = 200  # lines, for whoever asks why it failed

_LINE = re.compile(rb"[\r\n]")
COLOUR = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]")
RAY = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)* pid=\d+(?:, ip=[^)]*)?\) ?")


def _table(head: str, *rows: Tuple[str, str]) -> List[Tuple[Pattern[str], str]]:
    """(pattern, mark) rows; every pattern begins at the start of a line, behind ``head``."""
    return [(re.compile(head + pattern), mark) for pattern, mark in rows]


# What stands before the message in SkyRL's and in Miles' own lines.
LOGURU = r"(?:\d{4}-\S+ \S+ \| [A-Z]+ *\| \S+ - )?"
MILES = r"(?:\[[^\]]*\] \S+:\d+ - )?"

# What each line means: a mark ``x`` is the method ``_x`` of Progress. ``n`` is a number of the
# framework's own kind, ``of`` how many there will be: int() would refuse thousands of digits.
TABLES: Dict[str, List[Tuple[Pattern[str], str]]] = {
    "nemo-rl": _table(
        "",
        (r"=+ Epoch (?P<n>\d{1,9})/(?P<of>\d{1,9}) =+", "epoch_begins"),
        (r"=+ Step (?P<n>\d{1,9})/(?P<of>\d{1,9}) =+", "begins"),
        (r"\U0001f4ca Training Results:", "ends"),
        (r"train step (?P<n>\d{1,9})/(?P<of>\d{1,9}) ", "done"),
        (r"Saving checkpoint for step (?P<n>\d{1,9})\.\.\.", "saves"),
        (r"\u25b6 Starting validation at step \d+", "evaluating"),
        (r"\U0001f4ca Validation Results", "goes_on"),
        (r"Timeout has been reached, stopping training early", "stops"),
        (r"Max number of steps has been reached", "finishes"),
    ),
    "skyrl": _table(
        LOGURU,
        (r"Resuming from global_step: (?P<n>\d{1,9})\b", "resumes"),
        (r"Training (?:Batches Processed|Step Progress): .*\| \d+/(?P<of>\d{1,9}) \[", "total"),
        # A step without it has only drawn more samples, and keeps its number.
        (r"Finished: 'train_critic_and_policy'", "has_trained"),
        (r"Finished: 'step'", "counts"),
        (r"Successfully saved checkpoint for global_step_(?P<n>\d{1,9})\b", "saved"),
        (r"Started: 'eval'", "evaluating"),
        (r"Started: '(?:save_checkpoints|save_hf_model)'", "saving"),
        (r"Finished: '(?:eval|save_checkpoints|save_hf_model)'", "goes_on"),
        (r"Reached max_training_steps=(?P<of>\d{1,9}), stopping early", "finishes"),
        (r"Training done!", "finishes"),
    ),
    "miles": _table(
        MILES,
        (r"rollout (?P<n>\d{1,9}): \{", "begins_from_0"),
        (r"perf (?P<n>\d{1,9}): \{.*'perf/(?:actor_)?train_time'", "done_from_0"),
        (r"Timer save_model start", "saving"),
        (r"Timer save_model end", "goes_on"),
        # Its evaluation shows a bar and no line when it starts.
        (r"Eval [^:]+: +\d+%\|", "evaluating"),
        (r"eval \d+(?:: \{| skipped)", "goes_on"),
        (r"Job 'raysubmit_\w+' succeeded", "finishes"),
    ),
    "demo": _table(
        "",
        (r"step (?P<n>\d{1,9})/(?P<of>\d{1,9}) reward ", "done"),
        (r"stopping early after step (?P<n>\d{1,9}) of (?P<of>\d{1,9}): asked to", "stops"),
        (r"final held-out accuracy ", "finishes"),
    ),
    # after.pyz: a response is a step.
    "evaluate": _table("", (r"(?P<n>\d{1,9})/(?P<of>\d{1,9}) responses\b", "done")),
}


class Progress:
    """Follows what one attempt's entry prints, in constant memory.

    Attributes:
        first: the first training step that was done in this attempt; None before.
        last: the last one.
        total: steps in all, earlier attempts' included; None if not told.
        phase: "evaluating", "saving", or "" for anything else, as far as the log tells.
        stopped_early: it said that it stops before its last step, as it was asked to.
        finished: it said that all is done.
        heard: complete lines, empty ones not counted.
        lines: the last of them, without colours.
    """

    def __init__(self, framework: str) -> None:
        """``framework``: nemo-rl, skyrl, miles or demo; of any other, only lines are counted."""
        self.first: Optional[int] = None
        self.last: Optional[int] = None
        self.total: Optional[int] = None
        self.phase = ""
        self.stopped_early = False
        self.finished = False
        self.heard = 0
        self.lines: Deque[str] = deque(maxlen=KEPT)
        self._table = TABLES.get(framework, [])
        self._rest = b""  # of a line that is not complete
        self._running: Optional[int] = None  # the step that began last
        self._before = 0  # steps that the running count leaves out
        self._epoch = (1, 1)
        self._anew = False  # an epoch has begun since the last step began
        self._trained = False

    def feed(self, data: bytes) -> None:
        """Take in the next piece of the output, cut anywhere."""
        pieces = _LINE.split(data)
        for piece in pieces[:-1]:
            self._line(self._rest + piece[: LONGEST - len(self._rest)])
            self._rest = b""
        self._rest += pieces[-1][: LONGEST - len(self._rest)]

    def _line(self, raw: bytes) -> None:
        line = COLOUR.sub("", raw.decode(errors="replace")).strip()
        if not line:
            return
        self.heard += 1
        self.lines.append(line)
        ray = RAY.match(line)
        text = line[ray.end() :].lstrip() if ray else line
        for pattern, mark in self._table:
            found = pattern.match(text)
            if found:
                self._mark(mark, found)
                return

    def _mark(self, mark: str, found: Match[str]) -> None:
        told = found.groupdict()
        n = int(told.get("n") or 0)
        of = int(told["of"]) if told.get("of") else None
        getattr(self, "_" + mark)(n, of)

    def _evaluating(self, n: int, of: Optional[int]) -> None:
        self.phase = "evaluating"

    def _saving(self, n: int, of: Optional[int]) -> None:
        self.phase = "saving"

    def _goes_on(self, n: int, of: Optional[int]) -> None:
        self.phase = ""

    def _stops(self, n: int, of: Optional[int]) -> None:
        self._done(n, of)
        self.stopped_early = True

    def _finishes(self, n: int, of: Optional[int]) -> None:
        self._total(n, of)
        self.phase = ""
        self.finished = True

    def _total(self, n: int, of: Optional[int]) -> None:
        if of is not None and self._epoch[1] == 1:
            self.total = of

    def _done(self, n: int, of: Optional[int]) -> None:
        self._total(n, of)
        self.phase = ""
        self._reach(n)

    def _done_from_0(self, n: int, of: Optional[int]) -> None:
        self._done(n + 1, of)

    def _epoch_begins(self, n: int, of: Optional[int]) -> None:
        self._anew = self._anew or n > self._epoch[0]
        self._epoch = (n, of or n)

    def _begins(self, n: int, of: Optional[int]) -> None:
        if self._running is None:
            # The first of this attempt: what was done before it was done by another one.
            self._before = (self._epoch[0] - 1) * (of or 0)
        elif self._anew or n < self._running:
            if not self._anew:  # the epoch's own line is lost, and this is no first one
                self._epoch = (self._epoch[0] + 1, self._epoch[1] + 1)
                self.total = None
            self._before += self._running
            self._reach(self._before)
        elif n > self._running:
            self._reach(self._before + n - 1)
        self._running = n
        self._anew = False
        self._total(n, of)
        self.phase = ""

    def _begins_from_0(self, n: int, of: Optional[int]) -> None:
        self._begins(max(n + 1, self._running or 0), of)

    def _ends(self, n: int, of: Optional[int]) -> None:
        if self._running is not None:
            self._done(self._before + self._running, None)

    def _saves(self, n: int, of: Optional[int]) -> None:
        if self._running is not None:
            self._before = n - self._running
        self._done(n, of)
        self.phase = "saving"

    def _resumes(self, n: int, of: Optional[int]) -> None:
        self._before = n

    def _has_trained(self, n: int, of: Optional[int]) -> None:
        self._trained = True

    def _counts(self, n: int, of: Optional[int]) -> None:
        if self._trained:
            self._trained = False
            self._reach((self._before if self.last is None else self.last) + 1)

    def _saved(self, n: int, of: Optional[int]) -> None:
        self._trained = False
        self._reach(n)

    def _reach(self, n: int) -> None:
        if self.total is not None:
            n = min(n, self.total)  # SkyRL numbers its very last checkpoint one too high
        if n > (self.last or 0):
            self.first = n if self.first is None else self.first
            self.last = n
