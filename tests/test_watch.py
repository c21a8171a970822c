"""``watch``: what each state looks like, and a real terminal with its keys and signals."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import folders
import pytest
import scenes
from rich.cells import cell_len
from rich.console import Console
from scenes import Scene

from beam_slurm.progress import Watcher
from beam_slurm.report import text
from beam_slurm.watch import nodes
from beam_slurm.watch.frame import Frame
from beam_slurm.watch.gathering import Gathering, Log, Look

PATIENCE = 30


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(folders, "T0", folders.T0)  # a scene moves it
    made = Scene(tmp_path)
    monkeypatch.setenv("PATH", made.environment["PATH"])
    return made


# --- what is shown ----------------------------------------------------------------------------


def picture(scene: Scene, columns: int = 120, rows: int = 40, **more: Any) -> str:
    """One frame of a scene, as plain text."""
    watcher = Watcher(scene.run, time.monotonic)
    facts = watcher.look()
    log = scene.run.log
    given: dict[str, Any] = {
        "look": Look(facts, tuple(watcher.nodes), watcher.note),
        "log": Log(None, log.name, tuple(log.read_text().splitlines())) if log else Log(),
        "now": time.time(),
        "monotonic": time.monotonic(),
        **more,
    }
    return drawn(Frame(run=scene.run.id, **given), columns, rows)


def drawn(frame: Frame, columns: int, rows: int) -> str:
    """The frame's own lines, which fill the terminal exactly."""
    file = io.StringIO()
    console = Console(
        file=file, width=columns, height=rows, color_system=None, legacy_windows=False
    )
    console.print(frame, end="")
    lines = file.getvalue().split("\n")
    assert len(lines) == rows
    assert {cell_len(line) for line in lines} == {columns}
    return "\n".join(line.rstrip() for line in lines)


def test_in_the_queue(scene: Scene) -> None:
    scenes.pending(scene)
    shown = picture(scene)
    assert "b300-colocated-7c1f9e  pending" in shown
    assert "b300-colocated · 4 nodes × 8 GPUs · job 4711\n" in shown
    assert shown.count("Priority, may start 2") == 1
    assert re.search(r"› in the queue +5 min \d\d s Priority", shown)


def test_on_the_way_up(scene: Scene) -> None:
    scenes.starting(scene)
    shown = picture(scene)
    assert "✓ nodes are inspected       2.1 s 5 of 5 nodes are fit" in shown
    assert "3 of 4 nodes, missing: gpu004" in shown
    (line,) = (line for line in shown.splitlines() if "gpu002" in line)
    words = " ".join(line.split())
    assert words == "● gpu001 head ● gpu002 ● gpu003 ◌ gpu004 ○ gpu005 spare"


def test_training(scene: Scene) -> None:
    scenes.running(scene)
    shown = picture(scene)
    assert re.search(r"ray 1.0 s → entry 1.0 s → run …\n", shown)
    assert re.search(r"━╸ +37/80  5.7 s a step  4 min 04 s left\n", shown)
    assert re.search(r"5 min \d\d s since start, last step 1 min \d\d s ago\n", shown)
    for row in (
        r"reward +0\.597 +▁▂",
        r"accuracy aime2025 +57\.1 % at 30 +▁▅█",
        r"response length +2,883 tokens +█",
        r"log-prob difference +0\.010 nats",
        r"step time +5\.9 s",
    ):
        assert re.search(row, shown), row
    assert shown.splitlines()[-2] == " step 37/80 reward 0.608 [bold]length[/bold] 3,137"
    assert shown.splitlines()[-1].split("   ")[-1] == "? help"


def test_after_a_restart(scene: Scene) -> None:
    scenes.restarting(scene)
    shown = picture(scene)
    assert "starting  attempt 1" in shown
    assert "↻ attempt 0 failed (node): gpu003: Node failure; goes on in attempt 1: " in shown
    assert "✗ gpu003 blamed" in shown
    assert "blamed, and left out from now on: gpu003" in shown
    assert "missing: gpu005" in shown


