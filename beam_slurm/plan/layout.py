"""Whose GPUs are whose, and how many data-parallel copies a cut leaves."""

from __future__ import annotations

from dataclasses import dataclass

from beam_slurm.schema import Learner, Profile


@dataclass(frozen=True)
class Layout:
    """How the learner's ``world`` GPUs are used.

    Attributes:
        learner: the cut.
        nodes: nodes that train.
        world: GPUs that train.
    """

    learner: Learner
    nodes: int
    world: int

    @property
    def model(self) -> int:
        """GPUs of one copy of the model's dense part: TP · PP · CP."""
        return self.learner.tensor * self.learner.pipeline * self.learner.context

    @property
    def data(self) -> int:
        """Data-parallel copies (DP)."""
        return self.world // self.model

    @property
    def expert_model(self) -> int:
        """GPUs of one copy of the experts: PP · EP · ETP; for FSDP2, EP."""
        if self.sharded:
            return self.learner.expert
        return self.learner.pipeline * self.learner.expert * self.learner.expert_tensor

    @property
    def sharded(self) -> bool:
        """Whether all GPUs share all parameters (FSDP2)."""
        return self.learner.backend == "automodel-fsdp2"

    @property
    def legal(self) -> bool:
        """Whether both products divide the GPUs."""
        return self.world % self.model == 0 and self.world % self.expert_model == 0

    def __str__(self) -> str:
        cut = self.learner
        words = [f"TP{cut.tensor}", f"PP{cut.pipeline}", f"CP{cut.context}", f"EP{cut.expert}"]
        if cut.expert_tensor > 1:
            words.append(f"ETP{cut.expert_tensor}")
        return " ".join(words)


def layout(profile: Profile) -> Layout | None:
    """How the profile's learner is cut; None if it says nothing of that."""
    learner = profile.recipe.learner
    if learner is None:
        return None
    nodes = learner.nodes or profile.hardware.nodes
    return Layout(learner, nodes, nodes * profile.hardware.gpus_per_node)


def rollout_gpus(profile: Profile) -> int:
    """GPUs that generate."""
    rollout = profile.recipe.rollout
    nodes = rollout.nodes if rollout and rollout.nodes else profile.hardware.nodes
    return nodes * profile.hardware.gpus_per_node


def responses(profile: Profile) -> int:
    """Responses of one training step."""
    return profile.recipe.prompts_per_step * profile.recipe.responses_per_prompt
