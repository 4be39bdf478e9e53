"""The script `profiler`, as a file and as a module, with its class."""

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the module path starts at the repository, not at the folder of this file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking.commands.ml_runtime_profiler import MLRuntimeProfiler, main

__all__ = ["MLRuntimeProfiler", "main"]

if __name__ == "__main__":
    sys.exit(main())
