"""From the last lines of what failed to its class, its cause in one line, and the next step.

Pure: lines in, words out. What the lines mean stands in the table of ``causes``.
"""

import functools
import re
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Pattern,
    Sequence,
    Tuple,
)

from beam_slurm.node.causes import DEFAULTS, RULES
from beam_slurm.node.causes_machine import OUT_OF_TIME
from beam_slurm.node.raylog import how
from beam_slurm.node.rule import CAUSE, EFFECT, VAGUE, Rule

TIME_UP = 75  # the job's exit code where it ran out of time unfinished
ENDED = 143  # the job's exit code where it was ended from outside
LONGEST = 300  # characters of a cause
READ = 2000  # characters of a line; a longer one is somebody's configuration

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[(?:0|1|3[0-9]|9[0-7])m")
# What stands before a worker's or an engine's own words, and may stand there more than once.
PREFIX = re.compile(
    r"""
    \((?:\S+\ pid=\d+ | raylet | gcs_server | autoscaler)[^)]*\)\ ?   # Ray, vLLM
    | \[rank\d+\]:\ ?                                                # torchrun
    | (?:ERROR|CRITICAL|WARNING)\ \d\d-\d\d\ [\d:]+\ \[[^\]]+\]\ ?   # vLLM
    | \d{4}-\d\d-\d\d\ [\d:.,]+\ \|\ \w+\ +\|\ \S+\ -\ ?             # loguru
    | \d{4}-\d\d-\d\d\ [\d:.,]+\s+\w+\ \S+:\d+\ --\ ?                # Ray's own log
    | \[\d{4}-\d\d-\d\d\ [\d:.,]+(?:\ [^\]]*)?\]\ ?                  # SGLang, Miles
    """,
    re.X,
)
IP = re.compile(r"^[^)]{0,80}\bip=([\d.]+)\)")

# Lines that repeat a word of the table without meaning it: commands, code, what is no error yet.
IDLE = re.compile(
    r"^\+ |^\$ |EXEC: |^\s*(?:raise|assert|except)\b|^[\s^~]*$|NCCL INFO"
    r"|^\s*File \"|^Traceback "
    r"|^srun: error: \S+: tasks? \S+: (?:Killed|Terminated|Exited)"
    r"|^(?:INFO|DEBUG|WARNING)\b|\| (?:INFO|DEBUG|WARNING) +\||\s(?:INFO|DEBUG|WARNING) \S+:\d+ --"
    r"|\b[Rr]etrying\b"
)
FRAME = re.compile(r'^\s*File ".*", line \d+')
EXCEPTION = re.compile(
    r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Timeout|Expired|Interrupt)(?:: .*|$)"
)
# They only say that something else has failed.
WRAPPER = re.compile(
    r"RayTaskError|RayActorError|ActorDiedError|WorkerCrashedError|ActorUnavailableError"
    r"|CalledProcessError|ChildFailedError|EngineDeadError|ProcessRaisedException"
    r"|[Ss]ee root cause above|Engine core initialization failed|BrokenPipeError|KeyboardInterrupt"
)
CLOSING = re.compile(
    r"^(?:wandb|srun|slurmstepd|beam-slurm): |^[-=*─╭╰\s]+$|^Job '\S+' failed|sigquit|SIGQUIT"
    r"|repeated \d+x across cluster|^Set the environment variable HYDRA_FULL_ERROR"
)
FROM_OUTSIDE = ("time", "preempted", "cancelled", "node")


class Diagnosis(NamedTuple):
    """One of the classes of outcome.json, what broke, and what to do next; a line each."""

    cls: str
    cause: str
    do: str


class Line(NamedTuple):
    """A line without its prefixes, and the address of the node that said it, "" for the head's."""

    text: str
    ip: str

    def __str__(self) -> str:
        return self.text + (" (ip %s)" % self.ip if self.ip else "")


