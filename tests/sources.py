"""Git repositories made in a test's folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

WHO = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    """Git's answer, with nothing of the user's own settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", *WHO, *words],
        cwd=folder,
        env={**own, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def commit(folder: Path, **files: str) -> str:
    """One more commit with ``files`` (``a_py`` is a.py); its hash."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch=main")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=more")
    return git(folder, "rev-parse", "HEAD")
