"""GRPO's two formulas, on plain tensors."""

import torch


def group_advantages(rewards: torch.Tensor, group_size: int) -> torch.Tensor:
    """How much better each response is than its group: [batch] -> [batch].

    A group is the ``group_size`` neighbouring responses to one problem. One whose responses are
    all equally good has nothing to teach and gets zeros.
    """
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return (centred / (groups.std(dim=1, keepdim=True) + 1e-6)).view(-1)


def clipped_loss(
    log_probs: torch.Tensor,
    rollout_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    clip: tuple[float, float],
) -> torch.Tensor:
    """The clip-higher policy loss, averaged over all response tokens of the batch.

    The ratio is against the policy that generated, so it also corrects for weights that have moved
    on since. ``clip`` is how far below and above 1 it counts; more room above than below lets rare
    tokens grow (clip-higher, of DAPO).
    Shapes: [batch, response] for the log-probabilities and the mask, [batch] for the advantages.
    """
    ratio = (log_probs - rollout_log_probs).exp()
    clipped = ratio.clamp(1 - clip[0], 1 + clip[1])
    advantages = advantages.unsqueeze(1)
    return masked_mean(-torch.minimum(ratio * advantages, clipped * advantages), mask)


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean over the tokens that ``mask`` keeps."""
    return (values * mask).sum() / mask.sum()
