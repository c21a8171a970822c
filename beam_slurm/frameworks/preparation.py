"""What a framework needs before its first run: steps that download and convert, and what they make.

Downloads resume: ``hf download`` keeps what is whole and goes on with what is partial.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from beam_slurm.mounts import Mount

Asset = Literal["model", "datasets"]

MODEL_ID = "reflection/Beam-1.0-501B-A23B"
"""The model's name at Hugging Face, as the cookbook has it. No revision is pinned there."""


@dataclass(frozen=True)
class Step:
    """One program of the framework.

    Attributes:
        what: for people, a few words.
        argv: its words, as run inside the container.
        makes: which assets it makes; it is left out where they verify already.
    """

    what: str
    argv: tuple[str, ...]
    makes: tuple[Asset, ...]


@dataclass(frozen=True)
class Preparation:
    """Everything about preparing for one framework.

    Attributes:
        title: the framework's name for people.
        framework: its name in profiles, by which data sets are verified.
        steps: in the order in which they run.
        model: the model's folder as the hosts see it; None if there is none.
        datasets: where the problems go, as the hosts see it; None if there are none.
        workdir: where the steps run, as seen inside the container.
        environment: exported before the first step.
        secrets: names of variables that are handed into the container if the job has them.
        container: the image as the site spells it; None where hosts run the steps bare.
        mounts: what the steps need inside the container.
    """

    title: str
    framework: str
    steps: tuple[Step, ...] = ()
    model: str | None = None
    datasets: str | None = None
    workdir: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ("HF_TOKEN",)
    container: str | None = None
    mounts: tuple[Mount, ...] = ()

    def without(self, whole: Collection[Asset]) -> Preparation:
        """The same, less the steps that make nothing but what is ``whole``."""
        steps = tuple(step for step in self.steps if not set(step.makes) <= set(whole))
        return replace(self, steps=steps)


def download_model(folder: str) -> Step:
    """The step that downloads the model into ``folder``, as NeMo RL's cookbook has it."""
    argv = ("hf", "download", MODEL_ID, "--local-dir", folder)
    return Step("download the model, about 1 TB", argv, ("model",))
