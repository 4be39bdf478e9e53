"""Commits are found and checked out as by git, without changing the repository or running its programs."""

from __future__ import annotations

import shutil

import pytest

from benchmarking.core.errors import UsageError
from benchmarking.core.untrusted.repository import History, repository_state
from tests.helpers.git_repositories import GitRepository

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """main: one, two, a merge of the branch side (from one), four; every setting, hook and filter that git starts
    leaves a mark."""
    folder = tmp_path_factory.mktemp("history")
    made = GitRepository(folder / "repository")
    made.commit("one", {"a.txt": "1\n", "sub.txt": "x\n", ".gitattributes": "*.txt filter=mark\n"})
    made.git("tag", "-a", "-m", "text", "v1")
    made.git("branch", "side")
    made.commit("two", {"a.txt": "2\n"})
    made.git("checkout", "-q", "side")
    made.commit("beside", {"b.txt": "b\n"})
    made.git("checkout", "-q", "main")
    made.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    made.commit("four \x1b[31m", {"a.txt": "4\n"})
    made.git("pack-refs", "--all")
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n: > '{folder / 'mark'}'\ncat\n")
    program.chmod(0o755)
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        shutil.copy(program, made.folder / ".git" / "hooks" / name)
    with (made.folder / ".git" / "config").open("a") as config:
        config.write(f'[core]\n\tfsmonitor = {program}\n[filter "mark"]\n\tsmudge = {program}\n\tclean = {program}\n')
    return made


@pytest.fixture(scope="module")
def history(repository, tmp_path_factory):
    return History(repository.folder, tmp_path_factory.mktemp("own"))


def subjects(history, commits):
    return [history.text(one).subject for one in commits]


def test_revisions_match_git(repository, history):
    for revision in ("HEAD", "@~2", "main", "v1", "refs/heads/side", "main^1~1", "main~1^2"):
        assert history.commit(revision) == repository.git("rev-parse", f"{revision}^{{commit}}"), revision
    four = history.commit("HEAD")
    assert history.commit(four[:9]) == four


@pytest.mark.parametrize("revision", ["none", "main~9", "--all", "main:a.txt", "HEAD^{tree}", "", "../x", "deadbeef"])
def test_names_of_no_commit_are_errors(history, revision):
    with pytest.raises(UsageError):
        history.commit(revision)


def test_suspects_are_in_git_bisect_order(repository, history):
    bad, good = history.commit("main"), history.commit("v1")
    listed = repository.git("rev-list", "--bisect-all", "main", "^v1").splitlines()
    assert list(history.suspects(bad, (good,))) == [line.split()[0] for line in listed]
    assert set(subjects(history, history.suspects(bad, (good,)))) == {"two", "beside", "merge", "four \\x1b[31m"}
    assert subjects(history, history.suspects(bad, (good, history.commit("side")))).count("beside") == 0


def test_parents_and_common_ancestors(history):
    merge, two, side = (history.commit(name) for name in ("main~1", "main~2", "side"))
    assert history.parents(merge) == (two, side)
    assert subjects(history, history.merge_bases(two, side)) == ["one"]
    assert history.merge_bases(merge, side) == (side,)


def test_checkouts_match_their_commit_and_leave_the_repository_unchanged(repository, history, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in repository.folder.rglob("*")}
    commit = history.commit("main~1")
    tree = history.check_out(commit, tmp_path / "tree")
    assert sorted(path.name for path in tree.iterdir()) == [".git", ".gitattributes", "a.txt", "b.txt", "sub.txt"]
    assert (tree / "a.txt").read_text() == "2\n"
    state = repository_state(tree)
    assert (state.commit, state.branch, state.is_dirty) == (commit, "HEAD", False)
    assert {path: path.stat().st_mtime_ns for path in repository.folder.rglob("*")} == before
    assert not (repository.folder.parent / "mark").exists()


def test_shallow_clones_are_read_to_their_boundary(repository, tmp_path):
    repository.git("clone", "-q", "--depth", "2", f"file://{repository.folder}", str(tmp_path / "clone"))
    (tmp_path / "own").mkdir()
    shallow = History(tmp_path / "clone", tmp_path / "own")
    head = shallow.commit("HEAD")
    assert set(subjects(shallow, shallow.suspects(head, ()))) == {"four \\x1b[31m", "merge"}
    assert shallow.parents(shallow.commit("HEAD~1")) == ()


def test_outside_a_repository_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="is not in a git repository"):
        History(tmp_path, tmp_path)
