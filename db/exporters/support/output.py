"""Where an export goes: stdout, a new file or a new folder, which have their names only when they are complete."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from benchmarking.core.errors import StorageError, UsageError
from db.files import publish, temporary_sibling


def check_free(output: Path) -> None:
    """Raise UsageError unless a file or folder can be made under the name: nothing is there, or an empty folder."""
    if output.is_dir() and not any(output.iterdir()):
        return
    if output.exists() or output.is_symlink():
        raise UsageError(f"{output} is there already, and an export is never written over anything: name another")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output}: there is no folder {output.absolute().parent}: make it, or name another")


@contextmanager
def text_output(output: Path | None) -> Iterator[TextIO]:
    """A stream to write text to: stdout, or a new file. Raises UsageError and StorageError."""
    if output is None:
        yield sys.stdout
        return
    check_free(output)
    if output.is_dir():
        raise UsageError(f"{output} is a folder, and the format makes one file: name a file")
    with temporary_sibling(output) as part:
        with _told(output), part.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        if not publish(part, output):
            raise StorageError(f"{output} was made by somebody else meanwhile: name another")


@contextmanager
def folder_output(output: Path | None) -> Iterator[Path]:
    """A folder to write files into, which gets its name at the end. Raises UsageError and StorageError."""
    if output is None:
        raise UsageError("the format makes several files: name a folder for them with --output")
    check_free(output)
    with temporary_sibling(output) as part, _told(output):
        part.mkdir()
        try:
            yield part
            if output.is_dir():
                output.rmdir()  # empty, or it would be refused; on Windows no folder takes the place of another
            part.rename(output)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _told(output: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write {output}: {error.strerror or error}") from error
