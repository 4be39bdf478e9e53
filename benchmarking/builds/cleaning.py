"""Takes things out of the build cache: builds, and what makers that were cut off left behind.

Whoever makes a build holds its lock, so nothing is touched whose lock cannot be had at once.

A cache that is no larger after a command than before: what the command made new is deleted at its end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarking.builds.contents import Contents, Leftover, folder_bytes, lock_of
from benchmarking.builds.store import MADE_VARIABLE, RECORD, BuildStore
from benchmarking.core.errors import StorageError
from benchmarking.core.text import size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """What was taken out."""

    count: int
    size_bytes: int
    in_use: tuple[Path, ...] = ()
    """What somebody is at, which stays."""


def delete_folders(root: Path, folders: Sequence[Path]) -> Freed:
    """Delete the folders of builds, which lie at `root`/kind/digest. Raises StorageError."""
    count = size_bytes = 0
    in_use: list[Path] = []
    for folder in folders:
        freed_bytes = _delete(root, folder)
        if freed_bytes is None:
            in_use.append(folder)
        else:
            count, size_bytes = count + 1, size_bytes + freed_bytes
    return Freed(count=count, size_bytes=size_bytes, in_use=tuple(in_use))


def sweep_leftovers(root: Path, contents: Contents) -> Freed:
    """Delete half-made builds and lock files that nobody holds. Raises StorageError."""
    folders = [one for one in contents.leftovers if one.path != one.lock]
    locks = [one for one in contents.leftovers if one.path == one.lock]
    count = size_bytes = 0
    for leftover in (*folders, *locks):  # taking a folder's lock makes the lock's file, too: locks last
        if _sweep(root, leftover):
            count, size_bytes = count + 1, size_bytes + leftover.size_bytes
    return Freed(count=count, size_bytes=size_bytes)


def _delete(root: Path, folder: Path) -> int | None:
    """Delete a build's folder; its bytes, or None when somebody holds its lock."""
    _check_place(root, folder)
    with _said(folder), _held(lock_of(folder)) as is_held:
        if not is_held:
            return None
        freed_bytes = folder_bytes(folder) if folder.is_dir() else folder.lstat().st_size
        _remove(folder)
        return freed_bytes


def _sweep(root: Path, leftover: Leftover) -> bool:
    _check_place(root, leftover.path)
    with _said(leftover.path), _held(leftover.lock) as is_held:
        if is_held and leftover.path != leftover.lock:
            _remove(leftover.path)
        return is_held


def _remove(path: Path) -> None:
    """A build's record goes first, so that half of one is never found."""
    if not path.is_dir():
        path.unlink()
        return
    (path / RECORD).unlink(missing_ok=True)
    shutil.rmtree(path)


def _check_place(root: Path, path: Path) -> None:
    """Raise StorageError unless the path is two levels below the root, with no link on the way."""
    if path.parent.parent != root or ".." in path.parts or path.is_symlink() or path.parent.is_symlink():
        raise StorageError(f"{path} is no build of the cache {root}: it is left alone")


@contextmanager
def _held(lock: Path) -> Iterator[bool]:
    """Hold a lock, if it can be had at once, and take its file away: whoever waited for it makes a new one."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(lock, timeout=0):
            yield True
            with suppress(PermissionError):  # Windows: a file that is open stays until it is let go, which deletes it
                lock.unlink(missing_ok=True)
    except Timeout:
        yield False


@contextmanager
def _said(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot delete {path}: {error.strerror}") from error


@contextmanager
def lean_cache(*, is_lean: bool, say: Callable[[str], None]) -> Iterator[None]:
    """Inside, builds that this process and its workers make are listed; at the end, however that comes, they go.

    Builds that were there before stay, as does what other commands make meanwhile. `say` is told what was freed.
    """
    if not is_lean:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="benchhouse-") as folder:
        made = Path(folder) / "made"
        before = os.environ.get(MADE_VARIABLE)
        os.environ[MADE_VARIABLE] = str(made)
        try:
            yield
        finally:
            _put_back(before)
            say(_words(_delete_build(made)))


def _delete_build(made: Path) -> Freed:
    """Delete what is listed in the file, as far as it is still there."""
    root = BuildStore().root
    lines = made.read_text(encoding="utf-8").split() if made.exists() else []
    folders = [root.joinpath(*line.split("/")) for line in dict.fromkeys(lines)]
    return delete_folders(root, [folder for folder in folders if folder.exists()])


def _words(freed: Freed) -> str:
    kept = f"; {len(freed.in_use)} in use elsewhere stay" if freed.in_use else ""
    builds = "build" if freed.count == 1 else "builds"
    return f"lean cache: {freed.count} {builds} deleted, {size_text(freed.size_bytes)} freed{kept}"


def _put_back(before: str | None) -> None:
    if before is None:
        del os.environ[MADE_VARIABLE]
    else:
        os.environ[MADE_VARIABLE] = before
