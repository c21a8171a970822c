"""A stand-in for NeMo RL's program of this name, which needs a GPU cluster.

It does what NeMo RL does where the launcher meets it: reads --config relative to the checkout,
takes every other word as a Hydra override, joins the Ray that is there by ``address="auto"``, and
asks for its nodes by the custom resources that NeMo RL's own launcher gives them.
"""

import os
import sys
from pathlib import Path

import ray
import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))
import look_around

option, path, *overrides = sys.argv[1:]
if option != "--config":
    sys.exit("the first word is not --config")
size = yaml.safe_load(Path(path).read_text())["cluster"]
for word in overrides:
    key, _, value = word.partition("=")
    if key in ("cluster.num_nodes", "cluster.gpus_per_node"):
        size[key.partition(".")[2]] = int(value)

look_around.entry(os.environ["BEAM_LOG_DIR"])
ray.init(address="auto", log_to_driver=False)
look_around.cluster(
    os.environ["BEAM_LOG_DIR"],
    nodes=size["num_nodes"],
    gpus=size["num_nodes"] * size["gpus_per_node"],
    resources=("worker_units", "slurm_managed_ray_cluster"),
)
