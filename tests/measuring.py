"""The training entry of the sweep tests: it measures a reward that its learning rate makes.

    python measuring.py --learning-rate=1e-3 [--crash=yes]

The reward is best at 1e-3. It writes what the demo writes, in the folder that it is started in, and
crashes until there is a file "mended" in the folder of the sweep.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
distance = abs(math.log10(float(options["learning-rate"])) + 3)
output = Path("output")
output.mkdir(exist_ok=True)
with (output / "metrics.jsonl").open("a") as file:
    for step in range(1, 6):
        reward = step / 5 * (1 - 0.3 * distance)
        record = {"type": "train", "step": step, "steps": 5, "reward": reward, "step_time": 0.01}
        file.write(json.dumps({**record, "time": time.time()}) + "\n")
print("measured", flush=True)
os._exit(3 if options.get("crash") == "yes" and not Path("../mended").exists() else 0)
