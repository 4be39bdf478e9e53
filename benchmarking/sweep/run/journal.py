"""Append-only files of JSON lines, each synced to disk before `append` returns.

The first line is a header, the others are records. An incomplete last line, left by a crash, is ignored. Links are
never followed, since a link in another user's folder could point to any file.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.provenance import Owner, this_process, uuid7
from benchmarking.core.records import dumps, from_json
from benchmarking.core.temporary import locked_file

NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)
"""Errors of `os.link` on file systems that do not support hard links."""

MAX_BYTES = 1 << 30
"""Maximum size of a file to read, as for run files."""
NO_FOLLOWING = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags that neither follow a link nor block on a pipe without a writer; Windows has neither flag."""

Record = dict[str, Any]


def opened(path: Path, mode: str) -> IO[Any]:
    """The file, opened like by `open`, but never through a link; text is UTF-8. Raises OSError."""
    encoding = None if "b" in mode else "utf-8"
    return open(path, mode, encoding=encoding, opener=lambda name, flags: os.open(name, flags | NO_FOLLOWING, 0o666))


def create(paths: Iterable[Path], header: Mapping[str, Any], is_free: Callable[[Path], bool]) -> Path:
    """A new journal, owned by this process, at the first path that is free; it appears with its header complete.

    `is_free` is called once the path is reserved, so that its answer stays valid. Raises StorageError.
    """
    candidates = iter(paths)
    path = next(candidates)
    draft = path.with_name(f".{uuid7()}.new")
    try:
        with opened(draft, "x") as file:
            file.write(json.dumps(header, ensure_ascii=False, allow_nan=False) + "\n")
        claim(draft)
        while not _is_named(draft, path, is_free):
            path = next(candidates)
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"cannot write to {path.parent}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return path


def append(path: Path, name: str, content: str) -> None:
    """Append the line {name: content}, content being JSON, and sync it to disk. Raises OSError."""
    with opened(path, "a") as file:
        file.write(f'{{"{name}":{content}}}\n')
        file.flush()
        os.fsync(file.fileno())


def claim(path: Path) -> None:
    """Record this process as the owner of the file. Raises OSError."""
    append(path, "Owner", dumps(this_process()))


def read(path: Path, kind: str, version: int, what: str) -> list[Record]:
    """The header and the records. Raises FormatError for a file that is not `what`, StorageError."""
    lines = _text(path).split("\n")
    records = [_parse(path, line, number) for number, line in enumerate(lines[:-1], start=1)]
    if not records or records[0].get("format") != kind:
        raise FormatError(f"{path}: not {what}")
    if records[0].get("version") != version:
        raise FormatError(f"{path}: expected version {version}, found {records[0].get('version')!r}")
    return records


def owner(path: Path, records: Iterable[Record]) -> Owner | None:
    """The last owner of a file with these records."""
    owners = [record["Owner"] for record in records if "Owner" in record]
    return from_json(Owner, owners[-1], f"{path}: owner") if owners else None


def repair(path: Path) -> None:
    """Remove an incomplete last line, before more are appended. Raises StorageError."""
    try:
        with opened(path, "r+b") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def replace(path: Path, text: str) -> None:
    """Write or replace a file atomically. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    with locked_file(temporary) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        if os.name != "nt":
            temporary.replace(path)  # under its lock
    if os.name == "nt":
        temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder if possible, so that a new name in it survives a power failure."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_named(draft: Path, path: Path, is_free: Callable[[Path], bool]) -> bool:
    if not _name(draft, path):
        return False
    if not is_free(path):
        path.unlink()
        return False
    return True


def _name(draft: Path, path: Path) -> bool:
    """Give a complete file its name; False if the name is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _reserve(draft, path)
    return True


def _reserve(draft: Path, path: Path) -> bool:
    """Like `_name`, without hard links: the file is briefly visible but empty."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return False
    path.write_bytes(draft.read_bytes())
    return True


def _text(path: Path) -> str:
    try:
        with opened(path, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                raise FormatError(f"{path}: expected a file of at most {MAX_BYTES >> 30} GiB")
            content: bytes = file.read()
        return content.decode("utf-8")
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error


def _parse(path: Path, line: str, number: int) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}:{number}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise FormatError(f"{path}:{number}: not an object")
    return record
