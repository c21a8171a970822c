"""A stand-in for Miles' trainer, which needs a GPU cluster: the Ray job of its launchers.

It wants exactly the GPUs that its flags tell it to use: too few, and Miles waits for ever.
"""

import argparse
import sys
from pathlib import Path

import ray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import look_around

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--output-dir", required=True)
parser.add_argument("--num-nodes", type=int, required=True)
parser.add_argument("--num-gpus-per-node", type=int, required=True)
parser.add_argument("--actor-num-nodes", type=int)
parser.add_argument("--actor-num-gpus-per-node", type=int)
parser.add_argument("--rollout-num-gpus", type=int)
parser.add_argument("--save-trigger-sentinel")
args = parser.parse_args()
gpus = args.num_nodes * args.num_gpus_per_node
if args.actor_num_nodes:
    gpus = args.actor_num_nodes * args.actor_num_gpus_per_node + args.rollout_num_gpus
ray.init()
look_around.cluster(args.output_dir, args.num_nodes, gpus)
print(f"the trainer has {gpus} GPUs", flush=True)
