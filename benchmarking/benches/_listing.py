"""Lists the benchmarks of files, in a process of its own: files on stdin as JSON, one JSON line each on stdout.

A line begins a file ({"importing": path}), so that a file that ends the process is known by name; the next one is what
is in it ({"benches": [...]}) or what is wrong with it ({"error": "..."}).
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from benchmarking.benches._loading import classes, load_module, where
from benchmarking.benches.model_benchmark import ModelBenchmark, configs_of, timed_by
from benchmarking.errors import BenchhouseError
from benchmarking.records import to_json


def main() -> int:
    """Answer for each file. What the files print goes to stderr."""
    home = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for path in map(Path, json.load(sys.stdin)):
        _say(home, {"importing": str(path)})
        _say(home, _listed(path))
    return 0


def _say(home: IO[str], answer: dict[str, Any]) -> None:
    home.write(json.dumps(answer) + "\n")
    home.flush()


def _listed(path: Path) -> dict[str, Any]:
    try:
        return {"benches": [_described(path, bench) for bench in classes(load_module(path))]}
    except BenchhouseError as error:
        return {"error": str(error)}


def _described(path: Path, bench: type[ModelBenchmark]) -> dict[str, Any]:
    """A benchmark as `discovery.Bench` reads it. What is wrong with the class is told with its place in the file."""
    line = inspect.getsourcelines(bench)[1]
    try:
        return {
            "path": str(path),
            "class_name": bench.__name__,
            "configs": to_json(configs_of(bench)),
            "devices": list(bench.devices),
            "timed_by": timed_by(bench),
            "task": bench.task,
            "is_mock": bench.is_mock,
        }
    except BenchhouseError as error:
        raise type(error)(f"{path}, line {line}: {error}") from error
    except Exception as error:
        raise BenchhouseError(f"{where(path, error)}: {bench.__name__}: {type(error).__name__}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
