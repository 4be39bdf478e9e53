"""The build cache as tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

from benchmarking.builds.contents import Contents, KeptBuild, Leftover
from benchmarking.builds.sizes import size_text, time_text
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import visible
from benchmarking.records import Json

HEADINGS = ("kind", "model", "precision", "size", "made", "last used", "digest")
STATS_HEADINGS = ("kind", "builds", "size")
FIELDS = (
    *("kind", "model_id", "task", "precision", "size_bytes", "made_at", "last_used_at", "build_s", "digest", "folder"),
)
"""Columns of the CSV report, and keys of a build in JSON."""
SHORT = 12


def list_text(root: Path, contents: Contents, page: Page = PLAIN) -> str:
    """A line a build, and below them what is broken, half-made, or a link."""
    if not contents.builds and not contents.broken:
        return "\n".join([f"no builds in {root}", *_troubles(contents)])
    table = Table(headings=HEADINGS, rows=tuple(_cells(one) for one in contents.builds), numbers=(3,), keys=2)
    return "\n".join([table_text(table, page), *_troubles(contents)])


def list_json(contents: Contents) -> dict[str, Json]:
    """`builds`, `broken` (with the reason), `leftovers` and `links`."""
    return {
        "builds": [_row(one) for one in contents.builds],
        "broken": [
            {"folder": str(one.folder), "why": one.why, "size_bytes": one.size_bytes} for one in contents.broken
        ],
        "leftovers": [{"path": str(one.path), "size_bytes": one.size_bytes} for one in _half_made(contents)],
        "links": [str(link) for link in contents.links],
    }


def stats_json(root: Path, contents: Contents) -> dict[str, Json]:
    """Builds and bytes by kind and together, bytes of what is broken or half-made, and free bytes of the disk."""
    return {
        "folder": str(root),
        "kinds": {kind: {"builds": len(sizes), "size_bytes": sum(sizes)} for kind, sizes in _by_kind(contents).items()},
        "builds": len(contents.builds),
        "size_bytes": sum(one.size_bytes for one in contents.builds),
        "useless_bytes": _useless_bytes(contents),
        "free_bytes": free_bytes(root),
    }


def stats_text(root: Path, contents: Contents, page: Page = PLAIN) -> str:
    """The same as a table."""
    by_kind = _by_kind(contents)
    by_kind["all"] = [one.size_bytes for one in contents.builds]
    rows = tuple((kind, str(len(sizes)), size_text(sum(sizes))) for kind, sizes in by_kind.items())
    useless = _useless_bytes(contents)
    return "\n".join(
        [
            f"in {root}",
            table_text(Table(headings=STATS_HEADINGS, rows=rows, numbers=(1, 2)), page),
            *([f"broken or half-made: {size_text(useless)}"] if useless else []),
            f"free on this disk: {size_text(free_bytes(root))}",
        ]
    )


def csv_text(contents: Contents) -> str:
    """A line a build under the names of `FIELDS`; lines end with CR LF, as RFC 4180 has it."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    writer.writerows(_row(one) for one in contents.builds)
    return text.getvalue()


def free_bytes(root: Path) -> int:
    """What is free on the disk that the folder is on, or will be."""
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    return shutil.disk_usage(place).free


def _row(one: KeptBuild) -> dict[str, Any]:
    return {
        "kind": one.build.kind,
        "model_id": one.model_id,
        "task": one.build.parts.get("task"),
        "precision": one.precision,
        "size_bytes": one.size_bytes,
        "made_at": one.build.made_at,
        "last_used_at": time_text(one.last_used_s),
        "build_s": one.build.build_s,
        "digest": one.build.digest,
        "folder": str(one.folder),
    }


def _cells(one: KeptBuild) -> tuple[str, ...]:
    build = one.build
    what = (build.kind, one.model_id or "-", one.precision or "-", size_text(one.size_bytes))
    return (*what, build.made_at[:16], time_text(one.last_used_s)[:16], build.digest[:SHORT])


def _troubles(contents: Contents) -> list[str]:
    lines = [f"broken: {one.folder}: {one.why}" for one in contents.broken]
    lines += [f"half-made: {one.path}: {size_text(one.size_bytes)}" for one in _half_made(contents)]
    lines += [f"left alone: {link}: a symbolic link" for link in contents.links]
    return [visible(line) for line in lines]


def _by_kind(contents: Contents) -> dict[str, list[int]]:
    """The builds' sizes in bytes."""
    kinds: dict[str, list[int]] = {}
    for one in contents.builds:
        kinds.setdefault(one.build.kind, []).append(one.size_bytes)
    return kinds


def _useless_bytes(contents: Contents) -> int:
    sizes = [one.size_bytes for one in contents.broken]
    return sum(sizes) + sum(one.size_bytes for one in _half_made(contents))


def _half_made(contents: Contents) -> list[Leftover]:
    """Folders that builds were being made in; lock files are not worth a word."""
    return [one for one in contents.leftovers if one.path != one.lock]
