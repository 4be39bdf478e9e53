"""What goes in comes out, once, whole, or not at all; and what is asked is answered."""

import dataclasses
import math
import shutil
import subprocess
import sys

import pytest

from benchmarking.core.errors import FormatError, StorageError, UsageError
from benchmarking.core.records import Point
from db.warehouse import Warehouse
from tests.helpers.paths import ROOT

NOTHING = {"hardware_info": 0, "benchmark_runs": 0, "benchmark_results": 0, "raw_benchmark_data": 0, "series": 0}


def test_exact_rows_of_a_small_run(warehouse, make_run):
    run = make_run(batch_sizes=(2,), sequence_lengths=(32,), launches=2, iterations=3)
    warehouse.ingest(run, source="a.json", source_sha256="ab")
    (row,) = warehouse.query(
        "SELECT model_id, device, runtime, precision, status, load_time_s, tags, source, source_sha256, "
        "git_commit_time FROM benchmark_runs"
    ).dicts()
    assert row | {"git_commit_time": str(row["git_commit_time"])} == {
        "model_id": "bert-base-uncased",
        "device": "cpu",
        "runtime": "eager",
        "precision": "float32",
        "status": "ok",
        "load_time_s": pytest.approx(3.3),
        "tags": {"suite": "test"},
        "source": "a.json",
        "source_sha256": "ab",
        "git_commit_time": "2026-01-01 00:00:00",
    }
    (row,) = warehouse.query(
        "SELECT batch_size, sequence_length, latency_median_ms, latency_p95_ms, missing['latency_p99_ms'] AS why, "
        "doubts, validity, launches, iterations, ci_scope FROM benchmark_results"
    ).dicts()
    assert row == {
        "batch_size": 2,
        "sequence_length": 32,
        "latency_median_ms": 16.0,
        "latency_p95_ms": None,
        "why": "too_few_samples",
        "doubts": [],
        "validity": "valid",
        "launches": 2,
        "iterations": 6,
        "ci_scope": "within",
    }
    raw = warehouse.query("SELECT launch, phase, metric, unit, samples FROM raw_benchmark_data ORDER BY launch").dicts()
    assert raw == [
        {"launch": i, "phase": "measure", "metric": "latency_wall", "unit": "ms", "samples": [15.0, 16.0, 17.0]}
        for i in range(2)
    ]


@pytest.mark.parametrize("given", [{"a": 1}, None, "run.json"])
def test_what_is_no_run_is_refused(warehouse, given):
    with pytest.raises(UsageError, match=f"found {type(given).__name__}"):
        warehouse.ingest(given)


def test_a_run_is_stored_once(warehouse, make_run):
    run = make_run()
    assert warehouse.ingest(run, source_sha256="ab") is True
    assert warehouse.ingest(run) is False
    assert warehouse.ingest(dataclasses.replace(run, run_id="another"), source_sha256="ab") is False
    assert warehouse.query("SELECT count(*) AS n FROM benchmark_results").dicts() == [{"n": 4}]


def test_hardware_and_series_are_shared_by_runs(warehouse, make_run):
    warehouse.ingest(make_run())
    warehouse.ingest(make_run(batch_sizes=(2, 4)))
    (counts,) = warehouse.query(
        "SELECT (SELECT count(*) FROM hardware_info) AS hardware, (SELECT count(*) FROM series) AS series, "
        "(SELECT count(*) FROM benchmark_results) AS results"
    ).dicts()
    assert counts == {"hardware": 1, "series": 6, "results": 8}


def test_an_unstorable_run_leaves_nothing(warehouse, make_run, row_counts):
    run = make_run()
    bad = dataclasses.replace(run.results[-1], metrics={"latency_median_ms": math.nan})
    with pytest.raises(FormatError, match="latency_median_ms is nan"):
        warehouse.ingest(dataclasses.replace(run, results=(*run.results[:-1], bad)))
    assert row_counts(warehouse) == NOTHING
    assert warehouse.ingest(run)


def test_a_run_with_a_result_of_another_run_is_refused(warehouse, make_run, row_counts):
    run = make_run()
    warehouse.ingest(run)
    before = row_counts(warehouse)
    with pytest.raises(StorageError, match=run.results[0].result_id):
        warehouse.ingest(dataclasses.replace(make_run(model_id="gpt2"), results=run.results))
    assert row_counts(warehouse) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"point": Point(batch_size=3_000_000_000)}, "a value cannot be stored"),
        ({"error": "\ud800"}, "a value cannot be stored"),
        ({"point": Point(batch_size=0)}, "batch_size"),
    ],
)
def test_a_value_out_of_a_columns_range_is_our_error(warehouse, make_run, change, words):
    run = make_run()
    with pytest.raises(StorageError, match=words):
        warehouse.ingest(dataclasses.replace(run, results=(dataclasses.replace(run.results[0], **change),)))


@pytest.mark.parametrize("value", ["'nan'", "'infinity'", "'-infinity'"])
@pytest.mark.parametrize("column", ["latency_median_ms", "latency_ci_low_ms", "energy_idle_w", "flops"])
def test_the_database_itself_refuses_non_finite_numbers(warehouse, make_run, column, value):
    warehouse.ingest(make_run())
    with pytest.raises(StorageError, match=column):
        warehouse.query(f"UPDATE benchmark_results SET {column} = {value}::DOUBLE")


