"""A git repository, read without running or writing anything in it: the commit, branch and state of the one that
contains a folder, and the history and trees of one that is bisected.

A repository's configuration and attributes may name programs that git starts (fsmonitor, hooks, filters, signature
checkers, remote helpers), and so may environment variables. Therefore git never sees them: it works in our own empty
repository, which borrows the objects and the index of the real one. Facts that depend on the repository's configuration
are None.

A tree is checked out into such a repository (objects/info/alternates, like `git clone --shared`), so that programs
running there see its commit. Git LFS files remain pointers, submodules remain empty.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from benchmarking.core.child_process import Finished, program, run_program
from benchmarking.core.errors import BenchhouseError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import visible

TIME_LIMIT_S = 5.0
MAX_BYTES = 64 << 20
"""Maximum size of a file of references."""
HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
REFERENCE = re.compile(r"refs/[^\x00-\x20\x7f~^:?*\[\\]+")
SAFE_SETTINGS = tuple(
    f"core.{name}" for name in ("autocrlf", "eol", "filemode", "ignorecase", "precomposeunicode", "symlinks")
)
"""Repository settings that decide whether a file counts as changed, and cannot name a program."""
SAFE_VALUE = re.compile(r"[a-z0-9]{1,8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryState:
    """The state of a repository; unknown fields are None."""

    commit: str | None = None
    branch: str | None = None
    """"HEAD" if no branch is checked out."""
    is_dirty: bool | None = None
    """Whether a tracked file differs from the commit; of submodules only the commit counts."""
    commit_time: str | None = None
    """UTC, ISO 8601."""


def repository_state(folder: Path) -> RepositoryState:
    """The state of the repository that a folder belongs to; all None outside a repository."""
    paths = RepositoryPaths.above(folder)
    head = None if paths is None else _text(paths.git_folder / "HEAD")
    if paths is None or head is None:
        return RepositoryState()
    name = head.removeprefix("ref:").strip() if head.startswith("ref:") else None
    commit = commit_named(paths, name) if name is not None else _hash(head)
    if commit is None:
        return RepositoryState()
    branch = "HEAD" if name is None else name.removeprefix("refs/heads/")
    from benchmarking.core.temporary import temporary_folder  # by `provenance`, it imports this module

    with temporary_folder("benchhouse-git") as empty:
        write_empty_repository(empty, commit)
        settings = safe_settings(paths, empty)
        variables = {
            "GIT_OBJECT_DIRECTORY": str(paths.common / "objects"),
            "GIT_INDEX_FILE": str(paths.git_folder / "index"),
        }

        def answer(*arguments: str, input_text: str | None = None) -> str | None:
            """The output of a git command; None without git, at the time limit, and on failure."""
            words = (*settings, *arguments)
            done = _run_git(words, empty, paths.tree, TIME_LIMIT_S, variables=variables, input_text=input_text)
            return done.stdout if done is not None and done.exit_code == 0 else None

        header = (answer("cat-file", "commit", "HEAD") or "").partition("\n\n")[0]
        committed = re.search(r"^committer .*> (\d{1,11}) [+-]\d{4}$", header, re.MULTILINE)
        time = None if committed is None else datetime.fromtimestamp(int(committed[1]), UTC)
        # Whether tracked files differ; None if all that differ have a filter, since filters are not run.
        options = ("--porcelain", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=dirty")
        status, is_dirty = answer("status", *options), None
        if status is not None:
            entries = [entry for entry in status.split("\0") if entry]
            in_tree = [entry[3:] for entry in entries if entry[0] == " " and entry[1] == "M"]
            is_dirty = len(in_tree) < len(entries)
            if in_tree and not is_dirty:
                filters = answer("check-attr", "-z", "--stdin", "filter", input_text="\0".join([*in_tree, ""]))
                fields = [] if filters is None else filters.split("\0")
                is_dirty = None if fields and not {"unspecified", "unset"} & set(fields[2::3]) else True
        return RepositoryState(
            commit=commit,
            branch=branch,
            is_dirty=is_dirty,
            commit_time=None if time is None else time.isoformat().replace("+00:00", "Z"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryPaths:
    tree: Path
    """The working tree: the folder with `.git`, whatever the repository's configuration says."""
    git_folder: Path
    """The repository's folder, with HEAD and index; of a linked working tree its own."""
    common: Path
    """The folder with references and objects."""

    @classmethod
    def above(cls, folder: Path) -> RepositoryPaths | None:
        """The repository whose working tree holds the folder."""
        start = folder.resolve()
        for tree in (start, *start.parents):
            git_folder = tree / ".git"
            if git_folder.is_file() and (pointer := _text(git_folder)) is not None and pointer.startswith("gitdir:"):
                git_folder = tree / pointer.removeprefix("gitdir:").strip()
            if (git_folder / "HEAD").is_file():
                common = _text(git_folder / "commondir") if (git_folder / "commondir").exists() else None
                return cls(
                    tree=tree,
                    git_folder=git_folder,
                    common=git_folder if common is None else git_folder / common.strip(),
                )
        return None


