"""Fuzzes the commands: hostile input of every kind, each case in folders of its own.

    python -m tests.fuzz --seconds 1200 --seed 1
    python -m tests.fuzz --only databases --seed 1 --case 17       one case again
    python -m tests.fuzz --kept                                    the kept cases

Prints a line for each problem, keeps its input, and ends with exit code 1 if there was one. A case is given by its
target, seed and number; new ones come in turns from the targets.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.cases import TARGETS, keep, kept, run_case, run_kept, shrunk
from tests.fuzz.sandbox import Problem


def main(argv: Sequence[str] | None = None) -> int:
    """Run cases until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes the commands.")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for new cases (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the cases (default: 0)")
    parser.add_argument("--only", default=",".join(TARGETS), help="targets, separated by commas (default: all)")
    parser.add_argument("--case", type=int, help="number of the one case to run")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default: 0)")
    parser.add_argument("--kept", action="store_true", help="run the kept cases instead of new ones")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder for the input of cases with problems")
    asked = parser.parse_args(argv)
    names = asked.only.split(",")
    _load(names)
    # Not a TemporaryDirectory, which a child would remove when it ends.
    base = Path(tempfile.mkdtemp(prefix="fuzz-")).resolve()
    try:
        if asked.kept:
            return _report({name: run_kept(name, base) for name in kept()})
        if asked.case is not None:
            return _report({f"{name} {asked.case}": run_case(name, asked.seed, asked.case, base) for name in names})
        return _fuzz(names, asked, base)
    finally:
        shutil.rmtree(base)


def _fuzz(names: Sequence[str], asked: argparse.Namespace, base: Path) -> int:
    counts: collections.Counter[str] = collections.Counter()
    spent: collections.Counter[str] = collections.Counter()
    found: collections.Counter[str] = collections.Counter()
    end = time.monotonic() + asked.seconds
    for number in itertools.count(asked.first):
        for name in names:
            start = time.monotonic()
            if start > end:
                shares = ", ".join(f"{name} {counts[name]} ({spent[name]:.0f} s)" for name in names)
                print(f"seed {asked.seed}: {sum(counts.values())} cases, {sum(found.values())} with problems: {shares}")
                return 1 if found else 0
            problems = run_case(name, asked.seed, number, base)
            counts[name] += 1
            if problems:
                found[name] += 1
                print(f"--only {name} --seed {asked.seed} --case {number}", flush=True)
                _show(problems)
                if asked.keep is not None:
                    with shrunk(name, asked.seed, number, base, problems[0]) as (scratch, commands):
                        keep(asked.keep / f"{name}-{asked.seed}-{number}", scratch, commands, problems[0])
            spent[name] += time.monotonic() - start
    raise AssertionError


def _report(found: dict[str, list[Problem]]) -> int:
    for name, problems in found.items():
        print(f"{name}: {f'{len(problems)} problems' if problems else 'ok'}")
        _show(problems)
    return 1 if any(found.values()) else 0


def _show(problems: Sequence[Problem]) -> None:
    for one in problems:
        print(f"  {one.kind}: {' '.join(one.words)[:300]!a}")
        print("    " + ascii(one.text).replace(r"\n", "\n    "), flush=True)


def _load(names: Sequence[str]) -> None:
    """Import what the children would, once."""
    import importlib

    modules = [
        "duckdb",
        "pyarrow",
        "numpy",
        "yaml",
        "rich.table",
        "db.warehouse",
        "db.query.questions",
        "benchmarking.cli",
    ]
    if "model_folders" in names:
        modules += ["transformers", "torch"]
    for module in modules:
        importlib.import_module(module)


if __name__ == "__main__":
    sys.exit(main())
