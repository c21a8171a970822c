"""A stand-in for Miles' launcher of this name, which needs a GPU cluster.

It does what Miles does where the launcher meets it: flags with defaults, no Ray of its own if
MILES_SCRIPT_EXTERNAL_RAY says so, and a Ray job that it hands to the dashboard and waits for.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE.parent))
import look_around  # noqa: E402


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("command", choices=("execute", "execute-colocate"))
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--num-gpus-per-node", type=int, default=8)
    parser.add_argument("--model-dir", default="/root/models")
    parser.add_argument("--data-dir", default="/root/datasets")
    parser.add_argument("--output-dir", default="/root/shared_data")
    parser.add_argument("--num-rollout", type=int, default=0)
    parser.add_argument("--optimizer-disk-dir", default="/scratch/beam-optimizer")
    parser.add_argument("--async-training", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--extra-args", default="")
    args = parser.parse_args()
    if os.environ.get("MILES_SCRIPT_EXTERNAL_RAY") != "1":
        sys.exit("without MILES_SCRIPT_EXTERNAL_RAY=1, Miles would stop this Ray and start its own")
    look_around.entry(args.output_dir)
    variables = {"MASTER_ADDR": os.environ["MASTER_ADDR"], "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    key = os.environ.get("WANDB_API_KEY")  # the launcher writes it out, and so does its job
    asynchronous = args.async_training and args.command == "execute"
    submit = [
        *("ray", "job", "submit", f"--runtime-env-json={json.dumps({'env_vars': variables})}"),
        *("--", "python3", str(HERE / ("train_async.py" if asynchronous else "train.py"))),
        f"--output-dir={args.output_dir}",
        f"--num-nodes={args.num_nodes}",
        f"--num-gpus-per-node={args.num_gpus_per_node}",
        *([f"--wandb-key={key}"] if key else []),
        *shlex.split(args.extra_args),
    ]
    print("EXEC:", shlex.join(submit), flush=True)
    sys.exit(subprocess.run(submit, check=False).returncode)


if __name__ == "__main__":
    main()
