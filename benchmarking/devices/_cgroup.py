"""What a Linux control group allows this process: CPU time and memory, versions 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarking.devices._reading import UnreadableError, gather, read_text
from benchmarking.records import NOT_APPLICABLE, NOT_SUPPORTED, Json, Readings

UNLIMITED_BYTES = 1 << 62
"""Version 1 writes "no limit" as the largest page-aligned number below 2^63."""


def limits(root: Path) -> Readings:
    """cgroup_version, cgroup_cpu_quota_cores and cgroup_memory_limit_bytes; the last two missing when unlimited."""
    return gather(
        {
            "cgroup_version": lambda: _version(root),
            "cgroup_cpu_quota_cores": lambda: _least(_quotas(root), "no CPU quota"),
            "cgroup_memory_limit_bytes": lambda: _least(_memory_limits(root), "no memory limit"),
        }
    )


def _least(values: Iterator[float], what: str) -> Json:
    lowest = min(values, default=None)
    if lowest is None:
        raise UnreadableError(f"{NOT_APPLICABLE}: {what}")
    return lowest


def _version(root: Path) -> int:
    """2 where only the unified hierarchy is mounted, 1 where controllers have mounts of their own."""
    mount = root / "sys/fs/cgroup"
    if not mount.is_dir():
        raise UnreadableError(f"{NOT_SUPPORTED}: no {mount}")
    return 2 if (mount / "cgroup.controllers").exists() else 1


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas in cores, of this group and those above it."""
    for folder in controller_folders(root, "cpu"):
        yield from _quota_v2(folder / "cpu.max")
        yield from _quota_v1(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")


def _quota_v2(path: Path) -> Iterator[float]:
    quota, _, period = (read_text(path) if path.exists() else "max").partition(" ")
    if quota != "max":
        yield int(quota) / int(period)


def _quota_v1(quota: Path, period: Path) -> Iterator[float]:
    quota_us = int(read_text(quota)) if quota.exists() else -1
    if quota_us > 0:
        yield quota_us / int(read_text(period))


def _memory_limits(root: Path) -> Iterator[int]:
    """Memory limits in bytes, of this group and those above it."""
    for folder in controller_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = read_text(folder / name) if (folder / name).exists() else "max"
            if text != "max" and int(text) < UNLIMITED_BYTES:
                yield int(text)


def controller_folders(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's group and of its ancestors, in the controller's own hierarchy and the unified one.

    Inside a container the path that /proc tells may be the host's, where nothing is mounted; the mount's own root is
    then the container's group, and it is always among the folders.
    """
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mounts = [controllers, controller] if controllers else ["", "unified"]
        mount = next((m for name in mounts if (m := root / "sys/fs/cgroup" / name).is_dir()), None)
        if mount is not None:
            inside = [part for part in path.split("/") if part and part != ".."]
            yield from (mount.joinpath(*inside[:depth]) for depth in range(len(inside), -1, -1))
