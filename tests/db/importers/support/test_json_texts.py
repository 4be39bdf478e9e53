"""Long lists of numbers in a foreign file: read into arrays, in little memory, and to the same runs."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import subprocess
import sys
import time
from array import array

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarking.core import plugins
from benchmarking.core.run_file import LargeSamples
from db.commands.import_results import main
from db.importers.support import building, files, measures
from db.importers.support.files import NoResultsError, extract_lists, read_file, recognising
from db.warehouse import Warehouse
from tests.helpers.imported_files import importer_for
from tests.helpers.paths import FIXTURES

PEAK = """
import sys
from pathlib import Path
from db.commands.import_results import main
code = main(sys.argv[1:])
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
sys.exit(code)
"""
MEGABYTES = 40
LIMIT_MB = 310
"""Measured: 267, of which 190 are the program; as lists of Python's objects 700. `tests/perf/imports.py` prints what
200 MB take."""


@pytest.fixture
def every_list(monkeypatch):
    """Every list of numbers is read into an array, and stays in one."""
    monkeypatch.setattr(files, "MIN_BYTES", 1)
    monkeypatch.setattr(files, "LARGE_BYTES", 0)
    monkeypatch.setattr(measures, "LARGE", 1)


def plain(value):
    """The value with lists instead of arrays."""
    if isinstance(value, array):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def whole(run):
    """The run with tuples instead of `LargeSamples`."""
    results = (
        dataclasses.replace(
            result, samples=tuple(dataclasses.replace(one, values=tuple(one.values)) for one in result.samples)
        )
        for result in run.results
    )
    return dataclasses.replace(run, results=tuple(results))


def written(folder, values, *, more=""):
    """A file of pyperf with the values in s."""
    text = json.dumps(values)
    path = folder / "values.json"
    path.write_text(
        '{"version": "1.0", "metadata": {"name": "many", "unit": "second"}, "benchmarks": [{"runs": [{"values": '
        f"{text}{more}}}]}}]}}"
    )
    return path


NUMBERS = st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False), min_size=1)
JSON = st.recursive(
    st.none() | st.booleans() | st.text() | st.sampled_from(["[1, 2]", '"', "\\", "]", "-Infinity"]) | NUMBERS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JSON, st.sampled_from([None, 1]))
def test_any_json_is_the_same_with_its_lists_taken_out_and_put_back(value, indent):
    text = json.dumps(value, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "MIN_BYTES", 1)
        patched.setattr(files, "PIECE_BYTES", 50)
        rest, lists = extract_lists(text)
    remaining = iter(lists)
    assert plain(json.loads(rest, parse_constant=lambda _: next(remaining))) == value
    assert next(remaining, None) is None


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [([1, 2] * 60, "q"), ([0.5, 2] * 60, "d"), ([1] * 100 + [0.5], "d"), ([-(2**63)] * 20, "q")],
)
def test_whole_numbers_stay_whole_unless_others_are_among_them(numbers, kind):
    _, (found,) = extract_lists(json.dumps(numbers).encode())
    assert found.typecode == kind
    assert found.tolist() == numbers


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([2**63] * 60),
        json.dumps([2**53 + 1, 0.5] * 60),
        "[" + "1e999, " * 60 + "1]",
        "[" + "1,, " * 60 + "1]",
        "[" + "01, " * 60 + "1]",
        "[" + "1" * 5000 + "]",
        f'{{"least": -Infinity, "values": {json.dumps([0.5] * 100)}}}',
        json.dumps("[" + "1, " * 100 + "1]"),
        json.dumps([1.5] * 10),
    ],
    ids=["beyond 64 bits", "inexact", "infinite", "empty", "not JSON", "long", "the placeholder", "a text", "short"],
)
def test_numbers_too_large_for_an_array_stay_in_the_text(text):
    assert extract_lists(text.encode()) == (text.encode(), ())


def test_a_string_without_an_end_stays_in_the_text_without_delay():
    text = b"[1, 2, " + b'"' + 120_000 * b'\\"'
    start_s = time.process_time()
    assert extract_lists(text) == (text, ())
    assert time.process_time() - start_s < 15


def test_every_recorded_file_gives_the_same_runs_with_its_lists_in_arrays(every_list):
    compared = in_arrays = 0
    for name in plugins.by_name("db.importers"):
        for path in sorted((FIXTURES / "imports" / name).rglob("*")):
            if path.is_file():
                found = runs_of(path, name)
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(files, "LARGE_BYTES", math.inf)
                    patched.setattr(measures, "LARGE", math.inf)
                    assert [whole(run) for run in found] == runs_of(path, name), path
                compared += len(found)
                in_arrays += sum(isinstance(one.values, LargeSamples) for run in found for one in samples_of(run))
    assert compared > 100
    assert in_arrays > 50


def runs_of(path, name):
    try:
        return list(importer_for(read_file(path), name).runs(read_file(path)))
    except (NoResultsError, files.FormatError):
        return []


def samples_of(run):
    return [one for result in run.results for one in result.samples]


@pytest.mark.parametrize(
    ("values", "more", "code", "message"),
    [
        ([0.1] * 50 + ["x"], "", 0, "values[50]: expected a number, found 'x'"),
        ([0.1] * 50, ', "warmups": [', 1, "not JSON, or truncated"),
    ],
)
def test_a_bad_large_file_is_treated_as_a_small_one_is(every_list, tmp_path, capsys, values, more, code, message):
    path = written(tmp_path, values, more=more)
    assert main([str(path), "--format", "pyperf", "--db-path", str(tmp_path / "a.duckdb")]) == code
    assert message in capsys.readouterr().err


def test_a_negative_time_in_a_long_list_is_named_by_its_position(every_list, tmp_path, capsys):
    path = tmp_path / "hyperfine.json"
    result = {"command": "x", "mean": 1.0, "user": 1.0, "system": 0.0, "times": [0.5] * 70 + [-1.0]}
    path.write_text(json.dumps({"results": [result]}))
    assert main([str(path), "--db-path", str(tmp_path / "a.duckdb")]) == 0
    assert "results[0].times[70]: expected a number from 0, found -1.0" in capsys.readouterr().err


def test_the_values_of_a_large_file_are_stored_one_by_one(tmp_path):
    values = [random.Random(1).uniform(0.01, 0.02) for _ in range(60_000)]
    path = written(tmp_path, values)
    assert main([str(path), "--db-path", str(tmp_path / "a.duckdb")]) == 0
    with Warehouse.open(tmp_path / "a.duckdb", read_only=True) as warehouse:
        (row,) = warehouse.query("SELECT samples, sample_count, median FROM raw_benchmark_data").dicts()
    assert row["samples"] == [value * 1e3 for value in values]
    assert row["sample_count"] == 60_000
    assert row["median"] == pytest.approx(sorted(values)[30_000] * 1e3, rel=1e-4)


def test_too_many_values_are_stored_as_statistics_and_quantiles(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(building, "MAX_RAW", 50_000)
    path = written(tmp_path, [1.0, 2.0, 3.0] * 20_000)
    assert main([str(path), "--db-path", str(tmp_path / "a.duckdb")]) == 0
    assert "stored without the samples, which the file keeps" in capsys.readouterr().err
    with Warehouse.open(tmp_path / "a.duckdb", read_only=True) as warehouse:
        (row,) = warehouse.query("SELECT samples, sample_count, median, sketch FROM raw_benchmark_data").dicts()
        (result,) = warehouse.query("SELECT latency_median_ms FROM all_results").dicts()
    assert (row["samples"], row["sample_count"], row["median"]) == ([], 60_000, 2000.0)
    assert (row["sketch"][0], row["sketch"][-1]) == (1000.0, 3000.0)
    assert result["latency_median_ms"] == 2000.0


@pytest.mark.slow
def test_importing_many_samples_takes_little_more_memory_than_the_file(tmp_path):
    value = random.Random(1).uniform
    path = written(tmp_path, [round(value(0.01, 0.02), 16) for _ in range(MEGABYTES * 1_000_000 // 20)])
    command = [sys.executable, "-c", PEAK, str(path), "--db-path", str(tmp_path / "a.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    peak_mb = int(done.stdout.splitlines()[-1]) * 1024 / 1e6
    assert peak_mb < LIMIT_MB


@pytest.mark.parametrize("depth", [64, 65, 400, 900])
@pytest.mark.parametrize("before", ["", "a line of a log\n"])
def test_documents_of_a_log_have_the_limit_of_a_whole_file(tmp_path, before, depth):
    (tmp_path / "log.json").write_text(before + '{"a":' * depth + "1" + "}" * depth + "\n")
    file = read_file(tmp_path / "log.json")
    assert (file.json is None) == (depth > 64)
    assert not recognising(file)
