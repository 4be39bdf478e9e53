"""The commits of a repository and their trees, read without running or writing anything in it.

git works in our own repositories, which borrow the objects of the real one (objects/info/alternates, like
`git clone --shared`) and have none of its configuration, hooks and filters. A tree is checked out into such a
repository, so that programs running there see its commit. Git LFS files remain pointers, submodules remain empty.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from benchmarking.core.child_process import Finished, program, run_program
from benchmarking.core.errors import BenchhouseError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import visible
from benchmarking.core.untrusted.repository import (
    OUTSIDE,
    RepositoryPaths,
    commit_named,
    repository_state,
    safe_settings,
    without_git,
    write_empty_repository,
)

LIMIT_S = 600.0
"""Time limit of a git command. The checkout of a large tree takes minutes; a longer one hangs."""
REVISION = re.compile(r"(?P<name>[^~^:@{}\\\s-][^~^:@{}\\\s]*|@)(?P<steps>(?:[~^][0-9]*)*)")
"""A revision: a name or hash, optionally with a number of commits before it (HEAD~3, v1.2^)."""
ABBREVIATED = re.compile(r"[0-9a-f]{4,64}")
PLACES = ("refs/", "refs/tags/", "refs/heads/", "refs/remotes/")
"""Where a name is looked up, in git's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitText:
    """Subject, author and time of a commit."""

    subject: str
    author: str
    time: str
    """Commit time, ISO 8601."""


class History:
    """The commits of one repository."""

    def __init__(self, folder: Path, work_folder: Path) -> None:
        """`folder` is in the repository; `work_folder` is an empty folder for git to work in.

        Raises UsageError outside a repository, without git, and for a repository without a commit.
        """
        paths = RepositoryPaths.above(folder)
        if paths is None:
            raise UsageError(f"{folder} is not in a git repository: run this in a working tree")
        if program("git") is None:
            raise UsageError("git is not installed or not on PATH: install git")
        head = repository_state(paths.tree).commit
        if head is None:
            raise UsageError(f"{paths.tree}: the repository has no commits: commit something first")
        self._paths = paths
        self._head = head
        self._git_folder = work_folder / ".git"
        self._borrow(self._git_folder, head)

    def commit(self, revision: str) -> str:
        """The commit that a revision names: a hash or its beginning, a branch, a tag, HEAD, each with ~N and ^N.

        Raises UsageError.
        """
        found = REVISION.fullmatch(revision)
        if found is None:
            raise UsageError(f"{revision!r}: expected a commit: a hash, branch or tag, with ~N or ^N if needed")
        base = self._named(found["name"])
        done = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}{found['steps']}^{{commit}}")
        if done.exit_code != 0:
            raise UsageError(f"{revision!r} is not a commit of {self._paths.tree}: see git log")
        return done.stdout.strip()

    def text(self, commit: str) -> CommitText:
        """Subject, author and time of a commit, with control characters as escapes."""
        output = self._answer("show", "--no-patch", "--no-show-signature", "--format=%an%n%cI%n%s", commit, "--")
        author, time, subject = (*output.split("\n", 2), "", "")[:3]
        return CommitText(subject=visible(subject.strip()), author=visible(author), time=visible(time))

    def parents(self, commit: str) -> tuple[str, ...]:
        """The parents of a commit: several for a merge, none for a root."""
        return tuple(self._answer("rev-list", "--parents", "--max-count=1", commit, "--").split()[1:])

    def merge_bases(self, one: str, other: str) -> tuple[str, ...]:
        """The best common ancestors; none for unrelated histories, and the ancestor itself for a descendant."""
        done = self._git("merge-base", "--all", one, other)
        return tuple(done.stdout.split()) if done.exit_code == 0 else ()

    def suspects(self, bad: str, good: tuple[str, ...]) -> tuple[str, ...]:
        """The commits that may be the first bad one, including `bad`: its history without that of the good ones.

        In the order of git bisect: the first splits the others most evenly.
        """
        listed = self._answer("rev-list", "--bisect-all", bad, "--not", *good, "--")
        return tuple(line.split()[0] for line in listed.splitlines() if line)

    def check_out(self, commit: str, tree: Path) -> Path:
        """Write the files of a commit into a new folder, which is a repository at that commit."""
        tree.mkdir()
        git_folder = tree / ".git"
        self._borrow(git_folder, commit)
        done = self._git("reset", "--quiet", "--hard", commit, folder=git_folder, tree=tree)
        if done.exit_code != 0:
            raise BenchhouseError(f"cannot check out {commit[:12]}: git: {done.last_line or 'no answer in time'}")
        return tree

    def _borrow(self, folder: Path, commit: str) -> None:
        """Make the folder a repository that borrows the objects of the real one."""
        folder.mkdir()
        write_empty_repository(folder, commit)
        (folder / "objects" / "info").mkdir(parents=True)
        common = self._paths.common.resolve()
        (folder / "objects" / "info" / "alternates").write_text(f"{common / 'objects'}\n", encoding="utf-8")
        if (common / "shallow").is_file():  # a shallow clone, as in CI
            (folder / "shallow").write_bytes((common / "shallow").read_bytes())

    def _named(self, name: str) -> str:
        """The hash or hash prefix of a name."""
        if name in ("HEAD", "@"):
            return self._head
        short = name.removeprefix("refs/")
        for paths in PLACES:
            if (found := commit_named(self._paths, f"{paths}{short}")) is not None:
                return found
        if ABBREVIATED.fullmatch(name):
            return name
        raise UsageError(f"{name!r} is not a commit, branch or tag of {self._paths.tree}: see git log")

    def _answer(self, *arguments: str) -> str:
        done = self._git(*arguments)
        if done.exit_code != 0:
            raise BenchhouseError(f"git {arguments[0]} failed: {done.last_line or 'no answer in time'}")
        return done.stdout

    def _git(self, *arguments: str, folder: Path | None = None, tree: Path | None = None) -> Finished:
        git = program("git")
        if git is None:
            raise UsageError("git is not installed or not on PATH: install git")
        git_folder = folder or self._git_folder
        return run_program(
            (git, *safe_settings(self._paths, git_folder), *arguments),
            limit_s=LIMIT_S,
            env={
                **without_git(os.environ),
                **OUTSIDE,
                "GIT_DIR": str(git_folder),
                "GIT_WORK_TREE": str(tree or git_folder.parent),
            },
            folder=tree or git_folder.parent,
        )
