"""The errors a user can cause or meet, and the exit code each one means.

Every message says what was asked, what was found and what to do. Commands print it as one line on stderr; a bug, which
is anything that is not a `BenchhouseError`, keeps its traceback.
"""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_ENOUGH_DATA = 3
EXIT_TIME_LIMIT = 124
EXIT_INTERRUPTED = 130


class BenchhouseError(Exception):
    """Trouble that was foreseen: the run could not be done or finished. Exit code 1."""

    exit_code = EXIT_FAILED


class UsageError(BenchhouseError):
    """What was asked makes no sense here: an unknown name, an impossible grid, an absent device. Exit code 2."""

    exit_code = EXIT_USAGE


class UnsupportedError(UsageError):
    """A pair that exists but does not go together (device and precision, runtime and model). Exit code 2."""


class OutOfMemoryError(BenchhouseError):
    """Host or device memory ran out while loading or running a model."""


class StorageError(BenchhouseError):
    """A file or database could not be read or written."""


class LockedError(StorageError):
    """Another process holds the database or the device; says which."""


class FormatError(StorageError):
    """A file is not what it should be: truncated, foreign, or written by a newer program."""


def first_line(error: BaseException) -> str:
    """The first line of what a library said; the rest of such messages is advice to its own users."""
    return str(error).strip().split("\n")[0]
