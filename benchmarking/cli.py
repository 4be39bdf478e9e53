"""The front door: `benchhouse <command> ...` loads the one module that is asked for, and nothing else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from benchmarking.errors import EXIT_OK, EXIT_USAGE

COMMANDS = {
    "setup_benchmark_db": ("db.setup_benchmark_db", "create, upgrade, verify, fill and back up the warehouse"),
    "run_hardware_benchmark": ("benchmarking.run_hardware_benchmark", "measure one model on one device over a grid"),
    "batch_benchmark": ("benchmarking.batch_benchmark", "measure many models on many devices in one command"),
    "visualize_benchmarks": ("visualize.visualize_benchmarks", "draw charts from the warehouse or from run files"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Hand over to the named command. Exit code 2 for a name that is not in the table."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return EXIT_OK if arguments else EXIT_USAGE
    if arguments[0] == "--version":
        from benchmarking import __version__

        print(f"benchhouse {__version__}")
        return EXIT_OK
    name = arguments[0].removesuffix(".py")
    if name not in COMMANDS:
        print(f"benchhouse: error: unknown command {name!r}: known: {', '.join(COMMANDS)}", file=sys.stderr)
        return EXIT_USAGE
    module = importlib.import_module(COMMANDS[name][0])
    return int(module.main(arguments[1:]))


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items())
    return f"usage: benchhouse <command> [arguments]\n\n{rows}\n\nbenchhouse <command> --help says more."


if __name__ == "__main__":
    sys.exit(main())
