"""The two steps of an attempt: what they say, which of it is for the supervisor, and their end."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_slurm.node import attempts, events, steps
from beam_slurm.node.steps import Steps

PATIENCE = 30


class Heard(Steps):
    """Two steps, and what came of what they said."""

    def __init__(self, attempt: Path) -> None:
        self.shown: list[bytes] = []
        self.parts: list[bytes] = []
        self.kinds: list[str] = []
        super().__init__(str(attempt), self.shown.append, self.parts.append, self.kinds.append)

    @property
    def said(self) -> bytes:
        return b"".join(self.parts)

    def run(self, ray: str, driver: str, until: Callable[[], object] | None = None) -> None:
        """Start two bash programs, and turn until the driver is over or ``until`` is true."""
        self.start(["bash", "-c", ray, "ray"], ["bash", "-c", driver, "driver"])
        deadline = time.monotonic() + PATIENCE
        while not (until() if until else self.ended == "driver"):
            assert time.monotonic() < deadline
            self.turn(0.1)


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    before = signal.getsignal(signal.SIGCHLD)
    made = Heard(tmp_path)
    try:
        yield made
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        made.selector.close()


def event(name: str = "entry-started", **facts: Any) -> bytes:
    return (json.dumps(events.make(name, **facts)) + "\n").encode()


RAY = "trap 'exit 0' USR2; while :; do sleep 0.05; done"
ODD = b'{"beam-slurm": "is a name that an entry may print\n'

# What a driver says, and what of it people see.
TALKS = {
    "nothing": ([], b"", 0),
    "alone": ([event()], b"", 1),
    "between lines": ([b"a\n", event(), b"b\n"], b"a\nb\n", 1),
    "behind a line without end": ([b"loss 0.", event(), b"5\n"], b"loss 0.5\n", 1),
    "two at once": ([event(), event("entry-ended", code=0)], b"", 2),
    "begins like one": ([ODD, b"a\n"], ODD + b"a\n", 0),
    "is no event of ours": ([b'{"beam-slurm": ["x"], "time": 1}\n'] * 2, None, 0),
    "has no time": ([b'{"beam-slurm": "stuck"}\n'], None, 0),
    "a mark in a line": ([b'x {"beam-slurm": 1} y\n', event()], b'x {"beam-slurm": 1} y\n', 1),
    "the beginning of a mark": ([b'{"beam', b'-slur\n{"', b"\n{"], None, 0),
    "not UTF-8": ([b"\xff\xfe\n", event(), b"\x00\r\x80"], b"\xff\xfe\n\x00\r\x80", 1),
    "no end": ([b'{"beam-slurm": "x'], None, 0),
    "long": ([b'{"beam-slurm": ' + b"y" * 70_000, b"z\n", event()], None, 1),
}


@pytest.mark.parametrize(
    ("name", "size"),
    # A long one byte by byte would only be the same as with 7, and slow.
    [(n, s) for n in TALKS for s in (1, 7, 4096, 1 << 20) if (n, s) != ("long", 1)],
)
def test_people_see_what_was_said_without_the_events(heard: Heard, name: str, size: int) -> None:
    talk, seen, count = TALKS[name]
    data = b"".join(talk)
    for at in range(0, len(data), size):
        heard._hear_driver(data[at : at + size])
    heard.heard(heard.held)
    if seen is None:
        seen = b"".join(part for part in talk if not events.parse(part.decode()))
    assert heard.said == seen
    assert len(heard.events) == count
    assert len(attempts.told(heard.attempt)) == count


def test_what_may_be_an_event_is_held_back_no_longer_than_needed(heard: Heard) -> None:
    for part, held in ((b"step 1 ", b""), (b'{"beam', b'{"beam'), (b"x", b""), (b"{", b"{")):
        heard._hear_driver(part)
        assert heard.held == held
    heard._hear_driver(b'"beam-slurm": ' + b"x" * steps.LONGEST)
    assert heard.held == b""


def test_a_real_driver_s_output_is_whole(heard: Heard) -> None:
    said = event("entry-started", pid=4).decode().strip()
    driver = f"printf 'a\\nloss 0.'; sleep 0.1; echo '{said}'; printf '5\\nno end'"
    heard.run(RAY, driver)
    heard.tear_down(True, ["n1"])
    assert heard.said == b"a\nloss 0.5\nno end"
    assert [told["beam-slurm"] for told in heard.events] == heard.kinds == ["entry-started"]
    assert heard.ray.returncode == 0


def test_ray_s_step_is_shown_in_whole_lines(heard: Heard) -> None:
    node = event("versions", node="n1", ray="2", python="3")
    for part in (b"a\nb", b"c\n" + node[:20], node[20:], b"srun: er", b"ror: n2: task 1: Killed\n"):
        heard._hear_ray(part)
    assert heard.shown == [b"a\n", b"bc\n", b"srun: error: n2: task 1: Killed\n"]
    assert [told["beam-slurm"] for told in heard.events] == ["versions"]
    assert heard.failure is not None
    assert (heard.failure["node"], heard.guessed) == ("n2", True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-11-29T10:00:00 "
            "DUE TO TIME LIMIT ***",
            "TIME LIMIT",
        ),
        (
            "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-29T10:00:00 "
            "DUE TO PREEMPTION ***",
            "PREEMPTION",
        ),
        (
            "srun: slurmstepd: *** STEP 17.1 ON n[1-2] CANCELLED AT 2026-11-29T10:00:00 "
            "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
            "NODE FAILURE",
        ),
        (
            "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-29T10:00:00 "
            "DUE TO JOB REQUEUE ***",
            "JOB REQUEUE",
        ),
        ("slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-11-29T10:00:00 ***", ""),
    ],
)
@pytest.mark.parametrize("size", [5, 1000])
def test_slurm_s_own_word_on_the_end(heard: Heard, line: str, why: str, size: int) -> None:
    said = (line + "\n").encode()
    for at in range(0, len(said), size):
        heard._hear_driver(said[at : at + size])
    assert heard.by_slurm == why
    assert heard.said == said
    assert heard.failure is None


REMARKS = [
    # (line, node, why, guessed, lost)
    ("srun: error: n2: task 1: Killed", "n2", "task 1: Killed", True, False),
    (
        "srun: error: n3: tasks 2-3: Exited with exit code 1",
        *("n3", "tasks 2-3: Exited with exit code 1", True, False),
    ),
    (
        "srun: error: Task launch for StepId=17.0 failed on node n2: Communication failure",
        *("n2", "Communication failure", True, False),
    ),
    ("srun: error: Node failure on n-2.x", "n-2.x", "Node failure", False, True),
]


@pytest.mark.parametrize("step", ["ray", "driver"])
@pytest.mark.parametrize(("line", "node", "why", "guessed", "lost"), REMARKS)
def test_what_srun_says_of_a_node(
    heard: Heard, step: str, line: str, node: str, why: str, guessed: bool, lost: bool
) -> None:
    hear = heard._hear_ray if step == "ray" else heard._hear_driver
    hear(f"{line}\n".encode())
    if step == "driver" and guessed:  # with every entry that fails comes such a line
        assert heard.failure is None
        return
    assert heard.failure is not None
    assert (heard.failure["node"], heard.failure["why"], heard.guessed) == (node, why, guessed)
    assert heard.lost == ({node} if lost else set())


def test_whose_word_counts(heard: Heard) -> None:
    """The first one; but of a node's own word and srun's remark, the node's."""
    heard._hear_ray(b"srun: error: n1: task 0: Exited with exit code 1\n")
    heard._hear_ray(event("node-failed", node="n2", why="killed"))
    heard._hear_ray(event("node-failed", node="n3", why="killed"))
    heard._hear_ray(b"srun: error: Node failure on n4\n")
    assert heard.failure is not None
    assert (heard.failure["node"], heard.guessed) == ("n2", False)


