"""What an engine's C++ library prints while it loads a model: which device and types it really uses, and why loading
failed, neither of which every library returns."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Sequence
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO

STDOUT, STDERR = 1, 2
LATE_S = 0.2
"""Time for a library that prints from a thread of its own; only spent after an error."""


class LibraryLog:
    """Inside, what the process prints on these descriptors goes to a file; afterwards it is `text`. After an error it
    is also printed on stderr, as without this."""

    def __init__(self, descriptors: Sequence[int] = (STDERR,)) -> None:
        self.text = ""
        self._descriptors = tuple(descriptors)
        self._saved: list[int] = []
        self._file: IO[bytes] | None = None

    def __enter__(self) -> LibraryLog:
        _flush()
        self._file = TemporaryFile()
        for descriptor in self._descriptors:
            self._saved.append(os.dup(descriptor))
            os.dup2(self._file.fileno(), descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._file is not None
        if error is not None:
            time.sleep(LATE_S)
        _flush()
        for descriptor, saved in zip(self._descriptors, self._saved, strict=True):
            os.dup2(saved, descriptor)
            os.close(saved)
        self._file.seek(0)
        content = self._file.read()
        self._file.close()
        self.text = content.decode(errors="replace")
        if error is not None and content:
            os.write(STDERR, content)


def _flush() -> None:
    """Write out what Python and the C library have in their buffers."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
