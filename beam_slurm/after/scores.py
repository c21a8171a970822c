"""Scores of an evaluation, each with its 95 % interval. Pure arithmetic.

Every score is a mean over the problems of a value that a problem has from its ``k`` responses. So
the problems are what was sampled: AIME2025 has 30, and 240 responses to them are not 240
independent trials. The intervals follow from how much the problems differ among themselves, which
is the standard error clustered by problem (Miller, "Adding Error Bars to Evals", arXiv:2411.00640).
They say what another 30 problems of the kind could have given.

Of two checkpoints that were scored on the same problems the difference is known better than each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean, variance
from typing import Any, Protocol

CONFIDENCE = 0.95


class Answered(Protocol):
    """What counts of a response; ``responses.Response`` is one."""

    @property
    def right(self) -> bool: ...
    @property
    def answer(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def truncated(self) -> bool: ...


@dataclass(frozen=True)
class Estimate:
    """A score and its 95 % interval; ``low`` and ``high`` are None of fewer than three problems."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Scores:
    """The scores of one evaluation of ``problems`` problems with ``samples`` responses each.

    Attributes:
        average: avg@k, the share of responses that are right.
        passes: pass@j by j, 1 to k: the chance that of j responses one at least is right.
        majority: maj@k, the share of problems whose most frequent answer is right.
        tokens: mean length of a response in tokens.
        truncated: share of responses that were cut off at the limit.
    """

    problems: int
    samples: int
    average: Estimate
    passes: dict[int, Estimate]
    majority: Estimate
    tokens: Estimate
    truncated: Estimate

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file: ``{"avg@8": {"value", "low", "high"}, "pass@1": …, "maj@8": …, …}``."""
        named = {
            f"avg@{self.samples}": self.average,
            **{f"pass@{j}": estimate for j, estimate in self.passes.items()},
            f"maj@{self.samples}": self.majority,
            "tokens": self.tokens,
            "truncated": self.truncated,
        }
        scores = {name: asdict(estimate) for name, estimate in named.items()}
        return {"problems": self.problems, "samples": self.samples, **scores}


def score(problems: Sequence[Sequence[Answered]]) -> Scores:
    """The scores of the responses to each problem.

    Raises:
        ValueError: there are no problems, no responses, or more to one problem than to another.
    """
    sizes = {len(responses) for responses in problems}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"every problem needs as many responses as the others, not {sizes}")
    k = sizes.pop()

    def share(value: Callable[[Sequence[Answered]], float]) -> Estimate:
        return proportion([value(responses) for responses in problems], k)

    return Scores(
        problems=len(problems),
        samples=k,
        average=share(lambda found: fmean(one.right for one in found)),
        passes={
            j: share(lambda found, j=j: chance(k, sum(one.right for one in found), j))  # type: ignore[misc]
            for j in range(1, k + 1)
        },
        majority=share(majority),
        tokens=mean([fmean(one.tokens for one in responses) for responses in problems]),
        truncated=share(lambda found: fmean(one.truncated for one in found)),
    )


def chance(n: int, right: int, j: int) -> float:
    """pass@j of one problem, of whose ``n`` responses ``right`` are right.

    The share of all choices of j responses that hold a right one, 1 - C(n-c, j) / C(n, j), which
    has no bias (Chen et al., "Evaluating Large Language Models Trained on Code", arXiv:2107.03374).
    """
    return 1 - math.comb(n - right, j) / math.comb(n, j)


def majority(responses: Sequence[Answered]) -> float:
    """Whether the most frequent answer is right: 1, 0, or the chance of it where several tie.

    All right responses gave one answer, however they wrote it; wrong ones are the same if their
    text is. A response without an answer has no vote.
    """
    votes = Counter((one.right, "" if one.right else one.answer) for one in responses if one.answer)
    most = max(votes.values(), default=0)
    leading = [right for (right, _), count in votes.items() if count == most]
    return sum(leading) / len(leading) if leading else 0.0


def proportion(values: Sequence[float], samples: int) -> Estimate:
    """The mean of values from 0 to 1, one a problem, each from ``samples`` responses.

    Wilson's interval with the effective number of trials, p(1-p) over the squared clustered
    standard error, and Student's t in place of the normal quantile (as Korn and Graubard, 1998,
    have it for surveys of clusters). It stays within 0 and 1, and does not shrink to nothing
    where all problems are solved. It is never narrower than if all responses were independent.
    """
    p, n = fmean(values), len(values)
    if n < 3:
        return Estimate(p, None, None)
    error = variance(values) / n
    trials = min(p * (1 - p) / error, n * samples) if error else n * (samples if 0 < p < 1 else 1)
    t = student(n - 1)
    middle = (p + t * t / (2 * trials)) / (1 + t * t / trials)
    half = t / (1 + t * t / trials) * math.sqrt(p * (1 - p) / trials + (t / trials) ** 2 / 4)
    return Estimate(p, max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half)))


def mean(values: Sequence[float]) -> Estimate:
    """The mean of one value a problem, with Student's interval."""
    value, n = fmean(values), len(values)
    if n < 3:
        return Estimate(value, None, None)
    half = student(n - 1) * math.sqrt(variance(values) / n)
    return Estimate(value, value - half, value + half)


def student(degrees: int) -> float:
    """The quantile of Student's t of a two-sided interval; to 1 % from 2 degrees of freedom.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / degrees**power for power, term in enumerate(terms, 1))
