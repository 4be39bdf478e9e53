"""Verify finds each planted fault, and nothing in a warehouse that is well."""

import gzip
import hashlib
import os
import shutil
from pathlib import Path
from typing import get_args

import pytest

from benchmarking.core.errors import FormatError
from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.records import Origin, Precision, dumps
from db.analysis.history.changes import update_changes
from db.upkeep.verify import verify
from db.warehouse import Warehouse

ONE = {"batch_sizes": (1,), "sequence_lengths": (32,)}


@pytest.fixture(scope="module")
def filled_file(tmp_path_factory, empty_database, make_run):
    path = Path(shutil.copy2(empty_database, tmp_path_factory.mktemp("filled") / "filled.duckdb"))
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_run(with_failed=True, with_doubtful=True))
        warehouse.ingest(make_run(family="decoder-only", model_id="gpt2"))
    return path


@pytest.fixture
def filled(filled_file, tmp_path):
    with Warehouse.open(shutil.copy2(filled_file, tmp_path / "filled.duckdb")) as warehouse:
        yield warehouse


def kinds(warehouse):
    return {finding.kind for finding in verify(warehouse)}


def test_an_intact_warehouse_has_no_findings(filled):
    assert verify(filled) == []


def test_an_empty_warehouse_has_no_findings(warehouse):
    assert verify(warehouse) == []


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("DROP VIEW history", "schema", "view history is missing"),
        ("DROP TABLE annotations", "schema", "table annotations is missing"),
        ("CREATE TABLE mine (a INTEGER)", "schema", "table mine is not part of the schema"),
        ("ALTER TABLE annotations DROP COLUMN note", "schema", "column annotations.note is missing"),
        ("ALTER TABLE alerts ALTER group_id TYPE INTEGER", "schema", "column alerts.group_id is 'INTEGER"),
        ("COMMENT ON COLUMN alerts.group_id IS 'x'", "schema", "column alerts.group_id is 'VARCHAR -- x'"),
        ("CREATE OR REPLACE VIEW history AS SELECT 1 AS a", "schema", "column history.series_id is missing"),
        (
            "CREATE OR REPLACE TABLE series AS FROM series",
            "schema",
            "constraint series PRIMARY KEY [series_id] is missing",
        ),
        (
            "UPDATE schema_migrations SET sha256 = 'x' WHERE version = 1",
            "schema",
            "0001_initial was applied with other SQL",
        ),
        ("DELETE FROM schema_migrations WHERE version = 0", "schema", "migration views was never applied"),
        ("DELETE FROM hardware_info", "orphan", "which is not in hardware_info"),
        ("DELETE FROM benchmark_runs WHERE model_id = 'gpt2'", "orphan", "which is not in benchmark_runs"),
        ("DELETE FROM series WHERE model_id = 'gpt2'", "orphan", "which is not in series"),
        ("DELETE FROM benchmark_results WHERE batch_size = 2", "orphan", "which is not in benchmark_results"),
        (
            "INSERT INTO annotations VALUES ('n1', 'run', 'gone', NULL, 'a note', now()::TIMESTAMP)",
            "orphan",
            "n1 is about run gone, which does not exist",
        ),
        (
            "INSERT INTO raw_benchmark_data FROM raw_benchmark_data LIMIT 1",
            "duplicate",
            "raw_benchmark_data: 2 rows have result_id, launch, phase, metric",
        ),
        ("UPDATE benchmark_runs SET source_sha256 = 'same'", "duplicate", "2 rows have source_sha256 same"),
        (
            "DELETE FROM raw_benchmark_data WHERE launch = 1",
            "raw_count",
            "90 iterations in 3 launches, but 60 raw samples in 2",
        ),
        (
            "UPDATE benchmark_results SET latency_median_ms = 123456",
            "raw_statistics",
            "latency_median_ms is 123456, but the medians of its samples are ",
        ),
        (
            "UPDATE benchmark_results SET doubts = [] WHERE validity = 'noisy'",
            "contradiction",
            "has other doubts than those with their evidence in extra",
        ),
        (
            "UPDATE benchmark_results SET latency_ci_low_ms = latency_ci_high_ms + 1",
            "contradiction",
            "its latency_ci_low_ms is greater than its latency_ci_high_ms",
        ),
        (
            "UPDATE benchmark_results SET series_id = (SELECT min(series_id) FROM series)",
            "point",
            " has 4 results of the series ",
        ),
        (
            "UPDATE benchmark_runs SET finished_at = started_at - INTERVAL 6 YEAR",
            "time",
            "ended at 2020-01-02 03:04:05, before its start at 2026-01-02 03:04:05",
        ),
        ("UPDATE raw_benchmark_data SET samples = samples[2:]", "raw_count", "but 87 raw samples in 3"),
        (
            "UPDATE benchmark_results SET iterations = 5 WHERE status = 'failed'",
            "raw_count",
            "5 iterations in 0 launches, but 0",
        ),
        ("UPDATE benchmark_results SET validity = NULL", "missing_value", "is ok but has no validity"),
        (
            "UPDATE benchmark_runs SET finished_at = NULL",
            "missing_value",
            "was measured here, but has no warm-up calls",
        ),
        (
            "UPDATE benchmark_results SET iterations = NULL",
            "raw_count",
            "not stated iterations in 3 launches, but 90 raw samples in 3",
        ),
        (
            "UPDATE benchmark_results SET latency_median_ms = NULL",
            "missing_value",
            "neither a median latency nor a reason",
        ),
        ("UPDATE benchmark_results SET error = NULL", "missing_value", "is failed but has no error"),
        ("UPDATE benchmark_results SET validity = 'valid'", "missing_value", "is failed but has a validity"),
        ("UPDATE benchmark_results SET batch_size = 7 WHERE batch_size = 1", "series", "does not belong to its series"),
        ("UPDATE benchmark_runs SET num_threads = 3", "series", "does not belong to its series"),
        ("UPDATE benchmark_results SET image_size = 224 WHERE batch_size = 1", "axes", "its columns differ"),
        (
            "UPDATE hardware_info SET peak_flops = MAP {'float32': 1.0}",
            "calibration",
            "differs from its calibration",
        ),
        ("UPDATE hardware_info SET calibration_run_id = 'gone'", "orphan", "which is not in benchmark_runs"),
        ("UPDATE series SET hashed_keys = '{}'", "hash", "is not the hash of its hashed_keys"),
        ("UPDATE hardware_info SET hashed_keys = '{}'", "hash", "hardware_info: hardware_id"),
        (
            "UPDATE benchmark_runs SET architecture_type = 'vison' WHERE model_id = 'gpt2'",
            "name",
            "architecture_type 'vison' of 1 runs is unknown: expected one of encoder-only, decoder-only, ",
        ),
        (
            "UPDATE benchmark_runs SET precision = 'float9' WHERE model_id = 'gpt2'",
            "name",
            "precision 'float9' of 1 runs is unknown: expected one of float32, tf32, ",
        ),
        (
            "UPDATE benchmark_runs SET runtime = 'eagre'",
            "name",
            "runtime 'eagre' of 2 runs is unknown: expected one of ",
        ),
        (
            "UPDATE hardware_info SET device_type = 'gpu'",
            "name",
            "device_type 'gpu' of 2 runs is unknown: expected one",
        ),
    ],
)
def test_a_planted_fault_is_found(filled, fault, kind, words):
    filled.query(fault)
    findings = verify(filled)
    assert kind in {finding.kind for finding in findings}
    assert any(words in finding.problem for finding in findings), findings


