"""The command `benchhouse`: `benchhouse <command> ...` imports the module of that command and no other."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from benchmarking.core.errors import EXIT_OK, EXIT_USAGE

COMMANDS = {
    "setup_benchmark_db": ("db.setup_benchmark_db", "create, upgrade, verify, load and back up the warehouse"),
    "run_hardware_benchmark": ("benchmarking.run_hardware_benchmark", "measure one model on one device over a grid"),
    "batch_benchmark": ("benchmarking.batch_benchmark", "measure many models on many devices in one command"),
    "compare_onnx": ("benchmarking.compare_onnx", "compare the speed of PyTorch, ONNX Runtime and OpenVINO"),
    "export_to_onnx": ("benchmarking.export_to_onnx", "export a model to ONNX or OpenVINO files, and verify them"),
    "profile_model": ("benchmarking.profile_model", "show where a call's time goes, by part, layer and operator"),
    "manage_cache": ("benchmarking.manage_cache", "list and delete cached exports, engines and compiled code"),
    "benchit": ("benchmarking.benchit", "measure the models that a Python script calls"),
    "visualize_benchmarks": ("visualize.visualize_benchmarks", "draw charts from the warehouse or from run files"),
}
SHORT_NAMES = {
    "compare-runtimes": "compare_onnx",
    "cache": "manage_cache",
    "script": "benchit",
    "profile": "profile_model",
}
"""Command names that differ from the names of the scripts."""
ALIASES = {"integration_benchmark": "batch_benchmark"}
"""Further names, also of scripts."""
SUBCOMMANDS = {
    "show": ("db.commands.show", "show the newest results, with the trend of each series"),
    "load": ("benchmarking.load_server", "load-test a server or a model: latency, throughput and goodput at each rate"),
    "top": ("benchmarking.top", "watch the sweeps running on this machine: progress, results, device use"),
    "worker": ("benchmarking.cluster.worker", "make this machine a worker of batch_benchmark --cluster"),
    "ab": ("benchmarking.ab", "compare two commands, measured in alternating launches"),
    "bisect": ("benchmarking.bisect_commits", "find the commit that changed a metric, by measuring and bisecting"),
    "compare": ("db.commands.compare", "compare two selections of results, worst change first"),
    "history": ("db.commands.history", "show series over time, with their change points"),
    "regressions": ("db.commands.regressions", "list what got slower since a date"),
    "series": ("db.commands.series", "list series, and alias one to another after a rename"),
    "check": ("db.commands.check", "gate CI: compare the newest runs with earlier ones"),
    "alert": ("db.commands.alert", "list regression alerts, and record their triage"),
    "annotate": ("db.commands.annotate", "store notes about runs, series and machines"),
    "recommend": ("db.commands.recommend", "find the device, runtime and batch size that meet your limits"),
    "import": ("db.commands.import_results", "import result files from other tools"),
    "export": (
        "db.commands.export_results",
        "export results as CSV, Parquet, ..., or a model as ONNX or OpenVINO",
    ),
    "merge": ("db.commands.merge", "merge other warehouses into this one"),
    "query": ("db.commands.query", "run a read-only SQL query"),
    "sql": ("db.commands.sql", "open the duckdb shell, read-only, with the data dictionary"),
    "mcp": ("db.commands.mcp", "serve the warehouse to assistants over MCP, read-only"),
    "dashboard": ("visualize.pages.dashboard", "show the warehouse as web pages on this machine"),
    "publish": ("visualize.pages.publish", "write the pages as a static site"),
    "compact": ("db.commands.compact", "replace old raw samples with quantiles; statistics are kept"),
}
"""Commands without a script, since their names are too common for a PATH."""
WITHOUT_PANDAS = frozenset(
    f"db.commands.{name}"
    for name in (
        *("alert", "annotate", "check", "compare", "history"),
        *("query", "recommend", "regressions", "series", "show"),
    )
)
"""Commands that need no package that uses pandas, unlike charts and the MLflow exporter."""
EXAMPLES = """\
examples:
  benchhouse run_hardware_benchmark --model-id bert-base-uncased --device cpu --save
  benchhouse compare tag.version=1.0 tag.version=1.1
  benchhouse visualize_benchmarks --output-dir charts
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named command. Exit code 2 for a name that is not in the table."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        return _print(_help(), EXIT_OK if arguments else EXIT_USAGE)
    if arguments[0] in ("--version", "version"):
        from benchmarking import __version__

        return _print(f"benchhouse {__version__}", EXIT_OK)
    name = arguments[0].removesuffix(".py")
    name = {**SHORT_NAMES, **ALIASES}.get(name, name)
    commands = COMMANDS | SUBCOMMANDS
    if name not in commands:
        print(f"benchhouse: error: unknown command {name!r}: known: {', '.join(_summaries())}", file=sys.stderr)
        return EXIT_USAGE
    if argv is None and commands[name][0] in WITHOUT_PANDAS:
        from benchmarking.core.command_line import hide_package

        hide_package("pandas")
    module = importlib.import_module(commands[name][0])
    return int(module.main(arguments[1:]))


def _print(text: str, exit_code: int) -> int:
    """Print the text as a command does: a closed pipe ("| head") is not an error."""
    from benchmarking.core.command_line import run_command

    def command(_: Sequence[str]) -> int:
        print(text, flush=True)
        return exit_code

    return run_command("benchhouse", command, [])


def _summaries() -> dict[str, str]:
    """The summary of each command, by its name after `benchhouse`."""
    short = {name: short for short, name in SHORT_NAMES.items()}
    summaries = {short.get(name, name): what for name, (_, what) in (COMMANDS | SUBCOMMANDS).items()}
    return {**summaries, "version": "print the version"}


def _help() -> str:
    summaries = _summaries()
    width = max(map(len, summaries))
    rows = "\n".join(f"  {name:<{width}}  {what}" for name, what in summaries.items())
    return (
        f"usage: benchhouse <command> [arguments]\n\n{rows}\n\n{EXAMPLES}\nbenchhouse <command> --help shows its flags."
    )


if __name__ == "__main__":
    sys.exit(main())
