"""Training: the learner owns the policy and the optimizer and improves them by GRPO."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import checkpoint
import task
import torch
from grpo import clipped_loss, group_advantages, masked_mean
from model import build_policy, choose_device, response_logits
from rollout import Rollouts, Weights

PASSES_PER_BATCH = 2  # In the second one the ratio has left 1 and clipping has its say.
GRADIENT_CLIP = 1.0
WARM_UP_STEPS = 5
COOL_DOWN_SHARE = 1 / 3  # of all steps


@dataclass(frozen=True)
class Recipe:
    """What decides how a run learns; kept in every checkpoint."""

    seed: int
    steps: int
    responses_per_prompt: int
    learning_rate: float
    clip_low: float
    clip_high: float


class Learner:
    """The one actor whose weights change."""

    def __init__(self, recipe: Recipe, resume_from: Path | None) -> None:
        self.recipe = recipe
        self.device = choose_device()
        self.policy = build_policy(recipe.seed, self.device).train()
        self.optimizer = torch.optim.AdamW(
            self.policy.parameters(), recipe.learning_rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        if resume_from is not None:
            model, optimizer, _ = checkpoint.load(resume_from, self.device)
            self.policy.load_state_dict(model)
            self.optimizer.load_state_dict(optimizer)

    def device_type(self) -> str:
        return str(self.device)

    def weights(self) -> Weights:
        return {name: tensor.cpu() for name, tensor in self.policy.state_dict().items()}

    def save(self, folder: Path, step: int) -> Path:
        return checkpoint.save(
            folder, step, self.policy.state_dict(), self.optimizer.state_dict(), asdict(self.recipe)
        )

    def update(self, step: int, *shards: Rollouts) -> dict[str, float]:
        """Learn from the batch that the workers' ``shards`` make up together."""
        started = time.perf_counter()
        sequences = torch.cat([shard.sequences for shard in shards]).to(self.device)
        rollout_log_probs = torch.cat([shard.log_probs for shard in shards]).to(self.device)
        mask = torch.cat([shard.mask for shard in shards]).to(self.device)
        rewards = torch.cat([shard.rewards for shard in shards]).to(self.device)
        advantages = group_advantages(rewards, self.recipe.responses_per_prompt)
        clip = (self.recipe.clip_low, self.recipe.clip_high)
        self._set_learning_rate(step)

        before: dict[str, float] = {}
        losses, grad_norms = [], []
        for _ in range(PASSES_PER_BATCH):
            log_probs, entropy = self._read(sequences)
            before = before or describe_policy(log_probs, rollout_log_probs, entropy, mask)
            loss = clipped_loss(log_probs, rollout_log_probs, advantages, mask, clip)
            losses.append(loss.item())
            grad_norms.append(self._step(loss))
        return {
            "reward": rewards.mean().item(),
            "response_length": mask.sum(dim=1).float().mean().item(),
            "loss": fmean(losses),
            "grad_norm": fmean(grad_norms),
            **before,
            "tokens": int(mask.sum()),
            "generation_time": max(shard.seconds for shard in shards),
            "training_time": time.perf_counter() - started,
        }

    def _read(self, sequences: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy at each response token of ``sequences``."""
        distribution = torch.log_softmax(response_logits(self.policy, sequences), dim=-1)
        responses = sequences[:, task.PROMPT_LENGTH :]
        log_probs = distribution.gather(2, responses.unsqueeze(2)).squeeze(2)
        return log_probs, -(distribution.exp() * distribution).sum(dim=-1)

    def _set_learning_rate(self, step: int) -> None:
        # Up over the first steps, level, then down to zero: the last updates settle the policy.
        warm_up = step / WARM_UP_STEPS
        cool_down = (self.recipe.steps - step + 1) / (COOL_DOWN_SHARE * self.recipe.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * min(1.0, warm_up, cool_down)

    def _step(self, loss: torch.Tensor) -> float:
        """Apply the gradient; return its norm before clipping."""
        self.optimizer.zero_grad()
        loss.backward()
        norm: float = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), GRADIENT_CLIP).item()
        self.optimizer.step()
        return norm


def describe_policy(
    log_probs: torch.Tensor,
    rollout_log_probs: torch.Tensor,
    entropy: torch.Tensor,
    mask: torch.Tensor,
) -> dict[str, float]:
    """How the policy about to be trained differs from the one that generated."""
    drift = log_probs - rollout_log_probs
    return {
        # From the generating policy to the trained one, by the k3 estimator.
        "kl": masked_mean(drift.exp() - 1 - drift, mask).item(),
        "entropy": masked_mean(entropy, mask).item(),
        "logprob_diff": masked_mean(drift.abs(), mask).item(),
    }
