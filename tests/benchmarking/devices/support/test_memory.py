"""Free memory of the machine, of a control group and of a device."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import psutil
import pytest

from benchmarking.core.records import Device, Readings
from benchmarking.devices.support import memory
from benchmarking.devices.support.memory import free_host_bytes, free_in_groups, free_memory

GB = 1_000_000_000


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def version_2(tmp_path):
    """A container's group with a limit of 8 GB, 5 GB in use, of which 2 GB are page cache."""
    write(tmp_path, "proc/self/cgroup", "0::/\n")
    write(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", f"{8 * GB}\n")
    write(tmp_path, "sys/fs/cgroup/memory.current", f"{5 * GB}\n")
    stat = f"anon {3 * GB}\nfile {2 * GB}\ninactive_file {int(1.5 * GB)}\nactive_file {int(0.5 * GB)}\n"
    write(tmp_path, "sys/fs/cgroup/memory.stat", stat)
    return tmp_path


def test_a_group_leaves_its_limit_less_its_use_but_for_page_cache(version_2):
    assert list(free_in_groups(version_2)) == [5 * GB]


def test_a_group_above_may_leave_less(version_2):
    write(version_2, "proc/self/cgroup", "0::/inner\n")
    for name, text in (("max", f"{6 * GB}"), ("current", f"{4 * GB}"), ("stat", "inactive_file 0\n")):
        write(version_2, f"sys/fs/cgroup/inner/memory.{name}", text)
    assert list(free_in_groups(version_2)) == [2 * GB, 5 * GB]


def test_version_1_counts_the_page_cache_of_all_groups_below_once(tmp_path):
    write(tmp_path, "proc/self/cgroup", "4:memory:/\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{8 * GB}")
    write(tmp_path, "sys/fs/cgroup/memory/memory.usage_in_bytes", f"{5 * GB}")
    stat = f"inactive_file {GB}\nactive_file 0\ntotal_inactive_file {2 * GB}\ntotal_active_file 0\n"
    write(tmp_path, "sys/fs/cgroup/memory/memory.stat", stat)
    assert list(free_in_groups(tmp_path)) == [5 * GB]


def test_a_group_beyond_its_limit_leaves_nothing(version_2):
    write(version_2, "sys/fs/cgroup/memory.current", f"{11 * GB}")
    assert list(free_in_groups(version_2)) == [0]


def test_groups_without_limit_or_files_limit_nothing(version_2, tmp_path_factory):
    write(version_2, "sys/fs/cgroup/memory.max", "max\n")
    assert list(free_in_groups(version_2)) == []
    assert list(free_in_groups(tmp_path_factory.mktemp("empty"))) == []


@pytest.mark.parametrize(("available", "free"), [(3 * GB, 3 * GB), (20 * GB, 5 * GB)])
def test_the_host_has_what_machine_and_group_leave(monkeypatch, version_2, available, free):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=available))
    assert free_host_bytes(version_2) == free


def test_other_systems_have_no_groups(monkeypatch, version_2):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=20 * GB))
    assert free_host_bytes(version_2) == 20 * GB


def device(kind, memory_bytes=None, **facts):
    return Device(type=kind, selector=kind, found=True, memory_bytes=memory_bytes, facts=Readings(values=facts))


@pytest.mark.parametrize("kind", ["cpu", "mps"])
def test_devices_in_the_machines_memory_have_what_is_free_there(monkeypatch, kind):
    monkeypatch.setattr(memory, "free_host_bytes", lambda: 7 * GB)
    assert free_memory(device(kind, 16 * GB)).values == {"free_memory_bytes": 7 * GB}


def test_a_gpu_that_tells_its_free_memory_is_believed():
    assert free_memory(device("cuda", 80 * GB, free_memory_bytes=60 * GB)).values == {"free_memory_bytes": 60 * GB}


@pytest.mark.parametrize("kind", ["cuda", "rocm"])
def test_a_gpu_that_tells_no_free_memory_has_at_most_all_of_it(kind):
    readings = free_memory(device(kind, 80 * GB))
    assert readings.values == {"device_memory_bytes": 80 * GB}
    assert readings.missing == {"free_memory_bytes": f"not_supported: {kind} did not tell it when it was found"}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (device("cuda"), "not_supported: cuda did not tell it when it was found"),
        (device("null", 16 * GB), "not_applicable: where null computes is not known"),
        (device("openvino", 16 * GB), "not_applicable: where openvino computes is not known"),
    ],
)
def test_other_devices_have_a_reason(found, reason):
    assert free_memory(found).missing == {"free_memory_bytes": reason}
