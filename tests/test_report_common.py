"""The report draws the common evaluation beside the frameworks' own, of runs of all of them."""

from __future__ import annotations

import io
import json
import os
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import folders
import frameworklogs as logs
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.spinner import Spinner

from beam_slurm.after import problems
from beam_slurm.after.evaluate import SUMMARY
from beam_slurm.after.problems import Question
from beam_slurm.after.responses import Response
from beam_slurm.after.scores import Scores, score
from beam_slurm.cli.report import report
from beam_slurm.cli.status import status
from beam_slurm.progress import end
from beam_slurm.report import common, figure, live, page, panels, terminal, text
from beam_slurm.report.facts import Facts, gather, with_common
from beam_slurm.report.panel import Shown, shown
from beam_slurm.report.plain import Teller
from beam_slurm.runs import Run
from beam_slurm.slurm import Job
from beam_slurm.state import State

pytestmark = pytest.mark.usefixtures("job")
pytest.importorskip("matplotlib")

FRAMEWORKS = ("nemo-rl", "skyrl", "miles")
AT = {"nemo-rl": (0, 100, 200), "skyrl": (0, 25, 50), "miles": (0, 50, 100)}
ASKED = {"max_tokens": 4096, "temperature": 1.0, "top_p": 1.0}
SAME = problems.wording([Question("1", "What is 3 + 4?", "7")])


def answers(rate: float, samples: int = 8, count: int = 30, seed: int = 0) -> Scores:
    """What a model gets that solves about ``rate`` of problems, some of them easier than others."""
    draw = random.Random(seed)  # noqa: S311

    def response(right: bool) -> Response:
        answer = "7" if right else str(draw.randrange(100, 999))
        return Response("0", 0, "", draw.randrange(500, 4096), False, "stop", right, answer)

    easy = [(at + 0.5) / count for at in range(count)]
    return score([[response(draw.random() < 2 * rate * at) for _ in range(samples)] for at in easy])


