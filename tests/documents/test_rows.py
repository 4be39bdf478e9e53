"""Each promise of the five documents has evidence, and the page of promises lists them all."""

from __future__ import annotations

import importlib
import tomllib

import pytest

from benchmarking import BenchmarkConfig
from benchmarking.cli import COMMANDS
from benchmarking.runtimes.support.lookup import runtime_of_device_alias
from tests.docs.cli_page import parser_of
from tests.documents import test_lines
from tests.documents.lines import LINES
from tests.documents.promises_page import PAGE, page
from tests.documents.rows import AS, NO, ONE, ROWS, Row
from tests.helpers.paths import ROOT

SQL = "\n".join(path.read_text() for path in sorted((ROOT / "schema").rglob("*.sql")))


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.document}: {row.promise}" for row in ROWS])
def test_a_promise_has_its_evidence(row: Row):
    kind, _, what = row.check.partition(" ")
    if kind == "line":
        assert [line for line in LINES if line.document == row.document and line.text.startswith(what)]
    elif kind == "flag":
        command, flag = what.split()
        assert flag in parser_of(command)._option_string_actions
    elif kind == "name":
        module, _, path = what.partition(":")
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    elif kind == "field":
        config = BenchmarkConfig("a", "model")
        name = what.removeprefix("BenchmarkConfig.")
        setattr(config, name, value := getattr(config, name))
        assert getattr(config, name) == value
    elif kind in ("column", "table"):
        assert what.split(".")[-1] in SQL
    elif kind == "file":
        assert (ROOT / what).is_file()
    elif kind == "script":
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        assert {what, f"{what}.py"} <= set(scripts)
    elif kind == "test":
        assert callable(getattr(test_lines, what))
    elif kind == "alias":
        assert runtime_of_device_alias("nvidia") == "tensorrt"
    else:
        assert kind in ("bench", "reason")


def test_every_difference_is_named_and_nothing_is_missing():
    for row in ROWS:
        assert row.verdict in (AS, ONE, NO), row
        assert row.verdict == AS or row.here, row
        assert (row.verdict == NO) == (row.check == "reason"), row
    assert len({(row.document, row.promise) for row in ROWS}) == len(ROWS) >= 108
    assert set(COMMANDS) >= {"benches", "export-model", "profile", "script"}


def test_the_page_of_promises_is_written_from_the_rows():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.documents.promises_page writes it anew"
