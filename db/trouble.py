"""What DuckDB's errors mean here, told from their words: it has one class for most of them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from benchmarking.errors import FormatError, LockedError, StorageError

LOCKED = ("Could not set lock on file", "File is already open in", "being used by another process")
"""The first is what POSIX systems say, the others Windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What DuckDB said."""

    kind: str
    """Parser, Binder, Catalog, Conversion, INTERRUPT, ...; empty where it is not told."""
    message: str
    position: int | None = None
    """Where in the statement, in bytes of UTF-8 from 0."""


def said(text: str) -> Said:
    """What an error says, also on a connection whose errors are JSON behind their kind."""
    start = text.find('{"exception_type"')
    if start < 0:
        return Said(kind="", message=text)
    try:
        told, _ = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return Said(kind="", message=text)
    position = told.get("position")
    return Said(
        kind=told["exception_type"],
        message=told["exception_message"],
        position=int(position) if position is not None else None,
    )


class DamagedError(FormatError):
    """A database file of which a part is not what was written."""

    def __init__(self, path: str, damage: str) -> None:
        """`damage` says which part, and what is wrong with it."""
        super().__init__(
            f"{path} is damaged: {damage}: make it anew from the run files with "
            f"setup_benchmark_db --rebuild-from FOLDER --db-path {path}"
        )
        self.damage = damage


def why(error: StorageError) -> str:
    """What is wrong, without what to do about it."""
    return error.damage if isinstance(error, DamagedError) else str(error)


def is_locked(text: str) -> bool:
    """Whether DuckDB says that another process holds the file."""
    return any(sign in text for sign in LOCKED)


def log_is_unreadable(text: str) -> bool:
    """Whether DuckDB says that it cannot take in what is in the file's log."""
    return "Failure while replaying WAL" in text


def storage_error(text: str, path: str, waited_s: float = 0.0) -> StorageError:
    """The error for a user: what happened to the database at `path`, and what to do."""
    if is_locked(text):
        return LockedError(
            f"{path} is locked: {_holder(text)}, waited {waited_s:g} s. Nothing is lost that is in a run file: "
            f"once the database is free, load it with setup_benchmark_db --ingest FOLDER --db-path {path}"
        )
    damage = _damage(text, path)
    if damage is not None:
        return DamagedError(path, damage)
    if "not a valid DuckDB database" in text:
        return FormatError(f"{path}: not a DuckDB database (any more): name another file")
    if "newer version of DuckDB" in text:
        return FormatError(f"{path}: written by a newer DuckDB: upgrade with pip install -U duckdb")
    return StorageError(f"{path}: {_first_paragraph(said(text).message)}")


def _damage(text: str, path: str) -> str | None:
    """What is broken in the file, or in its log; None where DuckDB speaks of something else."""
    if log_is_unreadable(text):
        return f"its log {path}.wal cannot be read, or belongs to another file"
    block = re.search(r"does not match stored checksum \d+ in block at location (\d+)", text)
    if block is not None:
        return f"the block at byte {block[1]} is not what was written"
    end = re.search(r"Could not read enough bytes from file.* from location (\d+)", text)
    if end is not None:
        return f"it is cut off, and should go on behind byte {end[1]}"
    return None


def _holder(text: str) -> str:
    pid = re.search(r"\(PID (\d+)\)", text)
    return f"the process with PID {pid[1]} holds it" if pid else "another process holds it"


def _first_paragraph(text: str) -> str:
    """DuckDB's message without the extract of the statement and the hints that follow it."""
    return " ".join(text.strip().split("\n\n")[0].split())
