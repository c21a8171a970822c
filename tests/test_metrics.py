"""The metric records, their history, the lines of a file that grows, and the demo's own."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from folders import evaluate, train

from beam_slurm import metrics
from beam_slurm.metrics import History, lines
from beam_slurm.metrics.demo import DemoParser, record
from beam_slurm.metrics.lines import CHUNK, LONGEST, Lines
from beam_slurm.metrics.schema import Checkpoint, Evaluation, Resumed, Step
from beam_slurm.metrics.source import Source
from beam_slurm.runs import Run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def write(path: Path, *records: object, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("\n".join(json.dumps(record) for record in records) + end)


def demo(path: Path, gpus: int = 0) -> Source:
    return Source(lambda: [path], lambda: DemoParser(gpus))


def steps(reader: Source) -> list[int]:
    return [step.step for step in reader.history.steps]


def test_a_reader_for_each_framework(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for framework in ("demo", "nemo-rl", "skyrl", "miles"):
        run.record(framework=framework, nodes=2, gpus_per_node=8)
        reader = metrics.reader(run)
        assert reader is not None
        assert not reader.read()
        assert not reader.history
    run.record(framework="other", output="/shared/out/run-1")
    assert metrics.reader(run) is None
    said = metrics.not_read(run)
    assert "reads no metrics of other runs" in said
    assert "/shared/out/run-1" in said


def test_the_demo_of_a_run_knows_its_gpus(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record(framework="demo", nodes=2, gpus_per_node=8)
    (tmp_path / "output").mkdir()
    write(tmp_path / "output" / "metrics.jsonl", train(1))
    reader = metrics.reader(run)
    assert reader is not None
    assert reader.read()
    assert reader.history.steps[0].tokens_per_second_per_gpu == 3000 / 16


def test_every_field_arrives(path: Path) -> None:
    write(path, train(1), evaluate(1, 0.25), {"type": "checkpoint", "step": 1, "path": "/c"})
    reader = demo(path, gpus=8)
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
    reader = demo(path)
    assert not reader.read()
    assert not reader.history
    assert reader.history.last is None
    write(path, train(1))
    assert reader.read()
    assert not reader.read()


def test_follows_a_growing_file_and_half_a_line(path: Path) -> None:
    reader = demo(path)
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
    reader = demo(path)
    reader.read()
    assert steps(reader) == [1, 2]
    assert reader.history.steps[-1].reward == 0.5


def test_a_resume_takes_back_what_followed_its_checkpoint(path: Path) -> None:
    write(path, *(train(step, reward=0.0) for step in range(1, 36)), evaluate(30, 0.1))
    write(path, train(21, reward=1.0))
    reader = demo(path)
    reader.read()
    assert steps(reader) == list(range(1, 22))
    assert reader.history.last is not None
    assert reader.history.last.reward == 1.0
    assert reader.history.evaluations == []


def test_the_last_of_two_equal_steps_wins(path: Path) -> None:
    write(path, train(1, reward=0.1), train(1, reward=0.2), evaluate(1, 0.3), evaluate(1, 0.4))
    reader = demo(path)
    reader.read()
    assert [step.reward for step in reader.history.steps] == [0.2]
    assert [found.accuracy for found in reader.history.evaluations] == [0.4]


def test_nan_and_inf_are_news(path: Path) -> None:
    path.write_text(
        '{"type":"train","step":1,"loss":NaN,"kl":Infinity,"reward":-Infinity,"grad_norm":'
        + "9" * 400
        + "}\n"
    )
    reader = demo(path)
    reader.read()
    (step,) = reader.history.steps
    assert step.loss is not None
    assert math.isnan(step.loss)
    assert (step.kl, step.reward, step.grad_norm) == (math.inf, -math.inf, math.inf)


@pytest.mark.parametrize("value", [1e308, -1e308, 1e101, pytest.param(10**400, id="integer")])
def test_what_is_too_large_to_calculate_with_is_inf(path: Path, value: float) -> None:
    write(path, train(1, reward=value, time=value), train(2, reward=1e99), evaluate(1, value))
    reader = demo(path)
    reader.read()
    inf = math.inf if value > 0 else -math.inf
    first, second = reader.history.steps
    assert (first.step, first.reward, first.time) == (1, inf, inf)
    assert second.reward == 1e99
    assert reader.history.evaluations[0].accuracy == inf


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
        b'{"type":"train","step":1e12}\n',
        b'{"type":"train","step":1' + b"0" * 5000 + b"}\n",
        b'{"type":"train","step":true}\n',
        b'{"type":"other","step":1}\n',
        b"[" * 5000 + b"\n",
    ],
)
def test_what_is_no_record_is_passed_over(line: bytes) -> None:
    assert record(line) is None


def test_wrong_types_are_unknown_values() -> None:
    assert record(b'{"type":"train","step":3.0,"steps":"80","reward":true,"kl":null}') == Step(3)


def test_a_line_without_end_costs_no_memory_and_hides_nothing(path: Path) -> None:
    path.write_bytes(b"x" * (3 * LONGEST + 7) + b"\n")
    write(path, train(1))
    reader = demo(path)
    reader.read()
    assert steps(reader) == [1]


def test_an_evaluation_that_is_redone(path: Path) -> None:
    write(path, train(20), train(21), evaluate(21, 0.1), train(22))
    reader = demo(path)
    reader.read()
    write(path, train(21))
    reader.read()
    assert steps(reader) == [20, 21]
    assert reader.history.evaluations == []
    write(path, evaluate(21, 0.2))
    reader.read()
    assert [found.accuracy for found in reader.history.evaluations] == [0.2]


def test_a_replaced_file_starts_over(path: Path, tmp_path: Path) -> None:
    write(path, train(1), train(2))
    reader = demo(path)
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


# --- the history --------------------------------------------------------------------------------


def test_values_of_a_step_come_one_after_the_other() -> None:
    history = History()
    history.add(Step(1, 9, reward=0.5, loss=math.nan))
    history.add(Step(1, loss=0.25, kl=0.125))
    history.add(Evaluation(1, "a", accuracy=0.5))
    history.add(Evaluation(1, "a", responses=240))
    history.add(Checkpoint(1))
    history.add(Checkpoint(1, path="/c"))
    assert history.steps == [Step(1, 9, reward=0.5, loss=0.25, kl=0.125)]
    assert history.evaluations == [Evaluation(1, "a", accuracy=0.5, responses=240)]
    assert history.checkpoints == [Checkpoint(1, path="/c")]


def test_a_resume_forgets_what_followed() -> None:
    history = History()
    for step in range(1, 25):
        history.add(Step(step, reward=0.1))
        history.add(Evaluation(step, "a"))
        history.add(Checkpoint(step))
    history.add(Resumed(20))
    for records in (history.steps, history.evaluations, history.checkpoints):
        assert [record.step for record in records] == list(range(1, 21))
    history.add(Step(21, loss=0.5))
    assert history.last == Step(21, loss=0.5)
    history.add(Resumed(0))
    assert not history


def test_another_source_adds_values_but_no_steps() -> None:
    one, other = History(), History()
    one.add(Step(1, reward=0.5, loss=1.0))
    one.add(Evaluation(0, "a", accuracy=0.5))
    other.add(Step(1, time=7.0, loss=2.0))
    other.add(Step(2, loss=3.0))
    other.add(Evaluation(0, "a", response_length=9.0))
    other.add(Evaluation(5, "a", accuracy=1.0))
    found = one.refined(other)
    assert found.steps == [Step(1, None, 7.0, reward=0.5, loss=2.0)]
    assert found.evaluations == [Evaluation(0, "a", accuracy=0.5, response_length=9.0)]
    assert one.steps == [Step(1, reward=0.5, loss=1.0)]


# --- lines of a file that grows -----------------------------------------------------------------


def test_lines_end_at_newlines_and_carriage_returns(path: Path) -> None:
    path.write_bytes(b"no\nx 1\rno\rx 2\r\nno x\nx 3")
    found = Lines(path, (b"x ", b"x\n"))
    assert list(found.read()) == [b"x 1", b"x 2"]
    path.open("ab").write(b"4\n")
    assert list(found.read()) == [b"x 34"]
    assert list(found.read()) == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, CHUNK])
def test_lines_do_not_depend_on_chunks(
    path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"aa x bb y\n\n\rnone\nyx\ryy xx yy\nxy\nend x")
    monkeypatch.setattr(lines, "CHUNK", size)
    monkeypatch.setattr(lines, "LONGEST", 6)
    assert list(Lines(path, (b"x", b"yy")).read()) == [b"aa x b", b"yx", b"yy xx ", b"xy"]


def test_a_word_too_far_out_is_not_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"no\n" + b"." * LONGEST + b" word\nword\n")
    for size in (CHUNK, 1000):
        monkeypatch.setattr(lines, "CHUNK", size)
        assert list(Lines(path, (b"word",)).read()) == [b"word"]


def filled(path: Path, size: int) -> Path:
    """A file of about ``size`` bytes with a record in the middle of lines that say nothing."""
    noise = b"(Worker pid=7) nothing of interest in this line\n" * 20_000
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(noise + json.dumps(train(1 + file.tell() // len(noise))).encode() + b"\n")
    return path


def endless(path: Path, size: int) -> Path:
    """A file of one line, and a record at its end."""
    with path.open("wb") as file:
        for _ in range(size // 1_000_000):
            file.write(b'"type" x ' * 100_000)
        file.write(b"\n" + json.dumps(train(1)).encode() + b"\n")
    return path


@pytest.mark.parametrize("make", [filled, endless])
def test_memory_is_bounded(path: Path, make: Callable[[Path, int], Path]) -> None:
    reader = demo(make(path, 50_000_000))
    tracemalloc.start()
    try:
        assert reader.read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * CHUNK
    assert steps(reader)[0] == 1
    assert len(steps(reader)) == (1 if make is endless else 53)
