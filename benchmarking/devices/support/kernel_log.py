"""What the Linux kernel logged about a GPU that failed: NVIDIA's Xid messages.

The log is readable for root, or for everybody where kernel.dmesg_restrict is 0, and seldom in containers.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

LOG = Path("/dev/kmsg")
XID = re.compile(
    r"^\d+,\d+,(?P<since_boot_us>\d+),[^;]*;"
    r"NVRM: Xid \(PCI:(?P<address>[0-9a-fA-F:.]+)\): (?P<number>\d+), (?P<text>[^\n]+)"
)
"""A record of NVIDIA's driver: "4,1021,16612594736,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."."""
MAX_RECORDS = 100_000
MAX_TEXT = 160
RECENT_S = 300.0
"""Age of the messages that may be about a failure of just now."""


def last_xid(address: object, log: Path = LOG) -> str | None:
    """The last Xid in five minutes of the GPU with this PCI address ("0000:1b:00"), in words: "Xid 79 in the kernel's
    log: GPU has fallen off the bus."; None if there is none, or if the log cannot be read."""
    if not isinstance(address, str) or not address:
        return None
    found = None
    for line in _lines(log):
        match = XID.search(line)
        if match is None or not match["address"].lower().startswith(address.lower()):
            continue
        if time.monotonic() - int(match["since_boot_us"]) / 1e6 <= RECENT_S:
            found = f"Xid {match['number']} in the kernel's log: {match['text'].strip()[:MAX_TEXT]}"
    return found


def _lines(log: Path) -> list[str]:
    """The records of the kernel's log. It is read without waiting for further ones."""
    try:
        descriptor = os.open(log, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return []
    records: list[str] = []
    try:
        for _ in range(MAX_RECORDS):
            try:
                record = os.read(descriptor, 8192)
            except BrokenPipeError:  # a record was overwritten before it was read
                continue
            if not record:
                break
            records.append(record.decode(errors="replace"))
    except OSError:  # no further record
        pass
    finally:
        os.close(descriptor)
    return "".join(one if one.endswith("\n") else f"{one}\n" for one in records).splitlines()
