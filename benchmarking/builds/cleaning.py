"""Deletes builds, leftovers of interrupted builds, and builds made by a command with `--lean-cache`.

A process that makes a build holds its lock, and nothing with a held lock is deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarking.builds.contents import Contents, Leftover, folder_bytes, lock_of
from benchmarking.builds.store import MADE_VARIABLE, RECORD, BuildStore
from benchmarking.core.child_process import environment_variable
from benchmarking.core.errors import StorageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.text import size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """The result of a deletion."""

    count: int
    size_bytes: int
    in_use: tuple[Path, ...] = ()
    """Folders locked by another process, which were kept."""


def delete_folders(root: Path, folders: Sequence[Path]) -> Freed:
    """Delete folders of builds, each `root`/kind/digest. Raises StorageError."""
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
    """Delete incomplete builds and lock files that no process holds. Raises StorageError."""
    folders = [one for one in contents.leftovers if one.path != one.lock]
    locks = [one for one in contents.leftovers if one.path == one.lock]
    count = size_bytes = 0
    for leftover in (*folders, *locks):  # locking a folder creates its lock file: locks last
        if _sweep(root, leftover):
            count, size_bytes = count + 1, size_bytes + leftover.size_bytes
    return Freed(count=count, size_bytes=size_bytes)


def _delete(root: Path, folder: Path) -> int | None:
    """Delete a build's folder; returns its bytes, or None if another process holds its lock."""
    _check_path(root, folder)
    with _storage_errors(folder), _locked(lock_of(folder)) as is_held:
        if not is_held:
            return None
        freed_bytes = folder_bytes(folder) if folder.is_dir() else folder.lstat().st_size
        _remove(folder)
        return freed_bytes


def _sweep(root: Path, leftover: Leftover) -> bool:
    _check_path(root, leftover.path)
    with _storage_errors(leftover.path), _locked(leftover.lock) as is_held:
        if is_held and leftover.path != leftover.lock:
            _remove(leftover.path)
        return is_held


def _remove(path: Path) -> None:
    """Delete a build, starting with its record, so that an incomplete build is never found."""
    if not path.is_dir():
        path.unlink()
        return
    (path / RECORD).unlink(missing_ok=True)
    shutil.rmtree(path)


def _check_path(root: Path, path: Path) -> None:
    """Raise StorageError unless the path is two levels below the root, with no link on the way."""
    if path.parent.parent != root or ".." in path.parts or path.is_symlink() or path.parent.is_symlink():
        raise StorageError(f"{path} is not a build in the cache {root}: not deleted")


@contextmanager
def _locked(lock: Path) -> Iterator[bool]:
    """Yields whether a lock is free. If so, it is held inside, and its file is deleted at the end; a process waiting
    for it creates a new one."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(lock, timeout=0):
            yield True
            with suppress(PermissionError):  # Windows deletes an open file when it is closed
                lock.unlink(missing_ok=True)
    except Timeout:
        yield False


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot delete {path}: {error.strerror}") from error


@contextmanager
def lean_cache(*, is_lean: bool, say: Callable[[str], None]) -> Iterator[None]:
    """At the end, also after an error, delete the builds that this process and its workers made inside.

    Older builds and those of other commands are kept. `say` is called with a line about the freed space.
    """
    if not is_lean:
        yield
        return
    with temporary_folder("benchhouse-builds") as folder:
        list_file = folder / "made"
        try:
            with environment_variable(MADE_VARIABLE, str(list_file)):
                yield
        finally:
            root = BuildStore().root
            lines = list_file.read_text(encoding="utf-8").split() if list_file.exists() else []
            folders = [root.joinpath(*line.split("/")) for line in dict.fromkeys(lines)]
            freed = delete_folders(root, [folder for folder in folders if folder.exists()])
            say(_summary(freed))


def _summary(freed: Freed) -> str:
    kept = f"; {len(freed.in_use)} in use elsewhere, kept" if freed.in_use else ""
    builds = "build" if freed.count == 1 else "builds"
    return f"lean cache: {freed.count} {builds} deleted, {size_text(freed.size_bytes)} freed{kept}"
