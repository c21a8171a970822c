"""What the figure is made of: where the time went, what is published, and the panels."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import folders
import pytest
import yaml

from beam_slurm import profiles
from beam_slurm.metrics import METRICS, Checkpoint, Evaluation, History, Step
from beam_slurm.report import bars, figure, hours, look, panels, published
from beam_slurm.report.facts import Facts, gather
from beam_slurm.report.panel import Shown, shown
from beam_slurm.runs import Run
from beam_slurm.state import State

T0 = folders.T0
GPUS = 4  # 2 nodes of 2
DONE = State("succeeded")
FRAMEWORKS = ("h200-colocated", "b200-mxfp8", "miles-h200-async", "demo")


def measured(steps: int = 40, sets: tuple[str, ...] = ("aime2025",), **parts: Any) -> History:
    """A history as any framework's reader gives it."""
    history = History()
    for at in range(1, steps + 1):
        fields = {"reward": at / steps, "response_length": 3000.0 - at, "logprob_diff": 0.02}
        times = {"step_time": 100.0, "generation_time": 60.0, "training_time": 30.0}
        speed = {"tokens_per_second_per_gpu": 900.0}
        history.add(Step(at, steps, T0 + 1000 + 100 * at, **{**fields, **times, **speed, **parts}))
        for name in sets if at % 5 == 0 else ():
            history.add(Evaluation(at, name, None, 0.55, 30, 240, 2900.0))
    return history


def facts_of(root: Path, profile: str, history: History | None = None, name: str = "") -> Facts:
    """A run of a published profile, with a history put into its hands."""
    resolved = profiles.resolve(profile, use_site=False).profile
    about = {"profile": profile, "framework": resolved.framework.name}
    run = folders.make(root, name or f"{profile}-1a2b3c", **about, steps=resolved.recipe.steps)
    (run.path / "profile.yaml").write_text(yaml.safe_dump(resolved.model_dump(mode="json")))
    return replace(gather(run, DONE), history=measured() if history is None else history)


# --- hours --------------------------------------------------------------------------------------


def seconds(spent: hours.Spent) -> dict[str, float]:
    """GPU-hours as seconds of the run's GPUs, those of nothing left out."""
    return {kind: round(x * 3600 / GPUS, 1) for kind, x in spent.hours.items() if x}


def steps(run: Run, attempt: int, first: int, last: int, after: float, each: float = 10) -> None:
    """Events of the steps that an attempt did, ``after`` being when it began the first."""
    for at in range(first, last + 1):
        folders.event(run, "step", after + each * (at - first + 1), attempt, step=at)


def restarted(root: Path) -> Run:
    """Lost n2 after step 37 and went on in the same job from 20; the job's time was up after 60."""
    run = folders.make(root, created=T0 - 112, steps=80)
    folders.preflight(run, -2, seconds=10)
    folders.bring_up(run)
    steps(run, 0, 1, 37, after=100)
    last = {"steps": {"first": 1, "last": 37}, "began": T0, "ended": T0 + 500}
    folders.lost(run, "here", **last)
    folders.preflight(run, 520, 1, seconds=10)
    folders.event(run, "batch-started", 521, 1, node="n1")
    folders.event(run, "entry-started", 530, 1)
    steps(run, 1, 21, 60, after=600)
    timed = {"class": "time", "state": "failed", "began": T0 + 521, "ended": T0 + 1010}
    folders.lost(run, "chain", 1, "18", **timed, steps={"first": 21, "last": 60})
    folders.preflight(run, 2010, 2, seconds=10, n3=["gpus"])
    folders.event(run, "batch-started", 2011, 2, node="n1")
    folders.event(run, "entry-started", 2020, 2)
    steps(run, 2, 61, 80, after=2100)
    folders.event(run, "entry-ended", 2320, 2, code=0)
    done = {"began": T0 + 2011, "ended": T0 + 2330, "steps": {"first": 61, "last": 80}}
    folders.outcome(run, 2330, 2, **done)
    return run


