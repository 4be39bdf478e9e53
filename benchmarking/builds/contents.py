"""What is in the build cache: whole builds, broken ones, what makers that were cut off left behind, and links.

A symbolic link is never followed and never taken for a build: it may lead anywhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarking.builds.store import DIGEST_LENGTH, RECORD, Build
from benchmarking.errors import StorageError
from benchmarking.records import from_json

LOCK_SUFFIX = ".lock"
NAME = re.compile(rf"[0-9a-f]{{{DIGEST_LENGTH}}}|\.[0-9a-f]{{{DIGEST_LENGTH}}}(\.lock|-.+)")
"""A build's folder; its lock, or a folder it is being made in. Anything else is somebody else's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBuild:
    """A build in the cache."""

    build: Build
    folder: Path
    last_used_s: float
    """When it was last made or found, in seconds since the epoch."""
    size_bytes: int
    """Of everything in its folder, as it is now."""

    @property
    def model_id(self) -> str | None:
        """The model it was made from; None where its record does not name one."""
        return _word(self.build.parts.get("model_id"))

    @property
    def precision(self) -> str | None:
        """The precision of what it holds; None where its record does not name one."""
        return _word(self.build.parts.get("precision"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenBuild:
    """A folder where a build should be and is none."""

    folder: Path
    why: str
    last_used_s: float
    """When its folder was last written to, in seconds since the epoch."""
    size_bytes: int
    model_id: None = None
    """Nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A folder that a build was being made in, or a lock file. Of no use unless somebody is at it right now."""

    path: Path
    lock: Path
    """Whoever is at it holds this."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything in a build cache, by kind and digest."""

    builds: tuple[KeptBuild, ...]
    broken: tuple[BrokenBuild, ...]
    leftovers: tuple[Leftover, ...]
    links: tuple[Path, ...]
    """Symbolic links, which are left alone."""


def read_contents(root: Path) -> Contents:
    """What is under `<cache folder>/builds`. Raises StorageError when that cannot be read."""
    try:
        found = [_classified(entry) for entry in _entries(root)]
    except OSError as error:
        raise StorageError(f"cannot read the build cache {root}: {error.strerror}") from error
    return Contents(
        builds=tuple(one for one in found if isinstance(one, KeptBuild)),
        broken=tuple(one for one in found if isinstance(one, BrokenBuild)),
        leftovers=tuple(one for one in found if isinstance(one, Leftover)),
        links=tuple(one for one in found if isinstance(one, Path)),
    )


def lock_of(folder: Path) -> Path:
    """The lock that whoever makes the build in a folder holds."""
    return folder.with_name(f".{folder.name}{LOCK_SUFFIX}")


def folder_bytes(folder: Path) -> int:
    """The sizes of all files under a folder; links count as themselves. A file that goes meanwhile counts nothing."""
    return sum(_size(Path(parent) / name) for parent, _, names in os.walk(folder) for name in names)


def _entries(root: Path) -> Iterator[Path]:
    """What is named as a build or its maker's traces are, in the folders of kinds; and links, there and above."""
    for kind in sorted(root.iterdir()) if root.is_dir() else ():
        if kind.is_symlink():
            yield kind
        elif kind.is_dir():
            yield from (entry for entry in sorted(kind.iterdir()) if NAME.fullmatch(entry.name) or entry.is_symlink())


def _classified(entry: Path) -> KeptBuild | BrokenBuild | Leftover | Path:
    if entry.is_symlink():
        return entry
    if entry.name.startswith("."):
        digest = entry.name[1 : 1 + DIGEST_LENGTH]
        size_bytes = folder_bytes(entry) if entry.is_dir() else _size(entry)
        return Leftover(path=entry, lock=lock_of(entry.with_name(digest)), size_bytes=size_bytes)
    return _build(entry)


def _build(folder: Path) -> KeptBuild | BrokenBuild:
    record = folder / RECORD
    try:
        build = from_json(Build, json.loads(record.read_text(encoding="utf-8")), str(record))
        if (build.kind, build.digest) != (folder.parent.name, folder.name):
            raise ValueError(f"its record is that of {build.kind}/{build.digest}")
        last_used_s = record.stat().st_mtime
    except OSError as error:
        return _broken(folder, f"no {RECORD} ({error.strerror})")
    except (ValueError, StorageError) as error:
        return _broken(folder, " ".join(str(error).split()))
    return KeptBuild(build=build, folder=folder, last_used_s=last_used_s, size_bytes=folder_bytes(folder))


def _broken(folder: Path, why: str) -> BrokenBuild:
    return BrokenBuild(folder=folder, why=why, last_used_s=folder.lstat().st_mtime, size_bytes=_bytes_at(folder))


def _bytes_at(path: Path) -> int:
    return folder_bytes(path) if path.is_dir() else _size(path)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None