def test_failed(scene: Scene) -> None:
    scenes.failed(scene)
    shown = picture(scene)
    assert "state      failed (oom): torch.OutOfMemoryError: CUDA out of memory." in shown
    assert "do         lower recipe.rollout.gpu_memory_utilization" in shown
    assert "stopped    job.max_restarts is 0" in shown
    assert "exit code  3" in shown
    assert "next       beam-slurm logs b300-colocated-7c1f9e -n 50" in shown
    assert "left" not in shown.split("metrics")[0]


def test_succeeded(scene: Scene) -> None:
    scenes.succeeded(scene)
    shown = picture(scene)
    assert "state  succeeded: the entry finished" in shown
    assert "took   4 min 52 s" in shown
    assert "80/80" in shown


def test_a_spare_in_use(scene: Scene) -> None:
    scenes.spare_used(scene)
    shown = picture(scene)
    assert "✗ gpu003 unfit" in shown
    assert "! gpu003: gpus fail: have 7 GPUs, need 8; ask the site" in shown
    assert "! gpu005: scratch warn: have 1.1 TB free, need 1.0 TB" in shown
    assert "! gpu005\n" in shown


@pytest.mark.parametrize("name", [it.__name__ for it in scenes.ALL])
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12), (20, 5), (1, 1), (300, 90)])
def test_every_state_fills_every_terminal(scene: Scene, name: str, columns: int, rows: int) -> None:
    getattr(scenes, name)(scene)
    for more in ({}, {"helps": True}, {"question": "cancel?  y / n"}, {"followed": "gpu003"}):
        shown = picture(scene, columns, rows, **more)
    if columns >= 80:
        assert scene.run.id in shown
        assert "── gpu003: Ray" in shown


def test_a_narrow_terminal_shows_what_matters(scene: Scene) -> None:
    scenes.restarting(scene)
    shown = picture(scene, 80, 24)
    for word in ("starting", "missing: gpu005", "20/80", "reward", "↻ attempt 0", "● gpu001 head"):
        assert word in shown, word
    assert shown.splitlines()[-2].startswith(" beam-slurm: preflight")


def test_a_narrow_terminal_shows_why_it_failed(scene: Scene) -> None:
    scenes.failed(scene)
    shown = picture(scene, 80, 24)
    for word in ("allocate 2.00 GiB", "do ", "exit code", "next ", "reward", "● gpu001", "── log"):
        assert word in shown, word


def test_a_run_that_nobody_has_looked_at_yet() -> None:
    shown = drawn(Frame("demo-1a2b3c", None), 60, 10)
    assert "demo-1a2b3c  …" in shown
    assert "q quit" in shown


def test_many_nodes_keep_to_their_lines_and_the_followed_one_is_among_them(scene: Scene) -> None:
    scenes.pending(scene)
    names = tuple(f"gpu{at:03}" for at in range(128))
    scene.job("RUNNING", "gpu[000-127]")
    (scene.bin / "nodes").write_text("\n".join(names) + "\n")
    shown = picture(scene, 100, 30)
    assert re.search(r"· gpu000.*\n.*gpu015   and 112 more\n", shown)
    assert "gpu100" not in shown
    assert "· gpu100" in picture(scene, 100, 30, followed="gpu100")


def test_nothing_that_a_run_has_written_is_obeyed(scene: Scene) -> None:
    evil = "\x1b[2J\x1b]0;title\x07\x1bc\x1b[31mred\x1b[0m\ttab\x08\x9b1m\u202e\x00é done"
    scenes.failed(scene)
    folders.outcome(
        scene.run, 292, state="failed", component="entry", exit_code=3, cause=evil, do=evil,
        job="4711", next=None, blamed=[evil], lines=[], node=evil,
    )  # fmt: skip
    shown = picture(scene, log=Log(None, evil, (evil, "99 %\r100 %\r", "[/] [red]")))
    assert all(it.isprintable() for it in shown.replace("\n", ""))
    assert "\n red     tab1mé done\n 100 %\n [/] [red]\n" in shown


