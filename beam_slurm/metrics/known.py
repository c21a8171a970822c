"""What is known of a run beforehand, where its logs do not say it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_slurm.runs import Run


@dataclass(frozen=True)
class Known:
    """Counts are 0 where nobody has said them: a run of an older version must stay readable."""

    output: Path  # the framework's folder
    checkpoints: Path | None
    gpus: int = 0  # all of the run's
    steps: int = 0
    responses: int = 0  # of a step
    updates: int = 1  # of a step
    sets: tuple[str, ...] = ()  # that it evaluates itself on
    every: int = 0  # steps between two evaluations
    problems: int = 0  # of each set
    scored: int = 0  # responses to all problems of a set

    @classmethod
    def of(cls, run: Run) -> Known:
        """From the manifest and the resolved profile in the run's folder."""
        manifest, recipe = run.manifest, run.profile.get("recipe")
        recipe = recipe if isinstance(recipe, dict) else {}
        evaluation = recipe.get("evaluation")
        evaluation = evaluation if isinstance(evaluation, dict) else {}
        problems = _count(evaluation, "problems")
        sets = evaluation.get("sets")
        return cls(
            output=run.output,
            checkpoints=run.checkpoints,
            gpus=_count(manifest, "nodes") * _count(manifest, "gpus_per_node"),
            steps=_count(manifest, "steps"),
            responses=_count(recipe, "prompts_per_step") * _count(recipe, "responses_per_prompt"),
            updates=_count(recipe, "updates_per_step") or 1,
            sets=tuple(map(str, sets)) if isinstance(sets, list) else (),
            every=_count(evaluation, "every"),
            problems=problems,
            scored=problems * _count(evaluation, "responses_per_problem"),
        )

    def named(self, told: str) -> str:
        """The profile's name of the set that the framework calls ``told``.

        "math-ai/AIME-2025", "aime25" and, if it is the only one of its kind, "aime" are aime2025.
        A set that the profile does not know keeps its name.
        """
        key = plain(told)
        same = [name for name in self.sets if same_set(name, told)]
        inside = [name for name in self.sets if plain(name) and plain(name) in key]
        begun = [name for name in self.sets if key and plain(name).startswith(key)]
        found = same or inside or begun
        return found[0] if len(found) == 1 else told


def same_set(one: str, other: str) -> bool:
    """Whether two names mean one set: AIME-2025 and aime25 do, math and math500 do not."""
    return plain(one) == plain(other) != ""


def plain(name: str) -> str:
    """Letters and digits alone, of any script; a year as its last two digits."""
    return re.sub(r"20(\d\d)(?!\d)", r"\1", re.sub(r"[\W_]", "", name.casefold()))


def _count(where: dict[str, Any], name: str) -> int:
    value = where.get(name)
    return value if isinstance(value, int) and value > 0 else 0
