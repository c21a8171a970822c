"""``submit --wait``: what it prints while a run goes on, written by hand step by step."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import folders
import pytest
from rich.console import Console

from beam_slurm import slurm
from beam_slurm.errors import BeamSlurmError
from beam_slurm.progress import watch
from beam_slurm.runs import Run
from beam_slurm.waiting import OFTEN, PATIENCE, SELDOM, SETTLED, STRAGGLER, Watch

PENDING = slurm.Job("17", "PENDING", "Resources", start="2027-01-15T09:00:00")
RUNNING = slurm.Job("17", "RUNNING", nodes="n[1-2]")

Act = Callable[[], object]


class Scene:
    """A run, Slurm's word on it, and a clock that only the waiting moves."""

    def __init__(self, root: Path) -> None:
        self.run = folders.make(root)
        self.job: slurm.Job | None = PENDING
        self.silent = False
        self.asked: list[float] = []
        self.jobs: list[str] = []
        self.now = 0.0

    def ask(self, job_id: str) -> slurm.Job | None:
        self.asked.append(self.now)
        self.jobs.append(job_id)
        if self.silent:
            raise BeamSlurmError("Slurm's controller does not answer", why="timed out")
        return self.job

    def clock(self) -> float:
        return self.now

    def play(self, *acts: Act, terminal: bool = False, pause: float = 5.0) -> tuple[int, str]:
        """Watch the run; each time that ``watch`` sleeps the next act is done."""
        left = iter(acts)

        def sleep(seconds: float) -> None:
            self.now += pause
            next(left)()

        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=100, color_system=None)
        code = watch(self.run, console, sleep=sleep, clock=self.clock)
        assert next(left, None) is None, "it ended too early"
        return code, file.getvalue()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(tmp_path)
    monkeypatch.setattr(slurm, "job", made.ask)
    monkeypatch.setattr(slurm, "ask", lambda *words: "n1\nn2\n")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield made
    monkeypatch.undo()
    time.tzset()


def start(scene: Scene) -> None:
    scene.job = RUNNING
    folders.event(scene.run, "batch-started", 0, node="n1", port=6379)


def train(scene: Scene, first: int, last: int) -> None:
    for step in range(first, last + 1):
        folders.measure(scene.run, folders.train(step))


def whole_story(scene: Scene) -> list[Act]:
    run = scene.run
    return [
        lambda: None,
        lambda: start(scene),
        lambda: folders.event(run, "node-up", 2, node="n1"),
        lambda: folders.event(run, "node-up", 3, node="n2"),
        lambda: folders.event(run, "ray-up", 4, nodes=2, gpus=4, since=folders.T0 + 1),
        lambda: folders.event(run, "entry-started", 4.5, pid=4),
        lambda: train(scene, 1, 9),
        lambda: folders.measure(run, folders.train(10), folders.evaluate(10, 0.125)),
        lambda: train(scene, 11, 17),
        lambda: train(scene, 18, 80),
        lambda: folders.outcome(run),
    ]


def test_lines_without_a_terminal(scene: Scene) -> None:
    code, said = scene.play(*whole_story(scene))
    assert code == 0
    times = [line[:8] for line in said.splitlines()]
    lines = [line[10:] for line in said.splitlines()[:-2]]
    assert lines == [
        "demo-1a2b3c is pending: Resources, may start 2027-01-15 09:00:00",
        "the batch script has begun on n1 after 12 s in the queue",
        "Ray: 1 of 2 nodes, missing: n2",
        "Ray: 2 of 2 nodes",
        "Ray is up: 2 nodes × 2 GPUs, 4.0 s after the batch script began",
        "the entry has started",
        "step 9/80, reward 0.113, 2.0 s a step, about 2 min 22 s left",
        "after step 10: accuracy 12.5 % on held-out",
        "step 17/80, reward 0.212, 2.0 s a step, about 2 min 06 s left",
        "step 80/80, reward 1.00, 2.0 s a step",
    ]
    assert times[1:6] == ["08:00:00", "08:00:02", "08:00:03", "08:00:04", "08:00:04"]
    assert said.splitlines()[-2:] == [
        "succeeded: the entry finished (exit code 0) after 3 min 20 s",
        "draw   beam-slurm report demo-1a2b3c",
    ]
    assert "\x1b" not in said


