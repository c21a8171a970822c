"""What a user changed in a published recipe, and how a framework is told."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from beam_slurm.errors import BeamSlurmError
from beam_slurm.profiles import Resolved
from beam_slurm.yamlfile import Key, dotted


def changes(resolved: Resolved, known: Collection[Key], hint: str) -> dict[Key, Any]:
    """The recipe's values that are not as published, by their keys below ``recipe``.

    Args:
        resolved: the profile.
        known: keys that the framework can be told.
        hint: how its other settings are changed, for the error.

    Raises:
        BeamSlurmError: for a change that would otherwise be ignored without a word.
    """
    published = _flat(resolved.published.model_dump())
    wanted = _flat(resolved.profile.recipe.model_dump())
    found = {}
    for key in sorted(set(published) | set(wanted)):
        if published.get(key) == wanted.get(key):
            continue
        if key not in known:
            full = ("recipe", *key)
            name = resolved.profile.framework.name
            able = ", ".join(dotted(("recipe", *other)) for other in sorted(known))
            raise BeamSlurmError(
                f"{dotted(full)} cannot be changed for {name}",
                where=resolved.document.place(full),
                why=f"beam-slurm hands on {able}",
                remedy=hint,
            )
        found[key] = wanted.get(key)
    return found


def _flat(tree: dict[str, Any], at: tuple[str, ...] = ()) -> dict[Key, Any]:
    found: dict[Key, Any] = {}
    for word, value in tree.items():
        if isinstance(value, dict):
            found.update(_flat(value, (*at, word)))
        else:
            found[(*at, word)] = value
    return found
