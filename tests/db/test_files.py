import errno
import os

import pytest

from benchmarking.core.errors import StorageError
from db import files


def test_a_published_file_has_its_name_and_nothing_is_left(tmp_path):
    target = tmp_path / "a"
    with files.temporary_sibling(target) as part:
        part.write_text("whole")
        assert files.publish(part, target) is True
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a", "whole")]


def test_an_existing_file_is_not_replaced(tmp_path):
    target = tmp_path / "a"
    target.write_text("first")
    with files.temporary_sibling(target) as part:
        part.write_text("second")
        assert files.publish(part, target) is False
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a", "first")]


def test_an_unpublished_file_is_deleted_with_its_log(tmp_path):
    with files.temporary_sibling(tmp_path / "a") as part:
        part.write_text("half")
        part.with_name(part.name + ".wal").write_text("log")
    assert list(tmp_path.iterdir()) == []


def test_without_hard_links_an_existing_file_is_still_not_replaced(tmp_path, monkeypatch):
    def no_links(source, target):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "a"
    for content, is_first in (("first", True), ("second", False)):
        with files.temporary_sibling(target) as part:
            part.write_text(content)
            assert files.publish(part, target) is is_first
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a", "first")]


def test_an_unwritable_path_is_one_clear_error(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(os, "rename", full)
    with files.temporary_sibling(tmp_path / "a") as part:
        part.write_text("whole")
        with pytest.raises(StorageError, match=r"cannot create .*a: No space left on device: choose another path"):
            files.publish(part, tmp_path / "a")