def test_view_on_a_terminal(scene: Scene) -> None:
    code, said = scene.play(*whole_story(scene), terminal=True)
    assert code == 0
    last = said[said.rindex("demo-1a2b3c  demo") :]
    assert "✓ in the queue" in last
    assert "nodes join Ray" in last
    assert "2 of 2" in last
    assert "4 GPUs" in last
    assert "80/80" in last
    assert "accuracy 12.5 % on held-out after step 10" in last
    assert "missing: n2" in said
    assert "Resources, may start" in said
    assert said.rstrip().endswith("draw   beam-slurm report demo-1a2b3c")


def test_a_lost_node_is_named_and_its_code_returned(scene: Scene) -> None:
    start(scene)
    folders.bring_up(scene.run)
    code, said = scene.play(lambda: folders.lost_node(scene.run))
    assert code == 69
    assert "n2 failed: Ray lost a process" in said
    assert "failed: n2: Ray lost a process: raylet [exit code=-9] (exit code 69) after" in said
    assert "  |   raylet [exit code=-9]" in said
    assert "look   beam-slurm logs demo-1a2b3c --ray n2" in said


def test_cancelled_in_the_queue(scene: Scene) -> None:
    def cancel() -> None:
        scene.job = slurm.Job("17", "CANCELLED", exit_code="0:0")

    code, said = scene.play(cancel)
    assert code == 143
    assert "cancelled: Slurm: CANCELLED" in said


def test_forgotten_job_is_a_failure(scene: Scene) -> None:
    scene.job = None
    code, said = scene.play()
    assert code == 1
    assert "unknown: Slurm has forgotten the job" in said


def test_interrupt_leaves_the_job(scene: Scene) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    for terminal in (False, True):
        code, said = scene.play(interrupt, terminal=terminal)
        assert code == 130
        assert "the run goes on" in said
        assert "beam-slurm status demo-1a2b3c" in said
        assert "beam-slurm cancel demo-1a2b3c" in said


def test_a_lost_attempt_is_told(scene: Scene) -> None:
    run = scene.run
    start(scene)
    folders.bring_up(run)
    code, said = scene.play(
        lambda: folders.event(run, "batch-started", 500, 1, node="n3", port=1),
        lambda: folders.outcome(run, 600, 1),
    )
    assert code == 0
    assert "attempt 0 left no outcome: its first node died, or Slurm requeued the job" in said
    assert "; goes on in attempt 1\n" in said
    assert "the batch script has begun on n3\n" in said


def test_preflight_is_told(scene: Scene) -> None:
    run = scene.run
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(folders.T0))

    def inspect() -> None:
        scene.job = replace(RUNNING, start=begin)
        (run.path / "attempt-0").mkdir()

    code, said = scene.play(
        inspect,
        lambda: folders.preflight(run, 2, seconds=2, n3=["gpus", "disk"]),
        lambda: folders.event(run, "batch-started", 2.5, node="n1"),
        lambda: folders.outcome(run),
    )
    assert code == 0
    assert [line[10:] for line in said.splitlines()][1:4] == [
        "the nodes are inspected after 12 s in the queue",
        "preflight: 2 of 3 nodes are fit, 2.0 s; unfit: n3 (gpus, disk)",
        "the batch script has begun on n1 after 12 s in the queue",
    ]
    _, drawn = scene.play(terminal=True)
    assert "✓ nodes are inspected" in drawn
    assert "2 of 3 nodes are fit; unfit: n3" in drawn


def test_a_decision_is_awaited(scene: Scene) -> None:
    start(scene)
    folders.bring_up(scene.run)
    code, said = scene.play(
        lambda: folders.lost(scene.run, "undecided"), lambda: folders.lost(scene.run, None)
    )
    assert code == 69
    decided = "attempt 0 has ended, what follows is being decided: n2: Node failure\n"
    assert said.count(decided) == 1
    assert "goes on" not in said


def test_metrics_that_nobody_reads(scene: Scene) -> None:
    scene.run.record(framework="other")
    start(scene)
    folders.bring_up(scene.run)
    _, said = scene.play(lambda: folders.outcome(scene.run))
    assert (
        "the entry has started; this version of beam-slurm reads no metrics of other runs" in said
    )


# --- attempts -----------------------------------------------------------------------------------


