"""The demo's way without Slurm, as `make demo` takes it where root or the packages are missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_without_slurm_the_demo_says_so_and_runs_here(tmp_path: Path) -> None:
    tools = f"{Path(sys.executable).parent}:/usr/bin:/bin"  # slurmctld lies in /usr/sbin
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "BEAM_SLURM"))}
    steps = ["--set", "recipe.steps=2", "--set", "recipe.evaluation.every=2"]
    done = subprocess.run(
        [str(ROOT / "examples" / "demo.sh"), *steps],
        cwd=tmp_path,
        env={**kept, "PATH": tools, "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runs on this machine alone, without Slurm" in done.stdout
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "report.png").stat().st_size > 10_000
    assert (run / "output" / "checkpoints" / "step_000002").is_dir()
    outcome = json.loads((run / "attempt-0" / "outcome.json").read_text())
    assert (outcome["state"], outcome["exit_code"]) == ("succeeded", 0)
    pid = json.loads((run / "manifest.json").read_text())["pid"]
    assert not list(Path("/tmp").glob(f"beam-{pid}-*"))
