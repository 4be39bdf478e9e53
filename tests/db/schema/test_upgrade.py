"""A file of an older version with runs in it becomes one of this version, and nothing in it is lost or changed."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from benchmarking.core import plugins
from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.records import Origin
from db import migrate
from db.ingestion import RUN_TABLES, SHARED_TABLES
from db.run_records import stored_runs
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers import databases

OLDER = [step.version for step in migrate.migrations()[:-1]]
UPGRADED = OLDER if os.environ.get("BENCHHOUSE_TEST_ALL") else sorted({*OLDER[::4], OLDER[2], OLDER[-1]})
"""Versions whose files are upgraded: a third of them, the first of which takes every migration; from the third on the
writer knew more columns."""
VISION = {"model_id": "vit", "family": "vision", "batch_sizes": (1,), "axes": {"image_size": (224, 384)}}
SPEECH = {"model_id": "whisper", "family": "speech", "batch_sizes": (1,), "axes": {"audio_seconds": (7.5,)}}
MOVED = {
    "encode_ms": 3.5,
    "real_time_factor": 0.25,
    "output_max_abs_error": 0.5,
    "graph_break_count": 2.0,
    "time_to_first_token_p99_ms": 7.0,
    "total_ms": 8.0,
}
"""Metrics that had no column in older versions."""
TEXT_SERIES = "a8a6254315486d09"
"""Of bert-base-uncased at batch 1, sequence 32: as the first version computed it."""


def columns(connection, table):
    return [(row[0], row[1]) for row in connection.execute(f"DESCRIBE {table}").fetchall()]


def contents(warehouse, table, names):
    return warehouse.query(f"SELECT {', '.join(names)} FROM {table} ORDER BY rowid").dicts()


@pytest.fixture(scope="module", params=UPGRADED)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def old(tmp_path_factory, make_run, version):
    """A file of the version, with runs of four cells; nobody opens it to write."""
    speech = make_run(**SPEECH)
    measured = replace(speech.results[0], metrics={**speech.results[0].metrics, **MOVED, "phase_seance_ms": 9.0})
    text = make_run()
    loads = tuple(replace(load, verified={"parameters_by_dtype": {"float32": 7}}) for load in text.loads)
    emulator = replace(text.cell.device, name="An emulator", simulated=True)
    return databases.file_of_version(
        version,
        tmp_path_factory.mktemp("old") / "old.duckdb",
        replace(text, loads=loads),
        make_run(**VISION),
        replace(speech, results=(measured,)),
        replace(make_run(model_id="gpt2"), cell=replace(make_run(model_id="gpt2").cell, device=emulator)),
    )


@pytest.fixture(scope="module")
def upgraded(old):
    """The same file upgraded; nobody changes it."""
    path = Path(shutil.copy(old, old.with_name("upgraded.duckdb")))
    Warehouse.open(path).close()
    return path


@pytest.fixture
def warehouse_of_old(upgraded, tmp_path):
    """A copy of the upgraded file, open to write."""
    with Warehouse.open(shutil.copy(upgraded, tmp_path / "written.duckdb")) as warehouse:
        yield warehouse


def test_old_rows_are_migrated_into_the_current_columns(upgraded, version):
    with Warehouse.open(upgraded, read_only=True) as warehouse:
        rows = warehouse.query(
            "SELECT model_id, image_size, audio_seconds, steps FROM latest_results WHERE axes <> '{}' ORDER BY ALL"
        ).dicts()
        assert [tuple(row.values()) for row in rows] == [
            ("vit", 224, None, None),
            ("vit", 384, None, None),
            ("whisper", None, 7.5, None),
        ]
        (row,) = warehouse.query(
            f"SELECT {', '.join(MOVED)}, other_metrics FROM latest_results WHERE model_id = 'whisper'"
        ).dicts()
        assert row == {**MOVED, "other_metrics": {"phase_seance_ms": 9.0}}
        rows = warehouse.query(
            "SELECT model_id, weight_dtypes, is_simulated, cpu_list, preparation FROM benchmark_runs"
            " WHERE model_id IN ('bert-base-uncased', 'gpt2') ORDER BY model_id"
        ).dicts()
        assert [tuple(row.values()) for row in rows] == [
            ("bert-base-uncased", '{"float32":7}', False, None, None),
            # from 3 on the writer has the column
            ("gpt2", '{"float32":null}' if version >= 3 else None, True, None, None),
        ]
        (size,) = warehouse.query("SELECT DISTINCT model_size_mb, memory_weights_mb FROM benchmark_results").dicts()
        filled = 437.9 if version < 3 else None  # from then on it was measured
        assert size == {"model_size_mb": filled, "memory_weights_mb": 437.9}
        pooled = warehouse.query("SELECT DISTINCT pooled_quantiles FROM benchmark_results").dicts()
        assert pooled == [{"pooled_quantiles": []}]
        assert verify(warehouse) == []


def test_everything_else_is_unchanged(old, upgraded):
    import duckdb

    with (
        duckdb.connect(str(old), read_only=True) as connection,
        Warehouse.open(upgraded, read_only=True) as warehouse,
    ):
        there = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        for table in there.intersection((*SHARED_TABLES, *RUN_TABLES)):
            names = ", ".join(
                name for name, _ in columns(connection, table) if name not in ("other_metrics", "metrics")
            )
            query = f"SELECT {names} FROM {table} ORDER BY rowid"
            before = connection.sql(query).to_arrow_table().to_pylist()
            assert warehouse.query(query).arrow().to_pylist() == before, table


def imported(make_run, format_name, **changes):
    """A run of another tool whose file states neither its end nor its calls, as versions up to 12 stored it."""
    run = make_run(
        origin=Origin(format=format_name, definition=format_name), finished_at="2026-01-02T03:04:05Z", batch_sizes=(1,)
    )
    bare = replace(run.results[0], samples=(), **{"iterations": 0, "warmup_iterations": 0, **changes})
    return replace(run, results=(bare,))


def test_what_an_import_could_not_know_is_null_after_the_upgrade(tmp_path, make_run):
    path = databases.file_of_version(
        12,
        tmp_path / "old.duckdb",
        imported(make_run, "llama_bench"),
        imported(make_run, "pyperf", iterations=7),  # its files state the calls of warm-up
        replace(imported(make_run, "guidellm", warmup_iterations=3), finished_at="2026-01-02T03:04:06Z"),
        make_run(batch_sizes=(2,), sequence_lengths=(32,), finished_at="2026-01-02T03:04:05Z"),
    )
    with Warehouse.open(path) as warehouse:
        rows = warehouse.query(
            "SELECT origin_format, iterations, r.warmup_iterations, finished_at IS NULL AS is_open"
            " FROM benchmark_results r JOIN benchmark_runs USING (run_id) ORDER BY origin_format"
        ).dicts()
        assert [tuple(row.values()) for row in rows] == [
            ("guidellm", None, 3, False),
            ("llama_bench", None, None, True),
            ("pyperf", 7, 0, True),
            (None, 90, 20, False),
        ]
        assert verify(warehouse) == []
        (row,) = warehouse.query("SELECT run_id FROM benchmark_runs WHERE origin_format = 'llama_bench'").dicts()
        (read,) = (stored.run for stored in stored_runs(warehouse, [row["run_id"]]))
        assert (read.finished_at, read.results[0].iterations, read.results[0].warmup_iterations) == (None,) * 3


def test_alerts_are_kept_and_a_wanted_slowdown_can_be_one(tmp_path):
    path = databases.file_of_version(12, tmp_path / "old.duckdb")
    names = (
        *("alert_id", "series_id", "metric", "change_point_id", "first_commit", "last_commit", "group_id"),
        *("detector", "detector_version", "result_id", "confirmed_by", "note"),
    )
    with duckdb.connect(str(path)) as connection:
        values = ", ".join(f"'{name} of it' AS {name}" for name in names)
        connection.execute(
            f"INSERT INTO alerts BY NAME SELECT {values}, 'method' AS triage, 0.1 AS relative_change,"
            " '{}' AS parameters, TIMESTAMP '2026-01-02' AS created_at, TIMESTAMP '2026-01-03' AS updated_at"
        )
        before = connection.sql("FROM alerts").to_arrow_table().to_pylist()
    with Warehouse.open(path) as warehouse:
        assert warehouse.query("FROM alerts").arrow().to_pylist() == before
        warehouse.change(lambda connection: connection.execute("UPDATE alerts SET triage = 'intended'"))
        with pytest.raises(StorageError, match="CHECK"):
            warehouse.change(lambda connection: connection.execute("UPDATE alerts SET triage = 'whatever'"))


def test_upgrading_twice_is_upgrading_once(upgraded):
    before = upgraded.read_bytes()
    Warehouse.open(upgraded).close()
    assert upgraded.read_bytes() == before


def test_an_upgraded_file_stores_new_runs_and_families(warehouse_of_old, make_run, monkeypatch):
    warehouse_of_old.ingest(make_run(started_at="2026-06-01T00:00:00Z"))
    warehouse_of_old.ingest(make_run(**VISION, started_at="2026-06-01T00:00:00Z"))
    counts = warehouse_of_old.query(
        "SELECT model_id, max(position) AS n FROM history GROUP BY ALL ORDER BY ALL"
    ).dicts()
    expected = (("bert-base-uncased", 2), ("gpt2", 1), ("vit", 2), ("whisper", 1))
    assert counts == [{"model_id": m, "n": n} for m, n in expected], "a new run continues the series of an old one"
    before = warehouse_of_old.query("SELECT * FROM benchmark_runs").dicts()
    with pytest.raises(FormatError, match=r"expected one of encoder-only, .*, rag, found 'time-series'"):
        warehouse_of_old.ingest(make_run(family="time-series"))
    assert warehouse_of_old.query("SELECT * FROM benchmark_runs").dicts() == before
    families = (*plugins.family_names(), "time-series")
    monkeypatch.setattr(plugins, "family_names", lambda: families)
    run = make_run(model_id="patchtst", family="time-series")
    warehouse_of_old.ingest(run)
    rows = warehouse_of_old.query(
        "SELECT series_id FROM latest_results WHERE architecture_type = 'time-series'"
    ).dicts()
    assert len(rows) == len(run.results)
    assert verify(warehouse_of_old) == []


def test_the_series_of_a_text_point_has_the_id_it_always_had(warehouse, make_run):
    warehouse.ingest(make_run(batch_sizes=(1,), sequence_lengths=(32,)))
    (series,) = contents(warehouse, "series", ["series_id", "hashed_keys"])
    assert series["series_id"] == TEXT_SERIES
    assert json.loads(series["hashed_keys"])["axes"] == {}


def test_processors_make_a_separate_series_and_change_no_other_id(warehouse, make_run):
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    warehouse.ingest(run)
    other = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    warehouse.ingest(replace(other, cell=replace(other.cell, cpu_list="0-3")))
    plain, bound = contents(warehouse, "series", ["series_id", "cpu_list", "hashed_keys"])
    assert (plain["series_id"], plain["cpu_list"]) == (TEXT_SERIES, None)
    assert "cpu_list" not in json.loads(plain["hashed_keys"])
    assert bound["series_id"] != TEXT_SERIES
    assert (bound["cpu_list"], json.loads(bound["hashed_keys"])["cpu_list"]) == ("0-3", "0-3")
    assert verify(warehouse) == []