def begin(scene: Scene, attempt: int, after: float) -> None:
    folders.event(scene.run, "batch-started", after, attempt, node="n1", port=6379)
    folders.event(scene.run, "entry-started", after + 5, attempt)


def says(scene: Scene, **fields: Any) -> Act:
    """Slurm has another word for the job from now on."""

    def act() -> None:
        assert scene.job is not None
        scene.job = replace(scene.job, **fields)

    return act


def queued(scene: Scene, restarts: int = 1) -> Act:
    return says(scene, state="PENDING", reason="Priority", nodes="", restarts=restarts)


def end(scene: Scene, attempt: int, **facts: Any) -> Act:
    return lambda: folders.outcome(scene.run, 600, attempt, **facts)


NODE = "attempt 0 failed (node): n2: Node failure; goes on in attempt 1"
AGAIN = "the batch script has begun on n1 after 3 min 20 s in the queue"

FOLLOWED: dict[str, tuple[str, str | None, list[str], list[str]]] = {
    "here": ("here", None, [], [NODE + ": 4 fit nodes here", "the batch script has begun on n1\n"]),
    "requeue": (
        "requeue",
        None,
        ["queued", "runs"],
        [NODE + ": 4 fit nodes here", "attempt 1 of demo-1a2b3c is pending: Priority", AGAIN],
    ),
    "slurm": (
        "slurm",
        None,
        ["queued", "runs"],
        [NODE + ": 4 fit nodes here", "attempt 1 of demo-1a2b3c is pending: Priority", AGAIN],
    ),
    "chain": (
        "chain",
        "18",
        ["queued", "runs"],
        [
            NODE + " as job 18: 4 fit nodes here",
            "attempt 1 of demo-1a2b3c is pending: Priority",
            AGAIN,
        ],
    ),
}


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("how", FOLLOWED)
def test_a_run_is_followed_into_its_next_attempt(scene: Scene, how: str, terminal: bool) -> None:
    how, job, words, lines = FOLLOWED[how]
    acts = {"queued": queued(scene), "runs": says(scene, state="RUNNING", nodes="n[1-2]")}
    start(scene)
    folders.bring_up(scene.run)
    code, said = scene.play(
        lambda: folders.lost(scene.run, how, chained=job),
        *(acts[word] for word in words),
        lambda: begin(scene, 1, 400),
        end(scene, 1),
        terminal=terminal,
    )
    assert code == 0
    assert said.count("succeeded: the entry finished (exit code 0) after 10 min 00 s") == 1
    assert scene.jobs[-1] == (job or "17")
    if terminal:
        assert "✗ " + lines[0][:60] in said
        frame = said[said.rindex("demo-1a2b3c  demo") :]
        assert ("in the queue" in frame) is bool(words)
    else:
        at = [said.index(line) for line in lines]
        assert at == sorted(at)
        assert all(said.count(line) == 1 for line in lines)


@pytest.mark.parametrize("how", ["requeue", "slurm", "chain"])
@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("CANCELLED", 143, "cancelled: Slurm: CANCELLED 0:0 Priority, before attempt 1 began"),
        ("NODE_FAIL", 1, "failed (node): Slurm: NODE_FAIL 0:0 Priority, before attempt 1 began"),
    ],
)
def test_a_run_that_ends_between_two_attempts(
    scene: Scene, how: str, word: str, code: int, said: str
) -> None:
    start(scene)
    folders.lost(scene.run, how, chained="18" if how == "chain" else None, do="look", lines=["x"])
    ended = scene.play(queued(scene), says(scene, state=word, exit_code="0:0"), pause=5)
    assert ended[0] == code
    assert said in ended[1]
    # What the attempt advised counts where the run failed of it, not where somebody ended it.
    assert ("do     look" in ended[1]) is (word != "CANCELLED")


@pytest.mark.parametrize(
    ("facts", "code", "said"),
    [
        (
            {"state": "failed", "class": "oom", "exit_code": 137, "cause": "n1: out of memory"},
            137,
            "failed (oom): n1: out of memory (exit code 137)",
        ),
        (
            {"state": "failed", "class": "time", "exit_code": 75, "cause": "out of time at 40/80"},
            75,
            "failed (time): out of time at 40/80 (exit code 75)",
        ),
        (
            {"state": "preempted", "class": "preempted", "exit_code": 143, "cause": "preempted"},
            143,
            "failed (preempted): preempted (exit code 143)",
        ),
    ],
)
def test_the_end_with_its_class_and_what_to_do(
    scene: Scene, facts: dict[str, Any], code: int, said: str
) -> None:
    start(scene)
    folders.lost(scene.run, "here")
    begin(scene, 1, 300)
    (scene.run.path / "job-17.log").touch()
    told = {**facts, "do": "set memory.x to 3", "stopped": "two attempts without a new step"}
    ended, lines = scene.play(end(scene, 1, **told))
    assert ended == code
    assert said in lines
    assert "stop   two attempts without a new step\ndo     set memory.x to 3\nlook" in lines


