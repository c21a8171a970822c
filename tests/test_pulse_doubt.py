"""Nodes that fall silent together may have lost their switch for a while, and not their power."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from beam_slurm.node import pulse
from beam_slurm.node.pulse import DOUBT, EVERY, LOST, Pulse

NODES = [f"n{number}" for number in range(1, 9)]
LONG = LOST + DOUBT  # rounds


def rounds(silent: dict[str, range], nodes: list[str], count: int) -> tuple[int, list[str]]:
    """The round in which somebody is lost, and who; (0, []) if nobody is in ``count`` rounds.

    Args:
        silent: in which rounds, counted from 1, a node does not answer; round 0 is for all.
        nodes: all of them.
        count: how many rounds there are.
    """
    watch = Pulse(dict.fromkeys(nodes, ("127.0.0.1", 1)), lambda node, why: None)
    for number in range(count):
        gone = watch.heard({node: number not in silent.get(node, ()) for node in nodes})
        if gone:
            return number, gone
    return 0, []


def since(first: int) -> range:
    return range(first, 1000)


@pytest.mark.parametrize(
    ("silent", "nodes", "expected"),
    [
        ({"n2": since(1)}, NODES, (LOST, ["n2"])),
        ({"n2": since(1)}, NODES[:2], (LOST, ["n2"])),
        ({"n2": range(1, LOST)}, NODES, (0, [])),
        # One after the other: two faults.
        ({"n2": since(1), "n3": since(3)}, NODES, (LOST, ["n2"])),
        # Together: a switch, until they have been away for long.
        ({"n2": since(1), "n3": since(1)}, NODES, (LONG, ["n2", "n3"])),
        ({"n2": since(1), "n3": since(2)}, NODES, (LONG, ["n2"])),
        ({node: since(1) for node in NODES[1:]}, NODES, (LONG, NODES[1:])),
        ({node: range(1, LONG) for node in NODES[1:]}, NODES, (0, [])),
        # The switch is back, and one of them is not, or falls silent again.
        ({"n2": since(1), "n3": range(1, LOST + 2)}, NODES, (LONG, ["n2"])),
        ({"n2": [*range(1, 9), *range(20, 99)], "n3": range(1, 9)}, NODES, (19 + LOST, ["n2"])),
        # This node was cut off from all others, which do not come back in the same round.
        ({node: since(1) for node in NODES}, NODES, (0, [])),
        ({"n1": range(1, 9), "n2": range(1, 10)}, NODES[:2], (0, [])),
        ({"n1": range(1, 9), "n2": since(1)}, NODES[:2], (LONG, ["n2"])),
    ],
)  # fmt: skip
def test_who_is_lost_and_when(
    silent: dict[str, range], nodes: list[str], expected: tuple[int, list[str]]
) -> None:
    assert rounds(silent, nodes, 2 * LONG) == expected


def test_one_node_is_found_soon_and_a_switch_has_its_minute() -> None:
    assert LOST * EVERY + EVERY <= 30
    assert DOUBT * EVERY == 60


@pytest.fixture
def silent() -> Iterator[pulse.Address]:
    """A port whose queue is full: nobody takes a connection or refuses one."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.socket() as client:
        client.connect(server.getsockname())
        yield server.getsockname()


def test_one_is_asked_once_more(silent: pulse.Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "EVERY", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert pulse.answers(address)
    assert pulse.answers(address)  # a refusal is a sign of life
    assert not pulse.answers(silent)
