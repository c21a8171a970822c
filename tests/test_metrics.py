"""The metric records, their history, and the demo's reader on files as runs leave them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from folders import evaluate, train

from beam_slurm import metrics
from beam_slurm.metrics.demo import LONGEST, DemoReader, parse
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Step
from beam_slurm.runs import Run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def write(path: Path, *records: object, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("\n".join(json.dumps(record) for record in records) + end)


def steps(reader: DemoReader) -> list[int]:
    return [step.step for step in reader.history.steps]


def test_reader_belongs_to_the_framework(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record(framework="demo", nodes=2, gpus_per_node=8)
    found = metrics.reader(run)
    assert isinstance(found, DemoReader)
    assert (found.path, found.gpus) == (tmp_path / "output/metrics.jsonl", 16)
    run.record(framework="nemo-rl", output="/shared/out/run-1")
    assert metrics.reader(run) is None
    said = metrics.not_read(run)
    assert "nemo-rl runs are not read yet" in said
    assert "/shared/out/run-1" in said


def test_every_field_arrives(path: Path) -> None:
    write(path, train(1), evaluate(1, 0.25), {"type": "checkpoint", "step": 1, "path": "/c"})
    reader = DemoReader(path, gpus=8)
    assert reader.read()
    (step,) = reader.history.steps
    for name, value in train(1).items():
        if name not in ("type", "tokens_per_second"):
            assert getattr(step, name) == value
    assert step.tokens_per_second_per_gpu == train(1)["tokens_per_second"] / 8
    assert reader.history.evaluation == Evaluation(
        1, "held-out", evaluate(1, 0)["time"], 0.25, 20, 80, 7.0
    )
    assert reader.history.checkpoints == [Checkpoint(1, None, "/c")]


def test_no_file_yet(path: Path) -> None:
    reader = DemoReader(path)
    assert not reader.read()
    assert not reader.history
    assert reader.history.last is None
    write(path, train(1))
    assert reader.read()
    assert not reader.read()


def test_follows_a_growing_file_and_half_a_line(path: Path) -> None:
    reader = DemoReader(path)
    write(path, train(1), train(2), end="")
    reader.read()
    assert steps(reader) == [1]
    line = json.dumps(train(3))
    path.open("a").write("\n" + line[:20])
    reader.read()
    assert steps(reader) == [1, 2]
    path.open("a").write(line[20:] + "\n")
    reader.read()
    assert steps(reader) == [1, 2, 3]


def test_killed_inside_a_line_then_resumed(path: Path) -> None:
    path.write_text(json.dumps(train(1)) + "\n" + json.dumps(train(2))[:30])
    write(path, train(2, reward=0.5))
    reader = DemoReader(path)
    reader.read()
    assert steps(reader) == [1, 2]
    assert reader.history.steps[-1].reward == 0.5


def test_a_resume_takes_back_what_followed_its_checkpoint(path: Path) -> None:
    write(path, *(train(step, reward=0.0) for step in range(1, 36)), evaluate(30, 0.1))
    write(path, train(21, reward=1.0))
    reader = DemoReader(path)
    reader.read()
    assert steps(reader) == list(range(1, 22))
    assert reader.history.last is not None
    assert reader.history.last.reward == 1.0
    assert reader.history.evaluations == []


def test_the_last_of_two_equal_steps_wins(path: Path) -> None:
    write(path, train(1, reward=0.1), train(1, reward=0.2), evaluate(1, 0.3), evaluate(1, 0.4))
    reader = DemoReader(path)
    reader.read()
    assert [step.reward for step in reader.history.steps] == [0.2]
    assert [found.accuracy for found in reader.history.evaluations] == [0.4]


def test_nan_and_inf_are_news(path: Path) -> None:
    path.write_text(
        '{"type":"train","step":1,"loss":NaN,"kl":Infinity,"reward":-Infinity,"grad_norm":'
        + "9" * 400
        + "}\n"
    )
    reader = DemoReader(path)
    reader.read()
    (step,) = reader.history.steps
    assert step.loss is not None
    assert math.isnan(step.loss)
    assert (step.kl, step.reward, step.grad_norm) == (math.inf, -math.inf, math.inf)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"\x00\x00\x00\n",
        b"\xff\xfe\n",
        b"[1, 2]\n",
        b"null\n",
        b'{"type":"train"}\n',
        b'{"type":"train","step":-1}\n',
        b'{"type":"train","step":1.5}\n',
        b'{"type":"train","step":true}\n',
        b'{"type":"other","step":1}\n',
        b"[" * 5000 + b"\n",
    ],
)
def test_what_is_no_record_is_passed_over(line: bytes) -> None:
    assert parse(line) is None


def test_wrong_types_are_unknown_values() -> None:
    assert parse(b'{"type":"train","step":3.0,"steps":"80","reward":true,"kl":null}') == Step(3)


def test_a_line_without_end_costs_no_memory_and_hides_nothing(path: Path) -> None:
    path.write_bytes(b"x" * (3 * LONGEST + 7) + b"\n")
    write(path, train(1))
    reader = DemoReader(path)
    reader.read()
    assert steps(reader) == [1]


def test_a_replaced_file_starts_over(path: Path, tmp_path: Path) -> None:
    write(path, train(1), train(2))
    reader = DemoReader(path)
    reader.read()
    other = tmp_path / "other"
    write(other, train(7), train(8), train(9))
    other.rename(path)
    reader.read()
    assert steps(reader) == [7, 8, 9]
    path.write_text(json.dumps(train(1)) + "\n")
    reader.read()
    assert steps(reader) == [1]


@pytest.mark.parametrize(
    ("accuracy", "responses", "low", "high"),
    # Wilson's interval as in Newcombe 1998, table I (81/263, 15/148, 0/20, 1/29).
    [
        (81 / 263, 263, 0.2553, 0.3662),
        (15 / 148, 148, 0.0624, 0.1605),
        (0.0, 20, 0.0, 0.1611),
        (1 / 29, 29, 0.0061, 0.1718),
    ],
)
def test_interval(accuracy: float, responses: int, low: float, high: float) -> None:
    found = Evaluation(1, "set", accuracy=accuracy, responses=responses).interval()
    assert found == pytest.approx((low, high), abs=5e-5)


def test_no_interval_without_numbers() -> None:
    assert Evaluation(1, "set", accuracy=0.5).interval() is None
    assert Evaluation(1, "set", accuracy=math.nan, responses=8).interval() is None
    assert Evaluation(1, "set", accuracy=1.0, problems=30).interval() == pytest.approx(
        (0.8865, 1.0), abs=5e-5
    )
