"""How often and how long the CPU quota stopped this process (kernel documents cgroup-v2 and sched-bwc)."""

from __future__ import annotations

from pathlib import Path

from benchmarking.devices import _cgroup
from benchmarking.devices._reading import UnreadableError, read_text
from benchmarking.records import NOT_SUPPORTED


def throttling(root: Path) -> dict[str, int]:
    """`periods` in which the quota ran out, and `ns` lost to it: sums over this process's group and those around it.

    A group's own file does not count what its parents' quotas do to it. Raises UnreadableError when no group counts.
    """
    files = [path for folder in _cgroup.controller_folders(root, "cpu") if (path := folder / "cpu.stat").exists()]
    counts = [count for path in files if (count := _throttling(read_text(path))) is not None]
    if not counts:
        raise UnreadableError(f"{NOT_SUPPORTED}: no control group of this process counts throttling")
    return {"periods": sum(periods for periods, _ in counts), "ns": sum(ns for _, ns in counts)}


def _throttling(stat: str) -> tuple[int, int] | None:
    """Periods and nanoseconds of a cpu.stat of version 1 or 2; None where it does not count (the root of version 2)."""
    fields = {words[0]: int(words[1]) for line in stat.splitlines() if len(words := line.split()) == 2}
    if "nr_throttled" not in fields:
        return None
    lost_ns = fields["throttled_usec"] * 1000 if "throttled_usec" in fields else fields.get("throttled_time", 0)
    return fields["nr_throttled"], lost_ns