@pytest.mark.parametrize("precision", get_args(Precision))
def test_runs_of_every_precision_are_stored(warehouse, make_run, precision):
    assert warehouse.ingest(make_run(precision=precision))
    for table in ("benchmark_runs", "series"):
        assert warehouse.query(f"SELECT DISTINCT precision FROM {table}").dicts() == [{"precision": precision}]
    assert [finding for finding in verify(warehouse) if finding.kind in ("name", "schema")] == []


def test_a_run_of_an_unknown_precision_is_not_stored(warehouse, make_run):
    with pytest.raises(FormatError, match=r"expected one of float32, tf32, .*, found 'float9'"):
        warehouse.ingest(make_run(precision="float9"))
    assert warehouse.query("SELECT count(*) AS n FROM benchmark_runs").dicts() == [{"n": 0}]


def test_every_number_of_a_result_has_a_check(warehouse):
    sql = "SELECT column_name FROM duckdb_columns() WHERE table_name = 'benchmark_results' AND data_type = 'DOUBLE'"
    numbers = {row["column_name"] for row in warehouse.query(sql).dicts()}
    sql = "SELECT constraint_column_names AS names FROM duckdb_constraints() WHERE constraint_type = 'CHECK'"
    assert numbers <= {name for row in warehouse.query(sql).dicts() for name in row["names"]}


def test_runtimes_and_devices_of_another_tool_have_any_name(filled):
    filled.query("UPDATE benchmark_runs SET runtime = 'llama.cpp', origin_format = 'llama-bench'")
    filled.query("UPDATE hardware_info SET device_type = 'vulkan'")
    assert "name" not in kinds(filled)


