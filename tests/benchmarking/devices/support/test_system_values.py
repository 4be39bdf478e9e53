"""What is read of the system: single values, and the reasons for unreadable ones; the size of the last-level cache;
NVIDIA's messages in the kernel's log, in the form of /dev/kmsg."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.devices.cpu import CpuHandle
from benchmarking.devices.support import system_values
from benchmarking.devices.support.system_values import (
    UnreadableError,
    gather,
    last_level_cache_bytes,
    last_xid,
    read_int,
    read_text,
    run_command,
)


def test_gather_keeps_values_and_reasons_apart():
    def refuse():
        raise UnreadableError("no_permission: /x")

    readings = gather(
        {"clock_hz": lambda: 1, "power_w": refuse, "fans": lambda: os.listdir("/absent"), "n": lambda: int("")}
    )
    assert readings.values == {"clock_hz": 1}
    assert readings.missing == {
        "power_w": "no_permission: /x",
        "fans": "failed: [Errno 2] No such file or directory: '/absent'",
        "n": "failed: invalid literal for int() with base 10: ''",
    }


def test_absent_file_is_not_supported_and_named(tmp_path):
    with pytest.raises(UnreadableError, match=f"^not_supported: no {tmp_path}/x$"):
        read_text(tmp_path / "x")


def test_forbidden_file_is_no_permission_and_named(monkeypatch, tmp_path):
    def refuse(self, **_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(system_values.Path, "read_text", refuse)
    with pytest.raises(UnreadableError, match=f"^no_permission: {tmp_path}/x$"):
        read_text(tmp_path / "x")


def test_sensor_that_fails_is_failed_with_the_systems_word(tmp_path):
    with pytest.raises(UnreadableError, match=r"^failed: .*Is a directory"):
        read_text(tmp_path)


def test_non_numeric_text_is_shown(plant):
    root = plant({"x": "abc"})
    with pytest.raises(UnreadableError, match="holds 'abc', not a number"):
        read_int(root / "x")


def test_numbers_are_read_in_hex_too(plant):
    assert read_int(plant({"x": "0x10"}) / "x") == 16


def test_command_gives_its_output():
    assert run_command([sys.executable, "-c", "print('fine')"]) == "fine\n"


def test_missing_command_is_not_supported():
    with pytest.raises(UnreadableError, match=r"^not_supported: no command /nowhere/sysctl"):
        run_command(["/nowhere/sysctl"])


def test_failing_command_has_its_last_line():
    with pytest.raises(UnreadableError, match=r"^failed: .*: no such oid$"):
        run_command([sys.executable, "-c", "import sys; sys.exit('first\\nno such oid')"])


def test_hanging_command_is_stopped(monkeypatch):
    monkeypatch.setattr(system_values, "COMMAND_LIMIT_S", 0.2)
    with pytest.raises(UnreadableError, match=r"took more than 0.2 s"):
        run_command([sys.executable, "-c", "import time; time.sleep(60)"])


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


ADDRESS = "0000:1b:00"


def test_the_last_message_about_this_gpu_is_found_and_old_ones_are_not(tmp_path: Path) -> None:
    now_us = int(time.monotonic() * 1e6)
    log = tmp_path / "kmsg"

    def record(age_s: float, text: str) -> str:
        return f"4,1021,{now_us - int(age_s * 1e6)},-;{text}\n"

    lines = [
        record(4000, "NVRM: Xid (PCI:0000:1b:00): 13, Graphics Exception"),
        record(20, "NVRM: Xid (PCI:0000:1B:00): 31, pid=4711, name=python, MMU Fault"),
        record(10, "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."),
        record(5, "NVRM: Xid (PCI:0000:af:00): 48, of another GPU"),
        record(1, "usb 1-1: new device"),
    ]
    log.write_text("".join(lines))
    assert last_xid(ADDRESS, log) == "Xid 79 in the kernel's log: GPU has fallen off the bus."
    assert last_xid("0000:1b:01", log) is None
    assert last_xid(None, log) is None
    log.write_text(lines[0])
    assert last_xid(ADDRESS, log) is None  # of an hour ago
    assert last_xid(ADDRESS, tmp_path / "absent") is None
