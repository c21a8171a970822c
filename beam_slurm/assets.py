"""Whether model and problems are whole, as far as names, sizes and headers tell; see node.assets.

The rules live in the node-side program, which verifies where beam-slurm is not installed.
"""

from __future__ import annotations

from pathlib import Path

from beam_slurm.node import assets


def check_model(folder: Path) -> list[str]:
    """What is wrong with the Beam checkpoint in ``folder``, as sentences; empty: nothing."""
    return assets.check_model(str(folder))


def check_datasets(framework: str, folder: Path) -> list[str]:
    """What is wrong with a framework's problems to train and evaluate on; empty: nothing.

    Args:
        framework: nemo-rl, skyrl, miles or demo.
        folder: SkyRL's DATA_DIR, Miles' --data-dir, NeMo RL's HF_HOME; the demo has no data.
    """
    return assets.check_datasets(framework, str(folder))
