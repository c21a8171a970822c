"""What a model answered, kept as JSONL: the record of an evaluation, and where it goes on.

The first line says under which settings the responses were made; each further one is a response. A
job may be killed while it writes: then the last line is torn, and is generated again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from beam_slurm.after import output
from beam_slurm.after.errors import Problem
from beam_slurm.after.problems import Question

HEADER = "beam-slurm-responses"
VERSION = 1

TYPES = {"str": str, "int": int, "bool": bool}


@dataclass(frozen=True)
class Response:
    """One response: the ``sample``-th (from 0) to the question ``id``.

    Attributes:
        tokens: generated, the end token included.
        truncated: it was cut off at the limit of tokens.
        finish: why generation ended, in the engine's word: stop, length.
        right: whether it is right; see ``answers``.
        answer: what was taken as its answer; "" for none.
    """

    id: str
    sample: int
    text: str
    tokens: int
    truncated: bool
    finish: str
    right: bool
    answer: str


class Responses:
    """The responses of one evaluation, in one file; one process writes it.

    Args:
        path: is made if it is not there, with its folder.
        settings: all that the responses depend on, as JSON has it: model, questions, sampling.

    Raises:
        Problem: the file holds responses that were made under other settings, or is damaged.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        # As they will be read again: JSON knows no tuples.
        wanted = json.loads(json.dumps(dict(settings), sort_keys=True))
        self._done: dict[tuple[str, int], Response] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size:
                found, responses = read(path)
                if responses:
                    _same(path, found, wanted)
                elif found != wanted:  # the last one came to nothing: there is nothing to mix
                    path.unlink()
                    self._write([{HEADER: VERSION, "settings": wanted}])
                self._cut()
                self._done = {(made.id, made.sample): made for made in responses}
            else:
                self._write([{HEADER: VERSION, "settings": wanted}])
        except OSError as error:
            raise Problem("the responses cannot be kept", where=str(path), why=str(error)) from None

    def missing(self, questions: Sequence[Question], samples: int) -> list[tuple[Question, int]]:
        """(question, sample) of all that is to be generated yet, in the order of the questions."""
        return [
            (question, sample)
            for question in questions
            for sample in range(samples)
            if (question.id, sample) not in self._done
        ]

    def of(self, questions: Sequence[Question], samples: int) -> list[list[Response]]:
        """The responses to each question, in the order of samples; for ``scores.score``.

        Raises:
            KeyError: one is missing.
        """
        return [
            [self._done[question.id, sample] for sample in range(samples)] for question in questions
        ]

    def append(self, responses: Iterable[Response]) -> None:
        """Keep these: once it returns they outlast the job.

        Raises:
            OSError: they could not be written. A part of a line is cut off at the next start.
        """
        made = list(responses)
        self._write([asdict(response) for response in made])
        self._done.update({(response.id, response.sample): response for response in made})

    def _write(self, objects: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(one) + "\n" for one in objects)
        with self.path.open("ab") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

    def _cut(self) -> None:
        """Take off a torn last line, so that the next one begins a line."""
        with self.path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def check(path: Path, known: Mapping[str, Any]) -> None:
    """Refuse a file that cannot be gone on with, as far as that is known without the engine.

    Args:
        path: the file; it may be missing.
        known: some of the settings.

    Raises:
        Problem: as ``Responses`` does; or a file is where its folder would be.
    """
    there = next(at for at in path.parents if at.exists())
    if not there.is_dir():
        raise Problem(
            "the output is there and no folder",
            where=str(there),
            do="give another one with -o",
        )
    output.refuse_unwritable(path)
    if path.exists() and path.stat().st_size:
        found, responses = read(path)
        if responses:
            _same(path, {name: found[name] for name in known if name in found}, dict(known))


def read(path: Path) -> tuple[dict[str, Any], list[Response]]:
    """(settings, responses) of a file, without a last line that is torn.

    Raises:
        Problem: there is none, it is none of ours, or a line within is damaged or there twice.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last newline is torn, or b""
    except OSError as error:
        raise Problem("the responses cannot be read", where=str(path), why=str(error)) from None
    header = _object(path, 1, lines[0]) if lines else {}
    settings = header.get("settings")
    if header.get(HEADER) != VERSION or not isinstance(settings, dict):
        raise Problem(
            "this file does not hold responses of beam-slurm evaluate",
            where=f"{path}:1",
            why=f'its first line is not {{"{HEADER}": {VERSION}, "settings": …}}',
            do="give another output folder",
        )
    found: dict[tuple[str, int], Response] = {}
    for number, line in enumerate(lines[1:], 2):
        response = _response(path, number, _object(path, number, line))
        key = response.id, response.sample
        if key in found:
            _damaged(path, number, f"response {response.sample} to {response.id} is there twice")
        found[key] = response
    return settings, list(found.values())


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode())
    except ValueError as error:
        _damaged(path, number, str(error))
    if not isinstance(found, dict):
        _damaged(path, number, "it is no JSON object")
    return found


def _response(path: Path, number: int, found: dict[str, Any]) -> Response:
    for field in fields(Response):
        if type(found.get(field.name)) is not TYPES[str(field.type)]:
            _damaged(path, number, f"it has no {field.name} of type {field.type}")
    return Response(**{field.name: found[field.name] for field in fields(Response)})


def _damaged(path: Path, number: int, why: str) -> NoReturn:
    raise Problem(
        "the responses are damaged",
        where=f"{path}:{number}",
        why=why,
        do="remove this line, and its response is generated again; or give another output folder",
    )


def _same(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    other = [
        f"{name}: {_shown(found, name)} there, {_shown(wanted, name)} now"
        for name in sorted({*found, *wanted})
        if _shown(found, name) != _shown(wanted, name)
    ]
    if other:
        raise Problem(
            "the output folder holds responses that were made under other settings",
            where=str(path),
            why="; ".join(other),
            do="give another output folder, or remove this file",
        )


def _shown(settings: dict[str, Any], name: str) -> str:
    return json.dumps(settings[name], sort_keys=True) if name in settings else "nothing"
