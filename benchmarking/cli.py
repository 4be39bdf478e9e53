"""The front door: `benchhouse <command> ...` loads the one module that is asked for, and nothing else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from benchmarking.core.errors import EXIT_OK, EXIT_USAGE

COMMANDS = {
    "setup_benchmark_db": ("db.setup_benchmark_db", "create, upgrade, verify, fill and back up the warehouse"),
    "run_hardware_benchmark": ("benchmarking.run_hardware_benchmark", "measure one model on one device over a grid"),
    "batch_benchmark": ("benchmarking.batch_benchmark", "measure many models on many devices in one command"),
    "compare_onnx": ("benchmarking.compare_onnx", "measure PyTorch against ONNX Runtime and OpenVINO"),
    "export_to_onnx": ("benchmarking.export_to_onnx", "export a model to ONNX or OpenVINO files, and check them"),
    "manage_cache": ("benchmarking.manage_cache", "list, measure and delete the builds that runs left in the cache"),
    "visualize_benchmarks": ("visualize.visualize_benchmarks", "draw charts from the warehouse or from run files"),
}
SHORT_NAMES = {"compare-runtimes": "compare_onnx", "cache": "manage_cache"}
"""What commands are called behind `benchhouse`, where that is not what their scripts are called."""
HOUSE_COMMANDS = {
    "ab": ("benchmarking.ab", "measure two commands in turns, and judge the difference"),
    "compare": ("db.commands.compare", "judge one selection of results against another, worst first"),
    "history": ("db.commands.history", "show series over time, with the places where their level changed"),
    "regressions": ("db.commands.regressions", "list what became worse since a date"),
    "series": ("db.commands.series", "list series, and join them after a rename"),
    "check": ("db.commands.check", "gate CI: judge the newest runs against the ones before them"),
    "alert": ("db.commands.alert", "list what the gate and the history found, and set what it turned out to be"),
    "recommend": ("db.commands.recommend", "say which measured device, runtime and batch meets what you need"),
    "import": ("db.commands.import_results", "read other tools' result files into the warehouse"),
    "export": (
        "db.commands.export_results",
        "write results as CSV, Parquet, ...; or a model as ONNX or OpenVINO",
    ),
    "merge": ("db.commands.merge", "bring other warehouses into this one"),
    "query": ("db.commands.query", "answer a question in SQL, reading only"),
    "sql": ("db.commands.sql", "open the duckdb shell, read-only, with the data dictionary"),
    "compact": ("db.commands.compact", "replace old raw samples by quantiles, every statistic kept"),
}
"""Commands without a script of their own: their names are too plain for everybody's PATH."""


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
    name = SHORT_NAMES.get(name, name)
    commands = COMMANDS | HOUSE_COMMANDS
    if name not in commands:
        print(f"benchhouse: error: unknown command {name!r}: known: {', '.join(_shown())}", file=sys.stderr)
        return EXIT_USAGE
    module = importlib.import_module(commands[name][0])
    return int(module.main(arguments[1:]))


def _shown() -> dict[str, str]:
    """What each command does, by its name behind `benchhouse`."""
    short = {name: short for short, name in SHORT_NAMES.items()}
    return {short.get(name, name): what for name, (_, what) in (COMMANDS | HOUSE_COMMANDS).items()}


def _help() -> str:
    shown = _shown()
    width = max(map(len, shown))
    rows = "\n".join(f"  {name:<{width}}  {what}" for name, what in shown.items())
    return f"usage: benchhouse <command> [arguments]\n\n{rows}\n\nbenchhouse <command> --help says more."


if __name__ == "__main__":
    sys.exit(main())
