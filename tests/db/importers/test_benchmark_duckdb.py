"""Older DuckDB files of the four tables: read by the columns that are there."""

from __future__ import annotations

import duckdb
import pytest

from benchmarking.core.errors import FormatError
from db.connection import WRITER, connect
from db.importers.benchmark_duckdb import PLUGIN
from db.importers.support.files import importers_for, read_file, recognising
from db.upkeep.verify import verify
from tests.helpers.left_out import left_out

WIDE = """
CREATE TABLE hardware_info (hardware_id VARCHAR, device_type VARCHAR, gpu_name VARCHAR, cpu_model VARCHAR,
    cpu_cores INTEGER, total_memory_gb DOUBLE);
INSERT INTO hardware_info VALUES ('hw1', 'cuda', 'NVIDIA A100', 'AMD EPYC 7763', 64, 503.5);
CREATE TABLE benchmark_runs (run_id VARCHAR, hardware_id VARCHAR, model_name VARCHAR, architecture_type VARCHAR,
    device VARCHAR, framework VARCHAR, dtype VARCHAR, timestamp TIMESTAMP, git_commit VARCHAR, status VARCHAR,
    notes VARCHAR);
INSERT INTO benchmark_runs VALUES
    ('r1', 'hw1', 'bert', 'encoder-only', 'cuda:0', 'onnxruntime', 'fp16', '2024-03-01 10:00:00', '0123abc',
        'completed', 'first'),
    ('r2', 'hw1', 'gpt2', 'transformer', 'cpu', 'eager', NULL, '2024-03-02 10:00:00', NULL, 'failed', NULL);
CREATE TABLE benchmark_results (result_id VARCHAR, run_id VARCHAR, batch_size INTEGER, sequence_length INTEGER,
    num_iterations INTEGER, avg_latency_s DECIMAL(10, 4), p99_latency_ms DOUBLE, throughput_samples_per_second DOUBLE,
    peak_memory_mb DOUBLE, accuracy DOUBLE);
INSERT INTO benchmark_results VALUES
    ('a', 'r1', 1, 128, 4, 0.0025, 4.0, 400.0, 512.5, 0.91),
    ('b', 'r1', 8, 128, 4, 0.01, NULL, 800.0, 768.25, NULL);
CREATE TABLE raw_benchmark_data (id VARCHAR, result_id VARCHAR, iteration INTEGER, latency_ms DOUBLE,
    is_warmup BOOLEAN);
INSERT INTO raw_benchmark_data VALUES ('x0', 'a', 0, 9.0, true), ('x2', 'a', 2, 2.0, false),
    ('x1', 'a', 1, 4.0, false), ('x3', 'a', 3, 2.0, false), ('x4', 'a', 4, 3.0, false);
"""
LONG = """
CREATE TABLE benchmark_runs (id VARCHAR, model VARCHAR, created_at VARCHAR);
INSERT INTO benchmark_runs VALUES ('1', 'm', '2024-01-01T00:00:00+02:00');
CREATE TABLE benchmark_results (run_id VARCHAR, batch_size INTEGER, metric VARCHAR, value DOUBLE, unit VARCHAR);
INSERT INTO benchmark_results VALUES ('1', 2, 'mean_latency', 1.5, 's'), ('1', 2, 'tokens_per_second', 64, NULL),
    ('1', 4, 'mean_latency', 2500, 'ms');
CREATE TABLE raw_benchmark_data (run_id VARCHAR, batch_size INTEGER, metric VARCHAR, unit VARCHAR, samples DOUBLE[],
    launch INTEGER);
INSERT INTO raw_benchmark_data VALUES ('1', 2, 'latency', 's', [1.0, 2.0], 0), ('1', 2, 'latency', 's', [1.5], 1);
"""


@pytest.fixture
def runs_of(tmp_path):
    """A function that makes a database of the SQL and gives the runs in it."""

    def make(sql):
        path = tmp_path / "old.duckdb"
        path.unlink(missing_ok=True)
        with duckdb.connect(path) as connection:
            connection.execute(sql)
        return list(PLUGIN.runs(read_file(path)))

    return make


