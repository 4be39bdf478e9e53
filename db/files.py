"""Files that appear under their name only when complete, and never replace another file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarking.core.errors import StorageError
from benchmarking.core.temporary import temporary_folder

NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)
"""Errors of `os.link` on file systems without hard links."""


@contextmanager
def temporary_sibling(path: Path) -> Iterator[Path]:
    """A free path on the same file system for an unfinished file; it and its log are deleted at the end.

    Raises StorageError if nothing can be written there.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder(f".{path.name}", path.parent))
        except OSError as error:
            raise StorageError(f"cannot write to {path.parent}: {error.strerror}: choose another path") from error
        yield folder / path.name


def publish(part: Path, path: Path) -> bool:
    """Move a finished file to its path. False if the path exists. Raises StorageError."""
    try:
        if os.name == "nt":
            part.rename(path)  # on Windows this refuses an existing name; elsewhere it would replace it
        else:
            try:
                os.link(part, path)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                # The name is reserved first, so that nothing is replaced; an empty file is visible for a moment.
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                part.replace(path)
    except FileExistsError:
        return False
    except OSError as error:
        raise StorageError(f"cannot create {path}: {error.strerror}: choose another path") from error
    return True


def make_folder(folder: Path) -> None:
    """Create the folder and its parents. Raises StorageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create the folder {folder}: {error.strerror}: choose another path") from error
