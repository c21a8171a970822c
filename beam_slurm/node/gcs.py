"""Ray's control store (GCS): the cheapest way to ask a Ray cluster who is there."""

import os
import socket
import sys
import time
from typing import Any, Dict


class NoRay(Exception):
    """Ray is not installed here, or nobody answers; the text says which."""


def connect(seconds: float) -> Any:
    """Ray's client of the control store at $RAY_ADDRESS, as soon as its port answers.

    Raises:
        NoRay: this Python has no Ray, or the port is silent for ``seconds``.
    """
    try:
        from ray._raylet import GcsClient  # type: ignore[attr-defined,unused-ignore]
    except ImportError as problem:
        raise NoRay("this Python (%s) has no Ray: %s" % (sys.executable, problem)) from problem
    where = os.environ["RAY_ADDRESS"]
    host, port = where.rsplit(":", 1)
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, int(port)), 2).close()
            return GcsClient(address=where)
        except OSError as problem:
            if time.monotonic() > deadline:
                raise NoRay(
                    "the head's Ray at %s did not answer within %.0f s: %s"
                    % (where, seconds, problem)
                ) from None
        time.sleep(0.05)


def alive(client: Any) -> Dict[str, float]:
    """Name and GPUs of each live node."""
    return {
        info.node_name: float(info.resources_total.get("GPU", 0))
        for info in client.get_all_node_info().values()
        if info.state == 0
    }
