"""Files that grow: their last lines, and what is added to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from beam_slurm.errors import BeamSlurmError
from beam_slurm.runs import Run

BLOCK = 64 * 1024
END = 256 * 1024  # bytes: a progress bar may have written gigabytes without a line's end

Write = Callable[[bytes], object]


def start_of_last(path: Path, lines: int) -> int:
    """The offset at which the last ``lines`` lines of a file begin; reads only its end."""
    with path.open("rb") as file:
        end = position = file.seek(0, 2)
        if lines <= 0:
            return end
        wanted = lines
        while position > 0:
            size = min(BLOCK, position)
            position -= size
            file.seek(position)
            block = file.read(size)
            at = len(block)
            if position + size == end and block.endswith(b"\n"):
                at -= 1  # the last line's own end does not begin another one
            while (at := block.rfind(b"\n", 0, at)) >= 0:
                wanted -= 1
                if not wanted:
                    return position + at + 1
        return 0


def ending(path: Path, lines: int) -> list[str]:
    """The last ``lines`` lines of a file, as far as they lie in its last END bytes.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        cut = max(file.seek(0, 2) - END, 0)
        file.seek(cut)
        found = file.read(END).decode(errors="replace").split("\n")
    if found[-1] == "":
        found.pop()
    return found[1 if cut else 0 :][-lines:]


def ray_log(run: Run, node: str) -> Path:
    """Ray's log of one node, of the newest attempt that has one.

    Raises:
        BeamSlurmError: there is none; the error lists those that there are.
    """
    known: set[str] = set()
    for attempt in reversed(run.attempts):
        folder = attempt.path / "ray"
        there = {path.stem for path in folder.glob("*.log")}
        if node in there:
            return folder / f"{node}.log"
        known |= there
    raise BeamSlurmError(
        f"{run.id} has no Ray log of {node!r}",
        why=None if known else "Ray has not started on any node yet",
        remedy="one of " + ", ".join(sorted(known)) if known else f"beam-slurm status {run.id}",
    )


def kept(log: Path) -> list[Path]:
    """What else its attempt has kept of the node that the Ray log ``log`` is of."""
    node, attempt = log.stem, log.parent.parent
    found = (attempt / "ray" / f"{node}.logs.tar.gz", attempt / "stacks" / f"{node}.txt")
    return [path for path in found if path.is_file()]


class Tail:
    """Copies a growing file: what is new since the last time, however the file has changed.

    The file is opened anew each time: over NFS only that shows what other hosts have written.
    """

    def __init__(self, write: Write, tell: Callable[[str], object]) -> None:
        self._write = write
        self._tell = tell
        self._path: Path | None = None
        self._inode = 0
        self.offset = 0

    def copy(self, path: Path, last: int | None = None, title: str = "") -> bool:
        """Write what is new in ``path``; whether there was anything.

        Args:
            path: the file; another one than before is read from its start.
            last: begin with the last so many lines, the first time; None is all.
            title: stands above what is written of ``path``; "" where there is no other file.
        """
        try:
            with path.open("rb") as file:
                self._settle(path, file.seek(0, 2), path.stat().st_ino, last, title)
                file.seek(self.offset)
                found = False
                while block := file.read(BLOCK):
                    self._write(block)
                    self.offset += len(block)
                    found = True
                return found
        except FileNotFoundError:
            return False

    def _settle(self, path: Path, size: int, inode: int, last: int | None, title: str) -> None:
        if path != self._path:
            if title:
                between = "\n" if self._path else ""
                self._write(f"{between}==> {title} <==\n".encode())
            first = self._path is None and last is not None
            self.offset = start_of_last(path, last or 0) if first else 0
        elif inode != self._inode or size < self.offset:
            self._tell(f"{path.name} was written anew")
            self.offset = 0
        self._path, self._inode = path, inode
