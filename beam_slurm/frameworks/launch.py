"""What a framework tells the launcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from beam_slurm.mounts import Mount


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
class Scratch:
    """A folder on each node's own NVMe: made for the run, removed with it.

    Attributes:
        path: as the run sees it; its parent must be there on every node.
        need: bytes that must be free before Ray starts, 0 if nobody has said.
    """

    path: str
    need: int


@dataclass(frozen=True)
class Export:
    """How a framework is made to export whole models, where nobody else can read its checkpoints.

    Attributes:
        option: of the entry; takes the training steps between two exports. The last step's is
            always made.
        folder: where they go, as the hosts see it.
        name: of the folder of one step's model in it.
    """

    option: str
    folder: str
    name: str

    def of(self, step: int) -> str:
        """Where the model of a step lies."""
        return f"{self.folder}/{self.name % step}"


@dataclass(frozen=True)
class Launch:
    """One run of a framework.

    Attributes:
        title: the framework's name for people.
        entry: argv of the training entry.
        workdir: where it runs, as seen inside the container.
        environment: exported before Ray starts, the same on every node.
        settings: variables of the environment that a key of the profile says: name -> dotted key.
            The site may change the others, not these.
        secrets: names of variables that are handed into the container if the job has them.
        withheld: those of them that Ray's workers get and the entry does not, since it would
            repeat the value.
        container: the image as the site spells it; None where the framework needs none.
        mounts: what it needs inside the container.
        resources: Ray custom resources of each node.
        dashboard: its entry talks to Ray's dashboard, and starts only when that answers.
        scratch: node-local folder; None if it needs none.
        output: where it writes, as the hosts see it.
        model: the model's folder, as the hosts see it; None if it has none.
        checkpoints: where its checkpoints go, as the hosts see it; None if it saves none.
        sentinel: a file that makes it save at the next step and go on, as the hosts see it; None
            if it has no such thing.
        stop: how it is made to save before its time is up: see ``node.stopping``.
        resume: words for the end of the entry's argv from the second attempt on.
        save_by: the option by which it is told after how much time to save and stop, "" if it has
            none.
        export: how it is made to export what a conversion can read; None if that reads its
            checkpoints.
    """

    title: str
    entry: tuple[str, ...]
    workdir: str
    output: str
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    container: str | None = None
    mounts: tuple[Mount, ...] = ()
    resources: Mapping[str, float] = field(default_factory=dict)
    dashboard: bool = False
    scratch: Scratch | None = None
    model: str | None = None
    checkpoints: str | None = None
    sentinel: str | None = None
    stop: Literal["signal", "sentinel", "deadline", "interval"] = "interval"
    resume: tuple[str, ...] = ()
    save_by: str = ""
    export: Export | None = None