def test_each_value_of_a_wide_table_is_imported(runs_of):
    run = runs_of(WIDE)[0]
    first, second = run.results
    assert first.metrics == pytest.approx(
        {
            "latency_mean_ms": 2.5,
            "latency_median_ms": 2.5,  # of 4, 2, 2, 3, which the file has raw
            "latency_std_ms": 0.9574271077563381,
            "latency_mad_ms": 0.5,
            "latency_min_ms": 2.0,
            "latency_p25_ms": 2.0,
            "latency_p75_ms": 3.25,
            "latency_max_ms": 4.0,
            "stated_latency_p99_ms": 4.0,
            "throughput_samples_per_sec": 400.0,
            "throughput_at_median": 400.0 * 2.5 / 2.5,
            "peak_memory_mb": 512.5,
        }
    )
    assert [(one.phase, one.values) for one in first.samples] == [("warmup", (9.0,)), ("measure", (4.0, 2.0, 2.0, 3.0))]
    assert (first.iterations, first.warmup_iterations, first.point.label) == (4, 1, "b1 s128")
    assert second.metrics == {"latency_mean_ms": 10.0, "throughput_samples_per_sec": 800.0, "peak_memory_mb": 768.25}
    assert (run.cell.runtime, run.cell.precision, run.cell.workload.family) == (
        "onnxruntime",
        "float16",
        "encoder-only",
    )
    assert (run.started_at, run.provenance.git_commit) == ("2024-03-01T10:00:00+00:00", "0123abc")
    assert (run.hardware.device.type, run.hardware.device.name, run.hardware.cpu_cores) == ("cuda", "NVIDIA A100", 64)


def test_other_columns_are_kept_with_the_ids(runs_of):
    run = runs_of(WIDE)[0]
    assert run.origin.kept == {
        "benchmark_runs": {"notes": "first", "run_id": "r1", "status": "completed"},
        "hardware_info": {"total_memory_gb": 503.5},
    }
    kept = run.results[0].extra["kept"]
    assert kept["rows"] == [{"accuracy": 0.91, "run_id": "r1", "result_id": "a"}]
    assert kept["raw_benchmark_data"][0] == {"id": "x0"}


def test_a_cpu_run_on_a_machine_with_an_accelerator_has_the_cpu_as_its_device(runs_of):
    run = runs_of(WIDE)[1]
    assert (run.status, run.hardware.device.type, run.hardware.device.name) == ("failed", "cpu", "AMD EPYC 7763")
    assert (run.cell.workload.family, run.origin.kept["benchmark_runs"]["architecture_type"]) == (None, "transformer")


def test_rows_with_one_metric_each_are_one_result_per_point(runs_of):
    (run,) = runs_of(LONG)
    first, second = run.results
    assert (first.metrics["latency_mean_ms"], first.metrics["throughput_tokens_per_sec"]) == (1500, 64)
    assert [(one.launch, one.values) for one in first.samples] == [(0, (1000.0, 2000.0)), (1, (1500.0,))]
    assert (first.launches, second.metrics, second.samples) == (2, {"latency_mean_ms": 2500}, ())
    assert run.started_at == "2023-12-31T22:00:00+00:00"
    assert not [doubt for doubt in first.doubts if doubt.kind == "time_zone_unknown"]


@pytest.mark.parametrize("column", ["p99_latency_ms", "throughput_samples_per_second", "peak_memory_mb"])
def test_a_bad_value_takes_no_other_with_it(runs_of, column):
    for bad in ("'NaN'", "'Infinity'", "-1", "1e300"):
        sql = f"{WIDE}UPDATE benchmark_results SET {column} = {bad} WHERE result_id = 'a'"
        first, second = runs_of(sql)[0].results
        assert second.metrics == {
            "latency_mean_ms": 10.0,
            "throughput_samples_per_sec": 800.0,
            "peak_memory_mb": 768.25,
        }
        assert first.metrics["latency_mean_ms"] == 2.5
        assert all(0 <= value < 1e6 for value in first.metrics.values()), bad


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE TABLE benchmark_runs (run_id VARCHAR)", "no table benchmark_results"),
        (WIDE + "UPDATE benchmark_results SET run_id = 'r9' WHERE result_id = 'b'", "row 2.run_id: r9 is not in"),
        (WIDE + "UPDATE raw_benchmark_data SET result_id = 'z' WHERE id = 'x3'", "row 4.result_id: z is not in"),
        (WIDE + "INSERT INTO benchmark_runs (run_id) VALUES ('r1')", "benchmark_runs row 3.run_id: r1 occurs twice"),
        (LONG + "ALTER TABLE raw_benchmark_data DROP unit", "samples: no unit"),
        (WIDE + "UPDATE benchmark_results SET batch_size = 0", "batch_size: expected a whole number from 1"),
    ],
)
def test_an_error_in_a_table_is_one_line_with_its_row(runs_of, sql, message):
    with left_out(message):
        runs_of(sql)


