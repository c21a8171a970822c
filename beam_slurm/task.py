"""What a job does with a checkpoint instead of training: it converts it, or evaluates it.

The script, the nodes, Ray and the container are those of the run that trained; what is started on
the head is ``after.pyz`` in place of the training entry. What tells a framework how to train stays
behind; in an image of another making, all that is the framework's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Literal

from beam_slurm.frameworks.launch import Launch
from beam_slurm.mounts import Mount, itself

PROGRAM = "after.pyz"


@dataclass(frozen=True)
class Task:
    """One conversion or evaluation.

    Attributes:
        name: the verb of ``after.pyz``.
        label: the last word of the job's name.
        about: what it does, in a line for people.
        reads: option -> file or folder that it reads, as the hosts see it.
        words: more for its command line.
        output: where it writes, as the hosts see it; its option is ``--output``.
        steps: how many it counts to.
        nodes: how many nodes it runs on.
        host_memory: bytes of it that each of them must have; 0 if nobody knows.
        keeps: what it has done is kept: another attempt goes on behind it.
        facts: what the manifest says of it.
        files: name -> content of what it finds in its run folder, where it is started.
        mark: the file that it locks where it writes. It is made at the submission: a node that
            does not find it has other storage there than the login node. "" where what is read is
            to be made first, by a run that makes the folders, too.
    """

    name: Literal["convert", "evaluate"]
    label: str
    about: str
    reads: Mapping[str, str]
    words: tuple[str, ...]
    output: str
    steps: int
    nodes: int = 1
    host_memory: int = 0
    keeps: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    mark: str = ""

    @property
    def shared(self) -> str:
        """The folder that must be the same storage for all: it holds what is made."""
        return self.output if self.keeps else str(PurePosixPath(self.output).parent)

    def launch(self, trained: Launch, run: str, image: str | None = None) -> Launch:
        """How it is started where ``trained`` was, with those folders.

        Args:
            trained: the run that trained.
            run: the run folder of the task.
            image: as the runtime takes it, if it is not the one that trained.
        """
        mounts = list(trained.mounts)
        told = {
            name: value
            for name, value in trained.environment.items()
            if name not in trained.settings
        }
        if image:
            mounts = [mount for mount in mounts if mount.target != trained.workdir]  # its code
            told = {}
        contained = trained.container is not None
        options = []
        for option, path in {**self.reads, "--output": self.output}.items():
            options.append(f"{option}={_inside(path, mounts) if contained else path}")
        return replace(
            trained,
            title=f"{trained.title}, {self.name}",
            entry=("python", f"{run}/{PROGRAM}", self.name, *options, *self.words),
            workdir=run,
            # A conversion's folder must not be there before it is whole: the mark of the run that
            # writes into a folder goes elsewhere then.
            output=self.output if self.keeps else f"{run}/output",
            environment=told,
            container=image or trained.container,
            mounts=tuple(mounts),
            withheld=(),
            resources={},
            dashboard=False,
            scratch=None,
            model=self.reads.get("--model"),
            checkpoints=self.output if self.keeps else None,
            sentinel=None,
            stop="interval",
            resume=(),
            save_by="",
            export=None,
        )


def _inside(path: str, mounts: list[Mount]) -> str:
    """Where a container sees a path of the host; what it does not see is mounted too."""
    at = PurePosixPath(path)
    holding = [mount for mount in mounts if at.is_relative_to(mount.source)]
    if not holding:
        # A folder that is to be made cannot be mounted itself: the one that holds it can.
        parent = str(at.parent)
        mounts.append(itself(parent, "the folder", "name another one, or a link to it"))
        return path
    best = max(holding, key=lambda mount: len(mount.source))
    return str(PurePosixPath(best.target) / at.relative_to(best.source))
