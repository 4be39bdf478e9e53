"""Start of every command against `python -c pass`: median over interleaved rounds, in seconds. Prints figures."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarking.cli import COMMANDS

ROUNDS = 9


def seconds(arguments: list[str]) -> float:
    start_s = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start_s


def main() -> int:
    """Print a line a command."""
    commands = {"pass": ["-c", "pass"], "benchhouse": ["-m", "benchmarking", "--help"]}
    commands |= {name: ["-m", command.module, "--help"] for name, command in COMMANDS.items()}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, arguments in commands.items():
            times[name].append(seconds(arguments))
    bare_s = statistics.median(times.pop("pass"))
    print(f"python -c pass: {bare_s:.3f} s")
    for name, values in times.items():
        print(f"{name} --help: {statistics.median(values) - bare_s:+.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
