"""What a framework tells the launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass
class Missing:
    """What the site file must still say. Until then a visible placeholder stands in the script."""

    items: list[tuple[str, str]] = field(default_factory=list)  # (key, what it is)

    def need(self, value: str | None, key: str, what: str) -> str:
        """``value``, or ``<key>`` and a note that ``key`` is missing."""
        if value is not None:
            return value
        if (key, what) not in self.items:
            self.items.append((key, what))
        return f"<{key}>"


@dataclass(frozen=True)
class Launch:
    """One run of a framework.

    Attributes:
        title: the framework's name for people.
        entry: argv of the training entry.
        workdir: where it runs, as seen inside the container.
        environment: exported before Ray starts, the same on every node.
        container: the image; None where the framework needs none.
        mounts: SOURCE:TARGET of what it needs inside the container.
        resources: Ray custom resources of each node.
    """

    title: str
    entry: tuple[str, ...]
    workdir: str
    environment: Mapping[str, str] = field(default_factory=dict)
    container: str | None = None
    mounts: tuple[str, ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)

    def with_overrides(self, words: Sequence[str]) -> Launch:
        """The same with ``words`` at the end of the entry's argv."""
        return replace(self, entry=(*self.entry, *words))