def test_the_database_itself_refuses_non_finite_samples(warehouse, make_run):
    warehouse.ingest(make_run())
    with pytest.raises(StorageError, match="samples"):
        warehouse.query("UPDATE raw_benchmark_data SET samples = [1.0, 'nan'::DOUBLE]")
    warehouse.query("UPDATE raw_benchmark_data SET samples = []")


def test_a_metric_named_as_an_axis_does_not_become_one(warehouse, make_run):
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    metrics = {**run.results[0].metrics, "audio_seconds": 3.5}
    warehouse.ingest(dataclasses.replace(run, results=(dataclasses.replace(run.results[0], metrics=metrics),)))
    rows = warehouse.query("SELECT audio_seconds, other_metrics FROM benchmark_results").dicts()
    assert rows == [{"audio_seconds": None, "other_metrics": {"audio_seconds": 3.5}}]


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"image_size": 224.5}, "image_size is 224.5, expected a whole number"),
        ({"audio_seconds": math.inf}, "must not contain inf"),
    ],
)
def test_an_axis_value_out_of_its_columns_range_is_our_error(warehouse, make_run, row_counts, axes, words):
    run = make_run()
    point = Point(batch_size=1, axes=axes)
    with pytest.raises(FormatError, match=words):
        warehouse.ingest(dataclasses.replace(run, results=(dataclasses.replace(run.results[0], point=point),)))
    assert row_counts(warehouse) == NOTHING


def test_query_binds_its_parameters(warehouse):
    assert warehouse.query("SELECT ? + 1 AS n", [41]).dicts() == [{"n": 42}]
    assert warehouse.query("SELECT $a || $b AS t", {"a": "x", "b": "'; DROP"}).dicts() == [{"t": "x'; DROP"}]


def test_query_answers_in_three_forms(warehouse):
    table = warehouse.query("SELECT 1 AS a, MAP {'k': 'v'} AS m, NULL::MAP(VARCHAR, VARCHAR) AS n")
    assert table.arrow().column_names == ["a", "m", "n"]
    assert table.dicts() == [{"a": 1, "m": {"k": "v"}, "n": None}]
    assert table.df()["m"][0] == {"k": "v"}


def test_what_was_asked_before_is_answered_from_memory_only_where_that_is_wanted(database, monkeypatch):
    sql = "SELECT $name AS name, uuid()::VARCHAR AS id"
    with Warehouse.open_copy(database) as copy:

        def answer(name):
            (row,) = copy.query(sql, {"name": name}).dicts()
            assert row["name"] == name
            return row["id"]

        assert answer("a") != answer("a")
        copy.keep_answers()
        kept = answer("a")
        assert (answer("a"), answer("b")) == (kept, answer("b"))
        monkeypatch.setattr("db.warehouse.KEPT_BYTES", 100)
        assert answer("c" * 200) != answer("c" * 200)
        assert answer("a") != kept, "the oldest make room"


def test_answers_in_memory_take_no_more_than_they_may_however_small_each_is(database, monkeypatch):
    """Statements count too: a server that runs for months is asked millions of them."""
    monkeypatch.setattr("db.warehouse.KEPT_BYTES", 100_000)
    with Warehouse.open_copy(database) as copy:
        copy.keep_answers()
        for number in range(100):
            copy.query(f"SELECT $n AS n{' ' * 5000}", {"n": number})
        assert 5 <= len(copy._answers._kept) <= 20


def test_a_failing_query_is_an_error_of_one_line(warehouse):
    with pytest.raises(StorageError, match=r"Catalog Error: Table with name benchmark_run does not exist") as caught:
        warehouse.query("SELECT * FROM benchmark_run")
    assert "\n" not in str(caught.value)


def test_a_statement_without_an_answer_gives_an_empty_table(warehouse):
    assert warehouse.query("CREATE TEMP TABLE t (a INTEGER)").dicts() == []


def test_runs_stored_together_are_stored_as_one_after_the_other(make_run, empty_database, tmp_path, row_counts):
    runs = [make_run(started_at=f"2026-01-0{day}T03:04:05Z") for day in (1, 3, 2)]
    found = []
    for name in ("each", "all"):
        with Warehouse.open(shutil.copy2(empty_database, tmp_path / f"{name}.duckdb")) as opened:
            new = opened.ingest_all(runs) if name == "all" else sum(opened.ingest(run) for run in runs)
            heads = opened.query("SELECT * FROM series_heads ORDER BY series_id").dicts()
            found.append((new, row_counts(opened), heads))
            assert opened.ingest_all([*runs, runs[0]]) == 0
    assert found[0] == found[1]
    assert found[0][0] == 3


WIDE_ANSWERS = """
import resource, sys
from db.warehouse import Warehouse
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
with Warehouse.open(sys.argv[1], read_only=True) as warehouse:
    for _ in range(40):
        assert warehouse.query("FROM all_results WHERE device = ?", ("cpu",)).dicts()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the address space")
def test_answers_reserve_no_memory_for_rows_that_they_do_not_have(warehouse, make_run):
    warehouse.ingest(make_run())
    warehouse.close()
    asked = [sys.executable, "-c", WIDE_ANSWERS, str(warehouse.path)]
    ended = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
