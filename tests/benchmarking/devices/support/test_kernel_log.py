"""NVIDIA's messages in the kernel's log, in the form of /dev/kmsg."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarking.devices.support.system_values import last_xid

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
