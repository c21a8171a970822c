"""Which training framework runs, and what only it needs to know."""

from __future__ import annotations

from typing import Literal

from beam_slurm.schema.base import Line, Model


class NemoRL(Model):
    """NVIDIA NeMo RL."""

    name: Literal["nemo-rl"]
    """The framework."""
    config: Line
    """The recipe's YAML, relative to the checkout."""
    image: Line
    """Which of the site's images it needs: a key of site.images."""


class SkyRL(Model):
    """NovaSky's SkyRL."""

    name: Literal["skyrl"]
    """The framework."""
    script: Line
    """The recipe's launch script, relative to the checkout."""
    image: Line
    """Which of the site's images it needs: a key of site.images."""
    model_variable: Line = "MODEL_PATH"
    """The environment variable by which the script is told where the model is."""
    data_script: Line = "examples/train/algorithms/dapo/prepare_dapo_data.sh"
    """What writes the problems into DATA_DIR, relative to the checkout: see beam-slurm prepare."""


class Miles(Model):
    """RadixArk's Miles."""

    name: Literal["miles"]
    """The framework."""
    script: Line
    """The recipe's launcher, relative to the checkout."""
    command: Literal["execute", "execute-colocate"]
    """The launcher's command."""
    checkpoints: Line = "checkpoints"
    """Where it saves, below the output folder."""
    prepare_script: Line = "scripts/run_beam.py"
    """The launcher whose command prepare downloads model and problems."""
    image: Line
    """Which of the site's images it needs: a key of site.images."""


class Demo(Model):
    """The digit-sum GRPO of examples/grpo_digits: real training, on any machine."""

    name: Literal["demo"]
    """The framework."""
    entry: list[str] | None = None
    """Another program instead of train.py: its whole argv."""


Framework = NemoRL | SkyRL | Miles | Demo

BY_NAME: dict[str, type[Model]] = {"nemo-rl": NemoRL, "skyrl": SkyRL, "miles": Miles, "demo": Demo}
"""Every framework's model by the name that YAML gives it."""