def test_asks_no_more_often_while_an_attempt_waits(scene: Scene) -> None:
    start(scene)
    folders.lost(scene.run, "requeue")
    queued(scene)()
    watcher = Watch(scene.run, scene.clock)
    while scene.now < 2 * SETTLED:
        assert watcher.state().word == "pending"
        scene.now += 0.5
    assert scene.asked[-1] - scene.asked[-2] == SELDOM
    begin(scene, 1, 400)  # news
    scene.now += OFTEN
    says(scene, state="RUNNING")()
    assert watcher.state().word == "running"


def test_a_restart_while_the_controller_is_silent(scene: Scene) -> None:
    start(scene)
    folders.bring_up(scene.run)

    def silent() -> None:
        scene.silent = True
        folders.lost(scene.run, "here")

    code, said = scene.play(silent, lambda: begin(scene, 1, 300), end(scene, 1))
    assert code == 0
    assert NODE in said


# --- asking -------------------------------------------------------------------------------------


def test_asks_slurm_seldom_and_the_files_often(scene: Scene) -> None:
    watcher = Watch(scene.run, scene.clock)
    while scene.now < 2 * SETTLED:
        watcher.state()
        scene.now += 0.5
    gaps = [b - a for a, b in zip(scene.asked, scene.asked[1:], strict=False)]
    assert OFTEN <= min(gaps) <= OFTEN + 0.5
    assert gaps[-1] == SELDOM
    scene.job = RUNNING
    folders.outcome(scene.run)  # an end is noticed within a second all the same
    scene.now += OFTEN
    assert watcher.state().word == "succeeded"


def test_a_silent_controller_is_borne_with(scene: Scene) -> None:
    start(scene)

    def silent() -> None:
        scene.silent = True

    def back() -> None:
        scene.silent = False
        folders.outcome(scene.run)

    code, said = scene.play(silent, lambda: None, back)
    assert code == 0
    assert said.count("note: Slurm's controller does not answer; asking again") == 1


def test_the_end_is_seen_without_the_controller(scene: Scene) -> None:
    scene.silent = True
    code, said = scene.play(lambda: folders.outcome(scene.run))
    assert code == 0
    assert "succeeded" in said


def test_patience_ends(scene: Scene) -> None:
    scene.silent = True
    acts: list[Act] = [lambda: None] * 8
    with pytest.raises(BeamSlurmError, match="for 33 minutes now") as caught:
        scene.play(*acts, pause=PATIENCE / 5 + 40)
    assert "beam-slurm status demo-1a2b3c" in (caught.value.remedy or "")


def test_slow_storage_gets_a_moment(scene: Scene) -> None:
    start(scene)
    scene.job = slurm.Job("17", "COMPLETED", exit_code="0:0", nodes="n[1-2]")
    code, said = scene.play(lambda: folders.outcome(scene.run), pause=STRAGGLER - 1)
    assert code == 0
    assert said.count("the job is over, its outcome is awaited") == 1
    assert "succeeded: the entry finished" in said


def test_an_outcome_that_never_comes(scene: Scene) -> None:
    start(scene)
    scene.job = slurm.Job("17", "FAILED", exit_code="0:9", nodes="n[1-2]")
    code, said = scene.play(lambda: None, lambda: None, pause=STRAGGLER / 2)
    assert code == 128 + 9
    assert "failed: Slurm: FAILED 0:9" in said


def test_a_run_without_slurm(tmp_path: Path) -> None:
    run: Run = folders.make(tmp_path, executor="local", job=None, pid=2**30)
    folders.bring_up(run)
    console = Console(file=io.StringIO())
    # Its files are this host's own: nothing is to be awaited.
    assert watch(run, console, sleep=lambda seconds: pytest.fail("it is over")) == 1