def test_a_warehouse_and_other_databases_are_not_recognised(runs_of, tmp_path, empty_database):
    runs_of(WIDE)
    assert recognising(read_file(tmp_path / "old.duckdb")) == (PLUGIN,)
    assert recognising(read_file(empty_database)) == ()
    with connect(str(tmp_path / "any.duckdb"), WRITER, read_only=False, lock_timeout_s=0) as connection:
        connection.execute("CREATE TABLE t (i INTEGER)")
    assert recognising(read_file(tmp_path / "any.duckdb")) == ()


def test_a_view_in_the_file_reads_no_other_file(runs_of, tmp_path):
    (tmp_path / "secret.csv").write_text("a\n1\n")
    view = f"CREATE VIEW benchmark_runs AS FROM '{tmp_path / 'secret.csv'}'"
    with pytest.raises(FormatError, match="no table benchmark_runs"):
        runs_of(f"{view}; CREATE TABLE benchmark_results (run_id VARCHAR)")


def test_its_runs_are_stored_once(runs_of, warehouse):
    runs = runs_of(WIDE)
    assert [warehouse.ingest(run) for run in runs] == [True, True]
    assert [warehouse.ingest(run) for run in runs] == [False, False]
    assert verify(warehouse) == []


def test_a_macro_in_the_file_is_not_called_in_place_of_a_function_of_duckdb(runs_of):
    none = "SELECT 'none' AS table_name, false AS internal, 'main' AS schema_name"
    hidden = f"CREATE MACRO duckdb_tables() AS TABLE {none}"
    assert len(runs_of(f"{WIDE}; {hidden}")) == 2


def test_settings_of_runs_and_results_tell_series_apart_and_sizes_are_no_metrics(runs_of):
    sql = """
    CREATE TABLE benchmark_runs (run_id INTEGER, model VARCHAR, runtime_mode JSON, num_threads INTEGER, note VARCHAR);
    INSERT INTO benchmark_runs VALUES (1, 'm', '{"optimization": "all"}', 4, 'a'), (2, 'm', NULL, NULL, 'b');
    CREATE TABLE benchmark_results (run_id INTEGER, attention VARCHAR, use_kv_cache BOOLEAN, max_new_tokens INTEGER,
        axes JSON, latency_ms DOUBLE);
    INSERT INTO benchmark_results VALUES (1, 'sdpa', true, 32, '{"steps": 4}', 5), (1, 'eager', false, 32, NULL, 9),
        (2, NULL, NULL, NULL, NULL, 7);
    """
    runs = runs_of(sql)
    found = [(run.cell.runtime_mode, run.cell.num_threads, run.results[0].metrics) for run in runs]
    assert found == [
        ({"optimization": "all", "attention": "sdpa", "use_kv_cache": True}, 4, {"latency_ms": 5}),
        ({"optimization": "all", "attention": "eager"}, 4, {"latency_ms": 9}),
        ({}, None, {"latency_ms": 7}),
    ]
    assert [run.results[0].point.label for run in runs] == ["b1 n32 steps=4", "b1 n32", "b1"]


