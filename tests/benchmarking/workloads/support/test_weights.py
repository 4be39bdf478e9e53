"""The share of the weight files in the page cache, from a real kernel and from fakes."""

from __future__ import annotations

import mmap
import os
import sys

import pytest

from benchmarking.workloads.support import weights
from benchmarking.workloads.support.resolve import resolve

PAGES = 64
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")


@pytest.fixture
def file(tmp_path):
    """A file of 64 pages, all of them written to disk."""
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(PAGES * mmap.PAGESIZE))
    with path.open("rb") as open_file:
        os.fsync(open_file.fileno())
    return path


@pytest.mark.parametrize(
    ("share", "word"),
    [(1.0, "warm"), (0.99, "warm"), (0.98, "mixed"), (0.5, "mixed"), (0.02, "mixed"), (0.01, "cold"), (0.0, "cold")],
)
def test_the_cache_state_follows_from_the_share(share, word):
    assert weights.state_of(share) == word


@on_linux
@pytest.mark.parametrize("ways", ["cachestat", "mincore"])
def test_read_file_is_warm_and_a_dropped_one_is_not(file, monkeypatch, ways):
    if ways == "mincore":
        monkeypatch.setattr(weights, "_cachestat", lambda descriptor, size: None)
    file.read_bytes()
    assert weights.page_cache([file]) == {"page_cache": "warm", "page_cache_share": 1.0}
    with file.open("rb") as open_file:
        os.posix_fadvise(open_file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    dropped = weights.page_cache([file])
    if dropped["page_cache_share"] == 1.0:
        pytest.skip("this file system keeps its pages (tmpfs)")
    assert dropped == {"page_cache": "cold", "page_cache_share": 0.0}


def test_cached_share_covers_all_files(file, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    pages = iter([(64, 64), (0, 192)])
    monkeypatch.setattr(weights, "_resident_pages", lambda path: next(pages))
    assert weights.page_cache([file, file]) == {"page_cache": "mixed", "page_cache_share": 0.25}


def test_mincore_is_not_trusted_for_files_of_other_users(file, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(weights, "_cachestat", lambda descriptor, size: None)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1, raising=False)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    state = weights.page_cache([file])
    assert state["page_cache"] == "unknown"
    assert state["page_cache_reason"].startswith("no_permission: weights belongs to another user")


def test_deleted_file_has_an_unknown_cache_state(file, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")

    def gone(path):
        raise FileNotFoundError(2, "No such file", str(path))

    monkeypatch.setattr(weights, "_resident_pages", gone)
    assert weights.page_cache([file])["page_cache_reason"].startswith("failed: ")


def test_other_systems_have_a_reason_for_the_missing_reading(file, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert weights.page_cache([file]) == {
        "page_cache": "unknown",
        "page_cache_reason": "not_supported: win32 does not report which pages of a file are in memory",
    }


def test_empty_files_have_no_state(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "empty").touch()
    assert weights.page_cache([tmp_path / "empty"])["page_cache_reason"] == "not_applicable: no weight files"


def test_random_weights_read_no_file():
    assert weights.page_cache_of(resolve("tiny-bert")) == {}


def test_bytes_are_those_of_all_shards(tmp_path, save_tiny):
    folder = save_tiny(tmp_path / "m", max_shard_size="300KB")
    state = weights.page_cache_of(resolve(str(folder)))
    assert state["weights_file_bytes"] == sum(path.stat().st_size for path in folder.glob("model-*.safetensors"))
    assert state["page_cache"] in ("warm", "mixed", "cold", "unknown")
