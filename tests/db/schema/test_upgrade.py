"""A file of an older version with runs in it becomes one of this version, and nothing in it is lost or changed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarking.core import plugins
from benchmarking.core.errors import FormatError
from db import migrate
from db.ingestion import RUN_TABLES, SHARED_TABLES
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers import databases

OLDER = [step.version for step in migrate.migrations()[:-1]]
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


@pytest.fixture(scope="module", params=OLDER)
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