def diagnose(
    component: str,
    code: int,
    lines: Sequence[str],
    why: str = "",
    events: Iterable[Dict[str, Any]] = (),
) -> Diagnosis:
    """The first cause that is to be seen.

    Args:
        component: what failed first: entry, ray, gate, slurm, preflight or watchdog.
        code: its exit code as a shell says it.
        lines: the last of its output, oldest first; of a failed Ray daemon, of its log.
        why: what is known in one line.
        events: of this attempt; their ``why`` is heard too.
    """
    outside = component == "slurm" and code == ENDED
    if not why:
        why = "the entry " + how(code) if component == "entry" else "the job was ended" * outside
    if code == TIME_UP:
        return Diagnosis(
            OUT_OF_TIME.cls, why or "the time limit came before the end", OUT_OF_TIME.do
        )
    said = list(_worth_reading(lines))
    refused = _refused(said) if component == "entry" else None
    if refused:
        return refused
    told = [Line(text, "") for text in (why, *(str(e.get("why") or "") for e in events)) if text]
    # The entry's own words tell why it ended; of all others the word of who noticed comes first.
    sources = (said, told) if component == "entry" else (told, said)
    for rank in (CAUSE, EFFECT):
        for source in sources:
            # What a program says while it is being ended is no cause.
            allowed = FROM_OUTSIDE if outside and source is said else None
            found = _first(source, rank, allowed)
            if found:
                return _verdict(component, why, *found, told=source is told)
    for source in sources if component != "watchdog" else ():  # it has lived on after those
        found = _first(source, VAGUE)
        if found:
            return _verdict(component, why, *found, told=source is told)
    rule = DEFAULTS[component]
    return Diagnosis(rule.cls, _unknown(component, why, said), rule.do)


def _refused(said: List[Line]) -> Optional[Diagnosis]:
    """What after.pyz would not do, if its last words say so: they name cause and remedy already."""
    texts = [line.text for line in said if not CLOSING.search(line.text)]
    at = max((at for at, text in enumerate(texts) if text.startswith("error: ")), default=-1)
    behind = dict(text.partition(": ")[::2] for text in texts[at + 1 :])
    if at < 0 or not behind or not set(behind) <= {"why", "do"}:
        return None
    cause = texts[at][len("error: ") :] + (": " + behind["why"] if "why" in behind else "")
    return Diagnosis("config", _short(cause), behind.get("do", DEFAULTS["entry"].do).strip())


def _verdict(component: str, why: str, rule: Rule, line: Line, told: bool) -> Diagnosis:
    cause = str(line)
    if not told and component != "entry" and why and line.text not in why:
        cause = "%s: %s" % (why, cause)
    return Diagnosis(rule.cls, _short(cause), rule.do)


def _unknown(component: str, why: str, said: List[Line]) -> str:
    """The cause where the table knows none: the program's exception, else its last word."""
    if component != "entry":
        return _short(why)
    raised = [line for line in said if EXCEPTION.match(line.text)]
    own = [line for line in raised if not WRAPPER.search(line.text)]
    if own or raised:
        return _short(str((own or raised)[0]))
    last = [line.text for line in said if not CLOSING.search(line.text)]
    return _short("%s: %s" % (why, last[-1]) if last else why)


def _first(
    lines: Sequence[Line], rank: int, classes: Optional[Tuple[str, ...]] = None
) -> Optional[Tuple[Rule, Line]]:
    """The first line that a rule of this rank knows, and of these the first in the table."""
    rules = [rule for rule in RULES if rule.rank == rank and (not classes or rule.cls in classes)]
    for line in lines:
        for rule in rules:
            if _pattern(rule).search(line.text):
                return rule, line
    return None


@functools.lru_cache(maxsize=None)
def _pattern(rule: Rule) -> Pattern[str]:
    """Compiled when first wanted: most programs that import this never do."""
    return re.compile("|".join(rule.patterns))


def _worth_reading(lines: Iterable[str]) -> Iterator[Line]:
    """The lines that may name a cause: no code, no commands, nothing of what Python ignored."""
    ignored = boxed = frame = False
    for raw in lines:
        text, ip = _bare(raw)
        code, frame = frame and text.startswith((" ", "\t")), bool(FRAME.match(text))
        if text.startswith("╭"):
            boxed = "Traceback" in text
        elif text.startswith("╰"):
            boxed = False
        elif text.startswith("│"):
            text = "" if boxed else text.strip("│ ")
        if text.startswith("Exception ignored in"):
            ignored = True
        elif ignored:
            ignored = not EXCEPTION.match(text)
        elif text.strip() and not code and not IDLE.search(text):
            yield Line(text.strip(), ip)


def _bare(raw: str) -> Line:
    last = raw.rstrip().rpartition("\r")[2]  # a progress bar overwrites itself
    text = ANSI.sub("", last[:READ])
    ip = ""
    while not IDLE.search(text):
        prefix = PREFIX.match(text)
        if not prefix:
            break
        address = IP.match(text[: prefix.end()])
        ip = address.group(1) if address else ip
        text = text[prefix.end() :]
    return Line(text, ip)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
