"""The driver of every launcher: ``driver.py MARKS HOSTS GPUS``.

Writes a line ``NAME SECONDS`` (seconds since the epoch) into the file MARKS at its first line, when
it is connected, when every host has run a task, and as its last deed.
"""

import time

FIRST = time.time()  # before any other import: Ray's alone takes a second

import logging  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

MARKS, HOSTS, GPUS = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
PATIENCE = 120  # seconds that hosts may still join: not every launcher waits for them


def mark(name: str, seconds: float) -> None:
    """Add one line to the marks."""
    with MARKS.open("a") as file:
        file.write(f"{name} {seconds:.3f}\n")


mark("first", FIRST)

import ray  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402


@ray.remote(num_cpus=1)
def host_name() -> str:
    """The host that this task runs on."""
    return os.uname().nodename


def check() -> str:
    """Run a task on every host. Returns what is wrong, "" if nothing."""
    ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
    mark("connected", time.time())
    deadline = time.monotonic() + PATIENCE
    while True:
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        if len(nodes) >= HOSTS or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    gpus = ray.cluster_resources().get("GPU", 0)
    if (len(nodes), gpus) != (HOSTS, GPUS):
        return f"{len(nodes)} hosts and {gpus:g} GPUs instead of {HOSTS} and {GPUS}"
    there = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    names = ray.get([host_name.options(scheduling_strategy=at).remote() for at in there])
    mark("tasks", time.time())
    return "" if len(set(names)) == HOSTS else f"tasks ran on {sorted(set(names))}"


problem = check()
print(problem or "all hosts are there", flush=True)
mark("last", time.time())
os._exit(1 if problem else 0)  # at once: how long Ray's own exit takes is no launcher's doing