def test_a_change_point_of_another_run_or_with_no_result_is_found(warehouse, write_history):
    def faults():
        return [one.kind for one in verify(warehouse) if one.problem.startswith("change_points")]

    write_history(warehouse, [10.0] * 12 + [13.0] * 6)
    update_changes(warehouse, JUDGED[DEFAULT_METRIC])
    assert faults() == []
    warehouse.query("UPDATE change_points SET last_good_run_id = run_id")
    assert faults() == ["change_point"]
    warehouse.query("UPDATE change_points SET last_good_result_id = 'gone'")
    assert faults() == ["orphan"]


def test_an_alias_of_an_alias_is_found(filled):
    filled.query(
        "INSERT INTO series_alias SELECT a, b, 'x', now()::TIMESTAMP FROM ("
        "SELECT series_id AS a, lead(series_id) OVER (ORDER BY series_id) AS b FROM series) LIMIT 2"
    )
    assert kinds(filled) == {"series"}


def test_one_fault_is_reported_once(filled):
    one = "SELECT min(result_id) FROM benchmark_results WHERE status = 'ok'"
    filled.query(f"UPDATE raw_benchmark_data SET samples = samples[2:] WHERE launch = 0 AND result_id = ({one})")
    count, launch = verify(filled)
    assert (count.kind, launch.kind) == ("raw_count", "raw_statistics")
    assert count.problem.endswith("90 iterations in 3 launches, but 89 raw samples in 3")
    assert launch.problem.endswith("launch 0, measure latency_wall are 29, but sample_count is 30")


def test_a_clock_that_was_set_back_during_the_run_is_no_fault(filled):
    back = "finished_at = started_at - INTERVAL 6 YEAR"
    filled.query(f"UPDATE benchmark_runs SET {back}; UPDATE benchmark_results SET doubts = ['clock_set_back']")
    assert "time" not in kinds(filled)
    filled.query("UPDATE benchmark_results SET doubts = []")
    assert "time" in kinds(filled)


def test_changed_run_files_are_findings_and_missing_ones_are_not(warehouse, spool_run):
    first, _ = spool_run("1", **ONE)
    second, run = spool_run("2", **ONE)
    third, _ = spool_run("3", **ONE)
    for path in (first, second, third):
        warehouse.ingest_file(path)
    assert verify(warehouse) == []
    first.unlink()
    second.write_text(second.read_text() + "\n")
    (finding,) = verify(warehouse)
    assert (finding.kind, finding.subject) == ("checksum", run.run_id)
    assert f"its file {second} was changed after loading" in finding.problem


def test_a_file_of_the_same_name_beside_the_database_is_another(tmp_path, make_run):
    """Such as results.json of another folder, whether the run's own is still there or not."""
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "elsewhere/results.json"
    path.write_text(dumps(make_run(**ONE)))
    (tmp_path / "results.json").write_text("{}")
    with Warehouse.open(tmp_path / "b.duckdb") as warehouse:
        warehouse.ingest_file(path)
        assert verify(warehouse) == []
        path.unlink()
        assert verify(warehouse) == []


def test_a_file_of_its_name_beside_the_database_is_no_imported_one(warehouse, make_run, tmp_path):
    """Also where the imported one is gone with its folder, as of a build."""
    Path(warehouse.path).with_name("results.json").write_text("of another test")
    run = make_run(**ONE, origin=Origin(format="llama_bench", definition="llama_bench"))
    warehouse.ingest(run, source=str(tmp_path / "gone/results.json"), source_sha256="0" * 64)
    assert verify(warehouse) == []


def test_an_imported_file_is_compared_as_it_was_read_packed_or_not(warehouse, spool_run, tmp_path):
    path, run = spool_run("1", **ONE)
    packed = tmp_path / "run.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    warehouse.ingest(run, source=str(packed), source_sha256=digest)
    assert verify(warehouse) == []
    packed.write_bytes(packed.read_bytes()[:-20])
    (finding,) = verify(warehouse)
    assert f"its file {packed} was changed after loading" in finding.problem


@pytest.mark.parametrize("name", ["/dev/zero", "x" * 5000, "a\0b", "pipe", "."])
def test_stored_paths_of_non_files_are_not_opened(warehouse, make_run, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    warehouse.ingest(make_run(**ONE), source=name, source_sha256="0" * 64)
    assert verify(warehouse) == []


def test_verifying_changes_nothing(database, make_run):
    with Warehouse.open(database) as warehouse:
        warehouse.ingest(make_run())
    before = database.read_bytes()
    with Warehouse.open(database, read_only=True) as warehouse:
        assert verify(warehouse) == []
    assert database.read_bytes() == before
