"""The one error type of beam-slurm: what went wrong, where, why, and what to do about it."""

from __future__ import annotations


class BeamSlurmError(Exception):
    """An error that a user can act on.

    ``cli.main`` is the only place that turns it into text; everything else raises it.

    Args:
        what: one line, what went wrong.
        where: file and line, node, or command that it is about.
        why: the cause as far as it is known.
        remedy: what the user can do about it.
        exit_code: the process's exit code; 2 for the user's mistakes.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        why: str | None = None,
        remedy: str | None = None,
        exit_code: int = 2,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.remedy = remedy
        self.exit_code = exit_code

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.why:
            text += f"\n  why: {self.why}"
        if self.remedy:
            text += f"\n  do:  {self.remedy}"
        return text
