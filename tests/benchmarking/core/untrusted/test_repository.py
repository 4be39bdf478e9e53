"""Repository states match git, and nothing in the repository runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time

import pytest

from benchmarking.core.provenance import provenance
from benchmarking.core.untrusted import repository as repository_module
from benchmarking.core.untrusted.repository import RepositoryState, repository_state

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

OURS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nonexistent"}
NAMES = {f"GIT_{role}_{field}": "x@y" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
WHEN = {"GIT_AUTHOR_DATE": "1700000000 +0100", "GIT_COMMITTER_DATE": "1700000000 +0100"}


def git(folder, *arguments, **variables):
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**os.environ, **OURS, **NAMES, **WHEN, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A clean repository with one commit on the branch main, which is the working folder."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text("content\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def mark(tmp_path):
    """A file that a program of the repository would make."""
    return tmp_path / "mark"


@pytest.fixture
def program(tmp_path, mark):
    """A program that leaves the mark, and fails."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n: > '{mark}'\nexit 1\n")
    path.chmod(0o755)
    return str(path)


def touched(path, content):
    """The file with other content, also in its size, and a time that git has not seen."""
    path.write_text(content)
    os.utime(path, (time.time() + 100, time.time() + 100))


def test_the_state_matches_git(repository):
    commit = git(repository, "rev-parse", "HEAD")
    clean = RepositoryState(commit=commit, branch="main", is_dirty=False, commit_time="2023-11-14T22:13:20Z")
    (repository / "sub").mkdir()
    (repository / "untracked").write_text("")
    assert repository_state(repository) == repository_state(repository / "sub") == clean
    found = provenance((), {}, None)
    assert (found.git_commit, found.git_branch, found.git_dirty) == (commit, "main", False)
    assert found.git_commit_time == "2023-11-14T22:13:20Z"


def test_outside_a_repository_nothing_is_known(tmp_path):
    assert repository_state(tmp_path) == RepositoryState()


def test_without_git_only_the_commit_is_known(repository, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = repository_state(repository)
    assert (len(found.commit), found.branch, found.is_dirty, found.commit_time) == (40, "main", None, None)


def changed(folder):
    touched(folder / "one.txt", "something else\n")


def staged(folder):
    (folder / "new").write_text("x")
    git(folder, "add", "new")


def removed(folder):
    (folder / "one.txt").unlink()


def executable(folder):
    (folder / "one.txt").chmod(0o755)


@pytest.mark.parametrize("change", [changed, staged, removed, executable])
def test_a_change_of_a_tracked_file_is_seen(repository, change):
    change(repository)
    assert repository_state(repository).is_dirty is True


def test_touched_files_are_unchanged_and_the_index_is_not_written(repository):
    touched(repository / "one.txt", "content\n")
    before = (repository / ".git" / "index").stat().st_mtime_ns
    assert repository_state(repository).is_dirty is False
    assert (repository / ".git" / "index").stat().st_mtime_ns == before


def test_file_system_settings_of_git_are_respected(repository):
    git(repository, "config", "core.filemode", "false")
    executable(repository)
    assert repository_state(repository).is_dirty is False


def test_loose_and_packed_references_are_found(repository, tmp_path):
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "pack-refs", "--all")
    git(repository, "gc", "-q")
    assert repository_state(repository).commit == commit
    git(repository, "worktree", "add", "-q", "-b", "other/branch", str(tmp_path / "linked"))
    linked = repository_state(tmp_path / "linked")
    assert (linked.commit, linked.branch, linked.is_dirty) == (commit, "other/branch", False)
    git(repository, "checkout", "-q", "--detach")
    detached = repository_state(repository)
    assert (detached.commit, detached.branch, detached.is_dirty) == (commit, "HEAD", False)


def test_a_submodule_counts_by_its_commit(repository, tmp_path):
    inner = tmp_path / "inner"
    shutil.copytree(repository, inner)
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "inner")
    git(repository, "commit", "-q", "-m", "second")
    assert repository_state(repository).is_dirty is False
    assert repository_state(repository / "inner").commit == git(inner, "rev-parse", "HEAD")
    git(repository / "inner", "commit", "-q", "--allow-empty", "-m", "more")
    assert repository_state(repository).is_dirty is True


def fsmonitor(folder, program):
    git(folder, "config", "core.fsmonitor", program)


def included(folder, program):
    other = folder.parent / "other.config"
    other.write_text(f'[core]\n\tfsmonitor = "{program}"\n')
    git(folder, "config", "include.path", str(other))
    git(folder, "config", f"includeIf.gitdir:{folder}/.path", str(other))


