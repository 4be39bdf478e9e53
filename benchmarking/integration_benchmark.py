"""An alias of `batch_benchmark`: many models on many devices, on this machine or a cluster, stored in the warehouse."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the module path starts at the repository, not at the folder of this file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking.commands import batch
from benchmarking.core.command_names import typed_as

NAME = "integration_benchmark"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    with typed_as(NAME):
        return batch.main(argv)


if __name__ == "__main__":
    sys.exit(main())
