"""The file of responses: kept whole, taken up again, and refused when it is another's."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from beam_slurm.after.errors import Problem
from beam_slurm.after.problems import Question
from beam_slurm.after.responses import Response, Responses, read

SETTINGS = {"model": "/models/Beam", "set": "aime2025", "temperature": 1.0, "stop": (1, 2)}
QUESTIONS = [Question(str(n), f"q{n}", str(n)) for n in range(3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evaluation" / "responses.jsonl"


def response(question: int, sample: int) -> Response:
    text = f"Line one\n\u2028 \ud800 \\boxed{{{question}}}"
    return Response(str(question), sample, text, 12, False, "stop", True, str(question))


def all_of(samples: int) -> list[Response]:
    return [response(question, sample) for question in range(3) for sample in range(samples)]


def refused(path: Path, settings: dict[str, object] | None = None) -> Problem:
    before = path.read_bytes()
    with pytest.raises(Problem) as caught:
        Responses(path, settings or SETTINGS)
    assert path.read_bytes() == before  # nothing that is refused is touched
    return caught.value


def test_what_is_kept_is_read_again(path: Path) -> None:
    kept = Responses(path, SETTINGS)
    assert len(kept.missing(QUESTIONS, 2)) == 6
    kept.append([response(0, 0)])
    kept.append([response(2, 1), response(1, 0)])
    assert read(path) == (
        {**SETTINGS, "stop": [1, 2]},
        [response(0, 0), response(2, 1), response(1, 0)],
    )
    assert len(path.read_bytes().splitlines()) == 4


def test_an_evaluation_goes_on_with_what_is_missing(path: Path) -> None:
    Responses(path, SETTINGS).append([response(0, 0), response(2, 1)])
    again = Responses(path, SETTINGS)
    missing = [(question.id, sample) for question, sample in again.missing(QUESTIONS, 2)]
    assert missing == [("0", 1), ("1", 0), ("1", 1), ("2", 0)]
    again.append(response(int(name), sample) for name, sample in missing)
    assert again.missing(QUESTIONS, 2) == []
    assert Responses(path, SETTINGS).missing(QUESTIONS, 2) == []
    assert [[one.sample for one in found] for found in again.of(QUESTIONS, 2)] == [[0, 1]] * 3
    # More samples of the same settings go on from there.
    assert [sample for _, sample in again.missing(QUESTIONS, 3)] == [2, 2, 2]
    with pytest.raises(KeyError):
        again.of(QUESTIONS, 3)


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_torn_last_line_is_generated_again(path: Path, cut: int) -> None:
    Responses(path, SETTINGS).append(all_of(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert read(path)[1] == all_of(2)[:-1]
    again = Responses(path, SETTINGS)
    assert [(question.id, sample) for question, sample in again.missing(QUESTIONS, 2)] == [("2", 1)]
    again.append([response(2, 1)])
    assert path.read_bytes() == whole


def test_every_place_to_be_cut_off_loses_at_most_one_response(path: Path) -> None:
    Responses(path, SETTINGS).append(all_of(1))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole) + 1):
        path.write_bytes(whole[:end])
        again = Responses(path, SETTINGS)
        assert len(again.missing(QUESTIONS, 1)) == 3 - whole[first:end].count(b"\n")
        again.append([response(int(question.id), 0) for question, _ in again.missing(QUESTIONS, 1)])
        assert path.read_bytes() == whole


def test_a_killed_writer_leaves_whole_lines(path: Path) -> None:
    code = (
        "import sys, os, signal; from pathlib import Path;"
        "from beam_slurm.after.responses import *;"
        "kept = Responses(Path(sys.argv[1]), {'a': 1});"
        "kept.append([Response('0', 0, 'x' * 100000, 1, True, 'length', False, '')]);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert ended.returncode == -9
    assert len(read(path)[1][0].text) == 100_000


def test_an_empty_file_is_begun(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    Responses(path, SETTINGS).append([response(0, 0)])
    assert read(path)[1] == [response(0, 0)]


def test_settings_under_which_nothing_came_about_bind_nobody(path: Path) -> None:
    """The model was not to be loaded, and is now, by another version."""
    Responses(path, {**SETTINGS, "seed": 1})
    Responses(path, SETTINGS).append([response(0, 0)])
    assert read(path) == ({**SETTINGS, "stop": [1, 2]}, [response(0, 0)])


def test_other_settings_are_refused_with_the_difference(path: Path) -> None:
    Responses(path, SETTINGS).append(all_of(1))
    problem = refused(path, {**SETTINGS, "temperature": 0.6, "seed": 1})
    assert problem.what == "the output folder holds responses that were made under other settings"
    assert problem.where == str(path)
    assert problem.why == "seed: nothing there, 1 now; temperature: 1.0 there, 0.6 now"
    shorter = {name: SETTINGS[name] for name in ("model", "set", "stop")}
    assert refused(path, shorter).why == "temperature: 1.0 there, nothing now"
    Responses(path, dict(reversed(SETTINGS.items())))  # their order is none


@pytest.mark.parametrize("text", ["no JSON\n", "{}\n", "[1]\n", "no line", '{"id": "0"}\n'])
def test_somebody_else_s_file_is_left_alone(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    assert refused(path).where == (f"{path}:1")


def test_a_file_of_another_version_is_refused(path: Path) -> None:
    Responses(path, SETTINGS)
    path.write_text(
        path.read_text().replace('"beam-slurm-responses": 1', '"beam-slurm-responses": 2')
    )
    assert "first line is not" in refused(path).why


DAMAGE = {
    "a line within": (b'{"id": "0", "sam\n', "Unterminated"),
    "no object": (b"3\n", "no JSON object"),
    "no bytes of text": (b"\xff\n", "codec"),
    "a field missing": (b'{"id": "1"}\n', "it has no sample of type int"),
    "true for a number": (
        json.dumps({**vars(response(1, 0)), "sample": True}).encode() + b"\n",
        "it has no sample of type int",
    ),
    "twice": (json.dumps(vars(response(0, 0))).encode() + b"\n", "response 0 to 0 is there twice"),
}


@pytest.mark.parametrize(("line", "why"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_told_with_its_line(path: Path, line: bytes, why: str) -> None:
    Responses(path, SETTINGS).append([response(0, 0)])
    path.write_bytes(path.read_bytes() + line)
    problem = refused(path)
    assert (problem.what, problem.where) == ("the responses are damaged", f"{path}:3")
    assert why in problem.why


def test_what_a_later_version_adds_is_passed_over(path: Path) -> None:
    Responses(path, SETTINGS)
    line = json.dumps({**vars(response(0, 0)), "seconds": 3.5})
    path.write_text(path.read_text() + line + "\n")
    assert read(path)[1] == [response(0, 0)]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Problem, match="cannot be kept"):
        Responses(tmp_path / "file" / "responses.jsonl", SETTINGS)
    with pytest.raises(Problem, match="cannot be read"):
        read(tmp_path / "none.jsonl")


def test_truncation_and_wrong_answers_survive(path: Path) -> None:
    cut = replace(response(0, 0), truncated=True, finish="length", right=False, answer="")
    Responses(path, SETTINGS).append([cut])
    assert read(path)[1] == [cut]