def hooks(folder, program):
    shutil.copy(program, folder / "post-index-change")
    git(folder, "config", "core.hooksPath", str(folder))
    touched(folder / "two.txt", "content\n")  # status would write the index


def filtered(kind):
    def trap(folder, program):
        (folder / ".gitattributes").write_text("one.txt filter=trap\n")
        git(folder, "add", ".gitattributes")
        git(folder, "commit", "-q", "-m", "attributes")
        git(folder, "config", f"filter.trap.{kind}", program)
        touched(folder / "one.txt", "changed\n")  # as long as before: else git knows without the filter

    return trap


def signed(folder, program):
    commit = git(folder, "cat-file", "commit", "HEAD")
    header, _, message = commit.partition("\n\n")
    path = folder.parent / "commit"
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    path.write_text(f"{header}\n{signature}\n\n{message}\n")
    git(folder, "reset", "-q", "--hard", git(folder, "hash-object", "-t", "commit", "-w", str(path)))
    git(folder, "config", "log.showSignature", "true")
    git(folder, "config", "gpg.program", program)


def inner_fsmonitor(folder, program):
    inner = folder.parent / "inner"
    shutil.copytree(folder, inner)
    git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "inner")
    git(folder, "commit", "-q", "-m", "second")
    git(folder / "inner", "config", "core.fsmonitor", program)


def lazy_fetch(folder, program):
    commit = git(folder, "rev-parse", "HEAD")
    (folder / ".git" / "objects" / commit[:2] / commit[2:]).unlink()
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{program} %S",
        "protocol.ext.allow": "always",
    }.items():
        git(folder, "config", name, value)


TRAPS = {
    "fsmonitor": fsmonitor,
    "included": included,
    "hooks": hooks,
    "clean filter": filtered("clean"),
    "process filter": filtered("process"),
    "signature": signed,
    "submodule": inner_fsmonitor,
    "lazy fetch": lazy_fetch,
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_programs_named_in_a_repository_do_not_run(repository, mark, program, trap):
    trap(repository, program)
    mark.unlink(missing_ok=True)  # setting it up may have run it
    assert len(provenance((), {}, None).git_commit) == 40
    assert not mark.exists()


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_git_itself_would_run_the_program(repository, mark, program, trap):
    trap(repository, program)
    mark.unlink(missing_ok=True)
    for arguments in (("status", "--porcelain", "--untracked-files=no"), ("show", "-s", "HEAD")):
        subprocess.run(["git", *arguments], env={**os.environ, **OURS}, capture_output=True, check=False, timeout=30)
    assert mark.exists()


def test_programs_named_in_variables_do_not_run(repository, mark, program, monkeypatch):
    for name, value in {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": program,
        "GIT_EXEC_PATH": str(repository),
        "GIT_DIR": str(repository.parent),
        "GIT_PAGER": program,
    }.items():
        monkeypatch.setenv(name, value)
    assert repository_state(repository).is_dirty is False
    assert not mark.exists()


def test_a_program_named_git_in_the_working_folder_does_not_run(repository, mark, program, monkeypatch):
    shutil.copy(program, repository / "git")
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", os.environ["PATH"]]))
    assert repository_state(repository).is_dirty is False
    assert not mark.exists()


def test_only_changed_files_with_a_filter_make_the_state_unknown(repository):
    (repository / ".gitattributes").write_text("one.txt filter=lfs\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "-q", "-m", "attributes")
    assert repository_state(repository).is_dirty is False
    touched(repository / "one.txt", "something else\n")
    assert repository_state(repository).is_dirty is None
    touched(repository / "two.txt", "something else\n")
    assert repository_state(repository).is_dirty is True


def test_a_configured_working_tree_is_ignored(repository, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    git(repository, "config", "core.worktree", str(tmp_path / "elsewhere"))
    assert repository_state(repository).is_dirty is False


@pytest.mark.parametrize(
    "head", ["ref: ../secret\n", "ref: refs/../../secret\n", "no commit\n", "ref: refs/heads/none\n", ""]
)
def test_references_outside_the_repository_are_not_followed(repository, tmp_path, head):
    for folder in (repository, repository / ".git"):
        (folder / "secret").write_text(git(repository, "rev-parse", "HEAD"))
    (repository / ".git" / "HEAD").write_text(head)
    assert repository_state(repository) == RepositoryState()


@pytest.mark.parametrize("name", ["HEAD", "config", "packed-refs", "commondir"])
def test_a_pipe_instead_of_a_file_does_not_block(repository, name, monkeypatch):
    monkeypatch.setattr(repository_module, "TIME_LIMIT_S", 600.0)
    (repository / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(repository / ".git" / name)
    ended = threading.Event()

    def read():
        repository_state(repository)
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    assert ended.wait(60)
