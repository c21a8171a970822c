"""The training entry of the security test: repeats its secrets wherever it can, as others do."""

import os
import sys
import time
from pathlib import Path

import ray

NAMES = sys.argv[1:]


def repeat(who: str) -> None:
    for name in NAMES:
        print(f"{who}: EXEC: train.py --wandb-key '{os.environ[name]}'", flush=True)
    print(f"{who}: {dict(os.environ)}", file=sys.stderr, flush=True)


ray.init(address="auto", logging_level="ERROR")
repeat("entry")
ray.get(ray.remote(repeat).remote("task"))
while not Path("looked").exists():
    time.sleep(0.05)
