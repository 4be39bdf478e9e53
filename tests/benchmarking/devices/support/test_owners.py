"""Whose processes are on a device."""

import pytest

from benchmarking.devices.support.reading import UnreadableError
from benchmarking.devices.support.torch_gpu import Owners


def test_own_pid_is_known_by_its_number():
    owners = Owners(frozenset({7}), own=42)
    assert owners.foreign(frozenset({7, 42})) == [7]
    assert owners.own_pid(frozenset({7, 42})) == 42


def test_before_the_context_exists_all_are_foreign():
    owners = Owners(frozenset({7}), own=42)
    assert owners.own_pid(frozenset({7})) is None
    assert owners.foreign(frozenset({7})) == [7]


def test_in_a_container_the_one_newcomer_is_ours():
    owners = Owners(frozenset({9001}), own=42)
    assert owners.foreign(frozenset({9001, 31337})) == [9001]


def test_our_number_of_the_host_is_remembered_when_others_come():
    owners = Owners(frozenset(), own=42)
    assert owners.foreign(frozenset({31337})) == []
    assert owners.foreign(frozenset({31337, 31400})) == [31400]


def test_own_bytes_are_never_guessed():
    owners = Owners(frozenset({7}), own=42)
    assert owners.own_bytes({7: 100, 42: 500}) == 500
    with pytest.raises(UnreadableError, match="does not list this process"):
        owners.own_bytes({7: 100})
    with pytest.raises(UnreadableError, match="does not list this process"):
        owners.own_bytes({})
    with pytest.raises(UnreadableError, match="does not tell memory by process"):
        owners.own_bytes({42: None})


def test_two_newcomers_cannot_be_told_apart():
    owners = Owners(frozenset(), own=42)
    with pytest.raises(UnreadableError, match=r"not_supported: the driver's pids \(5, 6\) are of another namespace"):
        owners.foreign(frozenset({5, 6}))
