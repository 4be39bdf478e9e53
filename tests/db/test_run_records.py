"""Runs from rows: what was stored comes back, and gives the same rows again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarking.core.records import Origin, Preparation, dumps, run_from_json, to_json
from db.run_records import measured_runs, stored_runs
from db.warehouse import Warehouse

OF_THE_FILE = ("source", "source_sha256", "ingested_at")
KEYS = {
    "hardware_info": "hardware_id",
    "series": "series_id",
    "benchmark_runs": "run_id",
    "benchmark_results": "result_id",
    "raw_benchmark_data": "result_id, launch, phase, metric",
}


def rows(warehouse):
    """Every row of the tables a run goes to, but for what is its file's."""
    return {
        table: [
            {name: value for name, value in row.items() if name not in OF_THE_FILE}
            for row in warehouse.query(f"SELECT * FROM {table} ORDER BY {key}").dicts()
        ]
        for table, key in KEYS.items()
    }


@pytest.fixture
def peculiar(make_run):
    """A run with everything that a run may have."""
    run = make_run(with_failed=True, with_doubtful=True, iterations=3)
    first = run.results[0]
    metrics = {**first.metrics, "unheard_of_ms": 1.5, "model_size_mb": 0.1 + 0.2}
    extra = {"windows": [{"steal": 0.1}], "note": "é\n'"}
    return replace(
        run,
        results=(replace(first, metrics=metrics, extra=extra, pooled_quantiles=("latency_p90_ms",)), *run.results[1:]),
        preparation=Preparation(build={"kind": "onnx", "build_s": 2, "is_new": True}, missing={"b1": "not_run"}),
        origin=Origin(format="asv", definition="asv", definitions={"latency_median_ms": "median"}, kept={"x": [1]}),
        provenance=replace(run.provenance, command=("a b", "", "it's", "--x=\n"), description="d"),
        cell=replace(run.cell, num_threads=3, cpu_list="0-3", runtime_mode={"attention": "sdpa", "n": 1}),
    )


def test_the_choices_of_a_graph_file_s_inputs_are_read_for_its_repetition(warehouse, make_run):
    run = make_run()
    config = {"format": "onnx", "dims": {"frames": 48, "rows": "batch"}, "input_values": {"sr": 16000.0}}
    for further in ({}, {"inputs_file": {"sha256": "0"}}):
        workload = replace(run.cell.workload, source="file", family=None, config={**config, **further})
        warehouse.ingest(make_run(cell=replace(run.cell, workload=workload)))
    warehouse.ingest(run)
    found = {one.has_inputs_file: one for one in measured_runs(warehouse, "model_source = 'file'", ())}
    assert [one.why_not_repeatable is None for one in (found[False], found[True])] == [True, False]
    assert found[False].dims == {"frames": 48, "rows": "batch"}
    assert found[False].input_values == {"sr": 16000.0}
    assert {(*one.dims, *one.input_values) for one in measured_runs(warehouse, "model_source <> 'file'", ())} == {()}


def test_a_run_from_rows_makes_the_same_rows(warehouse, peculiar, tmp_path, empty_database, make_run):
    import shutil

    for run in (peculiar, make_run(family="rag", model_id="rag", iterations=3)):
        warehouse.ingest(run)
    ids = [row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs ORDER BY ingested_at").dicts()]
    stored = list(stored_runs(warehouse, ids))
    assert [one.compacted for one in stored] == [0, 0]
    with Warehouse.open(shutil.copy2(empty_database, tmp_path / "again.duckdb")) as again:
        for one in sorted(stored, key=lambda one: ids.index(one.run.run_id)):
            again.ingest(run_from_json(to_json(one.run), "x"))
        assert rows(again) == rows(warehouse)


def test_a_run_from_rows_is_the_run(warehouse, peculiar):
    warehouse.ingest(peculiar)
    (stored,) = stored_runs(warehouse, [peculiar.run_id])
    found, expected = to_json(stored.run), to_json(peculiar)
    order = {result["result_id"]: place for place, result in enumerate(expected["results"])}
    found["results"].sort(key=lambda result: order[result["result_id"]])
    for time in ("started_at", "finished_at"):
        assert found.pop(time) == expected.pop(time).replace("+00:00", "Z")
    assert found == expected
    assert dumps(stored.run)


def test_runs_are_read_in_groups_without_loss(asked_database, monkeypatch):
    monkeypatch.setattr("db.run_records.GROUP_SIZE", 3)
    with Warehouse.open(asked_database, read_only=True) as warehouse:
        ids = [row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs").dicts()]
        assert sorted(one.run.run_id for one in stored_runs(warehouse, ids)) == sorted(ids)
        assert list(stored_runs(warehouse, [])) == []


def test_compacted_samples_are_left_out_and_counted(warehouse, make_run):
    run = make_run(launches=2, batch_sizes=(1,), sequence_lengths=(8,), iterations=3)
    warehouse.ingest(run)
    with warehouse.cursor() as cursor:
        cursor.execute("UPDATE raw_benchmark_data SET samples = [], sketch = [1.0], compacted_at = now()::TIMESTAMP")
    (stored,) = stored_runs(warehouse, [run.run_id])
    assert stored.compacted == 2
    assert stored.run.results[0].samples == ()
