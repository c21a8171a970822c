"""Which nodes of the job have fallen silent: a host that loses power tells nobody.

Slurm notices after its SlurmdTimeout, often minutes later, and Ray after most of one. So the
supervisor opens a TCP connection to each node's raylet every few seconds. Any answer is a sign of
life, a refusal too: a process that died is somebody else's to report.
"""

import errno
import selectors
import socket
import threading
import time
from typing import Callable, Dict, Tuple

EVERY = 4.0  # seconds between two rounds, and for an answer
LOST = 5  # rounds in a row without an answer

Address = Tuple[str, int]


class Pulse(threading.Thread):
    """Calls ``lost(node, why)`` once for a node that has answered before and does no more.

    Where none of the others answers either, this node itself is cut off: then Slurm decides.

    Args:
        nodes: each node's address and a port that its raylet listens on.
        lost: called from this thread.
    """

    def __init__(self, nodes: Dict[str, Address], lost: Callable[[str, str], None]) -> None:
        super().__init__(daemon=True)
        self.nodes = nodes
        self.lost = lost
        self.missed = {}  # type: Dict[str, int]  # only of nodes that have answered once

    def run(self) -> None:
        """Look until somebody is lost."""
        while True:
            began = time.monotonic()
            answers = ask(self.nodes, EVERY)
            for node in self.nodes:
                if answers[node]:
                    self.missed[node] = 0
                elif node in self.missed:
                    self.missed[node] += 1
            gone = [node for node, missed in self.missed.items() if missed >= LOST]
            others = set(self.missed) - set(gone)
            if gone and any(self.missed[node] == 0 for node in others):
                for node in gone:
                    why = "it has not answered on the network for %.0f s" % (LOST * EVERY)
                    self.lost(node, why)
                return
            time.sleep(max(0.0, EVERY - (time.monotonic() - began)))


def ask(nodes: Dict[str, Address], seconds: float) -> Dict[str, bool]:
    """Whether each node answers a connection within ``seconds``."""
    answers = dict.fromkeys(nodes, False)
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for node, address in nodes.items():
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            probe.setblocking(False)
            code = probe.connect_ex(address)
            if code in (errno.EINPROGRESS, errno.EWOULDBLOCK):
                selector.register(probe, selectors.EVENT_WRITE, node)
            else:
                answers[node] = code in (0, errno.ECONNREFUSED)
                probe.close()
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                probe = key.fileobj  # type: ignore[assignment]
                code = probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                answers[key.data] = code in (0, errno.ECONNREFUSED)
                selector.unregister(probe)
                probe.close()
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
    return answers
