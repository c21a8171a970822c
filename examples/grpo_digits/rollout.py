"""Generation: a rollout worker answers problems with the weights it is handed."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import task
import torch
from model import build_policy, choose_device

if TYPE_CHECKING:
    from transformers.models.beam.modeling_beam import BeamForCausalLM

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Rollouts:
    """Responses to some problems, as many to each, those to one problem next to each other."""

    sequences: torch.Tensor  # [batch, prompt + response] tokens; after the end token, end tokens
    log_probs: torch.Tensor  # [batch, response] of each token under the policy that chose it
    mask: torch.Tensor  # [batch, response] true up to the end token, that token included
    rewards: torch.Tensor  # [batch]
    seconds: float

    @property
    def lengths(self) -> torch.Tensor:
        return self.mask.sum(dim=1)


class RolloutWorker:
    """One of several actors that generate; it learns nothing and keeps nothing between calls."""

    def __init__(self, seed: int, rank: int) -> None:
        self.device = choose_device()
        self.seed = seed
        self.rank = rank
        self.policy = build_policy(seed, self.device).eval()

    def device_type(self) -> str:
        return str(self.device)

    def generate(
        self, weights: Weights, step: int, problems: list[task.Problem], responses: int
    ) -> Rollouts:
        """``responses`` sampled answers to each problem, at temperature 1."""
        generator = torch.Generator(self.device)
        generator.manual_seed(task.derive_seed(self.seed, "rollout", step, self.rank))
        repeated = [problem for problem in problems for _ in range(responses)]
        return self._answer(weights, repeated, generator)

    def evaluate(self, weights: Weights, problems: list[task.Problem]) -> Rollouts:
        """The likeliest answer to each problem."""
        return self._answer(weights, problems, None)

    def _answer(
        self,
        weights: Weights,
        problems: list[task.Problem],
        generator: torch.Generator | None,
    ) -> Rollouts:
        started = time.perf_counter()
        self.policy.load_state_dict(weights)
        prompts = torch.tensor([task.prompt(problem) for problem in problems], device=self.device)
        sequences, log_probs, mask = (
            part.cpu() for part in sample(self.policy, prompts, generator)
        )
        responses = sequences[:, task.PROMPT_LENGTH :]
        rewards = [
            task.reward(problem, response[kept].tolist())
            for problem, response, kept in zip(problems, responses, mask, strict=True)
        ]
        seconds = time.perf_counter() - started
        return Rollouts(sequences, log_probs, mask, torch.tensor(rewards), seconds)


def sample(
    policy: "BeamForCausalLM", prompts: torch.Tensor, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Continue every prompt until it has ended; without a ``generator``, by the likeliest tokens.

    Returns the first three fields of `Rollouts`.
    """
    batch, device = len(prompts), prompts.device
    responses = torch.full((batch, task.MAX_RESPONSE_LENGTH), task.END, device=device)
    sequences = torch.cat([prompts, responses], dim=1)
    log_probs = torch.zeros(responses.shape, device=device)
    mask = torch.zeros(responses.shape, dtype=torch.bool, device=device)
    running = torch.ones(batch, dtype=torch.bool, device=device)
    for position in range(task.MAX_RESPONSE_LENGTH):
        # Sequences are so short that reading them again is cheaper than a key-value cache.
        known = sequences[:, : task.PROMPT_LENGTH + position]
        with torch.no_grad():
            logits = policy(input_ids=known, use_cache=False, logits_to_keep=1).logits[:, 0]
        distribution = torch.log_softmax(logits, dim=-1)
        if generator is None:
            tokens = distribution.argmax(dim=-1)
        else:
            tokens = torch.multinomial(distribution.exp(), 1, generator=generator).squeeze(1)
        tokens = tokens.where(running, task.END)
        sequences[:, task.PROMPT_LENGTH + position] = tokens
        log_probs[:, position] = distribution.gather(1, tokens.unsqueeze(1)).squeeze(1)
        mask[:, position] = running
        running = running & (tokens != task.END)
        if not running.any():
            break
    return sequences, log_probs, mask