def commit_named(paths: RepositoryPaths, name: str) -> str | None:
    """The commit that a reference points to, as a file or packed reference, following symbolic references."""
    for _ in range(5):
        if REFERENCE.fullmatch(name) is None or ".." in name:
            return None
        found = next(
            (text for base in (paths.git_folder, paths.common) if (text := _text(base / name)) is not None), None
        )
        if found is None:
            for line in (_text(paths.common / "packed-refs") or "").splitlines():
                commit, _, listed = line.partition(" ")
                if listed == name:
                    return _hash(commit)
            return None
        if not found.startswith("ref:"):
            return _hash(found)
        name = found.removeprefix("ref:").strip()
    return None


def _hash(text: str) -> str | None:
    return text.strip() if HASH.fullmatch(text.strip()) else None


def _text(path: Path) -> str | None:
    """The text of a file; None if it is missing, a pipe, or too large."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _run_git(
    arguments: Sequence[str],
    git_folder: Path,
    tree: Path,
    limit_s: float,
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
    input_text: str | None = None,
) -> Finished | None:
    """Run git in a repository of ours with a working tree; None without git."""
    git = program("git")
    if git is None:
        return None
    outer = {name: value for name, value in os.environ.items() if not name.upper().startswith("GIT_")}
    folders = {"GIT_DIR": str(git_folder), "GIT_WORK_TREE": str(tree)}
    return run_program(
        (git, *arguments),
        input_text=input_text,
        limit_s=limit_s,
        env={**outer, **folders, **variables, **OUTSIDE},
        folder=tree,
    )


def write_empty_repository(folder: Path, commit: str) -> None:
    """Make the folder an empty repository at the commit, whose length determines the hash function."""
    is_sha256 = len(commit) == 64
    (folder / "refs").mkdir()
    (folder / "HEAD").write_text(f"{commit}\n")
    (folder / "config").write_text(
        f"[core]\n\trepositoryformatversion = {int(is_sha256)}\n\tbare = false\n"
        + ("[extensions]\n\tobjectFormat = sha256\n" if is_sha256 else "")
    )


OUTSIDE = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
"""Environment of git: no configuration except from the command line, no writing, and no remotes."""


def safe_settings(paths: RepositoryPaths, empty: Path) -> tuple[str, ...]:
    """Arguments with the relevant, safe settings of the repository, and no others."""
    ours = ("core.fsmonitor=false", f"core.hooksPath={empty}", f"core.attributesFile={os.devnull}")
    words = [word for setting in ours for word in ("-c", setting)]
    if not (config := paths.common / "config").is_file():
        return tuple(words)
    listing = ("config", "--file", str(config), "--no-includes", "--null", "--list")
    done = _run_git(listing, empty, empty, TIME_LIMIT_S)
    for entry in done.stdout.split("\0") if done is not None and done.exit_code == 0 else ():
        name, _, value = entry.partition("\n")
        if name in SAFE_SETTINGS and SAFE_VALUE.fullmatch(value):
            words += ["-c", f"{name}={value}"]
    return tuple(words)


NO_GIT = "git is not installed or not on PATH: install git"
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
    def __init__(self, folder: Path, work_folder: Path) -> None:
        """`folder` is in the repository; `work_folder` is an empty folder for git to work in.

        Raises UsageError outside a repository, without git, and for a repository without a commit.
        """
        paths = RepositoryPaths.above(folder)
        if paths is None:
            raise UsageError(f"{folder} is not in a git repository: run this in a working tree")
        if program("git") is None:
            raise UsageError(NO_GIT)
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
        git_folder = folder or self._git_folder
        words = (*safe_settings(self._paths, git_folder), *arguments)
        done = _run_git(words, git_folder, tree or git_folder.parent, LIMIT_S)
        if done is None:
            raise UsageError(NO_GIT)
        return done
