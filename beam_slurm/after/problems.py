"""The problems of an evaluation, read from the files that the frameworks themselves train with.

Each framework has the same problems in a shape of its own, and wraps them in words of its own about
how to answer. Scores can only be compared if the question is the same: so those words are taken
off, and every model is asked for a boxed answer in the same ones.

Shapes, one object a line (JSONL) or a row (Parquet):

- ``{"question", "answer"}``: opencompass/AIME2025, that NeMo RL reads; or ``problem`` instead.
- ``{"prompt": [{"role": "user", "content"}], "reward_model": {"ground_truth"}}``: DAPO's, SkyRL's.
- ``{"prompt", "label"}``: Miles'; the prompt is a text or, as above, one message.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm.after.errors import Problem

INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."

PROMPTS = ("question", "problem", "prompt")
ANSWERS = ("answer", "label", "reward_model.ground_truth", "reward_spec.ground_truth")
# What to do about a bad one.
MEND = "add what is missing, or take the problem out"
EACH = 'give one problem a line, such as {"question": "1+1", "answer": "2"}'

IDS = ("id", "problem_id", "problem_idx", "index", "extra_info.index")

# DAPO's words about the form of an answer; of the first line there are two wordings, with a box
# and without.
BEFORE = re.compile(
    r"\s*Solve the following math problem step by step\. The last line of your response should be "
    r"of the form Answer:[^\n]* is the answer to the problem\.\n+"
)
AFTER = re.compile(r'\s*Remember to put your answer on its own line after "Answer:"\.?\s*$')

SNAPSHOT = "hub/datasets--opencompass--AIME2025"


@dataclass(frozen=True)
class Question:
    """One problem: what the model is asked, and the right answer as the file has it."""

    id: str
    prompt: str
    answer: str


@dataclass(frozen=True)
class Known:
    """A published set: how many problems it has, and where each framework keeps it.

    ``places`` lie below NeMo RL's HF_HOME, SkyRL's DATA_DIR and Miles' --data-dir.
    """

    size: int
    places: tuple[str, ...]


COMMON = "aime2025"  # all published recipes score themselves on it, each in its own way

SETS = {COMMON: Known(30, (SNAPSHOT, "aime-2025-cleaned.parquet", "aime-2025/aime-2025.jsonl"))}


OWN = "give a file of your own with --data FILE"


def refuse_unknown(name: str, sets: Iterable[str] = SETS, otherwise: str = OWN) -> None:
    """Raise for a set that is none of ``sets``; ``otherwise``: what can be done about it."""
    if name not in sets:
        raise Problem(
            f"there is no set {name}",
            why=f"the known ones are: {', '.join(sets)}",
            do=otherwise,
        )


def known(name: str, folder: Path, otherwise: str = OWN) -> Path:
    """Where a published set lies below a framework's datasets folder; for ``read``.

    Args:
        name: a key of SETS.
        folder: that of the framework.
        otherwise: what can be done but to bring the set.

    Raises:
        Problem: it is at none of its places.
    """
    for place in SETS[name].places:
        found = folder / place
        if place == SNAPSHOT and found.is_dir():
            found = _snapshot(found)
        if found.exists():
            return found
    raise Problem(
        f"the problems of {name} are not there",
        where=str(folder),
        why=f"none of these is in it: {', '.join(SETS[name].places)}",
        do=f"beam-slurm prepare brings them; or {otherwise}",
    )


def read(path: Path, name: str = "") -> list[Question]:
    """The problems of a file, or of all files of a folder in the order of their names.

    Args:
        path: .jsonl or .parquet, or a folder of such files (AIME2025 is published as two).
        name: the published set that this is to be: then it must have all of its problems.

    Raises:
        Problem: unreadable or empty; a problem without question or answer, or there twice. With
            the file and the line.
    """
    questions: list[Question] = []
    ids: dict[str, str] = {}
    asked: dict[str, str] = {}
    for where, fallback, row in _rows(path):
        question = _question(row, where, fallback)
        for seen, key, what in ((ids, question.id, "id"), (asked, question.prompt, "question")):
            if key in seen:
                raise Problem(
                    f"two problems have the same {what}",
                    where=where,
                    why=f"{seen[key]} has it too{f': {key}' if what == 'id' else ''}",
                    do="take one of them out: it would count twice",
                )
            seen[key] = where
        questions.append(question)
    if not questions:
        raise Problem("there are no problems in it", where=str(path), do=EACH)
    if name in SETS and len(questions) != SETS[name].size:
        raise Problem(
            f"this is not the whole of {name}",
            where=str(path),
            why=f"it has {len(questions)} problems; {name} has {SETS[name].size}",
            do="bring it again with beam-slurm prepare; problems of your own: another --set NAME",
        )
    return questions


def written(questions: list[Question]) -> bytes:
    """The problems as JSONL, of which ``read`` makes the same ones: ids, words and all."""
    lines = (
        json.dumps({"id": one.id, "question": one.prompt, "answer": one.answer})
        for one in questions
    )
    return "".join(f"{line}\n" for line in lines).encode()


def digest(questions: list[Question]) -> str:
    """A hash of the problems, with their ids: responses are kept by these."""
    text = json.dumps([[one.id, one.prompt, one.answer] for one in questions])
    return hashlib.sha256(text.encode()).hexdigest()


def wording(questions: list[Question]) -> str:
    """A hash of questions and answers alone: the same for every file of the same problems.

    Each framework keeps a set with ids and in an order of its own.
    """
    asked = sorted([" ".join(one.prompt.split()), one.answer] for one in questions)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _question(row: dict[str, Any], where: str, fallback: str) -> Question:
    prompt = _text(_first(row, PROMPTS, "question", where), where)
    bare = _bare(prompt)
    if not bare:
        raise Problem("the question is empty", where=where, do=MEND)
    answer = _first(row, ANSWERS, "answer", where)
    # JSON has no integers that are not numbers too, and AIME's answers are such.
    readable = isinstance(answer, str | int | float) and not isinstance(answer, bool)
    if not readable or (isinstance(answer, float) and not math.isfinite(answer)):
        raise Problem(
            "the answer is neither text nor a number",
            where=where,
            why=f"it is {answer!r:.80}",
            do="give one answer, as text or number, or take the problem out",
        )
    text = str(int(answer) if isinstance(answer, float) and answer.is_integer() else answer).strip()
    if not text:
        raise Problem("the answer is empty", where=where, do=MEND)
    # Somebody's own set may ask for the box in words of its own.
    asked = bare if r"\boxed" in bare else f"{bare}\n\n{INSTRUCTION}"
    given = next((at for name in IDS if (at := _field(row, name)) is not None), fallback)
    return Question(str(given), asked, text)


def _bare(prompt: str) -> str:
    """A question without what frameworks wrap around it, however often: nothing is left to take."""
    before = None
    while prompt != before:
        before = prompt
        prompt = AFTER.sub("", BEFORE.sub("", prompt)).strip()
    return prompt


def _text(prompt: object, where: str) -> str:
    """The question of a prompt, which is a text or a list of one message."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], dict):
        message = prompt[0]
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            return str(message["content"])
    raise Problem(
        "the prompt is neither a text nor one message of a user",
        where=where,
        why=f"it is {prompt!r:.80}",
        do="give each problem as one question: every model is asked in its own chat template",
    )


