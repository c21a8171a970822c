"""Which nodes of the job have fallen silent: a host that loses power tells nobody.

Slurm notices after its SlurmdTimeout, often minutes later, and Ray after most of one. So the
supervisor opens a TCP connection to each node's raylet every few seconds. Any answer is a sign of
life, a refusal too: a process that died is somebody else's to report.

Nodes that fall silent together have hardly died together: their switch may be finding its routes
anew, while InfiniBand carries the training on. They get a minute more.
"""

import errno
import selectors
import socket
import threading
import time
from typing import Callable, Dict, List, Set, Tuple

EVERY = 4.0  # seconds between two rounds, and for an answer
LOST = 5  # rounds in a row without an answer
DOUBT = 15  # rounds more for nodes that fell silent together

Address = Tuple[str, int]


class Pulse(threading.Thread):
    """Calls ``lost(node, why)`` once for a node that has answered before and does no more.

    Where none of the others answers either, this node itself is cut off: then Slurm decides. More
    than one that fall silent within a round of each other are lost after DOUBT rounds more.

    Args:
        nodes: each node's address and a port that its raylet listens on.
        lost: called from this thread.
    """

    def __init__(self, nodes: Dict[str, Address], lost: Callable[[str, str], None]) -> None:
        super().__init__(daemon=True)
        self.nodes = nodes
        self.lost = lost
        self.missed = {}  # type: Dict[str, int]  # only of nodes that have answered once
        self.doubted: Set[str] = set()  # fell silent together with others

    def run(self) -> None:
        """Look until somebody is lost."""
        while True:
            began = time.monotonic()
            gone = self.heard(ask(self.nodes, EVERY))
            for node in gone:
                silent = self.missed[node] * EVERY
                self.lost(node, "it has not answered on the network for %.0f s" % silent)
            if gone:
                return
            time.sleep(max(0.0, EVERY - (time.monotonic() - began)))

    def heard(self, answers: Dict[str, bool]) -> List[str]:
        """Take in one round; the nodes that are lost by now."""
        for node, answered in answers.items():
            if answered:
                self.missed[node] = 0
                self.doubted.discard(node)
            elif node in self.missed:
                self.missed[node] += 1
        silent = [node for node, missed in self.missed.items() if missed >= LOST - 1]
        if len(silent) > 1:
            self.doubted.update(silent)
        if 0 not in self.missed.values():
            return []
        return [
            node
            for node in silent
            if self.missed[node] >= (LOST + DOUBT if node in self.doubted else LOST)
        ]


def answers(address: Address) -> bool:
    """Whether a node gives a sign of life now, for whoever is about to blame it."""
    return ask({"": address}, EVERY)[""]


def ask(nodes: Dict[str, Address], seconds: float) -> Dict[str, bool]:
    """Whether each node answers a connection within ``seconds``."""
    found = dict.fromkeys(nodes, False)
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for node, address in nodes.items():
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            probe.setblocking(False)
            code = probe.connect_ex(address)
            if code in (errno.EINPROGRESS, errno.EWOULDBLOCK):
                selector.register(probe, selectors.EVENT_WRITE, node)
            else:
                found[node] = code in (0, errno.ECONNREFUSED)
                probe.close()
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                probe = key.fileobj  # type: ignore[assignment]
                code = probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                found[key.data] = code in (0, errno.ECONNREFUSED)
                selector.unregister(probe)
                probe.close()
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
    return found