def test_measured_numbers_and_what_is_of_one_machine_are_no_settings(runs_of):
    sql = """
    CREATE TABLE benchmark_runs (run_id INTEGER, model VARCHAR, runtime_mode JSON);
    INSERT INTO benchmark_runs VALUES (1, 'm', '{"cache_dir": "/home/me", "seed": 3, "level": 2, "num_threads": "8"}');
    CREATE TABLE benchmark_results (run_id INTEGER, batch_size INTEGER, compile DOUBLE, latency_ms DOUBLE);
    INSERT INTO benchmark_results VALUES (1, 1, 1.53, 5), (1, 2, 1.61, 9);
    """
    (run,) = runs_of(sql)
    assert (run.cell.runtime_mode, run.cell.num_threads, len(run.results)) == ({"level": 2}, 8, 2)
    assert '"seed": 3' in run.origin.kept["benchmark_runs"]["runtime_mode"]


def test_the_expression_of_a_generated_column_is_not_run(runs_of):
    hidden = "ALTER TABLE benchmark_runs RENAME TO kept; CREATE TABLE benchmark_runs (run_id VARCHAR, model VARCHAR, "
    generated = "secret VARCHAR GENERATED ALWAYS AS (current_setting('temp_directory')));"
    rows = "INSERT INTO benchmark_runs SELECT run_id, model_name FROM kept; DROP TABLE kept"
    with left_out("benchmark_runs.secret: a generated column"):
        assert "secret" not in runs_of(f"{WIDE} {hidden} {generated} {rows}")[0].origin.kept["benchmark_runs"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("1, 2.0, NULL FROM range(60)", "benchmark_results: 60 rows: expected at most 50"),
        ("1, 2.0, repeat('x', 200)", "benchmark_results row 1: more than 150 values in lists and characters"),
    ],
)
def test_what_a_small_file_expands_to_has_a_limit(runs_of, monkeypatch, values, message):
    monkeypatch.setattr("db.importers.benchmark_duckdb.MAX_ROWS", 50)
    monkeypatch.setattr("db.importers.benchmark_duckdb.MAX_SIZE", 150)
    sql = f"""
    CREATE TABLE benchmark_runs AS SELECT 1 AS run_id;
    CREATE TABLE benchmark_results (run_id INTEGER, latency_ms DOUBLE, note VARCHAR);
    INSERT INTO benchmark_results SELECT {values}
    """
    with pytest.raises(FormatError, match=message):
        runs_of(sql)


def test_a_database_that_cannot_be_opened_is_refused_for_that(tmp_path):
    path = tmp_path / "closed.duckdb"
    with duckdb.connect() as connection:
        connection.execute("SET force_mbedtls_unsafe = 'true'")
        connection.execute(f"ATTACH '{path}' AS closed (ENCRYPTION_KEY 'k'); CREATE TABLE closed.t (i INTEGER)")
    with pytest.raises(FormatError, match="encrypted database"):
        importers_for(read_file(path))


SIZED_RUNS = """
CREATE TABLE benchmark_runs (run_id INTEGER, model_name VARCHAR, batch_size INTEGER, seq_len INTEGER,
    num_iterations INTEGER, created_at TIMESTAMP);
INSERT INTO benchmark_runs VALUES (1, 'bert', 1, 128, 30, '2025-01-01'), (2, 'bert', 8, 128, 30, '2025-01-02');
CREATE TABLE benchmark_results (result_id INTEGER, run_id INTEGER, batch_size INTEGER, latency_mean_ms DOUBLE);
INSERT INTO benchmark_results VALUES (1, 1, NULL, 5), (2, 2, NULL, 20), (3, 2, 4, 11);
"""


def test_a_size_that_a_run_states_is_that_of_its_results_that_state_none(runs_of):
    results = [result for run in runs_of(SIZED_RUNS) for result in run.results]
    points = [(one.point.batch_size, one.point.sequence_length, one.iterations) for one in results]
    assert sorted(points) == [(1, 128, 30), (4, 128, 30), (8, 128, 30)]
    assert not any(doubt.kind == "batch_size_not_stated" for one in results for doubt in one.doubts)
    unstated = runs_of(SIZED_RUNS + "ALTER TABLE benchmark_runs DROP batch_size")
    kinds = [[doubt.kind for doubt in one.doubts] for run in unstated for one in run.results]
    assert sum("batch_size_not_stated" in of_one for of_one in kinds) == 2


