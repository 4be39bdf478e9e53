"""The commands and what they are called: `benchhouse run`, or by the script's name `run_hardware_benchmark`.

Messages name a command in the family of names that the user typed, so that their advice can be typed like that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

SCRIPTS: Mapping[str, str] = {
    "run": "run_hardware_benchmark",
    "batch": "batch_benchmark",
    "script": "benchit",
    "benches": "run_benchmarks",
    "compare-runtimes": "compare_onnx",
    "profile": "profile_model",
    "charts": "visualize_benchmarks",
    "export-model": "export_to_onnx",
    "setup": "setup_benchmark_db",
    "cache": "manage_cache",
}
"""Command after `benchhouse` -> the script that is installed for it too; other names are too common for a PATH."""
SCRIPT_ALIASES: Mapping[str, str] = {"integration_benchmark": "batch_benchmark"}
"""Further names of scripts."""
FURTHER_SCRIPTS = ("profiler",)
"""Scripts that are no command of `benchhouse`."""


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

_TYPED: ContextVar[str | None] = ContextVar("typed", default=None)
_RUNNING: ContextVar[str | None] = ContextVar("running", default=None)


@contextmanager
def typed_as(name: str) -> Iterator[None]:
    """Inside, the command that runs shows this name, which the user typed, in its usage line and errors."""
    token = _TYPED.set(name)
    try:
        yield
    finally:
        _TYPED.reset(token)


@contextmanager
def running(name: str) -> Iterator[str]:
    """Inside, the command with this name runs; gives what it is called in messages."""
    token = _RUNNING.set(name)
    try:
        yield _TYPED.get() or name
    finally:
        _RUNNING.reset(token)


def shown_name(name: str) -> str:
    """What the usage line of a command with this name shows: what was typed, if it is the running command."""
    return (name == _RUNNING.get() and _TYPED.get()) or name


def as_typed(command: str) -> str:
    """How a message names a command (`run`): by its script if a script was typed, else after `benchhouse`.

    In a page, a child process or a notebook nothing was typed, and it is `benchhouse run`.
    """
    script, running_name = SCRIPTS.get(command), _RUNNING.get()
    typed = _TYPED.get() or running_name or ""
    if script is not None and running_name == script:
        return typed
    scripts = (*SCRIPTS.values(), *SCRIPT_ALIASES, *FURTHER_SCRIPTS)
    return script if script is not None and typed.split(" ")[0] in scripts else f"benchhouse {command}"


def words_as_typed(words: Sequence[str]) -> tuple[str, ...]:
    """A command line, which begins with a script's name where it was measured with that, as `as_typed` names it."""
    commands = {script: command for command, script in SCRIPTS.items()}
    first = SCRIPT_ALIASES.get(words[0], words[0]) if words else ""
    return (*as_typed(commands[first]).split(" "), *words[1:]) if first in commands else tuple(words)