def test_what_a_terminal_would_show_of_a_line() -> None:
    assert text.printable("a\x1b[1;31mb\x1b[0m\x1b]8;;http://x\x1b\\c\x1b]8;;\x1b\\") == "abc"
    assert text.printable("10 %\r20 %\r\r") == "20 %"
    assert text.printable("\x1b(Ba\u00a0b\u2028c\x07") == "a b c"
    assert text.printable("🙂 日本 é") == "🙂 日本 é"


def test_what_is_drawn_does_not_change_meanwhile(scene: Scene) -> None:
    """It is gathered in one thread and drawn in another."""
    scenes.running(scene)
    news = threading.Event()
    gathering = Gathering(scene.run, news.set)
    try:
        deadline = time.monotonic() + PATIENCE
        while gathering.look is None or gathering.look.facts.state.word != "running":
            assert news.wait(max(deadline - time.monotonic(), 0))
            news.clear()
        shown = gathering.look.facts.history
        assert shown
        assert shown.last
        folders.measure(scene.run, folders.train(38))
        while not any(step.step == 38 for step in gathering.look.facts.history.steps):  # type: ignore[union-attr]
            assert news.wait(max(deadline - time.monotonic(), 0))
            news.clear()
        assert shown.last.step == 37
    finally:
        gathering.stop()


def test_old_news_are_called_so(scene: Scene) -> None:
    scenes.running(scene)
    assert "no news" not in picture(scene)
    shown = picture(scene, monotonic=time.monotonic() + 40)
    assert "no news for 40 s: Slurm or the storage is slow" in shown


# --- a terminal ---------------------------------------------------------------------------------

TRAINS = "37/80  5.7 s a step"
OFF = "\x1b[?1049l"  # back from the whole screen


class Tty:
    """A terminal in which a program runs, and what it shows."""

    def __init__(
        self, words: list[str], environment: dict[str, str], columns: int = 100, rows: int = 30
    ) -> None:
        self.master, slave = pty.openpty()
        self.slave = slave
        self.resize(columns, rows)
        self.before = termios.tcgetattr(slave)
        self.said = ""
        self.process = subprocess.Popen(
            words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    @property
    def frame(self) -> str:
        """What is on the screen, without colours."""
        last = self.said.rpartition("\x1b[H")[2]
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last).replace("\r", "")

    def until(self, found: Callable[[], bool], what: str = "") -> None:
        """Read until ``found``."""
        deadline = time.monotonic() + PATIENCE
        while not found():
            assert time.monotonic() < deadline, f"no {what!r} in {self.frame}"
            if self._readable(0.1):
                self.said += os.read(self.master, 65536).decode(errors="replace")

    def see(self, what: str) -> None:
        """Wait until it stands on the screen."""
        self.until(lambda: what in self.frame, what)

    def end(self) -> int:
        """Wait for the program's end; the terminal must be as it was. Its exit code."""
        self.until(lambda: self.process.poll() is not None and not self._readable(0))
        assert termios.tcgetattr(self.slave) == self.before
        assert OFF in self.said
        assert "\x1b[?25h" in self.said.rpartition("\x1b[?25l")[2]  # the cursor is shown
        return int(self.process.returncode)

    def _readable(self, seconds: float) -> bool:
        return bool(select.select([self.master], [], [], seconds)[0])

    @property
    def left(self) -> str:
        """What stands on the terminal after the program, without colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.said.rpartition(OFF)[2]).replace("\r", "")


@pytest.fixture
def opened(scene: Scene) -> Iterator[Callable[..., Tty]]:
    """Opens terminals in which the scene's run is watched."""
    made: list[Tty] = []

    def run(*words: str, **environment: str) -> Tty:
        made.append(Tty([*words] or scene.command, {**scene.environment, **environment}))
        return made[-1]

    yield run
    for tty in made:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(tty.process.pid, signal.SIGKILL)
        tty.process.wait()
        os.close(tty.master)
        os.close(tty.slave)


Opened = Callable[..., Tty]


