"""One answer about a node, and the one way in which a program of it is asked."""

import subprocess
from typing import Any, Dict, List, NamedTuple

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"


class Check(NamedTuple):
    """What was looked at, what is there, what should be, and what to do.

    ``verdict`` is OK, WARN, FAIL, or UNKNOWN where this node cannot tell; ``do`` may be "" if OK.
    ``lasting`` is False where the last attempt's remains may be the reason, and gone next time.
    """

    name: str
    verdict: str
    have: str
    need: str = ""
    do: str = ""
    lasting: bool = True


class Silent(Exception):
    """A program is not here, or has not answered in time; the text says which."""


class Answer(NamedTuple):
    """What a program said: its exit code and both of its outputs."""

    code: int
    out: str
    err: str


def of(told: Dict[str, Any]) -> Check:
    """The check that an event carries."""
    name, verdict, have, need, do = (str(told.get(field, "")) for field in Check._fields[:5])
    return Check(name, verdict, have, need, do, told.get("lasting") is not False)


def ask(words: List[str], seconds: float) -> Answer:
    """Run a program and wait for it, at most ``seconds``.

    Raises:
        FileNotFoundError: it is not on PATH.
        Silent: it cannot be started, or has not ended in time.
    """
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        raise
    except subprocess.TimeoutExpired:
        raise Silent("%s did not answer within %.0f s" % (words[0], seconds)) from None
    except OSError as error:
        raise Silent("%s cannot be started: %s" % (words[0], error.strerror)) from None
    return Answer(
        done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )


def size(count: float) -> str:
    """Bytes for people: GB from 10^9 on, else MB."""
    return "%.1f GB" % (count / 1e9) if count >= 1e9 else "%.1f MB" % (count / 1e6)


def few(names: List[str], shown: int = 4) -> str:
    """The first of ``names``, and how many there are beside them."""
    more = " and %d more" % (len(names) - shown) if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