def test_where_the_time_of_a_restarted_run_went(tmp_path: Path) -> None:
    facts = gather(restarted(tmp_path), DONE)
    first, second, third = hours.by_attempt(facts)
    # Nobody has measured the steps: a first step ends the load.
    assert (first.queue, second.queue, third.queue) == (100, 0, 990)
    assert seconds(first) == {"bring-up": 16.5, "load": 105.5, "training": 190, "lost": 200}
    assert seconds(second) == {"bring-up": 30, "load": 80, "training": 390, "lost": 10}
    # n3 of the third job is a spare for all of it.
    assert seconds(third) == {
        "bring-up": 20,
        "load": 90,
        "training": 210,
        "rest": 10,
        "spares": 165,
    }
    whole = hours.of(facts)
    assert whole.queue == 1090
    assert whole.total == pytest.approx(sum(part.total for part in (first, second, third)))


def test_the_first_step_is_no_load_where_it_is_measured(tmp_path: Path) -> None:
    run = restarted(tmp_path)
    folders.measure(run, *(folders.train(at, step_time=10.0) for at in range(1, 81)))
    first, *_ = hours.by_attempt(gather(run, DONE))
    assert seconds(first) == {"bring-up": 16.5, "load": 95.5, "training": 200, "lost": 200}


@pytest.mark.parametrize(
    ("saved", "profile", "lost"),
    [
        (20, {}, 200),  # what was saved counts
        (None, {"enabled": True, "every": 15}, 100),  # as the profile has it
        (None, {"enabled": False, "every": 15}, 390),
        (None, {}, 390),
        (None, 3, 390),  # by somebody's hand
    ],
)
def test_what_a_run_that_failed_has_lost(
    tmp_path: Path, saved: int | None, profile: Any, lost: float
) -> None:
    run = folders.make(tmp_path)
    folders.bring_up(run)
    steps(run, 0, 1, 37, after=100)
    last = {"steps": {"first": 1, "last": 37}, "ended": T0 + 500}
    folders.lost(run, None, **last)
    (run.path / "profile.yaml").write_text(json.dumps({"recipe": {"checkpoint": profile}}))
    history = History()
    if saved:
        history.add(Checkpoint(saved))
    facts = replace(gather(run, State("failed")), history=history)
    (spent,) = hours.by_attempt(facts)
    assert seconds(spent)["lost"] == lost
    assert sum(seconds(spent).values()) == 500