def test_quitting_leaves_the_run(scene: Scene, opened: Opened) -> None:
    scenes.running(scene)
    tty = opened()
    tty.see(TRAINS)
    tty.press("q")
    assert tty.end() == 0
    assert "the run goes on" in tty.left
    assert "beam-slurm status b300-colocated-7c1f9e" in tty.left
    assert not (scene.bin / "cancelled").exists()


def test_a_run_that_has_ended_gives_its_code(scene: Scene, opened: Opened) -> None:
    scenes.running(scene)
    tty = opened()
    tty.see(TRAINS)
    scenes.failed(scene)  # while it is watched
    tty.see("failed (oom): torch.OutOfMemoryError")
    tty.press("q")
    assert tty.end() == 3
    assert "failed (oom): torch.OutOfMemoryError: CUDA out of memory." in tty.left
    assert "(exit code 3)" in tty.left


def test_a_node_s_log_and_the_driver_s(scene: Scene, opened: Opened) -> None:
    scenes.running(scene)
    tty = opened()
    tty.see("gpu005 spare")  # the log may be there first, and then there is no node to go to yet
    for key, what in (
        ("n", "gpu001: raylet is up"),
        ("\x1b[B", "gpu002: raylet is up"),
        ("\x1bOB", "gpu003: raylet is up"),
        ("n", "there is no log of it yet"),
        ("\x1b[A", "attempt-0/ray/gpu003.log"),
        ("l", "step 37/80"),
        ("\x1b[A", "── gpu005: Ray"),
        ("n", "── log  job-4711.log"),
    ):
        tty.press(key)
        tty.see(what)
    tty.press("n")
    scene.log("a new line", node="gpu001")
    tty.see("a new line")
    tty.press("?")
    tty.see("cancel the run: everything on its nodes ends; asks first")
    tty.press("?")
    tty.see("a new line")
    tty.press("\x1b")  # means nothing
    tty.press("xq")
    assert tty.end() == 0


def test_cancelling_asks_first(scene: Scene, opened: Opened) -> None:
    scenes.running(scene)
    tty = opened()
    tty.see(TRAINS)
    tty.press("c")
    tty.see("cancel b300-colocated-7c1f9e?  y / n")
    tty.press("n")
    tty.see("not cancelled")
    tty.press("xxcyq")  # a pasted text is no answer
    tty.see("y / n")
    tty.press("q")  # any other key is a no
    tty.see("not cancelled")
    assert not (scene.bin / "cancelled").exists()
    tty.press("c")
    tty.see("y / n")
    tty.press("y")
    tty.see("cancelling b300-colocated-7c1f9e: job 4711, running")
    assert (scene.bin / "cancelled").read_text() == "4711\n"
    tty.press("q")
    tty.end()
    assert "the run goes on" not in tty.left
    assert "cancelling b300-colocated-7c1f9e: job 4711, running" in tty.left


def test_no_two_nodes_differ_by_their_colour_alone() -> None:
    """Those that have one sign share a word beside the name, or are out of the run."""
    signs = [sign for what, (sign, _, _) in nodes.SIGNS.items() if what not in nodes.SAID]
    assert len(signs) == len(set(signs))


def test_keys_are_heard_while_the_controller_hangs(scene: Scene, opened: Opened) -> None:
    scenes.running(scene)
    scene.silence()
    tty = opened()
    tty.see(TRAINS)  # by the run's own files
    tty.see("Slurm is being asked")
    tty.press("n")
    tty.see("gpu001: raylet is up")
    tty.press("c")
    tty.see("y / n")
    tty.press("y")
    tty.see("asking Slurm to cancel it")
    tty.press("q")
    tty.until(lambda: "Slurm has not answered yet that it cancels" in tty.left)
    scene.silence(False)
    assert tty.end() == 0
    assert (scene.bin / "cancelled").read_text() == "4711\n"
    assert "the run goes on" not in tty.left


