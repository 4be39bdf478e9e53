"""Ids are UUIDs version 7, unique, and sort by creation time."""

from __future__ import annotations

import time
import uuid

import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.provenance import require_running_clock, uuid7


def test_ids_are_version_7_uuids_with_the_current_time():
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(uuid7())
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert before <= made.int >> 80 <= after


def test_ids_are_unique_and_sort_by_time():
    first = uuid7()
    time.sleep(0.002)
    many = [uuid7() for _ in range(1000)]
    assert first < min(many)
    assert len(set(many)) == 1000


def test_a_clock_that_stands_still_is_an_error():
    with pytest.raises(BenchhouseError, match="clock does not advance"):
        require_running_clock(lambda: 7)
    require_running_clock()
