"""Each promise of the five documents has evidence, and the page of promises lists them all."""

from __future__ import annotations

import importlib
import inspect
import tomllib

import pytest

from benchmarking import BenchmarkConfig, run_hardware_benchmark
from benchmarking.cli import COMMANDS
from benchmarking.core import plugins
from benchmarking.core.command_line import parser_of
from benchmarking.core.plugins import runtime_of_device_alias
from benchmarking.sweep.plan.request import runtime_named
from db.warehouse import Warehouse
from tests.documents import test_lines
from tests.documents.lines import LINES
from tests.documents.promises_page import PAGE, page
from tests.documents.rows import AS, NO, ONE, ROWS, Row
from tests.helpers.paths import ROOT
from visualize import visualize_benchmarks

pytestmark = pytest.mark.forked_children

ARGUMENTS = {"run": "m", "profile": "m", "compare-runtimes": "m", "export-model": "m", "script": "s.py"}
"""What a command needs besides a flag."""
CHARTS = tuple(row.check.split()[1] for row in ROWS if row.check.startswith("chart "))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with a warehouse of two small models on the null device, and the charts drawn from it."""
    folder = tmp_path_factory.mktemp("promises")
    database = str(folder / "measured.duckdb")
    points = ["--batch-sizes", "1,2", "--sequence-lengths", "16", "--iterations", "320"]
    for model in ("tiny-bert", "tiny-gpt2"):
        where = ["--db-path", database, "--output-dir", str(folder / "runs")]
        assert run_hardware_benchmark.main([model, "--device", "null", *points, "--save", "--quiet", *where]) == 0
    chosen = ["--chart", ",".join(CHARTS), "--format", "svg", "--output-dir", str(folder / "charts"), "--quiet"]
    assert visualize_benchmarks.main(["--db-path", database, *chosen]) == 0
    return folder


def named(path: str):
    module, _, attributes = path.partition(":")
    found = importlib.import_module(module)
    for part in attributes.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.document}: {row.promise}" for row in ROWS])
def test_a_promise_has_its_evidence(row: Row, request):
    kind, _, what = row.check.partition(" ")
    if kind == "line":
        lines = [line for line in LINES if line.document == row.document and line.text.startswith(what)]
        assert lines  # test_lines runs each of them; a plan shows the values, which it must print
        assert all(line.says for line in lines if line.plan_only)
    elif kind == "flag":
        command, flag, *values = what.split()
        parser = parser_of(command)
        read = parser.parse_args(
            [*filter(None, [ARGUMENTS.get(command) if flag != "--model-id" else None]), *(["=".join([flag, *values])])]
        )
        destination = parser._option_string_actions[flag].dest
        assert getattr(read, destination) not in (None, parser.get_default(destination))
    elif kind == "name":
        named(what)
    elif kind == "takes":
        function, *arguments = what.split()
        given = dict(argument.split("=") for argument in arguments)
        inspect.signature(named(function)).bind("self", **given)
    elif kind == "field":
        config = BenchmarkConfig("a", "model")
        name = what.removeprefix("BenchmarkConfig.")
        setattr(config, name, value := getattr(config, name))
        assert getattr(config, name) == value
    elif kind in ("column", "table"):
        table, _, column = what.partition(".")
        with Warehouse.open(str(request.getfixturevalue("measured") / "measured.duckdb"), read_only=True) as warehouse:
            (found,) = warehouse.query(f"SELECT count({column or '*'}) AS filled FROM {table}").dicts()
        assert found["filled"]
    elif kind == "chart":
        assert list((request.getfixturevalue("measured") / "charts").glob(f"{what}*.svg"))
    elif kind == "plugins":
        package, *names = what.split()
        assert set(names) <= set(plugins.names(f"benchmarking.{package}"))
    elif kind == "families":
        assert len(plugins.names("benchmarking.workloads")) == int(what)
    elif kind == "runtimes":
        assert all(runtime_named(alias) == name for alias, name in (pair.split("=") for pair in what.split()))
    elif kind == "file":
        assert (ROOT / what).is_file()
    elif kind == "script":
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        assert {what, f"{what}.py"} <= set(scripts)
    elif kind == "test":
        assert callable(getattr(test_lines, what))
    elif kind == "alias":
        assert runtime_of_device_alias("nvidia") == "tensorrt"
    elif kind == "calls":
        assert any(what in line.calls for line in LINES if not line.plan_only)
    else:
        assert kind == "reason"


def test_every_difference_is_named_and_nothing_is_missing():
    for row in ROWS:
        assert row.verdict in (AS, ONE, NO), row
        assert row.verdict == AS or row.here, row
        assert (row.verdict == NO) == (row.check == "reason"), row
    assert len({(row.document, row.promise) for row in ROWS}) == len(ROWS) >= 108
    assert set(COMMANDS) >= {"benches", "export-model", "profile", "script"}


def test_the_page_of_promises_is_written_from_the_rows():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.documents.promises_page writes it anew"
