"""Problems in the shapes in which they are published, and what is refused of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from beam_slurm.after import problems
from beam_slurm.after.errors import Problem
from beam_slurm.after.problems import INSTRUCTION, Question, known, read

DAPO = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    'What is $1+1$?\n\nRemember to put your answer on its own line after "Answer:".'
)
DAPO_BOXED = DAPO.replace("$Answer (without quotes)", r"\boxed{$Answer}")
BEFORE, AFTER = DAPO.split("What is $1+1$?")
ASKED = f"What is $1+1$?\n\n{INSTRUCTION}"


def message(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def jsonl(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path: Path, *rows: dict[str, Any]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    return path


def refused(path: Path, **how: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        read(path, **how)
    return caught.value


SHAPES = {
    "opencompass": {"question": "What is $1+1$?", "answer": "2"},
    "matharena": {"problem_idx": 1, "problem": "What is $1+1$?", "answer": 2},
    "dapo": {
        "data_source": "math_dapo",
        "prompt": message(DAPO),
        "ability": "MATH",
        "reward_model": {"ground_truth": "2", "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"},
    },
    "skyrl": {
        "prompt": message(DAPO),
        "env_class": "aime",
        "reward_spec": {"method": "rule", "ground_truth": "2"},
    },
    "miles": {"prompt": message(DAPO_BOXED), "label": "2"},
    "miles, as text": {"prompt": "What is $1+1$?", "label": "2"},
}


@pytest.mark.parametrize("row", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("write", [jsonl, table])
def test_every_shape_asks_the_same_question(
    tmp_path: Path, row: dict[str, Any], write: Any
) -> None:
    path = write(tmp_path / f"set.{'parquet' if write is table else 'jsonl'}", row)
    (question,) = read(path)
    assert (question.prompt, question.answer) == (ASKED, "2")


def test_ids_are_the_set_s_own_or_say_the_line(tmp_path: Path) -> None:
    rows = [
        {"id": "2025-I-1", "question": "a", "answer": 1},
        {"problem_id": 60, "question": "b", "answer": 2},
        {"index": 0, "question": "c", "answer": 3.0},
        {"extra_info": {"index": "u"}, "question": "d", "answer": "033"},
        {"question": "e", "answer": r"336^\circ"},
    ]
    found = read(jsonl(tmp_path / "own.jsonl", *rows))
    assert [question.id for question in found] == ["2025-I-1", "60", "0", "u", "own:5"]
    assert [question.answer for question in found] == ["1", "2", "3", "033", r"336^\circ"]


def test_a_question_that_asks_for_a_box_stays_as_it_is(tmp_path: Path) -> None:
    own = r"What is $1+1$? Give it as \boxed{n}."
    assert read(jsonl(tmp_path / "a.jsonl", {"question": own, "answer": "2"})) == [
        Question("a:1", own, "2")
    ]


def test_empty_lines_count_for_the_place_and_are_no_problems(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"question": "q", "answer": "1"}\n\n{"question": "r"}\n')
    assert refused(path).where == f"{path}:4"


BAD = {
    "no answer": ({"question": "q"}, "the problem has no answer"),
    "null answer": ({"question": "q", "answer": None}, "the problem has no answer"),
    "empty answer": ({"question": "q", "answer": " "}, "the answer is empty"),
    "a list of answers": ({"question": "q", "answer": ["1"]}, "neither text nor a number"),
    "true": ({"question": "q", "answer": True}, "neither text nor a number"),
    "nan, as of an empty cell": (
        {"question": "q", "answer": float("nan")},
        "neither text nor a number",
    ),
    "no ground truth": ({"prompt": "q", "reward_model": {"style": "r"}}, "has no answer"),
    "no question": ({"answer": "1"}, "the problem has no question"),
    "empty question": ({"question": " ", "answer": "1"}, "the question is empty"),
    "only the words around it": (
        {"question": DAPO.replace("What is $1+1$?", ""), "answer": "1"},
        "the question is empty",
    ),
    "a talk": (
        {"prompt": [*message("q"), *message("r")], "answer": "1"},
        "neither a text nor one message of a user",
    ),
    "a system's message": (
        {"prompt": [{"role": "system", "content": "q"}], "answer": "1"},
        "neither a text nor one message of a user",
    ),
    "a list": (["q", "1"], "no JSON object"),
}


@pytest.mark.parametrize(("row", "what"), BAD.values(), ids=BAD.keys())
def test_a_bad_problem_is_told_with_its_line(tmp_path: Path, row: object, what: str) -> None:
    good = {"question": "fine", "answer": "1"}
    problem = refused(jsonl(tmp_path / "a.jsonl", good, row))
    assert what in problem.what
    assert problem.where == f"{tmp_path}/a.jsonl:2"
    assert problem.do


def test_a_problem_without_an_answer_names_its_fields(tmp_path: Path) -> None:
    problem = refused(jsonl(tmp_path / "a.jsonl", {"question": "q", "solution": "1"}))
    assert problem.why.startswith("it has question, solution; looked for answer, label")


def test_duplicates_are_refused_with_both_places(tmp_path: Path) -> None:
    rows = [{"id": n, "question": f"q{n}", "answer": "1"} for n in range(3)]
    path = jsonl(tmp_path / "a.jsonl", *rows, {"id": "1", "question": "other", "answer": "1"})
    problem = refused(path)
    assert problem.what == "two problems have the same id"
    assert (problem.where, problem.why) == (f"{path}:4", f"{path}:2 has it too: 1")
    jsonl(path, *rows, {"id": 7, "question": " q0\n", "answer": "1"})
    problem = refused(path)
    assert problem.what == "two problems have the same question"
    assert problem.why == f"{path}:1 has it too"


def test_a_question_in_two_wordings_is_the_same(tmp_path: Path) -> None:
    rows = [{"prompt": message(text), "label": "2"} for text in (DAPO, DAPO_BOXED)]
    assert "same question" in refused(jsonl(tmp_path / "a.jsonl", *rows)).what


def test_what_is_no_set_of_problems(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.jsonl").what == "the problems are not there"
    (tmp_path / "empty.jsonl").touch()
    assert refused(tmp_path / "empty.jsonl").what == "there are no problems in it"
    (tmp_path / "a.csv").write_text("question,answer\n")
    assert "end in .jsonl or .parquet" in refused(tmp_path / "a.csv").why
    (tmp_path / "folder").mkdir()
    assert "no problems that can be read" in refused(tmp_path / "folder").what
    (tmp_path / "torn.jsonl").write_text('{"question": "q", "answer": "1"}\n{"question"')
    assert refused(tmp_path / "torn.jsonl").where == f"{tmp_path}/torn.jsonl:2"
    (tmp_path / "bytes.jsonl").write_bytes(b'{"question": "\xff"}\n')
    assert refused(tmp_path / "bytes.jsonl").what == "this line is no JSON"
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    assert refused(tmp_path / "deep.jsonl").what == "this line is no JSON"
    (tmp_path / "link.jsonl").mkdir()
    assert refused(tmp_path / "link.jsonl").where == f"{tmp_path}/link.jsonl"


@pytest.mark.parametrize(
    ("name", "content", "do"),
    [
        ("none.jsonl", None, "that is there"),
        ("empty.jsonl", b"", "give one problem a line"),
        ("torn.jsonl", b'{"question"', "give one problem a line"),
        ("a.csv", b"question,answer", "write them as JSONL"),
        ("bad.parquet", b"PAR1", "look at the file"),
    ],
)
def test_a_bad_file_of_problems_has_a_remedy(
    tmp_path: Path, name: str, content: bytes | None, do: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert do in refused(tmp_path / name).do


def test_a_damaged_parquet_file_is_told(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", {"question": "q", "answer": "1"})
    path.write_bytes(path.read_bytes()[:-20])
    assert refused(path).what == "the problems cannot be read"
    rows = [{"question": "q", "answer": "1"}, {"question": "r", "answer": None}]
    assert refused(table(path, *rows)).where == f"{path}:2"


def test_parquet_without_pyarrow_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path / "a.parquet", {"question": "q", "answer": "1"})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'beam-slurm[evaluate]'" in refused(path).do


def test_nothing_heavy_is_imported_for_jsonl() -> None:
    code = (
        "import sys; from beam_slurm.after import answers, problems, responses, scores;"
        "print({'pyarrow', 'math_verify', 'sympy'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"


def aime(first: int, last: int) -> list[dict[str, str]]:
    return [{"question": f"q{n}", "answer": str(n)} for n in range(first, last)]


def cache(home: Path, halves: int = 2) -> Path:
    """NeMo RL's HF_HOME with AIME2025, as the hub has it: two files, each with half."""
    hub = home / problems.SNAPSHOT
    snapshot = hub / "snapshots" / "a6ad95f6"
    jsonl(snapshot / "aime2025-I.jsonl", *aime(0, 15))
    if halves == 2:
        jsonl(snapshot / "aime2025-II.jsonl", *aime(15, 30))
    (snapshot / "README.md").write_text("AIME 2025")
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("a6ad95f6")
    return snapshot