@pytest.mark.parametrize(
    ("sql", "message", "left"),
    [
        ("UPDATE raw_benchmark_data SET latency_ms = 'NaN' WHERE id = 'x3'", "row 4.latency_ms", 3),
        ("UPDATE raw_benchmark_data SET result_id = 'z' WHERE id = 'x3'", "row 4.result_id: z is not in", 3),
        (
            "ALTER TABLE raw_benchmark_data ADD phase VARCHAR; "
            "UPDATE raw_benchmark_data SET phase = 'load', is_warmup = false WHERE id = 'x3'",
            "row 4.phase: expected",
            3,
        ),
        ("INSERT INTO benchmark_results VALUES ('c', 'r9', 1, 1, 1, 1, 1, 1, 1, 1)", "row 3.run_id: r9 is not in", 4),
        ("INSERT INTO benchmark_results VALUES ('c', NULL, 1, 1, 1, 1, 1, 1, 1, 1)", "row 3.run_id: is missing", 4),
        ("INSERT INTO benchmark_runs (run_id) VALUES ('r2')", "row 3.run_id: r2 occurs twice", 4),
    ],
)
def test_a_bad_row_takes_no_other_with_it(runs_of, sql, message, left):
    with left_out(message):
        runs = runs_of(WIDE + sql)
    first, second = runs[0].results
    (samples,) = (one for one in first.samples if one.phase == "measure")
    assert (len(samples.values), second.metrics["latency_mean_ms"]) == (left, 10.0)


def test_what_a_results_row_states_of_its_model_device_and_machine_is_its_own(runs_of):
    runs = runs_of("""
        CREATE TABLE hardware_info (hardware_id VARCHAR, device_type VARCHAR, device_name VARCHAR);
        INSERT INTO hardware_info VALUES ('a', 'cuda', 'A100'), ('b', 'cpu', 'EPYC');
        CREATE TABLE benchmark_runs (run_id INT, created_at TIMESTAMP, model_name VARCHAR, device VARCHAR,
            device_name VARCHAR);
        INSERT INTO benchmark_runs VALUES (1, '2025-01-01', 'bert', 'cuda', 'H100');
        CREATE TABLE benchmark_results (result_id INT, run_id INT, model_name VARCHAR, precision VARCHAR,
            hardware_id VARCHAR, device VARCHAR, runtime VARCHAR, batch_size INT, latency_mean_ms DOUBLE);
        INSERT INTO benchmark_results VALUES (1, 1, 'bert', NULL, NULL, 'cuda', NULL, 1, 5.0),
            (2, 1, 'gpt2', 'fp32', 'a', 'cuda', 'onnxruntime', 1, 20.0),
            (3, 1, NULL, 'fp16', 'b', 'cpu', 'eager', 1, 2.0);
    """)
    assert [
        (one.cell.workload.model_id, one.cell.precision, one.cell.runtime, one.cell.device.type, one.cell.device.name)
        for one in runs
    ] == [
        ("bert", "unknown", "unknown", "cuda", "H100"),
        ("gpt2", "float32", "onnxruntime", "cuda", "A100"),
        ("bert", "float16", "eager", "cpu", "EPYC"),
    ]
    assert [one.results[0].metrics["latency_mean_ms"] for one in runs] == [5.0, 20.0, 2.0]


def test_an_object_of_settings_is_read_under_the_names_of_columns(runs_of):
    first, second = runs_of("""
        CREATE TABLE benchmark_runs (run_id INT, model_name VARCHAR, config VARCHAR);
        INSERT INTO benchmark_runs VALUES
            (1, 'bert', '{"batch_size": 8, "precision": "int8", "model_id": "x", "use_cache": true, "note": "n"}'),
            (2, 'bert', '{"batch_size": 1, "dtype": "fp32", "threads": 4}');
        CREATE TABLE benchmark_results (result_id INT, run_id INT, latency_mean_ms DOUBLE);
        INSERT INTO benchmark_results VALUES (1, 1, 5.0), (2, 2, 20.0);
    """)
    assert (first.results[0].point.batch_size, first.cell.precision) == (8, "int8")
    assert (first.cell.workload.model_id, first.cell.runtime_mode) == ("bert", {"use_cache": True})
    assert (second.results[0].point.batch_size, second.cell.precision, second.cell.num_threads) == (1, "float32", 4)
    assert "note" in first.origin.kept["benchmark_runs"]["config"]
