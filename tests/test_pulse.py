"""Which nodes have fallen silent: addresses of this machine that answer, refuse, or do neither."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from beam_slurm.node import pulse
from beam_slurm.node.pulse import Pulse

PATIENCE = 20
ASK = pulse.ask


class Node:
    """A port of this machine; a full backlog makes it silent, as a host without power is."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0), backlog=1)
        self.address = self.server.getsockname()
        self.waiting: list[socket.socket] = []
        self.ends, self.end = socket.socketpair()
        self.raylet = threading.Thread(target=self.answer)
        self.raylet.start()

    def answer(self) -> None:
        """Take every connection, as a raylet does."""
        while self.ends not in select.select([self.server, self.ends], [], [])[0]:
            self.server.accept()[0].close()

    def fall_silent(self) -> None:
        """Let whoever connects from now on wait."""
        self.stop()
        while not self.waiting or ASK({"n": self.address}, 0.1)["n"]:
            for _ in range(4):
                client = socket.socket()
                client.setblocking(False)
                client.connect_ex(self.address)
                self.waiting.append(client)

    def stop(self) -> None:
        with contextlib.suppress(OSError):  # it has been stopped before
            self.end.send(b"x")
        self.raylet.join()

    def refuse(self) -> None:
        """Its raylet is gone, the host is not."""
        self.close()

    def close(self) -> None:
        self.stop()
        for client in (self.server, self.ends, self.end, *self.waiting):
            client.close()


@pytest.fixture
def nodes() -> Iterator[dict[str, Node]]:
    made = {f"n{number}": Node() for number in (1, 2, 3)}
    with contextlib.ExitStack() as stack:
        for node in made.values():
            stack.callback(node.close)
        yield made


class Watch:
    """A pulse that looks often."""

    def __init__(self, nodes: dict[str, Node], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pulse, "EVERY", 0.05)
        monkeypatch.setattr(pulse, "LOST", 4)
        self.lost: list[str] = []
        self.said: list[str] = []
        self.rounds = 0
        self.turned = threading.Condition()
        monkeypatch.setattr(pulse, "ask", self.ask)
        self.held = threading.Lock()  # by the test: then nobody is asked
        self.pulse = Pulse({name: node.address for name, node in nodes.items()}, self.lose)
        self.pulse.start()

    def ask(self, nodes: dict[str, pulse.Address], seconds: float) -> dict[str, bool]:
        """The real question, and a count of the rounds."""
        with self.held:
            answers = ASK(nodes, seconds)
        with self.turned:
            self.rounds += 1
            self.turned.notify_all()
        return answers

    def lose(self, node: str, why: str) -> None:
        self.lost.append(node)
        self.said.append(why)

    def turn(self, rounds: int) -> None:
        """Wait for more rounds."""
        with self.turned:
            until = self.rounds + rounds
            assert self.turned.wait_for(lambda: self.rounds >= until, PATIENCE)


def test_who_answers_and_who_does_not(nodes: dict[str, Node]) -> None:
    nodes["n2"].refuse()
    nodes["n3"].fall_silent()
    began = time.monotonic()
    answers = pulse.ask({name: node.address for name, node in nodes.items()}, 0.3)
    assert answers == {"n1": True, "n2": True, "n3": False}
    assert 0.3 <= time.monotonic() - began < 2


def test_a_node_that_answers_no_more_is_lost_once(
    nodes: dict[str, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(nodes, monkeypatch)
    watch.turn(2)
    nodes["n2"].refuse()
    watch.turn(6)
    assert watch.lost == []
    nodes["n3"].fall_silent()
    watch.pulse.join(PATIENCE)
    assert watch.lost == ["n3"]
    assert watch.said == ["it has not answered on the network for 0 s"]


def test_who_has_never_answered_is_not_lost(
    nodes: dict[str, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes["n3"].fall_silent()
    watch = Watch(nodes, monkeypatch)
    watch.turn(8)
    assert watch.lost == []
    nodes["n2"].fall_silent()  # it ends the thread, and shows that it was looking
    watch.pulse.join(PATIENCE)
    assert watch.lost == ["n2"]


def test_where_all_are_silent_it_is_this_node_that_is_cut_off(
    nodes: dict[str, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(nodes, monkeypatch)
    watch.turn(2)
    with watch.held:
        for node in nodes.values():
            node.fall_silent()
    watch.turn(8)
    assert watch.lost == []
    assert watch.pulse.is_alive()
    nodes["n1"].refuse()  # one is back: the others are not
    watch.pulse.join(PATIENCE)
    assert watch.lost == ["n2", "n3"]
