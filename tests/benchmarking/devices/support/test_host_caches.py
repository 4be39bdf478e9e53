"""The size of the last-level cache."""

from __future__ import annotations

from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.devices.cpu import CpuHandle
from benchmarking.devices.support.system_values import last_level_cache_bytes

MIB = 1 << 20


def cache(cpus, cpu, index, level, kind, size, shared):
    folder = cpus / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, value in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
        (folder / name).write_text(f"{value}\n")


def test_each_last_level_cache_is_added_once(tmp_path):
    for cpu in range(4):
        cache(tmp_path, cpu, 0, 1, "Data", "32K", str(cpu))
        cache(tmp_path, cpu, 1, 1, "Instruction", "64K", str(cpu))
        cache(tmp_path, cpu, 2, 3, "Unified", "32M", "0-1" if cpu < 2 else "2-3")
    assert last_level_cache_bytes(tmp_path) == 64 * MIB


def test_incomplete_or_missing_page_listing_is_unknown(tmp_path):
    assert last_level_cache_bytes(tmp_path) is None
    cache(tmp_path, 0, 0, 1, "Data", "32K", "0")
    (tmp_path / "cpu0" / "cache" / "index0" / "size").unlink()
    assert last_level_cache_bytes(tmp_path) is None


def test_sizes_are_read_in_the_notation_of_linux(tmp_path):
    for number, text in enumerate(("32K", "8M", "1G", "512")):
        cache(tmp_path / text, number, 0, 1, "Unified", text, "0")
    sizes = [last_level_cache_bytes(tmp_path / text) for text in ("32K", "8M", "1G", "512")]
    assert sizes == [32768, 8 * MIB, 1024 * MIB, 512]


def test_violation_time_is_read_for_the_cpu_on_linux_only(tmp_path):
    cache(tmp_path / "devices" / "system" / "cpu", 0, 2, 3, "Unified", "32M", "0")
    assert CpuHandle(sys=tmp_path, system="Linux").last_level_cache_bytes() == 32 * MIB
    assert CpuHandle(sys=tmp_path, system="Darwin").last_level_cache_bytes() is None
    assert DeviceHandle().last_level_cache_bytes() is None