def evaluate(
    folder: Path, found: Scores, name: str = "aime2025", wording: str = SAME, **settings: Any
) -> Scores:
    """An evaluation's folder, as the job leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"set": name, **ASKED, "seed": 0, **settings}
    about = {"settings": told, "wording": wording}
    summary = json.dumps({**about, "scores": found.as_dict()}, indent=2)
    (folder / SUMMARY).write_text(summary + "\n")
    return found


def scored(trained: Run, step: int, rate: float, **settings: Any) -> Scores:
    """A checkpoint of a run that was evaluated, with the run that did it."""
    assert trained.converted
    folder = trained.converted / f"step_{step}-aime2025"
    task = {"run": trained.id, "step": step, "set": "aime2025"}
    job(trained.path.parent, f"{trained.id}-aime2025-{step}", folder, task)
    return evaluate(folder, answers(rate, seed=step), **settings)


def job(root: Path, name: str, folder: Path, task: dict[str, Any]) -> Run:
    about = {"framework": "evaluate", "output": str(folder), "task": task, "steps": 240}
    run = folders.make(root, name, **about)
    folders.outcome(run)
    return run


def train(root: Path, framework: str) -> Run:
    """A run of a framework that has done all its steps and evaluated itself."""
    run = folders.of_framework(root, framework)
    steps = folders.RECIPES[framework]["steps"]
    if framework == "skyrl":
        for step in range(5, steps + 1, 5):
            logs.skyrl_dump(run.output, step, aime_2024=0.5, AIME2025=0.61 + step / 300)
    said = "".join(logs.PER_STEP[framework](step) for step in range(1, steps + 1))
    folders.say(run, said)
    folders.bring_up(run)
    folders.outcome(run, 100 * steps)
    return run


def three(root: Path) -> tuple[list[Run], dict[str, list[Scores]]]:
    """Runs of the three frameworks, each with three checkpoints evaluated."""
    found, known = [], {}
    for at, framework in enumerate(FRAMEWORKS):
        run = train(root, framework)
        steps = enumerate(AT[framework])
        # The same problems, with ids of the framework's own.
        known[run.id] = [
            scored(run, step, 0.4 + 0.08 * it + 0.03 * at, problems=framework) for it, step in steps
        ]
        found.append(run)
    return found, known


def facts(root: Path, *found: Run) -> list[Facts]:
    return with_common([gather(run, State("succeeded")) for run in found], root)


def drawn(runs: Sequence[Shown], title: str) -> Any:
    """The axes of the panel with that title."""
    from matplotlib.figure import Figure

    (panel,) = (panel for panel in panels.of(runs)[0] if panel.title == title)
    ax = Figure().subplots()
    figure._panel(ax, panel, runs)
    return ax


def of(ax: Any, run: Shown) -> list[Any]:
    """The lines of a run that have points."""
    return [it for it in ax.get_lines() if it.get_color() == run.colour and len(it.get_xdata())]


def titles(runs: Sequence[Shown]) -> list[str]:
    return [panel.title for panel in panels.of(runs)[0]]


def table(found: list[Facts]) -> str:
    """What the terminal shows."""
    console = Console(width=200, file=io.StringIO(), highlight=False)
    console.print(terminal.show(found))
    said: str = console.file.getvalue()  # type: ignore[attr-defined]
    return said


def call(root: Path, *words: str, command: Any = report) -> str:
    result = CliRunner().invoke(command, [*words, "--runs", str(root)])
    assert result.exit_code == 0, result.output
    return result.output


# --- three frameworks ---------------------------------------------------------------------------


def test_runs_of_three_frameworks_are_in_one_panel(tmp_path: Path) -> None:
    found, known = three(tmp_path)
    runs = shown(facts(tmp_path, *found))
    first, own = panels.of(runs)[0][:2]
    assert (first.title, first.unit) == ("AIME2025, common evaluation (avg@8)", "%")
    assert own.title == "AIME2025, each framework's own"
    ax = drawn(runs, first.title)
    for run, line in zip(runs, ax.get_lines(), strict=True):
        scores = known[run.facts.run.id]
        assert line.get_color() == run.colour
        assert list(line.get_xdata()) == list(AT[run.facts.manifest["framework"]])
        assert list(line.get_ydata()) == pytest.approx([100 * it.average.value for it in scores])
    bars = [bar for each in ax.collections for bar in each.get_segments()]
    ends = [(it.average.low, it.average.high) for scores in known.values() for it in scores]
    assert len(bars) == 9
    for bar, (low, high) in zip(bars, ends, strict=True):
        assert (bar[0][1], bar[1][1]) == pytest.approx((100 * low, 100 * high))
    left, right = ax.get_xlim()
    assert left < 0
    assert right > 200


def test_what_is_said_beneath_the_two(tmp_path: Path) -> None:
    found, _ = three(tmp_path)
    alike, own, *rest = panels.of(shown(facts(tmp_path, *found)))[0]
    assert alike.notes == (
        "Scored by beam-slurm evaluate, the same way whoever trained: 8 responses a problem, at "
        "most 4,096 tokens, temperature 1, top-p 1. Bars: 95 % interval over the problems, which "
        "is what others of the kind could have given.",
    )
    assert own.notes[0] == panels.OWN
    (other,) = [it for it in rest if it.title == "AIME2024 accuracy"]
    assert panels.OWN not in other.notes  # one framework alone, and nothing beside it


def test_frameworks_alone_are_said_to_differ(tmp_path: Path) -> None:
    found = [train(tmp_path, framework) for framework in FRAMEWORKS]
    (own, *_) = panels.of(shown(facts(tmp_path, *found)))[0]
    assert (own.title, own.notes[0]) == ("AIME2025 accuracy", panels.OWN)


def test_the_table_of_several(tmp_path: Path) -> None:
    found, known = three(tmp_path)
    out = tmp_path / "out"
    said = call(tmp_path, *(run.id for run in found), "-o", str(out))
    (_, rows) = said.split("\ncommon aime2025, avg@8 ")
    for run in found:
        first, *_, last = known[run.id]
        ends = [f"{100 * it.average.value:.1f} %" for it in (first, last)]
        assert re.search(rf"{run.id} +{ends[0]} +{ends[1]} .*95 % interval", rows)
    assert (out / "report.png").read_bytes().startswith(b"\x89PNG")
    shows = (out / "report.html").read_text()
    assert 'aria-label="AIME2025, common evaluation (avg@8)"' in shows
    for scores in known.values():
        assert spelled(scores) in shows


def spelled(scores: Sequence[Scores]) -> str:
    first, last = (f"{100 * it.average.value:.1f}" for it in (scores[0], scores[-1]))
    low, high = scores[-1].average.low, scores[-1].average.high
    assert low is not None
    assert high is not None
    return f"{first} → {last} % (95 %: {100 * low:.1f} to {100 * high:.1f})"


def test_json(tmp_path: Path) -> None:
    found, known = three(tmp_path)
    told = json.loads(call(tmp_path, *(run.id for run in found), "--json"))
    for run, one in zip(found, told, strict=True):
        steps = AT[run.manifest["framework"]]
        assert one["common"] == [
            {
                "set": "aime2025",
                "step": step,
                "samples": 8,
                "scores": {
                    name: value for name, value in it.as_dict().items() if isinstance(value, dict)
                },
                "settings": {
                    "set": "aime2025",
                    **ASKED,
                    "seed": 0,
                    "problems": run.manifest["framework"],
                },
                "folder": str(run.converted and run.converted / f"step_{step}-aime2025"),
            }
            for step, it in zip(steps, known[run.id], strict=True)
        ]


# --- one run ------------------------------------------------------------------------------------


def test_one_run_has_its_first_last_and_best(tmp_path: Path) -> None:
    run = train(tmp_path, "nemo-rl")
    scores = [scored(run, step, rate) for step, rate in ((50, 0.3), (100, 0.5), (150, 0.4))]
    values = [f"{100 * it.average.value:.1f} %" for it in scores]
    (found,) = facts(tmp_path, run)
    said = table([found])
    assert re.search(rf"common aime2025, avg@8 +{values[0]} +{values[2]} +{values[1]} ", said)
    last = scores[-1].average
    assert last.low is not None
    assert last.high is not None
    span = f"last: 95 % interval {100 * last.low:.1f} to {100 * last.high:.1f} %, step 150"
    assert span in said
    assert f"{values[1]} (95 %: " in page.html(shown([replace(found, history=None)]))  # the best


@pytest.mark.parametrize("step", [0, 120])
def test_one_checkpoint_is_one_point(tmp_path: Path, step: int) -> None:
    run = train(tmp_path, "miles")
    found = scored(run, step, 0.4)
    runs = shown(facts(tmp_path, run))
    ax = drawn(runs, "AIME2025, common evaluation (avg@8)")
    (line,) = ax.get_lines()
    assert list(line.get_xdata()) == [step]
    assert line.get_marker() != "None"
    left, right = ax.get_xlim()
    assert left < step < right
    low, high = ax.get_ylim()
    assert found.average.high is not None
    assert found.average.low is not None
    assert 0 <= low < 100 * found.average.low < 100 * found.average.high < high
    assert common.spell(runs[0].common).startswith(f"{100 * found.average.value:.1f} % (95 %: ")


def test_a_run_whose_log_is_gone_still_has_its_scores(tmp_path: Path) -> None:
    run = folders.of_framework(tmp_path, "skyrl")
    scored(run, 50, 0.4)
    assert titles(shown(facts(tmp_path, run))) == ["AIME2025, common evaluation (avg@8)"]
    assert "common aime2025, avg@8" in table(facts(tmp_path, run))
    assert "measured nothing" not in page.html(shown(facts(tmp_path, run)))


def test_without_evaluations_all_is_as_it_was(tmp_path: Path) -> None:
    run = train(tmp_path, "nemo-rl")
    (bare,) = facts(tmp_path, run)
    assert bare.common == []
    assert titles(shown([bare]))[0] == "AIME2025 accuracy"
    assert json.loads(call(tmp_path, run.id, "--json"))["common"] == []
    # Nobody has looked: that is not none.
    assert "common" not in json.loads(call(tmp_path, run.id, "--json", command=status))


# --- which ones ---------------------------------------------------------------------------------


def steps(found: Facts) -> list[int | None]:
    return [it.step for it in found.common or ()]


def test_an_evaluation_is_found_by_its_run_or_by_its_place_and_once(tmp_path: Path) -> None:
    run = train(tmp_path, "nemo-rl")
    assert run.converted
    scored(run, 40, 0.3)  # both
    evaluate(run.converted / "step_80-aime2025", answers(0.4))  # its run was removed
    elsewhere = tmp_path / "elsewhere" / "scores"
    task = {"run": run.id, "step": 120, "set": "aime2025"}
    job(tmp_path, "scores", elsewhere, task)
    evaluate(elsewhere, answers(0.5))
    sweep = tmp_path / "many"  # an array has its runs one level deeper
    sweep.mkdir()
    (sweep / "sweep.json").write_text("{}")
    job(sweep, "many-0000", tmp_path / "elsewhere" / "more", {**task, "step": 160})
    evaluate(tmp_path / "elsewhere" / "more", answers(0.6))
    # The conversion may have been named in place of the run: the place tells.
    job(tmp_path, "late", run.converted / "step_180-aime2025", {"run": f"{run.id}-hf", "step": 1})
    evaluate(run.converted / "step_180-aime2025", answers(0.6))
    assert steps(*facts(tmp_path, run)) == [40, 80, 120, 160, 180]


def test_a_run_is_found_by_the_id_that_it_had(tmp_path: Path) -> None:
    run = train(tmp_path, "nemo-rl")
    scored(run, 40, 0.3)
    moved = tmp_path / "the-good-one"
    run.path.rename(moved)
    assert steps(*facts(tmp_path, Run(moved))) == [40]


def test_a_run_that_went_on_in_the_folder_of_another_has_its_own(tmp_path: Path) -> None:
    run = train(tmp_path, "nemo-rl")
    about = {"output": str(run.output), "checkpoints": str(run.checkpoints)}
    later = folders.make(tmp_path, "later", **about, framework="nemo-rl", steps=300)
    scored(run, 200, 0.3)
    scored(Run(later.path), 300, 0.4)
    first, second = facts(tmp_path, run, later)
    assert (steps(first), steps(second)) == ([200], [300])


SUMMARIES = {
    "torn": '{"settings": {"set": "aime2025"}, "scores": {"avg@8": {"val',
    "empty": "",
    "a list": "[]",
    "no scores": '{"settings": {"set": "aime2025"}}',
    "no settings": '{"scores": {"avg@8": {"value": 0.5, "low": 0.4, "high": 0.6}}}',
    "nan": '{"settings": {"set": "aime2025"}, "scores": {"avg@8": {"value": NaN}}}',
    "huge": '{"settings": {"set": "a"}, "scores": {"avg@8": {"value": 1%s}}}' % ("0" * 400),
    "a word": '{"settings": {"set": "aime2025"}, "scores": {"avg@8": {"value": "half"}}}',
    "another set": '{"settings": {"set": ["a"]}, "scores": {"avg@8": {"value": 0.5}}}',
}


@pytest.mark.parametrize("broken", SUMMARIES.values(), ids=SUMMARIES)
def test_what_is_not_done_or_not_whole_is_left_out(tmp_path: Path, broken: str) -> None:
    run = train(tmp_path, "nemo-rl")
    assert run.converted
    scored(run, 40, 0.3)
    scored(run, 80, 0.4)
    (run.converted / "step_80-aime2025" / SUMMARY).write_text(broken)
    job(tmp_path, "goes-on", tmp_path / "not-there", {"run": run.id, "step": 120})
    job(tmp_path, "by-hand", tmp_path / "nor-there", {"run": ["?"], "step": {}})
    (run.converted / "step_x-aime2025").mkdir()
    assert steps(*facts(tmp_path, run)) == [40]
    assert call(tmp_path, run.id, "--json")


def test_of_two_that_asked_the_same_the_newest_counts(tmp_path: Path) -> None:
    run = train(tmp_path, "nemo-rl")
    scored(run, 40, 0.3)
    task = {"run": run.id, "step": 40, "set": "aime2025"}
    job(tmp_path, "again", tmp_path / "again-scores", task)
    again = evaluate(tmp_path / "again-scores", answers(0.6, seed=7), seed=1)
    assert run.converted
    os.utime(run.converted / "step_40-aime2025" / SUMMARY, (1, 1))
    ((found,),) = (it.common for it in facts(tmp_path, run) if it.common)
    assert found.accuracy == again.average.value


def test_what_was_asked_otherwise_is_in_no_line_with_it(tmp_path: Path) -> None:
    one, two = train(tmp_path, "nemo-rl"), train(tmp_path, "miles")
    scored(one, 40, 0.3)
    scored(one, 80, 0.4, max_tokens=16384)
    scored(two, 40, 0.3)
    scored(two, 80, 0.3, temperature=0.6)
    runs = shown(facts(tmp_path, one, two))
    among = [title for title in titles(runs) if "common" in title]
    assert among == [
        "AIME2025, common (avg@8, 4,096 tokens, temperature 1)",
        "AIME2025, common (avg@8, 16,384 tokens, temperature 1)",
        "AIME2025, common (avg@8, 4,096 tokens, temperature 0.6)",
    ]
    points = [[list(it.get_xdata()) for it in drawn(runs, at).get_lines()] for at in among]
    assert points == [[[40], [40]], [[80], []], [[], [80]]]
    said = table(facts(tmp_path, one, two))
    heads = re.findall(r"^common (.*?)  ", said, re.M)
    assert heads == [
        "aime2025, avg@8, 4,096 tokens, temperature 1",
        "aime2025, avg@8, 16,384 tokens, temperature 1",
        "aime2025, avg@8, 4,096 tokens, temperature 0.6",
    ]


def test_other_questions_under_the_same_name_are_told(tmp_path: Path) -> None:
    one, two = train(tmp_path, "nemo-rl"), train(tmp_path, "miles")
    scored(one, 40, 0.3)
    scored(two, 40, 0.3)
    told = "Not all were asked the same: questions or answers differ in their files of problems."
    assert told not in panels.of(shown(facts(tmp_path, one, two)))[0][0].notes
    other = problems.wording([Question("1", "What is 3 + 5?", "8")])
    scored(two, 80, 0.3, wording=other)
    assert told in panels.of(shown(facts(tmp_path, one, two)))[0][0].notes


def test_a_set_that_no_framework_evaluates_has_its_panel_too(tmp_path: Path) -> None:
    run = train(tmp_path, "nemo-rl")
    assert run.converted
    evaluate(run.converted / "step_40-mine", answers(0.4, samples=1), "mine")
    scored(run, 40, 0.3)
    assert titles(shown(facts(tmp_path, run)))[:3] == [
        "AIME2025, common evaluation (avg@8)",
        "AIME2025, own evaluation",
        "Mine, common evaluation (avg@1)",
    ]


# --- an evaluation's own run --------------------------------------------------------------------


def test_the_report_of_an_evaluation_is_its_scores(tmp_path: Path) -> None:
    run = train(tmp_path, "nemo-rl")
    found = scored(run, 40, 0.3)
    name = f"{run.id}-aime2025-40"
    said = call(tmp_path, name)
    average = found.average
    assert average.low is not None
    assert average.high is not None
    value, low, high = (f"{100 * it:.1f}" for it in (average.value, average.low, average.high))
    assert re.search(rf"avg@8 +{value} % +{low} to {high} %", said)
    assert re.search(rf"tokens +{text.number(found.tokens.value)} ", said)
    assert f"beam-slurm report {run.id}\n" in said
    assert "8 responses a problem, at most 4,096 tokens, temperature 1, top-p 1" in said
    assert "figure" not in said
    folder = tmp_path / name
    shows = (folder / "report.html").read_text()
    assert f"{low} to {high} %" in shows
    assert "step 40" in shows
    assert "aime2025: 8 responses a problem" in shows
    assert "Measured" not in shows
    assert "no training" not in shows
    assert not (folder / "report.png").exists()
    told = json.loads(call(tmp_path, name, "--json"))
    assert [(it["set"], it["step"]) for it in told["common"]] == [("aime2025", 40)]


def test_status_shows_the_scores_of_an_evaluation(tmp_path: Path) -> None:
    run = train(tmp_path, "nemo-rl")
    low = scored(run, 40, 0.3).average.low
    said = call(tmp_path, f"{run.id}-aime2025-40", command=status)
    assert low is not None
    assert f"95 % interval {100 * low:.1f} to " in said


def test_the_report_of_an_evaluation_that_is_not_done(tmp_path: Path) -> None:
    run = job(tmp_path, "goes-on", tmp_path / "not-there", {"run": None, "step": None})
    assert "no training" in call(tmp_path, run.id)


def test_a_model_of_no_run_stands_beside_the_runs(tmp_path: Path) -> None:
    found, _ = three(tmp_path)
    task = {"run": None, "set": "aime2025"}
    base = job(tmp_path, "Beam-aime2025", tmp_path / "base", {**task, "step": 0})
    evaluate(tmp_path / "base", answers(0.3))
    other = job(tmp_path, "other-aime2025", tmp_path / "other", {**task, "step": None})
    level = evaluate(tmp_path / "other", answers(0.5))
    runs = shown(facts(tmp_path, *found, base, other))
    ax = drawn(runs, "AIME2025, common evaluation (avg@8)")
    (point,), (line,) = (of(ax, run) for run in runs[3:])
    assert list(point.get_xdata()) == [0]
    assert "nobody knows" in panels.of(runs)[0][0].notes[1]
    # Nobody knows after how many steps: a level, over the whole width.
    assert list(line.get_xdata()) == [0, 1]
    assert list(line.get_ydata()) == pytest.approx(2 * [100 * level.average.value])


def test_an_evaluation_named_beside_its_run_is_drawn_once(tmp_path: Path) -> None:
    run = train(tmp_path, "nemo-rl")
    scored(run, 40, 0.3)
    own = Run(tmp_path / f"{run.id}-aime2025-40")
    for order in ((run, own), (own, run)):
        runs = shown(facts(tmp_path, *order))
        ax = drawn(runs, "AIME2025, common evaluation (avg@8)")
        (line,) = of(ax, runs[order.index(run)])
        assert list(line.get_xdata()) == [40]
        assert not of(ax, runs[order.index(own)])


# --- a run of its own ---------------------------------------------------------------------------


def of_words(root: Path, name: str, word: str | None, **manifest: Any) -> Run:
    """An evaluation into a folder that an earlier one has scored, and how it ended."""
    folder = root / "step_20-aime2025"
    evaluate(folder, answers(0.5))
    run = folders.make(
        root, name, **{"framework": "evaluate", "output": str(folder), "steps": 240, **manifest}
    )
    folders.bring_up(run)
    for done in (57, 119):
        folders.event(run, "step", 20 + done, step=done)
    if word:
        folders.outcome(run, state=word)
    return run


@pytest.mark.parametrize(
    ("word", "done"), [(None, "119/240"), ("failed", "119/240"), ("succeeded", "240/240")]
)
def test_scores_are_a_run_s_own_and_responses_are_counted(
    tmp_path: Path, job: dict[str, Job], word: str | None, done: str
) -> None:
    job["17"] = Job("17", "RUNNING" if word is None else "COMPLETED", nodes="n1")
    task = {"run": "first-1a2b3c", "step": 20, "set": "aime2025"}
    run = of_words(tmp_path, "first-1a2b3c-aime2025-1", word, task=task, follows="first-1a2b3c")
    folders.make(tmp_path, "first-1a2b3c", then=[run.id])
    detail = call(tmp_path, run.id, command=status)
    assert re.search(rf"^responses +{done} *$", detail, re.M)
    assert ("95 % interval" in detail) == (word == "succeeded")
    (line,) = [it for it in call(tmp_path, "first", command=status).splitlines() if run.id in it]
    assert ("avg@8" in line) == (word == "succeeded")
    assert f" {done} " in call(tmp_path, "--all", command=status)
    found = with_common([gather(run)], tmp_path)
    assert bool(found[0].common) == (word == "succeeded")
    file = io.StringIO()
    console = Console(width=200, file=file)
    console.print(live.view(found[0], [], folders.T0, "", Spinner("dots")))
    assert done in file.getvalue()
    lines = list(Teller(run.id).lines(found[0], [], ""))
    assert any(f"{done} responses" in it for it in lines)


def test_who_waits_is_told_what_was_made(tmp_path: Path) -> None:
    task = {"run": "first-1a2b3c", "step": 20, "set": "aime2025"}
    scored_ = of_words(tmp_path, "first-1a2b3c-aime2025", "succeeded", task=task)
    made = {"framework": "convert", "task": {"output": "/shared/hf"}, "steps": 1}
    converted = folders.make(tmp_path, "first-1a2b3c-hf", **made)
    folders.outcome(converted)
    for run, last in (
        (scored_, r"score  avg@8 \d\d\.\d %  95 % interval .*\noutput " + str(scored_.output)),
        (converted, r"\(exit code 0\).*\noutput /shared/hf"),
    ):
        file = io.StringIO()
        assert end(gather(run), Console(file=file, width=200)) == 0
        assert re.search(last + "\n$", file.getvalue()), file.getvalue()
    assert " 1/1 " in call(tmp_path, command=status)
