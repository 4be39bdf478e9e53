"""Files that grow line by line, each a JSON object that is safe on disk before the next thing happens.

The first line says what the file is, the others what came since. A line that a crash cut off does not count.
"""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import dumps, from_json

NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)
"""What `os.link` says on file systems without hard links."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that is or was at work on a file."""

    host: str
    pid: int
    created_s: float
    """Start of the process in Unix seconds: a process id alone comes back one day."""

    def is_alive(self) -> bool:
        """True while the process runs on this machine."""
        import psutil

        if self.host != platform.node():
            return False
        try:
            return psutil.Process(self.pid).create_time() == self.created_s
        except psutil.NoSuchProcess:
            return False


def create(paths: Iterable[Path], header: Mapping[str, Any], is_free: Callable[[Path], bool]) -> Path:
    """A new journal of this process, whole from the moment it is there: the first of the paths that can be had.

    `is_free` is asked about a path when it is ours, so that what it says stays true. Raises StorageError.
    """
    candidates = iter(paths)
    path = next(candidates)
    newborn = path.with_name(f".{uuid7()}.new")
    try:
        newborn.write_text(json.dumps(header, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        take(newborn)
        while not _is_named(newborn, path, is_free):
            path = next(candidates)
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"cannot write to {path.parent}: {error.strerror}") from error
    finally:
        newborn.unlink(missing_ok=True)
    return path


def append(path: Path, name: str, content: str) -> None:
    """Add the line {name: content}, whose content is JSON already; safe on disk when this returns. Raises OSError."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f'{{"{name}":{content}}}\n')
        file.flush()
        os.fsync(file.fileno())


def take(path: Path) -> None:
    """Write down that this process is the one at work on the file. Raises OSError."""
    append(path, "Owner", dumps(this_process()))


def read(path: Path, kind: str, version: int, what: str) -> list[Record]:
    """The header and the further lines. Raises FormatError for a file that is not `what`, StorageError."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    records = [_parse(path, line, number) for number, line in enumerate(lines[:-1], start=1)]
    if not records or records[0].get("format") != kind:
        raise FormatError(f"{path}: not {what}")
    if records[0].get("version") != version:
        raise FormatError(f"{path}: version {records[0].get('version')!r} is not {version}")
    return records


def owner(path: Path, records: Iterable[Record]) -> Owner | None:
    """The process that was last at work on a file with these lines."""
    owners = [record["Owner"] for record in records if "Owner" in record]
    return from_json(Owner, owners[-1], f"{path}: owner") if owners else None


def mend(path: Path) -> None:
    """Cut off an unfinished last line, so that appending goes on behind whole ones. Raises StorageError."""
    try:
        with path.open("r+b") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def replace(path: Path, text: str) -> None:
    """Write a whole file in the place of what was there, if anything was: one or the other is there at any time.

    Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a new name in the folder survive a power cut, where folders can be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def this_process() -> Owner:
    """The process that runs this."""
    import psutil

    return Owner(host=platform.node(), pid=os.getpid(), created_s=psutil.Process().create_time())


def _is_named(newborn: Path, path: Path, is_free: Callable[[Path], bool]) -> bool:
    if not _name(newborn, path):
        return False
    if not is_free(path):
        path.unlink()
        return False
    return True


def _name(newborn: Path, path: Path) -> bool:
    """Give a finished file its name; False when that is taken."""
    try:
        os.link(newborn, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _reserve(newborn, path)
    return True


def _reserve(newborn: Path, path: Path) -> bool:
    """The same where there are no links: for a moment an empty file can be seen."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return False
    path.write_bytes(newborn.read_bytes())
    return True


def _parse(path: Path, line: str, number: int) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise FormatError(f"{path}:{number}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise FormatError(f"{path}:{number}: not an object")
    return record
