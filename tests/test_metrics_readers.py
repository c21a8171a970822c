"""What the readers of NeMo RL, SkyRL and Miles have in common, and what shows their numbers."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import folders
import frameworklogs as logs
import pytest
from frameworklogs import NOISE, goes_on, numbers, read, reader_of, said
from rich.console import Console

from beam_slurm import slurm
from beam_slurm.metrics import Step, lines
from beam_slurm.node.progress import Progress
from beam_slurm.progress import watch
from beam_slurm.report import figure, overview, panel, terminal
from beam_slurm.report.asjson import as_json
from beam_slurm.report.facts import gather, seconds_left
from beam_slurm.runs import Run

EXPECTED: dict[str, Callable[[int], Step]] = {
    "nemo-rl": logs.nemo_step,
    "skyrl": logs.skyrl_step,
    "miles": logs.miles_step,
}


@pytest.fixture(params=EXPECTED)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """A run of each framework."""
    return folders.of_framework(tmp_path, request.param)


@pytest.fixture
def miles(tmp_path: Path) -> Run:
    return folders.of_framework(tmp_path, "miles")


def one(run: Run, step: int) -> str:
    """One step as its framework prints it."""
    return logs.PER_STEP[run.manifest["framework"]](step)


def expected(run: Run, *steps: int) -> list[Step]:
    return [EXPECTED[run.manifest["framework"]](step) for step in steps]


# --- all of them --------------------------------------------------------------------------------


def test_every_value(run: Run) -> None:
    folders.say(run, "".join(NOISE + one(run, step) for step in range(1, 13)) + NOISE)
    assert read(run).steps == expected(run, *range(1, 13))


def test_follows_a_growing_log(run: Run) -> None:
    reader = reader_of(run)
    assert not reader.read()
    for step in range(1, 4):
        folders.say(run, one(run, step))
        assert reader.read()
        assert not reader.read()
        assert reader.history.steps == expected(run, *range(1, step + 1))


def test_half_a_line_is_completed_later(run: Run) -> None:
    reader, text = reader_of(run), one(run, 1)
    for at in range(0, len(text), 37):
        folders.say(run, text[at : at + 37])
        reader.read()
        assert reader.history.steps == [] or numbers(reader.history) == [1]
    folders.say(run, "\n")
    reader.read()
    assert reader.history.steps == expected(run, 1)


def test_a_resume_takes_back_what_followed_its_checkpoint(run: Run) -> None:
    reader = reader_of(run)
    folders.say(run, "".join(one(run, step) for step in range(1, 25)) + one(run, 25)[:200] + "\n")
    reader.read()
    assert numbers(reader.history) == list(range(1, 25))
    folders.say(run, goes_on(20))
    assert reader.read()
    assert numbers(reader.history) == list(range(1, 21))
    folders.say(run, one(run, 21) + one(run, 22))
    reader.read()
    assert reader.history.steps == expected(run, *range(1, 23))
    assert said(reader.history) == said(read(run))


def test_a_resume_that_begins_anew(run: Run) -> None:
    folders.say(run, "".join(one(run, step) for step in range(1, 8)) + goes_on(0) + one(run, 1))
    assert read(run).steps == expected(run, 1)


def test_a_chained_job_has_a_log_of_its_own(run: Run) -> None:
    reader = reader_of(run)
    folders.say(run, "".join(one(run, step) for step in range(1, 25)), job="17")
    reader.read()
    folders.say(run, goes_on(20) + "".join(one(run, step) for step in range(21, 27)), job="118")
    reader.read()
    assert reader.history.steps == expected(run, *range(1, 27))
    assert said(reader.history) == said(read(run))


def test_lines_that_come_twice(run: Run) -> None:
    text = "".join(one(run, step) for step in range(1, 8))
    folders.say(run, "".join(2 * line for line in text.splitlines(keepends=True)))
    assert read(run).steps == expected(run, *range(1, 8))


def test_colours_and_other_line_ends(run: Run) -> None:
    text = "".join(one(run, step) for step in range(1, 4)).replace("\n", "\r\n")
    folders.say(run, "".join(f"\x1b[1m{it}\x1b[0m" for it in text.splitlines(keepends=True)))
    assert read(run).steps == expected(run, *range(1, 4))


def test_a_log_that_says_nothing(run: Run) -> None:
    folders.say(run, 50 * NOISE)
    assert not read(run)


def test_a_run_of_an_older_version(run: Run) -> None:
    """Without a profile, and with a manifest that lacks what later ones have."""
    (run.path / "profile.yaml").write_text("[broken")
    run.record(nodes=None, gpus_per_node=None, checkpoints=None)
    folders.say(run, "".join(one(run, step) for step in range(1, 6)))
    history = read(run)
    assert numbers(history) == [1, 2, 3, 4, 5]
    assert [step.reward for step in history.steps] == [
        it.reward for it in expected(run, *range(1, 6))
    ]


def test_numbers_that_nobody_counts_up_to(run: Run) -> None:
    """Every number of every line, in turn, with more digits than int() takes: nothing raises."""
    text = goes_on(3) + "".join(one(run, step) for step in (4, 5))
    progress = Progress(run.manifest["framework"])
    for line in text.splitlines():
        for found in re.finditer(r"\d+", line):
            longer = f"{line[: found.start()]}{'9' * 5000}{line[found.end() :]}\n"
            folders.say(run, longer)
            progress.feed(longer.encode())
    assert max(numbers(read(run)), default=0) < 300
    assert (progress.last or 0) < 300


# --- what is random -----------------------------------------------------------------------------


def disordered(draw: random.Random, run: Run) -> tuple[bytes, list[Step]]:
    """Two lives of a run: noise between their lines, some of which come twice or end otherwise."""
    first, second = draw.randint(1, 7), draw.randint(1, 4)
    after = draw.randint(0, first)
    lives = [range(1, first + 1), range(after + 1, after + second + 1)]
    told = []
    for at, life in enumerate(lives):
        if at:
            told.append(goes_on(after))
        for step in life:
            told += one(run, step).splitlines(keepends=True)
    text = []
    for line in told:
        text.append(draw.choice(NOISE.splitlines(keepends=True)) if draw.random() < 0.2 else "")
        text += [line.replace("\n", "\r\n") if draw.random() < 0.1 else line]
        text += [line] if draw.random() < 0.1 else []
    return "".join(text).encode(), expected(run, *range(1, after + second + 1))


def damaged(draw: random.Random, data: bytes) -> bytes:
    """Cut off, or with pieces that are lost, doubled, or something else."""
    for _ in range(draw.randint(0, 3)):
        at, size = draw.randrange(len(data)), draw.randint(1, 200)
        with_ = draw.choice([b"", data[at : at + size] * 2, draw.randbytes(size), b"\x00" * size])
        data = (data[:at] + with_ + data[at + size :]) or b"x"
    return data[: draw.randint(0, len(data))] if draw.random() < 0.5 else data


@pytest.mark.parametrize("seed", range(10))
def test_however_it_is_cut(run: Run, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,020 logs, whole or damaged: read in pieces they say what they say when read at once.

    None of them makes a reader raise, and those that are whole say what their steps are.
    """
    draw = random.Random(seed)  # noqa: S311
    log = run.path / "job-17.log"
    for step in range(0, 15, 5):
        logs.skyrl_dump(run.output, step, aime2025=0.5)
    for _ in range(34):
        data, steps = disordered(draw, run)
        whole = draw.random() < 0.3
        data = data if whole else damaged(draw, data)
        monkeypatch.setattr(lines, "CHUNK", draw.choice([333, 4096, 1024 * 1024]))
        log.write_bytes(b"")
        reader, at = reader_of(run), 0
        with log.open("ab", buffering=0) as file:
            while at < len(data):
                size = draw.randint(1, max(len(data) // 3, 1))
                file.write(data[at : at + size])
                at += size
                reader.read()
        assert repr(said(reader.history)) == repr(said(read(run)))  # nan is not nan's equal
        assert not whole or reader.history.steps == steps


@pytest.mark.parametrize("seed", range(5))
def test_processes_that_speak_at_once(miles: Run, seed: int) -> None:
    """However the lines of the rollouts' manager and of the trainer fall between each other."""
    draw = random.Random(seed)  # noqa: S311
    log = miles.path / "job-17.log"
    for _ in range(40):
        text = "".join(logs.miles(id_) for id_ in range(8)).splitlines(keepends=True)
        queues = [[line for line in text if (logs.MANAGER in line) is own] for own in (True, False)]
        mixed = []
        while any(queues):
            queue = draw.choice([queue for queue in queues if queue])
            mixed.append(queue.pop(0))
        log.write_text("".join(mixed))
        history = read(miles)
        assert history.steps == expected(miles, *range(1, 9))
        assert [it.step for it in history.evaluations] == [5]


# --- status and report --------------------------------------------------------------------------


@pytest.fixture
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "job", lambda job: slurm.Job(job, "RUNNING", nodes="n[1-2]"))
    monkeypatch.setattr(slurm, "ask", lambda *words: "n1\nn2\n")


def shown(renderable: object) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.mark.usefixtures("no_slurm")
def test_status_and_report(run: Run) -> None:
    folders.bring_up(run)
    for step in (5, 10):
        logs.skyrl_dump(run.output, step, aime2025=step / 100)
    folders.say(run, "".join(one(run, step) for step in range(1, 13)))
    facts = gather(run)
    steps = run.manifest["steps"]
    assert facts.steps == steps
    assert facts.no_metrics == ""
    assert facts.history is not None
    pace = seconds_left(facts)
    assert pace is not None
    assert pace / (steps - 12) == pytest.approx(100, rel=0.4)
    assert facts.seconds is not None  # of the log's last change, where the steps have no time
    told = shown(overview.detail(facts, ["n1", "n2"]))
    assert f"12/{steps}" in told
    assert "on aime2025 after step 10" in told
    drawn = shown(terminal.show([facts]))
    assert "aime2025" in drawn
    assert "240 responses" in drawn
    found = json.loads(json.dumps(as_json(facts)))
    assert found["metrics"]["step"] == 12
    assert found["metrics"]["evaluation"]["set"] == "aime2025"


@pytest.mark.usefixtures("no_slurm")
def test_wait(run: Run) -> None:
    folders.bring_up(run)
    for step in (5, 10):
        logs.skyrl_dump(run.output, step, aime2025=step / 100)
    now = 0.0
    acts = iter(
        [
            lambda: folders.say(run, "".join(one(run, step) for step in range(1, 13))),
            lambda: folders.outcome(run),
        ]
    )

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 5
        next(acts)()

    file = io.StringIO()
    assert watch(run, Console(file=file, width=160), sleep=sleep, clock=lambda: now) == 0
    told = file.getvalue()
    assert "the entry has started\n" in told
    assert f"step 12/{run.manifest['steps']}, reward " in told
    assert "after step 10: accuracy " in told
    assert " on aime2025\n" in told
    assert f"beam-slurm report {run.id}" in told


@pytest.mark.usefixtures("no_slurm")
def test_the_figure(run: Run) -> None:
    pytest.importorskip("matplotlib")
    folders.bring_up(run)
    logs.skyrl_dump(run.output, 5, aime2025=0.5)
    folders.say(run, "".join(one(run, step) for step in range(1, 13)))
    facts = gather(run)
    assert facts.history is not None
    assert figure.png(panel.shown([facts])).startswith(b"\x89PNG")


@pytest.mark.usefixtures("no_slurm")
def test_only_an_evaluation_yet(tmp_path: Path) -> None:
    """The one before the first step: there is no step to show, and nothing fails."""
    nemo = folders.of_framework(tmp_path, "nemo-rl")
    folders.bring_up(nemo)
    folders.say(nemo, logs.nemo_validation(0, 0.25, 3300.5))
    facts = gather(nemo)
    assert facts.history
    assert seconds_left(facts) is None
    assert "25.0 % on aime2025 after step 0" in shown(overview.detail(facts, ["n1", "n2"]))
    assert "aime2025" in shown(terminal.show([facts]))
