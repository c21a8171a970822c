"""Ports of one job: a set of its own, fixed, outside the kernel's ephemeral range.

A set is a block of 1,000. Which block follows from the job's number, so that two jobs on a node
start from different ones; a block with a taken port is passed over. Only the head's first two
ports must be agreed on beforehand; every other one is registered with Ray, so each node may use
the block that is free there.
"""

import socket
from typing import Dict, Iterable, List, Tuple

BLOCK = 1000
LOWEST, HIGHEST = 10000, 65000
EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"

# Offsets in a block. Worker processes take the rest: one port each.
GCS, DASHBOARD, AGENT_HTTP, AGENT_GRPC, RUNTIME_ENV, NODE, OBJECTS, METRICS = range(8)
HEAD_METRICS, DASHBOARD_METRICS = 8, 9
FIRST_WORKER = 20


class NoPorts(Exception):
    """Every block has a taken port; the text names them."""


def for_head(ip: str, job: int) -> Tuple[int, int]:
    """(GCS, dashboard) ports that are free on ``ip``."""
    base = _free_block(ip, job, (GCS, DASHBOARD))
    return base + GCS, base + DASHBOARD


def for_node(ip: str, job: int, gcs: int, head: bool) -> Dict[str, int]:
    """The fixed ports of one Ray node, as ``ray start`` names them."""
    # The head stays in the block whose GCS port is known to the others.
    needed = (AGENT_HTTP, AGENT_GRPC, RUNTIME_ENV, NODE, OBJECTS, METRICS)
    base = gcs - GCS if head else _free_block(ip, job, needed)
    return {
        "node-manager-port": base + NODE,
        "object-manager-port": base + OBJECTS,
        "runtime-env-agent-port": base + RUNTIME_ENV,
        "dashboard-agent-grpc-port": base + AGENT_GRPC,
        "dashboard-agent-listen-port": base + AGENT_HTTP,
        "metrics-export-port": base + METRICS,
        "min-worker-port": base + FIRST_WORKER,
        "max-worker-port": base + BLOCK - 1,
    }


def of_raylet(gcs: int) -> int:
    """Where a node's raylet most likely listens: in the head's block, if that is free there too."""
    return gcs - GCS + NODE


def metrics_of_head(gcs: int) -> Dict[str, str]:
    """Variables for the metrics servers that only the head has."""
    return {
        "AUTOSCALER_METRIC_PORT": str(gcs + HEAD_METRICS),
        "DASHBOARD_METRIC_PORT": str(gcs + DASHBOARD_METRICS),
    }


def blocks() -> List[int]:
    """The first port of every block outside the ephemeral range."""
    low, high = _ephemeral()
    return [
        base
        for base in range(LOWEST, HIGHEST - BLOCK + 1, BLOCK)
        if base + BLOCK <= low or base > high
    ]


def _ephemeral() -> Tuple[int, int]:
    try:
        with open(EPHEMERAL) as file:
            low, high = file.read().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32768, 60999


def _free_block(ip: str, job: int, offsets: Iterable[int]) -> int:
    offsets = tuple(offsets)
    usable = blocks()
    taken = []  # type: List[int]
    for turn in range(len(usable)):
        base = usable[(job + turn) % len(usable)]
        busy = [base + offset for offset in offsets if not _free(ip, base + offset)]
        if not busy:
            return base
        taken += busy
    raise NoPorts(
        "no free block of %d ports outside the ephemeral range %d-%d; taken: %s"
        % (BLOCK, *_ephemeral(), ", ".join(map(str, taken)) or "all of it")
    )


def _free(ip: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a connection of the last attempt in TIME_WAIT is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except OSError:
            return False
    return True
