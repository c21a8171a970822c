"""The task: read four digits, answer with their sum.

``2012=`` asks for ``5``. A response is right when it is exactly the sum and then the end token,
so a policy has three things to find out: that one token is enough, when to stop, and to add.

Digits run from 0 to 2, which gives 81 problems. Twelve are held out, one order of each mix of
digits: no update ever sees ``1202``, but it may see ``2012``. So a policy that has learnt by heart
fails there, and one that has learnt that the order does not matter passes.
"""

# ruff: noqa: S311 - nothing here is secret, and a run must be repeatable.

import itertools
import random

Problem = tuple[int, ...]

DIGITS_PER_PROBLEM = 4
LARGEST_DIGIT = 2
LARGEST_SUM = DIGITS_PER_PROBLEM * LARGEST_DIGIT

# A digit is its own token: 0..2 in prompts, 0..8 in answers.
EQUALS = LARGEST_SUM + 1
END = LARGEST_SUM + 2
VOCABULARY_SIZE = LARGEST_SUM + 3

PROMPT_LENGTH = DIGITS_PER_PROBLEM + 1
MAX_RESPONSE_LENGTH = 3


def _split() -> tuple[list[Problem], list[Problem]]:
    """All problems, without and with only one order of each mix of digits that has several."""
    problems = list(itertools.product(range(LARGEST_DIGIT + 1), repeat=DIGITS_PER_PROBLEM))
    orders: dict[Problem, list[Problem]] = {}
    for problem in problems:
        orders.setdefault(tuple(sorted(problem)), []).append(problem)
    # A fixed seed: the split is part of the task, the same in every run.
    choice = random.Random(0).choice
    held_out = [choice(same_digits) for same_digits in orders.values() if len(same_digits) > 1]
    return [problem for problem in problems if problem not in held_out], held_out


TRAINING, HELD_OUT = _split()
_BY_SUM = [
    [problem for problem in TRAINING if sum(problem) == total] for total in range(LARGEST_SUM + 1)
]


def derive_seed(*parts: int | str) -> int:
    """A seed for one purpose, such as (run's seed, step, worker).

    Every random choice of a run draws from a stream named like this. None outlives its step, so a
    checkpoint has no generator state to carry and a resumed run draws what it would have drawn.
    """
    return random.Random("/".join(map(str, parts))).getrandbits(63)


def sample_problems(seed: int, step: int, count: int) -> list[Problem]:
    """The training problems of one step, every sum equally likely.

    Drawn evenly from all problems, the rare sums would die out: a policy that has stopped trying 0
    or 8 gets no reward for them and so no gradient to bring them back.
    """
    stream = random.Random(derive_seed(seed, "problems", step))
    return [stream.choice(_BY_SUM[stream.randint(0, LARGEST_SUM)]) for _ in range(count)]


def prompt(problem: Problem) -> list[int]:
    return [*problem, EQUALS]


def reward(problem: Problem, response: list[int]) -> float:
    """1.0 for the sum and the end token, 0.0 for everything else."""
    return float(response == [sum(problem), END])