def test_slurm_is_asked_seldom(scene: Scene, opened: Opened) -> None:
    scenes.running(scene)
    tty = opened()
    tty.see(TRAINS)
    began = time.monotonic()
    for _ in range(20):  # neither keys nor a resize ask it
        tty.press("n")
        tty.resize(100, 31)
        tty.see("gpu")
        tty.resize(100, 30)
        time.sleep(0.1)
    asked = len((scene.bin / "asked").read_text().splitlines())
    assert asked <= 3 + time.monotonic() - began
    tty.press("q")
    tty.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_and_give_the_terminal_back(
    scene: Scene, opened: Opened, number: signal.Signals
) -> None:
    scenes.running(scene)
    tty = opened()
    tty.see(TRAINS)
    if number == signal.SIGINT:
        tty.press("\x03")
    else:
        tty.process.send_signal(number)
    assert tty.end() == 128 + number
    assert ("the run goes on" in tty.left) == (number != signal.SIGHUP)


def test_an_error_gives_the_terminal_back(scene: Scene, opened: Opened) -> None:
    scenes.running(scene)
    broken = scene.command[2].replace(
        "import main;",
        "import main; from beam_slurm.progress import Watcher; from time import sleep; "
        "Watcher.look = lambda self: sleep(1) or 1 / 0;",
    )
    tty = opened(scene.command[0], "-c", broken, *scene.command[3:])
    tty.see(TRAINS)
    assert tty.end() == 1
    assert "b300-colocated-7c1f9e cannot be watched any longer" in tty.left
    assert "ZeroDivisionError" in tty.left
    assert "Traceback" not in tty.left


def test_another_size_is_another_picture(scene: Scene, opened: Opened) -> None:
    scenes.running(scene)
    tty = opened()
    tty.see(TRAINS)
    for columns, rows in ((60, 20), (140, 50)):
        tty.resize(columns, rows)
        tty.until(
            lambda rows=rows, columns=columns: (  # type: ignore[misc]
                [len(line) for line in tty.frame.split("\n")] == [columns] * rows
            )
        )
    tty.press("q")
    assert tty.end() == 0


def test_suspended_and_back(scene: Scene, opened: Opened) -> None:
    """In a shell with job control, as people have it."""
    scenes.running(scene)
    tty = opened("bash", "--norc", "-i", PS1="$ ")
    tty.until(lambda: tty.said.endswith("$ "))
    tty.press(shlex.join(scene.command) + "\n")
    tty.see(TRAINS)
    tty.press("\x1a")
    tty.until(lambda: "Stopped" in tty.left and tty.said.endswith("$ "), "Stopped")
    tty.press("stty -a; echo over\n")
    tty.until(lambda: "\nover" in tty.left, "over")
    assert re.search(r"(?<!-)icanon\b", tty.left)
    tty.said = ""
    tty.press("fg\n")
    tty.see(TRAINS)
    tty.press("n")
    tty.see("gpu001: raylet is up")
    tty.press("q")
    tty.until(lambda: OFF in tty.said and tty.said.endswith("$ "), "the end")
    tty.press("echo code $?; exit\n")
    tty.until(lambda: "code 0" in tty.left, "code 0")


def test_colours_are_for_those_who_want_them(scene: Scene, opened: Opened) -> None:
    scenes.spare_used(scene)
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        tty = opened(**environment)
        tty.see(TRAINS)
        tty.press("q")
        tty.end()
        assert bool(re.search(r"\x1b\[[0-9;]*3[1-6]m", tty.said)) == coloured


@pytest.mark.parametrize("how", ["a pipe", "a dumb terminal"])
def test_plain_lines_where_there_is_no_terminal(scene: Scene, opened: Opened, how: str) -> None:
    scenes.failed(scene)
    if how == "a pipe":
        done = subprocess.run(
            scene.command, env=scene.environment, capture_output=True, text=True, check=False
        )
        code, said = done.returncode, done.stdout
    else:
        tty = opened(TERM="dumb")
        tty.until(lambda: "look   beam-slurm logs" in tty.said)
        code, said = tty.process.wait(PATIENCE), tty.said.replace("\r", "")
    assert code == 3
    assert "\x1b" not in said
    assert "the entry has started" in said
    assert "step 37/80, reward 0.597" in said
    assert "failed (oom): torch.OutOfMemoryError" in said