def test_aime2025_is_found_wherever_a_framework_keeps_it(tmp_path: Path) -> None:
    nemo_rl, skyrl, miles = (tmp_path / name for name in ("nemo-rl", "skyrl", "miles"))
    assert cache(nemo_rl) == known("aime2025", nemo_rl)
    skyrl.mkdir()
    rows = [{"prompt": message(row["question"]), "label": row["answer"]} for row in aime(0, 30)]
    table(skyrl / "aime-2025-cleaned.parquet", *rows)
    jsonl(miles / "aime-2025" / "aime-2025.jsonl", *rows)
    sets = [read(known("aime2025", home), name="aime2025") for home in (nemo_rl, skyrl, miles)]
    assert {len(questions) for questions in sets} == {30}
    asked = [[(question.prompt, question.answer) for question in found] for found in sets]
    assert asked[0] == asked[1] == asked[2]
    assert [question.id for question in sets[0][14:16]] == ["aime2025-I:15", "aime2025-II:1"]


def test_half_of_aime2025_is_not_scored_as_the_whole(tmp_path: Path) -> None:
    cache(tmp_path, halves=1)
    path = known("aime2025", tmp_path)
    assert refused(path, name="aime2025").why == "it has 15 problems; aime2025 has 30"
    assert len(read(path)) == 15


