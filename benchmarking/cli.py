"""The command `benchhouse`: `benchhouse <command> ...` imports the module of that command and no other."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from benchmarking.core.command_names import SCRIPT_ALIASES, SCRIPTS, typed_as
from benchmarking.core.errors import EXIT_OK, EXIT_USAGE


class Command(NamedTuple):
    """A command of the front door."""

    module: str
    """Its `main` is the command."""
    summary: str


GROUPS: dict[str, dict[str, Command]] = {
    "measure": {
        "run": Command("benchmarking.commands.run", "measure one model on one device over a grid"),
        "batch": Command("benchmarking.commands.batch", "measure many models on many devices in one command"),
        "script": Command("benchmarking.commands.script", "measure the models that a Python script calls"),
        "benches": Command(
            "benchmarking.commands.benches", "run your own benchmarks in ./benches, or an exported model"
        ),
        "compare-runtimes": Command(
            "benchmarking.commands.compare_runtimes", "compare the speed of PyTorch, ONNX Runtime and OpenVINO"
        ),
        "tune": Command(
            "benchmarking.commands.tune", "find the configuration to deploy, within your limits and a time budget"
        ),
        "quality": Command(
            "benchmarking.commands.quality", "measure the quality of stored series, without measuring their speed again"
        ),
        "load": Command(
            "benchmarking.commands.load_server",
            "load-test a server or a model: latency, throughput and goodput at each rate",
        ),
        "ab": Command("benchmarking.commands.ab", "compare two commands, measured in alternating launches"),
        "profile": Command(
            "benchmarking.commands.profile", "show where a call's time goes, by part, layer and operator"
        ),
        "bisect": Command("benchmarking.commands.bisect", "find the commit that changed a metric, by measuring"),
        "worker": Command("benchmarking.cluster.worker", "make this machine a worker of batch --cluster"),
    },
    "look": {
        "show": Command("db.commands.show", "show the newest results, with the trend of each series"),
        "history": Command("db.commands.history", "show series over time, with their change points"),
        "charts": Command("visualize.visualize_benchmarks", "draw charts from the warehouse or from run files"),
        "dashboard": Command("visualize.pages.dashboard", "show the warehouse as web pages on this machine"),
        "query": Command("db.commands.query", "run a read-only SQL query, or print the data dictionary"),
        "sql": Command("db.commands.sql", "open the duckdb shell, read-only, with the data dictionary"),
        "top": Command(
            "benchmarking.commands.top", "watch the sweeps running on this machine: progress, results, device use"
        ),
    },
    "judge": {
        "compare": Command("db.commands.compare", "compare two selections of results, worst change first"),
        "check": Command("db.commands.check", "gate CI: compare the newest runs with earlier ones"),
        "regressions": Command("db.commands.regressions", "list what got slower since a date"),
        "alert": Command("db.commands.alert", "list regression alerts, and record their triage"),
        "recommend": Command("db.commands.recommend", "find the device, runtime and batch size that meet your limits"),
    },
    "exchange": {
        "import": Command("db.commands.import_results", "import result files from other tools"),
        "export": Command("db.commands.export_results", "export results as CSV, Parquet, ..., or a model as ONNX"),
        "export-model": Command(
            "benchmarking.commands.export_model", "export a model to ONNX or OpenVINO files, and verify them"
        ),
        "merge": Command("db.commands.merge", "merge other warehouses into this one"),
        "publish": Command("visualize.pages.publish", "write the pages as a static site"),
        "mcp": Command("db.commands.mcp", "serve the warehouse to assistants over MCP, read-only"),
    },
    "maintain": {
        "setup": Command("db.setup_benchmark_db", "create, upgrade, verify, load and back up the warehouse"),
        "series": Command("db.commands.series", "list series, and alias one to another after a rename"),
        "annotate": Command("db.commands.annotate", "store notes about runs, series and machines"),
        "delete": Command("db.commands.delete", "delete runs, after showing which; run files go to a trash folder"),
        "cache": Command("benchmarking.commands.cache", "list and delete cached exports, engines and compiled code"),
        "compact": Command("db.commands.compact", "replace old raw samples with quantiles; statistics are kept"),
    },
}
"""The commands by what they are for: group -> name after `benchhouse` -> command."""
VERSION = Command("benchmarking.cli", "print the version")
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
ALIASES = {
    spelling: command
    for command, script in SCRIPTS.items()
    for name in (script, *(alias for alias, of in SCRIPT_ALIASES.items() if of == script))
    for spelling in (name, name.replace("_", "-"))
}
"""Further names of commands: those of the scripts, also in kebab-case."""
OF_SERVERS = frozenset(
    {"serve", "serving", "--target", "--url", "--base-url", "--request-rate", "--endpoint", "--host"}
)
"""Words after another tool's command with which a server is meant, as in guidellm benchmark --target."""
WITHOUT_PANDAS = frozenset(
    f"db.commands.{name}"
    for name in (
        *("alert", "annotate", "check", "compare", "delete", "history"),
        *("query", "recommend", "regressions", "series", "show"),
    )
)
"""Commands that need no package that uses pandas, unlike charts and the MLflow exporter."""
EXAMPLES = """\
examples:
  benchhouse run bert-base-uncased --device cpu --save
  benchhouse tune bert-base-uncased --limit latency_p95:50ms
  benchhouse ab "benchhouse run gpt2" --worktree-a ../main --fail-on slower
  benchhouse load NAME --url URL --request-rate 1,9 --find-rate --limit e2e:2s
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named command. Exit code 2 for a name that is not in the table."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == ["help"] and arguments[1:]:
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        groups = (
            f"{group}:\n" + "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in commands.items())
            for group, commands in {**GROUPS, "maintain": {**GROUPS["maintain"], "version": VERSION}}.items()
        )
        text = "\n\n".join(["usage: benchhouse COMMAND [arguments]", *groups, EXAMPLES])
        return _print(
            f"{text}\nbenchhouse COMMAND --help shows the flags of a command.", EXIT_OK if arguments else EXIT_USAGE
        )
    if arguments[0] in ("--version", "-V", "version"):
        from benchmarking import __version__
        from benchmarking.core.command_line import Parser, run_command

        def print_version(words: Sequence[str]) -> int:
            Parser(prog="benchhouse version", description="Prints the version.").parse_args(words)
            print(f"benchhouse {__version__}", flush=True)
            return EXIT_OK

        return run_command("benchhouse version", print_version, arguments[1:])
    typed, *rest = arguments
    name = typed.removesuffix(".py")
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        return _unknown(typed, rest)
    from benchmarking.core.command_line import hide_package

    if argv is None and command.module in WITHOUT_PANDAS:
        hide_package("pandas")
    module = importlib.import_module(command.module)
    with typed_as(f"benchhouse {typed}"):
        return int(module.main(rest))


def _unknown(name: str, rest: Sequence[str]) -> int:
    from benchmarking.core.suggestions import COMMANDS_MEANT, meant_by, named_by

    if name.startswith("-"):
        first = "a command comes first, as in benchhouse run MODEL: benchhouse --help lists all"
        print(f"benchhouse: error: {name}: {first}", file=sys.stderr)
        return EXIT_USAGE
    if (what := name.removeprefix("list-")) in ("devices", "runtimes", "models"):
        print(f"benchhouse: error: unknown command {name!r}: benchhouse run --list-{what} lists them", file=sys.stderr)
        return EXIT_USAGE
    if name in ("env", "info", "hardware", "doctor", "system"):
        print(
            f"benchhouse: error: unknown command {name!r}: benchhouse run --list-devices shows this machine",
            file=sys.stderr,
        )
        return EXIT_USAGE
    answers = {word: text for words, text in COMMANDS_MEANT.items() for word in words.split()}
    if (answer := answers.get(name)) is not None:
        is_of_server = {word.partition("=")[0] for word in rest} & OF_SERVERS
        answer = answers["serving"] if is_of_server else answer
        print(f"benchhouse: error: unknown command {name!r}: {answer}", file=sys.stderr)
        return EXIT_USAGE
    from benchmarking.workloads.support import families

    known = [*COMMANDS, *ALIASES]
    near = meant_by(name, known)
    if rest and near[:1] == named_by(name, known)[:1]:  # a word in front of another one for a command: perf diff
        near = [one for one in (rest[0],) if one in COMMANDS] or named_by(rest[0], known)[:1] or near
    is_folder = os.path.isdir(name) and (not near or os.path.isfile(os.path.join(name, "config.json")))
    if families.catalog_entry(name) is not None or name.endswith((".gguf", ".onnx")) or is_folder:
        print(f"benchhouse: error: {name!r} is no command: benchhouse run {name} measures a model", file=sys.stderr)
        return EXIT_USAGE
    ours = list(dict.fromkeys(ALIASES.get(one, one) for one in near))
    hint = f"did you mean {' or '.join(ours)}? " if ours else ""
    print(f"benchhouse: error: unknown command {name!r}: {hint}benchhouse --help lists all", file=sys.stderr)
    return EXIT_USAGE


def _print(text: str, exit_code: int) -> int:
    """Print the text as a command does: a closed pipe ("| head") is not an error."""
    from benchmarking.core.command_line import run_command

    def command(_: Sequence[str]) -> int:
        print(text, flush=True)
        return exit_code

    return run_command("benchhouse", command, [])


if __name__ == "__main__":
    sys.exit(main())
