"""`python -m db.commands.prepare_database FILE`: makes a missing database; says on stderr why one cannot be used.

A process of its own, so that a command which wants to know early stays small. A database in use is ready: whoever asks
will wait for it when the time comes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarking.core.errors import EXIT_OK, BenchhouseError, LockedError
from db.warehouse import Warehouse


def main(argv: Sequence[str] | None = None) -> int:
    """Open and close the database; returns 0, or the exit code of what is wrong."""
    (path,) = sys.argv[1:] if argv is None else argv
    try:
        Warehouse.open(path, lock_timeout_s=0.0).close()
    except LockedError:
        return EXIT_OK
    except BenchhouseError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
