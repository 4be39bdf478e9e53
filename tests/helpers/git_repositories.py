"""git repositories for tests, with commits of given content."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

OURS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nonexistent"}
NAMES = {f"GIT_{role}_{field}": "x@y" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


class GitRepository:
    """A repository with the branch main."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._seconds = 1_700_000_000
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        """The output of git, with a clock that advances by a second each time."""
        self._seconds += 1
        when = {f"GIT_{role}_DATE": f"{self._seconds} +0000" for role in ("AUTHOR", "COMMITTER")}
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env={**os.environ, **OURS, **NAMES, **when},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, subject: str, files: Mapping[str, str]) -> str:
        """A commit with these files changed; returns its hash."""
        for name, content in files.items():
            (self.folder / name).write_text(content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")