def test_an_attempt_that_left_nothing_ended_with_its_last_sign(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    folders.bring_up(run)
    steps(run, 0, 1, 3, after=50)
    (spent,) = hours.by_attempt(gather(run, State("failed")))
    assert sum(seconds(spent).values()) == 80


def test_bring_up_that_failed_is_bring_up(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    folders.event(run, "batch-started", 0, node="n1")
    folders.outcome(run, 60, state="failed", component="gate", exit_code=69)
    (spent,) = hours.by_attempt(gather(run, State("failed")))
    assert seconds(spent) == {"bring-up": 60}


def test_a_run_that_waits_has_spent_no_gpu(tmp_path: Path) -> None:
    run = folders.make(tmp_path, created=1.0)
    (spent,) = hours.by_attempt(gather(run, State("pending")))
    assert (spent.total, spent.queue > 1e9) == (0, True)
    assert not hours.by_attempt(gather(run, State("failed")))


# --- published ----------------------------------------------------------------------------------


def test_every_published_result_of_the_profiles_has_its_place() -> None:
    known = {*METRICS, "generation_throughput"}
    found: dict[str, list[tuple[str, str, float, float]]] = {}
    for name in profiles.names():
        recipe = profiles.resolve(name, use_site=False).profile.recipe.model_dump(mode="json")
        facts: Any = type("Facts", (), {"profile": {"recipe": recipe}})
        results = published.of(facts)
        assert len(results) == len(recipe["reference"])
        assert {result.metric for result in results} <= known
        if results:
            found[name] = [(r.metric, r.set, r.first, r.last) for r in results]
    lora = [
        ("accuracy", "aime2025", 0.61, 0.79),
        ("response_length", "", 950, 1400),
        ("logprob_diff", "", 0.02, 0.008),
    ]
    assert found == {
        "h200-colocated": [
            ("accuracy", "aime2025", 0.5333, 0.65),
            ("evaluation_length", "aime2025", 3201, 2604),
        ],
        "miles-h200-async": [
            ("accuracy", "aime2025", 0.4625, 0.5583),
            ("evaluation_length", "aime2025", 3148, 2777),
        ],
        "b200-lora": lora,
        "b200-bf16": lora,
        "b200-mxfp8": [
            ("generation_throughput", "", 1.0, 1.44),
            ("logprob_diff", "", 0.03, 0.02),
        ],
    }


def test_published_results_in_words_of_ones_own(tmp_path: Path) -> None:
    run = folders.make(tmp_path)
    (run.path / "profile.yaml").write_text(
        "recipe:\n  reference:\n"
        "  - {metric: $AIME2025$ accuracy, first: 53.33, last: 65.0}\n"
        "  - {metric: aime2024, first: 0.5, last: 0.6, steps: [0, 9]}\n"
        "  - {metric: mean response length, first: 3201, last: 2604}\n"
        "  - {metric: broken, first: many}\n"
        "  - nothing\n"
    )
    one, two, three = published.of(gather(run, DONE))
    assert (one.metric, one.first, one.last) == ("accuracy", pytest.approx(0.5333), 0.65)
    assert (two.metric, two.steps) == ("accuracy", (0, 9))
    assert (three.metric, three.first) == ("response_length", 3201)
    assert one.about("accuracy", "AIME-2025")
    assert one.about("accuracy", "aime25")
    assert not one.about("accuracy", "aime2024")
    assert three.about("response_length")
    run.path.joinpath("profile.yaml").write_text("recipe: 3")
    assert not published.of(gather(Run(run.path), DONE))  # a run reads its profile once


# --- panels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["{}/accuracy", "{} accuracy", "{}"])
@pytest.mark.parametrize(
    ("theirs", "ours", "same"),
    [
        ("aime2025", "AIME-2025", True),
        ("aime2025", "aime25", True),
        ("math", "math500", False),
        ("math500", "math", False),
        ("aime2025", "数学", False),
        ("代数", "数学", False),
        ("数学", "数学", True),
        ("aime2025", "+", False),
    ],
)
def test_a_published_result_is_of_one_set(named: str, theirs: str, ours: str, same: bool) -> None:
    metric = named.format(theirs)
    (result,) = published.read([{"metric": metric, "first": 0.5, "last": 0.6}])
    assert result.about("accuracy", ours) is same


def notes(runs: list[Shown]) -> dict[str, str]:
    return {panel.name: " ".join(panel.notes) for panel in panels.of(runs)[0]}


def test_panels_of_a_run_and_what_is_said_beneath_them(tmp_path: Path) -> None:
    found, absent = panels.of(shown([facts_of(tmp_path, "h200-colocated")]))
    assert [panel.name for panel in found] == [
        "accuracy/aime2025",
        "evaluation_length/aime2025",
        "reward",
        "response_length",
        "logprob_diff",
        "step_time",
        "throughput",
    ]
    assert absent == []
    said = notes(shown([facts_of(tmp_path / "again", "h200-colocated")]))
    assert said["accuracy/aime2025"] == (
        "95 % interval: 30 problems × 8 responses = 240: ± 6.2 points or less, so smaller steps "
        "between two points mean little. Dashed: published for h200-colocated, 53.33 → 65 %, from "
        "step 5 to step 200."
    )
    assert "3,201 → 2,604 tokens, from step 5" in said["evaluation_length/aime2025"]
    assert said["reward"] == ""


def test_a_note_tells_what_first_and_last_are(tmp_path: Path) -> None:
    runs = shown([facts_of(tmp_path, "b200-lora"), facts_of(tmp_path, "b200-mxfp8")])
    said = notes(runs)
    assert (
        "b200-lora, 0.02 → 0.008 nats (first without, last with routing replay)"
        in (said["logprob_diff"])
    )
    assert "b200-mxfp8, 0.03 → 0.02 nats (first Flash Attention 4" in said["logprob_diff"]
    assert panels.ratios(runs) == [
        "Published for b200-mxfp8: +44 % generation throughput (first BF16, last MXFP8)"
    ]


def test_aime2025_comes_first_and_steps_may_be_unpublished(tmp_path: Path) -> None:
    history = measured(sets=("aime2024", "aime2025"))
    (run,) = shown([facts_of(tmp_path, "miles-h200-async", history)])
    assert panels.sets_of([run]) == ["aime2025", "aime2024"]
    said = notes([run])
    assert "46.25 → 55.83 %; over which steps is not published" in said["accuracy/aime2025"]
    assert "published" not in said["accuracy/aime2024"]


def test_what_is_not_measured_has_no_panel(tmp_path: Path) -> None:
    bare = History()
    bare.add(Step(1, reward=0.5))
    found, absent = panels.of(shown([facts_of(tmp_path, "demo", bare)]))
    assert [panel.name for panel in found] == ["reward"]
    assert absent == [
        "accuracy",
        "response length",
        "log-prob difference",
        "step time",
        "tokens/s per GPU",
    ]


def test_what_is_no_number_is_news(tmp_path: Path) -> None:
    history = measured()
    history.add(Step(41, reward=float("nan"), response_length=float("inf")))
    said = notes(shown([facts_of(tmp_path, "demo", history)]))
    assert said["reward"] == "×: not a number at step 41."
    assert said["response_length"] == "×: not a number at step 41."


def test_parts_that_overlap_are_said_to(tmp_path: Path) -> None:
    overlap = measured(generation_time=90.0, training_time=60.0, transfer_time=5.0)
    assert bars.parts(overlap.steps[0])["rest"] == 0
    one = facts_of(tmp_path, "miles-h200-async", overlap)
    assert "at the same time: the parts add up to more" in notes(shown([one]))["step_time"]
    other = facts_of(tmp_path, "h200-colocated")
    said = notes(shown([one, other]))["step_time"]
    assert "at the same time in miles-h200-async-1a2b3c:" in said


# --- drawing ------------------------------------------------------------------------------------


def lines(runs: list[Shown], name: str) -> list[Any]:
    """The lines that a panel draws."""
    matplotlib = pytest.importorskip("matplotlib.figure")
    (panel,) = (panel for panel in panels.of(runs)[0] if panel.name == name)
    ax = matplotlib.Figure().subplots()
    panel.draw(ax)
    found: list[Any] = ax.get_lines()
    return found


def test_the_published_line_is_where_it_was_published(tmp_path: Path) -> None:
    (run,) = shown([facts_of(tmp_path, "h200-colocated")])
    *_, accuracy = lines([run], "accuracy/aime2025")
    assert accuracy.get_label() == "published"
    assert [list(x) for x in accuracy.get_data()] == [[5, 200], pytest.approx([53.33, 65])]
    (miles,) = shown([facts_of(tmp_path, "miles-h200-async")])
    *_, length = lines([miles], "evaluation_length/aime2025")
    # From the run's first evaluation to the end that it plans.
    assert [list(x) for x in length.get_data()] == [[5, 40], [3148, 2777]]


def test_a_run_has_its_own_published_line_among_longer_ones(tmp_path: Path) -> None:
    longer = facts_of(tmp_path, "demo", measured(400))
    runs = shown([longer, facts_of(tmp_path, "miles-h200-async")])
    *_, length = lines(runs, "evaluation_length/aime2025")
    assert list(length.get_xdata()) == [5, 40]
    assert length.get_color() != runs[1].colour  # the only one: in ink


def test_with_a_note_the_two_are_levels(tmp_path: Path) -> None:
    (run,) = shown([facts_of(tmp_path, "b200-lora")])
    *_, first, last = lines([run], "logprob_diff")
    assert (set(first.get_ydata()), set(last.get_ydata())) == ({0.02}, {0.008})


@pytest.mark.parametrize(
    ("count", "marks", "said"),
    [
        (0, 0, "checkpoint"),
        (25, 25, "checkpoint"),
        (50, 25, "one of every 2 checkpoints"),
        (1001, 25, "one of every 41 checkpoints"),
    ],
)
def test_checkpoints_do_not_cover_the_axis(count: int, marks: int, said: str) -> None:
    history = History()
    for at in range(1, count + 1):
        history.add(Checkpoint(3 * at))
    steps, what = figure.marked(history)
    assert (len(steps), what) == (marks, said)
    assert steps == sorted(steps)
    assert steps[-1:] == [3 * count][: len(steps)]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_an_axis_has_no_power_of_ten_beside_it(tmp_path: Path, scale: float) -> None:
    pytest.importorskip("matplotlib")
    history = measured()
    for at in range(1, 41):
        history.add(Step(at, logprob_diff=scale * (1 + at / 1e3)))
    runs = shown([facts_of(tmp_path, "demo", history)])
    (panel,) = [it for it in panels.of(runs)[0] if it.name == "logprob_diff"]
    drawn = figure.svg(panel, runs)
    said = re.findall(r"<text[^>]*>([^<]+)</text>", drawn)
    values = [float(it) for it in said if re.fullmatch(r"[\d.]+(e[-+]\d+)?", it)]
    assert pytest.approx(1.02 * scale) in values


@pytest.mark.parametrize("names", [FRAMEWORKS, FRAMEWORKS * 2])
def test_runs_of_all_frameworks_in_one_figure(tmp_path: Path, names: tuple[str, ...]) -> None:
    pytest.importorskip("matplotlib")
    found = [facts_of(tmp_path, name, name=f"{name}-{at}") for at, name in enumerate(names)]
    runs = shown(found)
    assert len({(run.colour, run.marker) for run in runs}) == len(runs)
    assert figure.png(runs).startswith(b"\x89PNG")
    for panel in panels.of(runs)[0]:
        assert figure.svg(panel, runs).startswith('<svg role="img"')


def test_every_run_has_one_colour_in_all_panels(tmp_path: Path) -> None:
    runs = shown([facts_of(tmp_path, "h200-colocated"), facts_of(tmp_path, "demo")])
    for name in ("reward", "accuracy/aime2025", "throughput"):
        drawn = [line.get_color() for line in lines(runs, name)]
        assert runs[0].colour in drawn
        assert runs[1].colour in drawn


def test_where_colours_come_twice_the_marker_tells(tmp_path: Path) -> None:
    found = [facts_of(tmp_path, "demo", name=f"demo-{at}") for at in range(len(look.RUNS) + 1)]
    runs = shown(found)
    assert runs[0].colour == runs[-1].colour
    bold = [line for line in lines(runs, "reward") if line.get_linewidth() > 2]
    assert len(bold) == len(runs)
    assert (bold[0].get_marker(), bold[-1].get_marker()) == ("o", "s")
    assert {line.get_marker() for line in lines(runs[:2], "reward")} == {"None"}


def test_no_two_colours_are_alike() -> None:
    for shade in zip(*look.THEME.values(), strict=True):
        assert len(set(shade)) == len(look.THEME)


def test_a_name_in_any_script_is_drawn_without_a_word(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    pytest.importorskip("matplotlib")
    odd = facts_of(tmp_path, "demo", name="实验-$x_1$-\x1b[31m\n")
    assert figure.png(shown([odd, facts_of(tmp_path, "h200-colocated")]))
    assert not recwarn.list