def _first(row: dict[str, Any], names: tuple[str, ...], what: str, where: str) -> object:
    for name in names:
        value = _field(row, name)
        if value is not None:
            return value
    raise Problem(
        f"the problem has no {what}",
        where=where,
        why=f"it has {', '.join(row) or 'nothing'}; looked for {', '.join(names)}",
        do=MEND,
    )


def _field(row: dict[str, Any], name: str) -> object:
    """A value by its dotted name; None if it is not there."""
    value: object = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _rows(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(where it is, an id for one that has none, the row) of each problem."""
    for file in _files(path):
        rows = _parquet(file) if file.suffix == ".parquet" else _jsonl(file)
        for number, row in rows:
            where = f"{file}:{number}"
            if not isinstance(row, dict):
                raise Problem(
                    "this is no JSON object", where=where, why=f"it is {row!r:.80}", do=EACH
                )
            yield where, f"{file.stem}:{number}", row


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise Problem(
            "the problems are not there",
            where=str(path),
            do="name a file, or a folder of files, that is there",
        )
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    found = [file for file in files if file.suffix in {".jsonl", ".parquet"}]
    if not found:
        raise Problem(
            "there are no problems that can be read",
            where=str(path),
            why="problems are in files that end in .jsonl or .parquet",
            do="write them as JSONL, or give the file the name of what it holds",
        )
    return found


def _jsonl(path: Path) -> Iterator[tuple[int, object]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        yield number, json.loads(line.decode())
                    except (ValueError, RecursionError) as error:
                        where = f"{path}:{number}"
                        raise Problem(
                            "this line is no JSON", where=where, why=str(error), do=EACH
                        ) from None
    except OSError as error:
        raise _unread(path, error) from None


def _parquet(path: Path) -> Iterator[tuple[int, object]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise Problem(
            "a Parquet file cannot be read here",
            where=str(path),
            why=str(error),
            do="pip install 'beam-slurm[evaluate]', or give the problems as JSONL",
        ) from None
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise _unread(path, error) from None
    yield from enumerate(rows, 1)


def _snapshot(cache: Path) -> Path:
    """The snapshot of a data set that Hugging Face's cache holds under the name main."""
    try:
        return cache / "snapshots" / (cache / "refs" / "main").read_text().strip()
    except OSError:
        return cache / "snapshots" / "main"  # not there: the place is passed over


def _unread(path: Path, error: Exception) -> Problem:
    return Problem(
        "the problems cannot be read",
        where=str(path),
        why=str(error),
        do="look at the file: may you read it, and was it copied as a whole?",
    )
