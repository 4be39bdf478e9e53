"""Ids are UUIDs version 7, unique, and sort by creation time."""

from __future__ import annotations

import time
import uuid

from benchmarking.core.provenance import uuid7


def test_an_id_is_a_version_7_uuid_of_now():
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(uuid7())
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert before <= made.int >> 80 <= after


def test_later_ids_sort_later_and_none_repeats():
    first = uuid7()
    time.sleep(0.002)
    many = [uuid7() for _ in range(1000)]
    assert first < min(many)
    assert len(set(many)) == 1000
