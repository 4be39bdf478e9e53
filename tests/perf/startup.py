"""Start of every command against `python -c pass`: median over interleaved rounds, in seconds, and the least processor
time, which other programs disturb less. Prints figures; commands can be named as arguments."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time

from benchmarking.cli import COMMANDS

ROUNDS = 9


def seconds(arguments: list[str]) -> tuple[float, float]:
    """The time and the processor time of a start. The modules are compiled on disk, as where they are installed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, start_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, env=environment)
    elapsed_s, after = time.perf_counter() - start_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print a line a command."""
    chosen = sys.argv[1:] or list(COMMANDS)
    commands = {"pass": ["-c", "pass"], "benchhouse": ["-m", "benchmarking", "--help"]}
    commands |= {name: ["-m", "benchmarking", name, "--help"] for name in chosen}
    for arguments in commands.values():  # the first start compiles
        seconds(arguments)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, arguments in commands.items():
            times[name].append(seconds(arguments))
    figures = {
        name: (statistics.median(elapsed for elapsed, _ in values), min(processor for _, processor in values))
        for name, values in times.items()
    }
    bare_s, bare_processor_s = figures.pop("pass")
    print(f"python -c pass: {bare_s:.3f} s, processor {bare_processor_s:.3f} s")
    for name, (elapsed_s, processor_s) in figures.items():
        print(f"{name} --help: {elapsed_s - bare_s:+.3f} s, processor {processor_s - bare_processor_s:+.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