def test_a_set_that_is_not_known_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="there is no set aime1899") as caught:
        problems.refuse_unknown("aime1899")
    assert caught.value.why == "the known ones are: aime2025"
    assert "--data FILE" in caught.value.do
    with pytest.raises(Problem, match="the problems of aime2025 are not there") as caught:
        known("aime2025", tmp_path)
    assert caught.value.where == str(tmp_path)
    assert "aime-2025-cleaned.parquet" in caught.value.why
    # A cache without a snapshot: a download that was broken off.
    (tmp_path / problems.SNAPSHOT / "snapshots").mkdir(parents=True)
    with pytest.raises(Problem, match="are not there"):
        known("aime2025", tmp_path)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_written_down_for_a_job_is_read_as_the_same(tmp_path: Path, shape: str) -> None:
    questions = read(jsonl(tmp_path / "set.jsonl", SHAPES[shape]))
    (tmp_path / "problems.jsonl").write_bytes(problems.written(questions))
    again = read(tmp_path / "problems.jsonl")
    assert again == questions
    assert problems.digest(again) == problems.digest(questions)


@given(
    pieces=st.lists(
        st.sampled_from([BEFORE, AFTER, INSTRUCTION, r"\boxed{", "\n", " ", "x", "\ud800", "é"])
    ),
    answer=st.text(min_size=1),
)
def test_any_question_comes_through(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], answer: str
) -> None:
    """However often it is wrapped, and whatever stands in it."""
    folder = tmp_path_factory.getbasetemp()
    row = {"question": "q".join(pieces) + "?", "answer": f"0{answer}", "id": answer}
    questions = read(jsonl(folder / "any.jsonl", row))
    (folder / "written.jsonl").write_bytes(problems.written(questions))
    assert read(folder / "written.jsonl") == questions


def test_the_digest_is_another_for_every_change() -> None:
    sets = [
        [Question("1", "q", "2")],
        [Question("7", "q", "2")],
        [Question("1", "r", "2")],
        [Question("1", "q", "3")],
        [],
    ]
    assert len({problems.digest(questions) for questions in sets}) == len(sets)
    assert problems.digest(sets[0]) == problems.digest(list(sets[0]))


def test_the_wording_is_the_same_whatever_ids_and_order() -> None:
    first, second = Question("1", "q  r", "2"), Question("2", "s", "3")
    ours = problems.wording([first, second])
    assert problems.wording([Question("x", "s", "3"), Question("y", "q\nr", "2")]) == ours
    for other in (Question("2", "s", "4"), Question("2", "S", "3"), Question("2", "q r", "3")):
        assert problems.wording([first, other]) != ours
