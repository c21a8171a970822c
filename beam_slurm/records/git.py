"""The state of a source tree, as git tells it: commit, branch, and what was changed since.

Trees are other people's, large, and on slow storage: no call waits longer than ``PATIENCE`` in all,
none writes into the repository, and what cannot be told is None, with the reason.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

PATIENCE = 5.0  # seconds for one tree
LARGEST = 500_000  # bytes of a patch that is kept
MOST = 50  # names of changed files that are kept


@dataclass(frozen=True)
class Source:
    """One source tree.

    Attributes:
        path: its folder.
        commit: the full hash of HEAD.
        branch: None where HEAD is detached.
        dirty: whether files that git knows differ from the commit.
        changed: their names, ``MOST`` at most, as git spells them.
        untracked: names of files and folders that git neither knows nor ignores; no patch has them.
        patch: ``git diff HEAD`` as git prints it; "" if there is none, or none that could be kept.
        digest: of the patch, of one that could not be kept too; None if there is none.
        why: what of this is not known, and why; "" if all is.
    """

    path: str
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    patch: str = ""
    digest: str | None = None
    why: str = ""

    def facts(self) -> dict[str, Any]:
        """Everything but the patch, as plain values."""
        found = asdict(self)
        del found["patch"]
        return {**found, "changed": list(self.changed), "untracked": list(self.untracked)}


class _Silent(Exception):
    """Git did not say it; the text is why."""


def look(folder: Path) -> Source:
    """The source tree in ``folder``; its patch may hold secrets still."""
    path = str(folder)
    if not folder.is_dir():
        return Source(path, why=f"{path} is not to be seen from this machine")
    if not shutil.which("git"):
        return Source(path, why="git is not installed on this machine")
    git = _Git(folder, time.monotonic() + PATIENCE)
    try:
        # Whose tree it is matters for what else git would do; reading a reference runs nothing.
        said = git("-c", "safe.directory=*", "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
        commit, branch = said.splitlines()
        if not git("-c", "safe.directory=*", "ls-tree", "--name-only", "HEAD"):
            return Source(path, why=f"{path} lies in a git repository that does not hold it")
    except _Silent as problem:
        return Source(path, why=_reason(folder, str(problem)))
    source = Source(path, commit, None if branch == "HEAD" else branch)
    try:
        return _changes(git, source)
    except _Silent as problem:
        return replace(source, why=f"changes: {problem}")


def _changes(git: _Git, source: Source) -> Source:
    status = git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", ".")
    entries = [entry for entry in status.split("\0") if entry]
    untracked = [entry[3:] for entry in entries if entry.startswith("??")]
    changed = [entry[3:] for entry in entries if not entry.startswith("??")]
    source = replace(
        source,
        dirty=bool(changed),
        changed=tuple(changed[:MOST]),
        untracked=tuple(untracked[:MOST]),
    )
    if not changed:
        return source
    words = ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
    try:
        begin, told = git.read(*words, "--", ".")
    except _Silent as problem:
        return replace(source, why=f"changes: {problem}")
    if len(begin) > LARGEST:
        why = f"the patch is over {LARGEST // 1000} kB and was not kept"
        return replace(source, digest=told, why=why)
    return replace(source, patch=os.fsdecode(begin), digest=told)


def digest(data: bytes) -> str:
    """Of a patch."""
    return hashlib.sha256(data).hexdigest()


class _Git:
    """Calls in one folder that end by one deadline."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self.folder = folder
        self.deadline = deadline
        own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        # Ten submissions may look at one tree: no locks, no refreshed index, nothing downloaded.
        more = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
        self.environment = {**own, **more, "LC_ALL": "C"}

    def __call__(self, *words: str) -> str:
        """What git prints, its first ``LARGEST`` + 1 bytes; those that are no UTF-8 survive."""
        return os.fsdecode(self.read(*words)[0])

    def read(self, *words: str) -> tuple[bytes, str]:
        """The first ``LARGEST`` + 1 bytes of what git prints, and the digest of all of it."""
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                ["git", *words],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            ) as child,
        ):
            timer = threading.Timer(max(self.deadline - time.monotonic(), 0.1), child.kill)
            timer.start()
            assert child.stdout
            out = child.stdout.read(LARGEST + 1)
            told = hashlib.sha256(out)
            while more := child.stdout.read(LARGEST):
                told.update(more)
            code = child.wait()
            timer.cancel()
            errors.seek(0)
            said = errors.read(10_000).decode(errors="replace").strip().splitlines()
        if code == -signal.SIGKILL:
            raise _Silent(f"git {words[0]} took longer than {PATIENCE:g} s")
        if code > 0:
            raise _Silent(said[0] if said else f"git {words[0]}: exit code {code}")
        return out, told.hexdigest()


def _reason(folder: Path, said: str) -> str:
    """Git's first line in fewer words, where it is one of the usual ones."""
    if "not a git repository" in said:
        return f"{folder} is no git repository"
    if "ambiguous argument 'HEAD'" in said:
        return f"{folder} has no commit yet"
    return said