def test_what_we_end_ourselves_is_no_failure(heard: Heard) -> None:
    heard.over = True
    heard._hear_ray(b"srun: error: n1: task 0: Terminated\n")
    heard._hear_ray(event("node-failed", node="n2", why="killed"))
    assert heard.failure is None
    heard._hear_ray(b"srun: error: Node failure on n4\n")  # that is never our doing
    assert heard.failure is not None


# A Ray step that says its nodes' last words when it is told to stop.
STOPS = "trap 'touch asked; cat words; %s' USR2; trap '' TERM; touch up; %s"
BOTH = (Path("up"), Path("in"))  # what the steps make when they listen
FOREVER = "while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("nodes", "driver"),
    [
        (["n1", "n2"], "touch in; exit 3"),  # the driver is over, n1 has tidied up
        (["n2", "n1"], "trap '' TERM; touch in; sleep 600"),  # the head is gone, its driver with it
    ],
)
def test_nobody_waits_for_a_lost_node(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: list[str], driver: str
) -> None:
    """Its srun would: it does not hear, and n2 never says a word."""
    monkeypatch.chdir(tmp_path)
    Path("words").write_bytes(event("node-cleared", node="n1"))
    heard.run(STOPS % (":", FOREVER), driver, until=lambda: all(map(Path.exists, BOTH)))
    began = time.monotonic()
    heard.lost.add("n2")
    heard.tear_down(True, nodes)
    assert time.monotonic() - began < steps.TEARDOWN / 2
    assert Path("asked").exists()
    assert heard.ray.wait(PATIENCE) == -signal.SIGKILL
    assert heard.driver.wait(PATIENCE) in (3, -signal.SIGTERM, -signal.SIGKILL)


def test_a_lost_node_does_not_cut_the_entry_s_last_words_short(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words").write_bytes(event("node-cleared", node="n1"))
    driver = f"trap 'sleep 1.5; echo saved; exit 4' TERM; touch in; {FOREVER}"
    heard.run(STOPS % ("exit", FOREVER), driver, until=lambda: all(map(Path.exists, BOTH)))
    heard.lost.add("n2")
    heard.tear_down(True, ["n1", "n2"])
    assert (heard.driver.returncode, heard.said) == (4, b"saved\n")


def test_a_step_that_does_not_end_by_itself_is_told_and_then_killed(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "TEARDOWN", 0.3)
    stubborn = f"trap '' TERM USR2; touch {tmp_path}/%s; while :; do sleep 0.05; done"
    both = [tmp_path / name for name in ("ray", "driver")]
    heard.run(
        stubborn % "ray", stubborn % "driver", until=lambda: all(path.exists() for path in both)
    )
    heard.tear_down(True, ["n1"])
    heard.turn(0)
    heard.ray.wait(PATIENCE)
    assert heard.driver.wait(PATIENCE) == heard.ray.returncode == -signal.SIGKILL
    assert heard.failure is None
