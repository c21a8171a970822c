"""The one error of what runs after training, and how it names many things."""

from __future__ import annotations

from collections.abc import Iterable


class Problem(Exception):
    """What went wrong, where, why, and what to do about it.

    ``__main__`` turns it into text and exit code 2; the command line into its own error.

    Args:
        what: one line, what went wrong.
        where: file, folder or line that it is about.
        why: the cause as far as it is known.
        do: what the user can do about it.
    """

    def __init__(self, what: str, where: str = "", why: str = "", do: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.do = do

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.why:
            text += f"\n  why: {self.why}"
        if self.do:
            text += f"\n  do:  {self.do}"
        return text


def few(things: Iterable[str], between: str = ", ", most: int = 3) -> str:
    """The first of ``things``, and how many there are beside them."""
    known = list(things)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return between.join(known[:most]) + more
