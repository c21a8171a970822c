r"""The answer that a response gives, and whether it is right.

What counts as the answer:

1. The content of the last ``\boxed{…}``: models are asked for one, and the last one is what they
   came to. A box that does not close was cut off: then there is no answer.
2. Without any box, what follows the last ``Answer:`` that begins a line. The recipes of SkyRL and
   Miles train a model to end so, and its form is not what is measured here.
3. Else nothing. The last number of a response is not an answer: of AIME's integers 0 to 999 a
   response that was cut off would hit some by chance.

The frameworks differ in this: NeMo RL's hf_math_verify takes the last expression wherever it
stands, SkyRL and Miles' dapo rewards only the line ``Answer:``. Hence the rule of its own.

Whether it is right, math-verify says, so ``\frac12``, ``0.5`` and ``50\%`` are one answer. Before,
what only dresses an answer is taken off: math-verify reads ``204.`` or ``\emph{204}`` as none.
"""

from __future__ import annotations

import re
from functools import cache

from beam_slurm.after.errors import Problem
from beam_slurm.after.judge import Judge
from beam_slurm.after.problems import Question

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
# Nothing before the word may pass a newline: on many empty lines that would take quadratic time.
LINE = re.compile(
    r"^[*#> \t]*(?:the )?(?:final )?answer[* \t]*:[*\s]*(\S[^\n]*)", re.IGNORECASE | re.MULTILINE
)
LONGEST = 1000  # characters of an answer; what is longer is prose

# What models write for what LaTeX spells otherwise.
SPELLING = {
    "−": "-",
    "–": "-",
    "，": ",",
    "％": "%",
    "°": r"^\circ",
    "\u00a0": " ",
    "\u2009": " ",
    "\u202f": " ",
    r"\,": "",
    r"\;": "",
    r"\!": "",
    r"\ ": " ",
}
DRESS = re.compile(
    r"\\(?:text(?:bf|it|rm|normal)?|math(?:bf|it|rm)|emph|underline|textcolor\s*\{\w*\})\s*\{"
)


def extracted(response: str) -> str:
    """The answer that ``response`` gives, as it wrote it; "" if it gives none."""
    boxes = [box.end() for box in BOX.finditer(response)]
    if boxes:
        return _braced(response, boxes[-1]).strip()
    lines = LINE.findall(response)
    return lines[-1].strip().strip("*").strip() if lines else ""


def right(response: str, answer: str) -> bool:
    """Whether ``response`` gives ``answer``. No response makes it raise, or take over ``LIMIT``.

    May be called in any thread: the comparison runs in a process of its own, see ``judge``.

    Args:
        response: all that the model wrote.
        answer: the set's: an expression in LaTeX, without a box.

    Raises:
        Problem: math-verify is not installed here.
    """
    given = extracted(response)
    if not given or len(given) > LONGEST:
        return False
    return _judge.same(_plain(answer), _plain(given))


def refuse_unreadable(questions: list[Question], where: str) -> None:
    """Refuse problems that no response could solve; takes 3 to 10 ms for each other answer.

    Args:
        questions: the set.
        where: its file.

    Raises:
        Problem: with the first of them; or math-verify is not installed here.
    """
    unreadable = [each for each in questions if not readable(each.answer)]
    if unreadable:
        raise Problem(
            f"the answer of problem {unreadable[0].id} cannot be compared with any",
            where=where,
            why=f"math-verify does not read {unreadable[0].answer!r:.80}"
            + (f", nor those of {len(unreadable) - 1} more" if len(unreadable) > 1 else ""),
            do="write it as LaTeX or as a number, or take the problem out",
        )


@cache
def readable(answer: str) -> bool:
    """Whether a set's answer can be given at all: it is right if a model gives it word for word.

    Raises:
        Problem: math-verify is not installed here.
    """
    return right(rf"\boxed{{{answer}}}", answer)


def version() -> str:
    """The version of math-verify that judges.

    Raises:
        Problem: it is not installed here; better known before a model is loaded.
    """
    return _judge.version()


_judge = Judge()


def _braced(text: str, start: int) -> str:
    """What stands from ``start`` to the brace that closes there; "" if none does."""
    depth = 1
    at = start
    while at < len(text):
        if text[at] == "\\":
            at += 1  # an escaped brace is none
        elif text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return text[start:at]
        at += 1
    return ""


def _plain(answer: str) -> str:
    """An answer without what only dresses it."""
    for written, meant in SPELLING.items():
        answer = answer.replace(written, meant)
    before = None
    while before != answer:
        before = answer
        answer = answer.strip().strip("*").rstrip(".,;").strip()
        dress = DRESS.match(answer)
        if dress and answer[dress.end() :] == (inner := _braced(answer, dress.end())) + "}":
            # Of words only math-verify knows what they are: a name, a unit.
            answer = inner if any(letter.isdigit() for letter in inner) else answer
    return answer
