"""What a cell costs on a cluster: python -m tests.perf.cluster [--workers 1,4,16] [--cells 24] [--many 1000]

Null cells of one point, so that what is left is the harness: overhead per cell against measuring here, cells a second,
and the coordinator's share of it (its processor time per cell). Prints one JSON object; exit code 1 over the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarking.core.argument_types import positive_int, positive_ints

LIMIT_MS = 150.0
"""Of overhead per cell."""
GRID = ["--devices", "null", "--weights", "random", "--batch-sizes", "1", "--sequence-lengths", "32", "--quiet"]
FIXED = ["--iterations", "2", "--warmup-iterations", "1", "--launches", "1", "--no-save", "--json"]


def batch(cells: int, *more: str) -> tuple[float, float]:
    """Seconds of wall time and of this command's own processor time of a batch of null cells."""
    threads = ",".join(str(number + 1) for number in range(cells))
    command = ["--models", "tiny-bert", "--num-threads", threads, *GRID, *FIXED, *more]
    code = (
        "import resource, sys; from benchmarking.batch_benchmark import main; code = main(sys.argv[1:]); "
        "used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime, file=sys.stderr); "
        "sys.exit(code)"
    )
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wall_s = time.monotonic() - began_s
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return wall_s, float(done.stderr.split()[-1])


def per_cell(cells: int, *more: str) -> dict[str, float]:
    """Milliseconds per cell: a batch of `cells` less one of a single cell, so that the start does not count."""
    wall_s, own_s = (many - one for many, one in zip(batch(cells, *more), batch(1, *more), strict=True))
    return {"wall_ms": 1e3 * wall_s / (cells - 1), "coordinator_ms": 1e3 * own_s / (cells - 1)}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=positive_ints, default=(1, 4, 16), help="(default: 1,4,16)")
    parser.add_argument("--cells", type=positive_int, default=24, help="cells for each number of workers (default: 24)")
    parser.add_argument("--many", type=positive_int, default=1000, help="cells on the most workers (default: 1000)")
    arguments = parser.parse_args(argv)
    figures: dict[str, object] = {"processors": os.cpu_count()}
    here = per_cell(arguments.cells)
    figures["here"] = here
    for workers in arguments.workers:
        found = per_cell(arguments.cells, "--cluster", f"local:{workers}")
        figures[f"workers_{workers}"] = {**found, "cells_per_s": 1e3 / found["wall_ms"]}
        if workers == min(arguments.workers):
            figures["overhead_ms_per_cell"] = overhead_ms = found["wall_ms"] - here["wall_ms"]
    if arguments.many > 1:
        wall_s, own_s = batch(arguments.many, "--cluster", f"local:{max(arguments.workers)}")
        figures["many"] = {"cells": arguments.many, "wall_s": wall_s, "coordinator_s": own_s}
    print(json.dumps(figures, indent=1))
    return int(overhead_ms > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
