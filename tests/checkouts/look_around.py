"""What the stand-in frameworks beside this file write down about where they were started.

``entry.json``: the entry's argv, folder and environment. ``cluster.json``: every node of its Ray
with its resources and the environment of a worker there. Both are written whole or not at all.
"""

import json
import os
import sys
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

PATIENCE = 300  # seconds for one worker process on a busy machine


def entry(folder, argv=None):
    """Write what the entry was given; ``argv`` if it is not this program's own."""
    argv = argv or sys.orig_argv
    here = str(Path.cwd())
    write(folder, "entry", {"argv": argv, "folder": here, "environment": dict(os.environ)})


def cluster(folder, nodes=None, gpus=None, resources=()):
    """Ask every node of this Ray for its environment, one after the other, and write it down.

    Ends the program if there are not ``nodes`` nodes and ``gpus`` GPUs, or if a node lacks one of
    the custom ``resources``: a framework would wait for them for ever.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    total = sum(node["Resources"].get("GPU", 0) for node in alive)
    if (nodes or len(alive), gpus or total) != (len(alive), total):
        sys.exit(
            f"Ray has {len(alive)} nodes and {total} GPUs, the recipe wants {nodes} and {gpus}"
        )
    for node in alive:
        if lacking := set(resources) - set(node["Resources"]):
            sys.exit(f"{node['NodeName']} lacks the custom resources {lacking}")

    @ray.remote(num_cpus=0)
    def environment():
        return dict(os.environ)

    seen = {}
    for node in alive:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked = environment.options(scheduling_strategy=there).remote()
        found = ray.get(asked, timeout=PATIENCE)
        seen[node["NodeName"]] = {"resources": node["Resources"], "environment": found}
    write(folder, "cluster", seen)


def write(folder, name, what):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{name}.part"
    part.write_text(json.dumps(what))
    part.rename(folder / f"{name}.json")
