"""The script `batch_benchmark`, as a file and as a module: its command is `benchmarking.commands.batch`."""

import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the module path starts at the repository, not at the folder of this file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking import console_scripts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    from benchmarking.commands import batch

    return batch.main(argv)


if __name__ == "__main__":
    sys.exit(console_scripts.batch_benchmark())  # which answers Ctrl-C during the imports
