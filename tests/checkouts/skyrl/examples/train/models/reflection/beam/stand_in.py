"""The Python side of the stand-in launch scripts beside this file.

It does what SkyRL does where the launcher meets it: ``ray.init()`` without an address, and the
training loop as a Ray task that may land on any node, with shared storage by EXPORT_PATH.
"""

import os
import sys
from pathlib import Path

import ray

CHECKOUTS = str(Path(__file__).parents[6])
sys.path.insert(0, CHECKOUTS)
import look_around  # noqa: E402

nodes, *argv = sys.argv[1:]
look_around.entry(os.environ["EXPORT_PATH"], ["bash", *argv])
if not os.environ.get("RAY_ADDRESS"):
    sys.exit("without RAY_ADDRESS, SkyRL would start a Ray of its own")
ray.init(log_to_driver=False)


@ray.remote(num_cpus=1)
def skyrl_entrypoint(nodes):
    sys.path.insert(0, CHECKOUTS)  # a worker's is its own
    from look_around import cluster

    cluster(os.environ["EXPORT_PATH"], nodes, nodes * 8 if nodes else None)


ray.get(skyrl_entrypoint.remote(int(nodes) or None))
