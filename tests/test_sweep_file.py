"""Sweep files: what they say, the points that come of it, and what is refused, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from beam_slurm.errors import BeamSlurmError
from beam_slurm.sweep import file, planning, points

HEAD = "profile: demo\n"


def read(tmp_path: Path, text: str) -> file.Sweep:
    path = tmp_path / "lr.yaml"
    path.write_text(HEAD + text)
    return file.read(path)


def values(tmp_path: Path, text: str) -> list[dict[str, object]]:
    return [point.values for point in points.expand(read(tmp_path, text))]


def column(tmp_path: Path, text: str) -> list[object]:
    return [found["recipe.learning_rate"] for found in values(tmp_path, text)]


def test_a_grid_is_every_combination_once_for_each_seed(tmp_path: Path) -> None:
    text = "over:\n  recipe.learning_rate: [1e-4, 1e-3]\n  recipe.steps: [10, 20]\nseeds: [7, 8]\n"
    found = points.expand(read(tmp_path, text))
    assert [point.index for point in found] == list(range(8))
    assert [point.seed for point in found] == [7, 8] * 4
    assert found[2].values == {"recipe.learning_rate": 1e-4, "recipe.steps": 20}
    assert found[3].label == "learning_rate=0.0001, steps=20, seed=8"


@pytest.mark.parametrize(
    ("spread", "expected"),
    [
        ("{log_uniform: [1e-5, 1e-3], points: 3}", [1e-5, 1e-4, 1e-3]),
        ("{log_uniform: [1e-4, 1e-3], points: 3}", [1e-4, 3.16228e-4, 1e-3]),
        ("{uniform: [0.1, 0.9], points: 5}", [0.1, 0.3, 0.5, 0.7, 0.9]),
        ("{uniform: [0.2, 0.4], points: 1}", [0.3]),
        ("{uniform: [8, 64], points: 4}", [8, 27, 45, 64]),
        ("{log_uniform: [1, 4], points: 9}", [1, 2, 3, 4]),
    ],
)
def test_evenly_spaced_values(tmp_path: Path, spread: str, expected: list[float]) -> None:
    """Whole numbers between whole bounds, and those that coincide once."""
    found = column(tmp_path, f"over:\n  recipe.learning_rate: {spread}\n")
    assert found == expected
    assert [type(x) for x in found] == [type(x) for x in expected]


def test_random_points_are_the_same_again(tmp_path: Path) -> None:
    text = (
        "over:\n  recipe.learning_rate: {log_uniform: [1e-5, 1e-2]}\n  recipe.steps: [1, 2, 3]\n"
        "random: {points: 40, seed: %d}\n"
    )
    first = values(tmp_path, text % 1)
    assert len(first) == 40
    assert first == values(tmp_path, text % 1)
    assert first != values(tmp_path, text % 2)
    rates = sorted(found["recipe.learning_rate"] for found in first)  # type: ignore[type-var]
    assert 1e-5 <= rates[0] < 1e-4  # type: ignore[operator]
    assert 1e-3 < rates[-1] <= 1e-2  # type: ignore[operator]


def test_what_was_drawn_already_is_left_out(tmp_path: Path) -> None:
    found = values(tmp_path, "over: {recipe.steps: [1, 2]}\nrandom: {points: 50}\n")
    assert sorted(point["recipe.steps"] for point in found) == [1, 2]  # type: ignore[type-var]


def test_a_list_of_points_may_set_different_keys(tmp_path: Path) -> None:
    text = "points:\n  - {recipe.steps: 1}\n  - {recipe.learning_rate: 1e-3, recipe.steps: 2}\n"
    assert values(tmp_path, text) == [
        {"recipe.steps": 1},
        {"recipe.learning_rate": 1e-3, "recipe.steps": 2},
    ]


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ("except:\n  - {recipe.learning_rate: 1e-2}", [(1e-3, 10), (1e-3, 20)]),
        (
            "except:\n  - {recipe.learning_rate: {min: 5e-3}, recipe.steps: 20}",
            [(1e-3, 10), (1e-3, 20), (1e-2, 10)],
        ),
        ("only:\n  - {recipe.steps: [20, 30]}", [(1e-3, 20), (1e-2, 20)]),
        ("only:\n  - {recipe.learning_rate: {max: 1e-3}}", [(1e-3, 10), (1e-3, 20)]),
        (
            "only:\n  - {recipe.steps: 10}\nexcept:\n  - {recipe.learning_rate: 1e-3}",
            [(1e-2, 10)],
        ),
    ],
)
def test_filters(tmp_path: Path, filters: str, left: list[tuple[float, int]]) -> None:
    text = f"over: {{recipe.learning_rate: [1e-3, 1e-2], recipe.steps: [10, 20]}}\n{filters}\n"
    assert [tuple(found.values()) for found in values(tmp_path, text)] == left


def test_a_key_with_a_hole_is_a_word_for_the_entry(tmp_path: Path, no_site: None) -> None:
    text = (
        "set: {recipe.steps: 3}\noverrides: [--tag=x]\n"
        'over:\n  "policy.kwargs.lr={}": [1e-06, 0.123456789]\n  "+fused={}": [true, null]\n'
    )
    sweep = read(tmp_path, text)
    found = [points.words(sweep, point) for point in points.expand(sweep)]
    assert found[0] == ["--tag=x", "policy.kwargs.lr=1e-06", "+fused=true"]
    assert found[3] == ["--tag=x", "policy.kwargs.lr=0.123456789", "+fused=null"]
    planned = planning.make(sweep, "lr-1")
    assert planned[0].request.launch.entry[-3:] == tuple(found[0])
    assert planned[0].request.profile.recipe.steps == 3
    assert points.short("policy.kwargs.lr={}") == "lr"
    assert points.short("--lr={}") == "lr"


OVER = "over: {recipe.steps: [1]}\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "neither over nor points"),
        ("over: {}\n", 1, "neither over nor points"),
        ("over: {recipe.steps: [1]}\npoints:\n  - {recipe.steps: 2}\n", 3, "both over and points"),
        ("over:\n  recipe.steps: []\n", 3, "recipe.steps has no values: the grid is empty"),
        ("over:\n  recipe.steps: 5\n", 3, "a list of values, or uniform or log_uniform"),
        ("over:\n  recipe.steps:\n    - 1\n    - 2\n    - 1\n", 6, "the value 1 twice"),
        ("over:\n  recipe.steps: {uniform: [1, 5]}\n", 3, "does not say how many points"),
        ("over:\n  recipe.steps: {uniform: [5, 1], points: 2}\n", 3, "5 is not below 1"),
        ("over:\n  recipe.steps: {log_uniform: [0, 1], points: 2}\n", 3, "bounds above 0"),
        ("over:\n  recipe.steps: {uniform: [1, 2, 3], points: 2}\n", 3, "at most 2 items"),
        ("over:\n  recipe.steps:\n    unifrom: [1, 2]\n", 4, "unifrom is unknown"),
        (
            "over:\n  recipe.steps: {uniform: [1, 5], points: 2}\nrandom: {points: 3}\n",
            3,
            "has points, and random is given",
        ),
        ("over:\n  recipe steps: [1]\n", 3, "no key of a profile"),
        ('over:\n  "a={} b={}": [1]\n', 3, "one place for the value"),
        ("set:\n  recipe.steps: 3\n" + OVER, 4, "is varied, and fixed in set"),
        ("over: {recipe.seed: [1]}\nseeds: [1]\n", 2, "seeds are given"),
        (OVER + "seeds: [1, 2, 1]\n", 3, "a seed is given twice"),
        (OVER + "seeds: [a]\n", 3, "seeds[0] is 'a'"),
        (OVER + "max_paralel: 2\n", 3, "the key max_paralel is unknown"),
        (OVER + "max_parallel: 0\n", 3, "greater than 0"),
        (OVER + "objective: {metric: rewrad}\n", 3, "there is no metric 'rewrad'"),
        (OVER + "objective: {metric: entropy}\n", 3, "no direction of its own"),
        (OVER + "objective: {metric: reward, over: first}\n", 3, "objective.over is 'first'"),
        (OVER + "objective: {metric: reward, over: mean of last 1}\n", 3, "objective.over is"),
        (OVER + "early_stop: {rule: median}\n", 3, "early_stop needs an objective"),
        (OVER + "except:\n  - {recipe.stpes: 1}\n", 4, "recipe.stpes, which is not varied"),
        (OVER + "except:\n  - {recipe.steps: {below: 1}}\n", 4, "below is unknown"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    with pytest.raises(BeamSlurmError) as caught:
        read(tmp_path, text)
    assert said in caught.value.what
    assert caught.value.where == f"{tmp_path}/lr.yaml:{line}"


def test_the_nearest_key_is_offered(tmp_path: Path) -> None:
    for text, near in (
        (OVER + "max_paralel: 2\n", "max_parallel"),
        (OVER + "except: [{recipe.step: 1}]\n", "recipe.steps"),
        ("over: {recipe.steps: {unifrom: [1, 2]}}\n", "uniform"),
    ):
        with pytest.raises(BeamSlurmError) as caught:
            read(tmp_path, text)
        assert f"did you mean {near}?" in (caught.value.remedy or "")


def test_no_point_left(tmp_path: Path) -> None:
    with pytest.raises(BeamSlurmError, match="no point is left") as caught:
        points.expand(read(tmp_path, OVER + "except:\n  - {recipe.steps: 1}\n"))
    assert caught.value.where == f"{tmp_path}/lr.yaml:3"
    assert "all 1 combinations" in (caught.value.why or "")


def test_far_too_many_points_are_not_even_listed(tmp_path: Path) -> None:
    spread = "{uniform: [0.0, 1.0], points: 10000}"
    text = "over:\n" + "".join(f"  a.k{at}: {spread}\n" for at in range(5))
    with pytest.raises(BeamSlurmError, match="more than 100,000"):
        points.expand(read(tmp_path, text))


def test_a_name_that_no_job_can_have(tmp_path: Path) -> None:
    path = tmp_path / "a b.yaml"
    path.write_text(HEAD + OVER)
    with pytest.raises(BeamSlurmError, match="cannot name a sweep"):
        file.read(path)


@pytest.mark.parametrize(
    ("over", "said", "remedy"),
    [
        ("recipe.lerning_rate: [1e-3]", "the key recipe.lerning_rate is unknown", "learning_rate"),
        ("recipe.steps: [10, -1]", "point 1 (steps=-1): recipe.steps is -1", ""),
        ("recipe.sampling.temperature: [0.5]", "cannot be changed for demo", "train.py --help"),
        ("recipe.new.key: [1]", "the key recipe.new is unknown", "recipe takes"),
        ("recipe: [1]", "recipe is 1: it is no single value", "recipe.learning_rate"),
    ],
)
def test_a_value_that_the_profile_refuses(
    tmp_path: Path, no_site: None, over: str, said: str, remedy: str
) -> None:
    with pytest.raises(BeamSlurmError) as caught:
        planning.make(read(tmp_path, f"over:\n  {over}\n"), "lr-1")
    assert said in caught.value.what
    assert caught.value.where == f"{tmp_path}/lr.yaml:3"
    assert remedy in (caught.value.remedy or "")


def test_an_unknown_profile_is_said_with_its_line(tmp_path: Path, no_site: None) -> None:
    (tmp_path / "lr.yaml").write_text("# a comment\nprofile: dmeo\n" + OVER)
    with pytest.raises(BeamSlurmError, match="'dmeo' is unknown") as caught:
        planning.make(file.read(tmp_path / "lr.yaml"), "lr-1")
    assert caught.value.where == f"{tmp_path}/lr.yaml:2"


@pytest.mark.parametrize(
    ("text", "pair", "line", "key"),
    [
        ("over:\n  recipe.learning_rate: [1e-4, 1e-3]\n", "0 and 1", 4, "recipe.learning_rate"),
        ("over:\n  recipe.steps: [1, 2]\n  recipe.seed: [3, 4]\n", "0 and 1", 5, "recipe.seed"),
        (
            'points:\n  - {"--n={}": 1}\n  - {"--n={}": 2}\n  - {"--n={}": 1, recipe.seed: 5}\n',
            "0 and 2",
            6,
            "recipe.seed",
        ),
        ('points:\n  - {"--n={}": 1}\n  - {"--n={}": 1}\n', "0 and 1", 5, "the same values"),
    ],
)
def test_no_two_points_are_the_same_run(
    tmp_path: Path, no_site: None, text: str, pair: str, line: int, key: str
) -> None:
    """An entry of one's own is told its words alone, and none of the recipe."""
    entry = "set: {framework.entry: [python, mine.py]}\n"
    with pytest.raises(BeamSlurmError) as caught:
        planning.make(read(tmp_path, entry + text), "lr-1")
    assert caught.value.what == f"points {pair} are the same run"
    assert caught.value.where == f"{tmp_path}/lr.yaml:{line}"
    assert key in (caught.value.why or "")


def test_a_profile_beside_the_sweep_file(tmp_path: Path, no_site: None) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo\nrecipe:\n  steps: 5\n")
    (tmp_path / "lr.yaml").write_text(
        "profile: ./mine.yaml\nover: {recipe.learning_rate: [1e-3]}\n"
    )
    sweep = file.read(tmp_path / "lr.yaml")
    assert planning.make(sweep, "lr-1")[0].request.profile.recipe.steps == 5
