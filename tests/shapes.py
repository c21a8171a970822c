"""Whole clusters of the sizes that recipes are published for: see the fixture ``shape``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from beam_slurm.cluster import Cluster

COMMAND = str(Path(sys.executable).with_name("beam-slurm"))

SIZES = ((8, "b300"), (8, "b200"), (12, "h200"), (16, "h200"))


@dataclass(frozen=True)
class Shape:
    """A cluster: its hosts have 8 GPUs of one type each."""

    hosts: int
    gpu: str
    cluster: Cluster


def clean_environment(folder: Path, cluster: Cluster) -> dict[str, str]:
    """A whole environment that finds ``cluster`` and nobody's site file."""
    ours = ("SLURM_", "SBATCH_", "BEAM_SLURM", "RAY_")
    own = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {**own, **cluster.environment(), "XDG_CONFIG_HOME": str(folder)}
