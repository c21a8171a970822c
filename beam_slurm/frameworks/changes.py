"""What a user changed in a published recipe, and how a framework is told."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from beam_slurm.errors import BeamSlurmError
from beam_slurm.profiles import Resolved
from beam_slurm.yamlfile import Key, dotted

# These describe the recipe's needs and results, or are ours to obey: no framework is told.
OURS = frozenset(
    {("storage",), ("reference",), ("checkpoint", "resume"), ("startup_s",), ("watchdog",)}
)


def changes(resolved: Resolved, known: Collection[Key], hint: str) -> dict[Key, Any]:
    """The recipe's values that are not as published, by their keys below ``recipe``.

    Args:
        resolved: the profile.
        known: keys that the framework can be told.
        hint: how its other settings are changed, for the error.

    Raises:
        BeamSlurmError: for a change that would otherwise be ignored without a word.
    """
    published = _flat(resolved.shipped.recipe.model_dump())
    wanted = _flat(resolved.profile.recipe.model_dump())
    found = {}
    for key in sorted(set(published) | set(wanted)):
        if published.get(key) == wanted.get(key) or key[:1] in OURS or key in OURS:
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


def hydra(names: Mapping[Key, str], found: Mapping[Key, Any]) -> list[str]:
    """Hydra overrides for what differs."""
    return [f"{names[key]}={hydra_value(value)}" for key, value in found.items()]


def hydra_value(value: Any) -> str:
    """``value`` in Hydra's spelling: true, null, and the shortest form of a number."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flat(tree: Mapping[str, Any], at: tuple[str, ...] = ()) -> dict[Key, Any]:
    found: dict[Key, Any] = {}
    for word, value in tree.items():
        if isinstance(value, dict):
            found.update(_flat(value, (*at, word)))
        else:
            found[(*at, word)] = value
    return found
