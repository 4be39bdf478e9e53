"""A file of an older version with runs in it becomes one of this version, and nothing in it is lost or changed."""

import json
from dataclasses import replace

import pytest

from benchmarking.core import plugins
from benchmarking.core.errors import FormatError
from db import migrate
from db.upkeep.verify import verify
from db.warehouse import RUN_TABLES, SHARED_TABLES, Warehouse

OLDER = [step.version for step in migrate.migrations()[:-1]]
VISION = {"model_id": "vit", "family": "vision", "batch_sizes": (1,), "axes": {"image_size": (224, 384)}}
SPEECH = {"model_id": "whisper", "family": "speech", "batch_sizes": (1,), "axes": {"audio_seconds": (7.5,)}}
TEXT_SERIES = "a8a6254315486d09"
"""Of bert-base-uncased at batch 1, sequence 32: as the first version computed it."""


def columns(connection, table):
    return [(row[0], row[1]) for row in connection.execute(f"DESCRIBE {table}").fetchall()]


def contents(warehouse, table, names):
    return warehouse.query(f"SELECT {', '.join(names)} FROM {table} ORDER BY rowid").dicts()


@pytest.fixture(params=OLDER)
def old(tmp_path, make_run, file_of_version, request):
    runs = make_run(), make_run(**VISION), make_run(**SPEECH)
    return file_of_version(request.param, tmp_path / "old.duckdb", *runs)


def test_axes_of_old_rows_are_carried_over_into_their_columns(old):
    with Warehouse.open(old) as warehouse:
        rows = warehouse.query(
            "SELECT model_id, image_size, audio_seconds, steps FROM latest_results WHERE axes <> '{}' ORDER BY ALL"
        ).dicts()
        assert [tuple(row.values()) for row in rows] == [
            ("vit", 224, None, None),
            ("vit", 384, None, None),
            ("whisper", None, 7.5, None),
        ]
        assert verify(warehouse) == []


@pytest.mark.parametrize("version", OLDER)
def test_metrics_of_old_rows_move_to_their_columns_and_the_others_stay(tmp_path, make_run, file_of_version, version):
    run = make_run(**SPEECH)
    result = run.results[0]
    moved = {"encode_ms": 3.5, "real_time_factor": 0.25, "output_max_abs_error": 0.5, "graph_break_count": 2.0}
    moved |= {"time_to_first_token_p99_ms": 7.0, "total_ms": 8.0}
    metrics = {**result.metrics, **moved, "phase_seance_ms": 9.0}
    run = replace(run, results=(replace(result, metrics=metrics),))
    path = file_of_version(version, tmp_path / "a.duckdb", run)
    with Warehouse.open(path) as warehouse:
        (row,) = contents(warehouse, "benchmark_results", [*moved, "other_metrics"])
        assert row == {**moved, "other_metrics": {"phase_seance_ms": 9.0}}


@pytest.mark.parametrize("version", OLDER)
def test_what_old_runs_read_back_of_their_weights_and_device_gets_its_columns(
    tmp_path, make_run, file_of_version, version
):
    run = make_run()
    loads = tuple(replace(load, verified={"parameters_by_dtype": {"float32": 7}}) for load in run.loads)
    emulator = replace(run.cell.device, name="An emulator", simulated=True)
    other = replace(make_run(), cell=replace(run.cell, device=emulator))
    path = file_of_version(version, tmp_path / "a.duckdb", replace(run, loads=loads), other)
    with Warehouse.open(path) as warehouse:
        rows = contents(warehouse, "benchmark_runs", ["weight_dtypes", "is_simulated", "cpu_list", "preparation"])
        assert [tuple(row.values()) for row in rows] == [
            ('{"float32":7}', False, None, None),
            ('{"float32":null}' if version >= 3 else None, True, None, None),  # from 3 on the writer has the column
        ]
        (size,) = warehouse.query("SELECT DISTINCT model_size_mb, memory_weights_mb FROM benchmark_results").dicts()
        filled = 437.9 if version < 3 else None  # from then on it was measured
        assert size == {"model_size_mb": filled, "memory_weights_mb": 437.9}


def test_everything_else_stays_as_it_was(old):
    import duckdb

    with duckdb.connect(str(old), read_only=True) as connection:
        names = {
            table: [name for name, _ in columns(connection, table) if name != "other_metrics"]
            for table in (*SHARED_TABLES, *RUN_TABLES)
        }
        before = {
            table: connection.sql(f"SELECT {', '.join(found)} FROM {table} ORDER BY rowid").to_arrow_table()
            for table, found in names.items()
        }
    with Warehouse.open(old) as warehouse:
        for table, found in names.items():
            after = warehouse.query(f"SELECT {', '.join(found)} FROM {table} ORDER BY rowid").arrow()
            assert after.to_pylist() == before[table].to_pylist(), table


def test_no_percentile_of_an_old_row_is_marked_as_pooled(old):
    with Warehouse.open(old) as warehouse:
        assert warehouse.query("SELECT DISTINCT pooled_quantiles FROM benchmark_results").dicts() == [
            {"pooled_quantiles": []}
        ]


def test_upgrading_twice_is_upgrading_once(old):
    Warehouse.open(old).close()
    before = old.read_bytes()
    Warehouse.open(old).close()
    assert old.read_bytes() == before


def test_a_new_run_continues_the_series_of_an_old_one(old, make_run):
    with Warehouse.open(old) as warehouse:
        warehouse.ingest(make_run(started_at="2026-06-01T00:00:00Z"))
        warehouse.ingest(make_run(**VISION, started_at="2026-06-01T00:00:00Z"))
        counts = warehouse.query("SELECT model_id, max(position) AS n FROM history GROUP BY ALL ORDER BY ALL").dicts()
        assert counts == [{"model_id": m, "n": n} for m, n in (("bert-base-uncased", 2), ("vit", 2), ("whisper", 1))]
        assert verify(warehouse) == []


def test_a_family_that_no_older_version_had_is_stored_after_the_upgrade(old, make_run, monkeypatch):
    families = (*plugins.family_names(), "time-series")
    monkeypatch.setattr(plugins, "family_names", lambda: families)
    run = make_run(model_id="patchtst", family="time-series")
    with Warehouse.open(old) as warehouse:
        warehouse.ingest(run)
        rows = warehouse.query("SELECT series_id FROM latest_results WHERE architecture_type = 'time-series'").dicts()
        assert len(rows) == len(run.results)
        assert verify(warehouse) == []


def test_a_family_without_a_plugin_is_not_stored(old, make_run):
    with Warehouse.open(old) as warehouse:
        before = warehouse.query("SELECT * FROM benchmark_runs").dicts()
        with pytest.raises(FormatError, match=r"expected one of encoder-only, .*, rag, found 'time-series'"):
            warehouse.ingest(make_run(family="time-series"))
        assert warehouse.query("SELECT * FROM benchmark_runs").dicts() == before


def test_the_series_of_a_text_point_has_the_id_it_always_had(warehouse, make_run):
    warehouse.ingest(make_run(batch_sizes=(1,), sequence_lengths=(32,)))
    (series,) = contents(warehouse, "series", ["series_id", "hashed_keys"])
    assert series["series_id"] == TEXT_SERIES
    assert json.loads(series["hashed_keys"])["axes"] == {}


def test_processors_make_a_series_of_their_own_and_change_no_other_s_id(warehouse, make_run):
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
