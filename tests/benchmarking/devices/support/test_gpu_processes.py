"""The processes on a GPU: our own, those that use it, and those that only hold it open."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarking.devices.support.handles import Client, ProcessOwners
from benchmarking.devices.support.system_values import UnreadableError

HELD = 300_000_000


def on(*pids, **fields):
    """Processes that hold memory, on a driver that does not count utilization per process."""
    return {pid: Client(memory_bytes=HELD, **fields) for pid in pids}


def pids(entries):
    return [entry["pid"] for entry in entries]


def test_pid_of_this_process_is_recognized():
    owners = ProcessOwners(frozenset({7}), own=42)
    assert pids(owners.foreign(on(7, 42))) == [7]
    assert owners.own_pid(frozenset({7, 42})) == 42


def test_before_the_context_exists_all_are_foreign():
    owners = ProcessOwners(frozenset({7}), own=42)
    assert owners.own_pid(frozenset({7})) is None
    assert pids(owners.foreign(on(7))) == [7]


def test_only_new_process_is_ours_in_a_container():
    owners = ProcessOwners(frozenset({9001}), own=42)
    assert pids(owners.foreign(on(9001, 31337))) == [9001]


def test_host_pid_is_remembered_when_other_processes_appear():
    owners = ProcessOwners(frozenset(), own=42)
    assert owners.foreign(on(31337)) == []
    assert pids(owners.foreign(on(31337, 31400))) == [31400]


def test_memory_of_this_process_is_never_guessed():
    owners = ProcessOwners(frozenset({7}), own=42)
    assert owners.own_bytes({7: Client(memory_bytes=100), 42: Client(memory_bytes=500)}) == 500
    with pytest.raises(UnreadableError, match="does not list this process"):
        owners.own_bytes({7: Client(memory_bytes=100)})
    with pytest.raises(UnreadableError, match="does not list this process"):
        owners.own_bytes({})
    with pytest.raises(UnreadableError, match="does not report memory per process"):
        owners.own_bytes({42: Client(memory_bytes=None)})


def test_two_newcomers_are_ambiguous():
    owners = ProcessOwners(frozenset(), own=42)
    with pytest.raises(UnreadableError, match=r"not_supported: the driver lists pids of another namespace \(5, 6; "):
        owners.foreign(on(5, 6))
    state = owners.use(lambda: on(5, 6))
    assert state.values == {}
    assert set(state.missing) == {"foreign_pids", "foreign_use"}


def test_computing_process_is_foreign_with_its_evidence():
    state = ProcessOwners(frozenset(), own=42).use(lambda: on(42) | on(7, busy_percent=61))
    assert state.values == {
        "foreign_pids": [7],
        "foreign_use": [{"pid": 7, "busy_percent": 61, "memory_bytes": HELD}],
    }


def test_a_process_that_only_holds_memory_is_not_foreign():
    owners = ProcessOwners(frozenset({7}), own=42)
    assert owners.foreign(on(42, 7, busy_percent=0)) == []
    assert owners.foreign(on(42, 7, busy_percent=4)) == []
    assert owners.use(lambda: on(42, 7, busy_percent=0)).values["foreign_pids"] == []


def test_process_that_allocates_or_appears_between_readings_is_foreign():
    owners = ProcessOwners(frozenset({7}), own=42)
    assert owners.foreign(on(42, 7, busy_percent=0)) == []
    assert pids(owners.foreign(on(42, 7, busy_percent=0) | {7: Client(memory_bytes=2 * HELD, busy_percent=0)})) == [7]
    assert pids(owners.foreign(on(42, 8, busy_percent=0))) == [8]
    assert owners.foreign(on(42, 8, busy_percent=0)) == []


def test_drawing_desktop_is_not_foreign_but_a_game_is():
    """Windows lists every window as C+G, without memory and without utilization."""
    windows = {pid: Client(is_graphics=True) for pid in (7, 8)}
    desktop = {9: Client(memory_bytes=HELD, is_graphics=True, computes=False, busy_percent=3)}
    owners = ProcessOwners(frozenset({7, 8}), own=42)
    assert owners.foreign(on(42) | windows | desktop) == []
    game = {10: Client(memory_bytes=HELD, is_graphics=True, computes=False, busy_percent=88)}
    assert pids(owners.foreign(on(42) | windows | desktop | game)) == [10]


def test_process_in_another_gpu_instance_is_not_foreign():
    owners = ProcessOwners(frozenset({7, 8}), own=42)
    assert pids(owners.foreign(on(42, 8, instance=3) | on(7, instance=9))) == [8]
    assert owners.foreign(on(7, 8, instance=9)) == []


def test_parent_and_child_processes_are_not_foreign():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        owners = ProcessOwners(frozenset({os.getppid(), 1 << 30}))
        assert pids(owners.foreign(on(os.getpid(), os.getppid(), child.pid, 1 << 30))) == [1 << 30]
    finally:
        child.communicate(b"\n", timeout=30)
