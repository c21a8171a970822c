"""node.pyz's verbs on this machine alone, without Slurm: as a run with --local calls them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from beam_slurm.pack import node_program

PATIENCE = 120


def course(
    run: Path,
    *more: str,
    layout: str = "demo",
    steps: int = 100,
    every: int = 20,
    checkpoints: Path | None = None,
) -> list[str]:
    """The words by which a script tells its rules, as templates/preflight.j2 writes them."""
    return [
        f"--run={run}",
        f"--script={run}/script.sbatch",
        f"--allocated={socket.gethostname()}",
        "--nodes=1",
        f"--framework={layout}",
        f"--steps={steps}",
        *([f"--save-every={every}", f"--checkpoints={checkpoints}"] if checkpoints else []),
        "--again=local",
        *more,
    ]


def environment(**more: str) -> dict[str, str]:
    """What the verbs read of Slurm."""
    return {
        "PATH": os.environ["PATH"],
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_CPUS_PER_NODE": "4",
        "SLURMD_NODENAME": socket.gethostname(),
        **more,
    }


def program(run: Path) -> list[str]:
    """How node.pyz is called; it is put into ``run``."""
    run.mkdir(parents=True, exist_ok=True)
    (run / "node.pyz").write_bytes(node_program())
    return [sys.executable, str(run / "node.pyz")]


def preflight(
    run: Path,
    *more: str,
    inspect: tuple[str, ...] = (),
    layout: str = "demo",
    checkpoints: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """The verb ``preflight``, with ``inspect`` asking for ``inspect``."""
    node = program(run)
    rules = course(run, *more, layout=layout, checkpoints=checkpoints)
    return subprocess.run(
        [*node, "preflight", *rules, "--", *node, "inspect", *inspect],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
