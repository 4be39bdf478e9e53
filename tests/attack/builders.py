"""Processes make, use and delete the same few builds of one cache at once: python -m tests.attack.builders --seconds 20

Counts makers of one build that overlapped, builds that were found incomplete, and errors.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from benchmarking.builds.inventory import delete_folders, read_contents, sweep_leftovers
from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.core.errors import BenchhouseError

KEYS = [BuildKey(kind="onnx", parts={"number": number}) for number in range(3)]
SIZE = 200_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--makers", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        BuildStore(Path(name)).root.mkdir()
        counts = multiprocessing.Array("l", 5)
        work = [_make] * given.makers + [_delete, _sweep]
        end_s = time.time() + given.seconds
        started = [multiprocessing.Process(target=one, args=(Path(name), end_s, counts)) for one in work]
        for process in started:
            process.start()
        for process in started:
            process.join()
        made, overlaps, incomplete, errors, deleted = counts
        left = [process.exitcode for process in started if process.exitcode]
    print(f"{made} builds made, {deleted} deleted; {overlaps} overlapping makers, {incomplete} incomplete builds, ")
    print(f"  {errors} errors, exit codes {left}", flush=True)
    return 1 if overlaps or incomplete or errors or left else 0


def _make(cache: Path, end_s: float, counts) -> None:
    store, draw = BuildStore(cache), random.Random(os.getpid())
    while time.time() < end_s:
        key = draw.choice(KEYS)
        mark = cache / f"making-{key.digest}"

        def fill(folder: Path, mark: Path = mark) -> dict[str, int]:
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                counts[1] += 1
            (folder / "file").write_bytes(bytes(SIZE))
            mark.unlink(missing_ok=True)
            counts[0] += 1
            return {}

        try:
            build, _ = store.get(key, fill, "always" if draw.random() < 0.1 else "if_needed")
            counts[2] += build.size_bytes != SIZE
        except BenchhouseError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            counts[3] += 1


def _delete(cache: Path, end_s: float, counts) -> None:
    store, draw = BuildStore(cache), random.Random(1)
    while time.time() < end_s:
        folder = store.folder(draw.choice(KEYS))
        if folder.exists():
            try:
                counts[4] += delete_folders(store.root, [folder]).count
            except BenchhouseError as error:
                print(f"delete: {error}", file=sys.stderr)
                counts[3] += 1


def _sweep(cache: Path, end_s: float, counts) -> None:
    store = BuildStore(cache)
    while time.time() < end_s:
        try:
            sweep_leftovers(store.root, read_contents(store.root))
        except BenchhouseError as error:
            print(f"sweep: {error}", file=sys.stderr)
            counts[3] += 1


if __name__ == "__main__":
    sys.exit(main())
