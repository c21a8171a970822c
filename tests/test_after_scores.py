"""Scores against brute force and by hand, and their intervals on data whose truth is known."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from statistics import fmean

import pytest

from beam_slurm.after.responses import Response
from beam_slurm.after.scores import (
    CONFIDENCE,
    Estimate,
    Scores,
    chance,
    majority,
    mean,
    proportion,
    score,
    student,
)


def response(answer: str, right: bool = False, tokens: int = 10, cut: bool = False) -> Response:
    return Response("0", 0, "", tokens, cut, "length" if cut else "stop", right, answer)


def problem(*answers: str, gold: str = "7") -> list[Response]:
    return [response(answer, answer == gold) for answer in answers]


@pytest.mark.parametrize("n", range(1, 9))
def test_pass_at_j_is_the_share_of_all_choices_with_a_right_one(n: int) -> None:
    for right, j in itertools.product(range(n + 1), range(1, n + 1)):
        choices = list(itertools.combinations([True] * right + [False] * (n - right), j))
        assert chance(n, right, j) == pytest.approx(fmean(any(choice) for choice in choices))


def test_pass_at_j_has_no_bias() -> None:
    """From eight responses of a problem solved with chance p: on average 1 - (1-p)^j."""
    draw = random.Random(1)  # noqa: S311
    p = 0.3
    for j in (1, 2, 4, 8):
        drawn = [chance(8, sum(draw.random() < p for _ in range(8)), j) for _ in range(20_000)]
        assert fmean(drawn) == pytest.approx(1 - (1 - p) ** j, abs=0.01)


MAJORITIES = {
    "all right": (problem("7", "7"), 1),
    "most right": (problem("7", "7", "3"), 1),
    "most wrong": (problem("7", "3", "3"), 0),
    "most differ in their wrongness": (problem("7", "7", "1", "2", "3"), 1),
    "a tie": (problem("7", "3"), 0.5),
    "a tie of three": (problem("7", "3", "4"), 1 / 3),
    "a tie of wrong ones": (problem("3", "4"), 0),
    "no answer has no vote": (problem("", "", "", "7"), 1),
    "none at all": (problem("", ""), 0),
    "right in two spellings": (
        [response("007", True), response("7.0", True), response("3"), response("4")],
        1,
    ),
}


@pytest.mark.parametrize(("responses", "wanted"), MAJORITIES.values(), ids=MAJORITIES.keys())
def test_the_most_frequent_answer(responses: list[Response], wanted: float) -> None:
    assert majority(responses) == pytest.approx(wanted)


def test_scores_of_three_problems_by_hand() -> None:
    found = score(
        [
            problem("7", "7", "7", "3"),
            problem("7", "3", "3", "3"),
            [response("", tokens=40, cut=True) for _ in range(4)],
        ]
    )
    assert (found.problems, found.samples) == (3, 4)
    assert found.average.value == pytest.approx((3 + 1 + 0) / 12)
    assert found.passes[1].value == pytest.approx(found.average.value)
    assert found.passes[2].value == pytest.approx((1 + 0.5 + 0) / 3)
    assert found.passes[4].value == pytest.approx(2 / 3)
    assert found.majority.value == pytest.approx(1 / 3)
    assert found.tokens.value == pytest.approx(20)
    assert found.truncated.value == pytest.approx(1 / 3)


def test_the_names_in_a_file() -> None:
    found = score([problem("7", "3")] * 3).as_dict()
    assert list(found) == [
        "problems",
        "samples",
        "avg@2",
        "pass@1",
        "pass@2",
        "maj@2",
        "tokens",
        "truncated",
    ]
    assert json.loads(json.dumps(found)) == found
    assert found["avg@2"].keys() == {"value", "low", "high"}


def test_the_order_of_problems_and_responses_does_not_matter() -> None:
    draw = random.Random(2)  # noqa: S311
    found = [problem(*(draw.choice(["7", "3", ""]) for _ in range(8))) for _ in range(10)]
    shuffled = [draw.sample(responses, 8) for responses in draw.sample(found, 10)]

    def rounded(scores: Scores) -> str:
        return json.dumps(json.loads(json.dumps(scores.as_dict()), parse_float=lambda x: x[:12]))

    assert rounded(score(found)) == rounded(score(shuffled))


@pytest.mark.parametrize("bad", [[], [[]], [problem("7"), problem("7", "7")]])
def test_an_evaluation_that_is_not_complete_has_no_scores(bad: list[list[Response]]) -> None:
    with pytest.raises(ValueError, match="as many responses"):
        score(bad)


def test_the_quantile_of_student_s_t() -> None:
    """From any table: 95 %, two-sided."""
    table = {2: 4.303, 3: 3.182, 5: 2.571, 10: 2.228, 29: 2.045, 1000: 1.962}
    for degrees, wanted in table.items():
        assert student(degrees) == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_all_or_none_right_still_is_not_certain(value: float) -> None:
    found = proportion([value] * 30, 8)
    assert found.value == value
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low == pytest.approx(0.122, abs=0.003)
    assert value in {found.low, found.high}


def test_more_problems_say_more_and_more_responses_to_them_less() -> None:
    def width(problems: int, samples: int) -> float:
        draw = random.Random(3)  # noqa: S311
        values = [
            fmean(draw.random() < hard for _ in range(samples))
            for hard in (draw.betavariate(0.5, 0.5) for _ in range(problems))
        ]
        found = proportion(values, samples)
        assert found.low is not None
        assert found.high is not None
        return found.high - found.low

    assert width(300, 8) < 0.45 * width(30, 8)
    assert width(30, 64) > 0.7 * width(30, 8)


def test_problems_that_all_came_out_the_same_are_not_certain_either() -> None:
    found = proportion([0.5] * 30, 8)
    assert found.low is not None
    assert 0.05 < found.value - found.low < 0.07  # as of 240 independent trials


@pytest.mark.parametrize("values", [[0.5], [0.0, 1.0]])
def test_one_or_two_problems_have_no_interval(values: list[float]) -> None:
    assert proportion(values, 8) == Estimate(0.5, None, None)
    assert mean(values) == Estimate(0.5, None, None)


def covered(draw_values: Callable[[random.Random], list[float]], truth: float, k: int) -> float:
    """How often the interval holds the truth."""
    draw = random.Random(4)  # noqa: S311
    found = (proportion(draw_values(draw), k) for _ in range(2000))
    return fmean(one.low <= truth <= one.high for one in found if one.low is not None)


@pytest.mark.parametrize(
    ("alpha", "beta"), [(0.5, 0.5), (2, 2), (4, 1), (0.3, 0.1), (0.5, 9)], ids=str
)
@pytest.mark.parametrize("problems", [30, 100])
def test_intervals_hold_the_truth_as_often_as_they_say(
    problems: int, alpha: float, beta: float
) -> None:
    """Problems of random difficulty, eight responses each, as AIME2025 is scored."""

    def values(draw: random.Random) -> list[float]:
        hard = [draw.betavariate(alpha, beta) for _ in range(problems)]
        return [sum(draw.random() < p for _ in range(8)) / 8 for p in hard]

    rate = covered(values, alpha / (alpha + beta), 8)
    assert CONFIDENCE - 0.03 < rate < CONFIDENCE + 0.03


def test_intervals_of_lengths_hold_the_truth() -> None:
    draw = random.Random(5)  # noqa: S311
    hits = []
    for _ in range(2000):
        found = mean([draw.gammavariate(4, 750) for _ in range(30)])
        assert found.low is not None
        assert found.high is not None
        hits.append(found.low <= 3000 <= found.high)
    assert CONFIDENCE - 0.03 < fmean(hits) < CONFIDENCE + 0.03
