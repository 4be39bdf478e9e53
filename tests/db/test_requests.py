"""Loads in the warehouse: stored and read back with their requests, checked, merged, and seen as a curve."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarking.core.errors import FormatError
from benchmarking.core.metrics import METRICS
from benchmarking.core.records import Origin
from benchmarking.core.run_file import faults
from db.analysis.compare.stored_results import launch_values
from db.run_records import stored_runs
from db.upkeep.merging import merge
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.load import make_load, make_requests


def test_a_load_on_any_server_is_stored_completely_and_verifies(warehouse):
    load = make_load(engine="tomorrows-engine")
    assert list(faults(load)) == []
    assert warehouse.ingest(load)
    assert not warehouse.ingest(load)
    assert verify(warehouse) == []
    (stored,) = stored_runs(warehouse, [load.run_id])
    assert [one.requests for one in stored.run.results] == [one.requests for one in load.results]


def test_loops_and_rates_are_series_of_their_own_and_levels_of_one_load_a_curve(warehouse):
    for load in (make_load(), make_load(rates=(2.0, 4.0)), make_load(concurrency=(1, 2))):
        warehouse.ingest(load)
    rows = warehouse.query("SELECT * FROM load_curve").dicts()
    assert len({row["series_id"] for row in rows}) == 5
    by_loop = {loop: [row for row in rows if row["loop"] == loop] for loop in ("open", "closed")}
    assert sorted(row["request_rate"] for row in by_loop["open"]) == [1.0, 2.0, 2.0, 4.0]
    assert [(row["concurrency"], row["request_rate"]) for row in by_loop["closed"]] == [(1, None), (2, None)]
    assert [len({row["curve_id"] for row in by_loop[loop]}) for loop in ("open", "closed")] == [1, 1]
    assert len({row["curve_id"] for row in rows}) == 2
    assert rows[0]["goodput_share"] == 0.5
    assert [row["is_knee"] for row in by_loop["closed"]] == [True, False]


def test_loads_of_other_requests_revisions_or_definitions_are_curves_of_their_own(warehouse):
    def load(revision=None, origin=None, axes=(), **lengths):
        made = make_load()
        results = [
            replace(one, point=replace(one.point, **lengths, axes={**one.point.axes, **dict(axes)}))
            for one in made.results
        ]
        workload = replace(made.cell.workload, revision=revision)
        return replace(made, results=tuple(results), cell=replace(made.cell, workload=workload), origin=origin)

    loads = [
        *(load(), load(axes={"input_len": 32}), load(axes={"input_len": 2048}), load(axes={"num_requests": 8})),
        *(load(revision="a" * 40), load(origin=Origin(format="x", definition="x"))),
        *(load(sequence_length=None, new_tokens=128), load(sequence_length=128, new_tokens=None)),
    ]
    for one in loads:
        warehouse.ingest(one)
    curves = warehouse.query("SELECT curve_id, list(DISTINCT run_id) AS runs FROM load_curve GROUP BY curve_id").dicts()
    assert sorted(row["runs"] for row in curves) == sorted([one.run_id] for one in loads)


def test_latencies_count_from_the_intended_start(warehouse):
    warehouse.ingest(make_load(rates=(1.0,)))
    done, refused = warehouse.query("SELECT * FROM request_times ORDER BY ordinal").dicts()
    assert (done["lateness_ms"], done["time_to_first_token_ms"], done["latency_ms"]) == (0.125, 3.5, 4.5)
    assert (done["service_time_ms"], done["time_per_output_token_ms"], done["chunks"]) == (4.375, 0.75, 2)
    assert (refused["lateness_ms"], refused["latency_ms"], refused["error"]) == (None, 17.5, "refused")
    assert refused["intended_at"].isoformat() == "2026-01-02T03:04:05.512500"


def test_a_start_beyond_all_dates_is_unknown_and_the_other_requests_keep_theirs(warehouse):
    load = make_load(rates=(1.0,))
    far = make_requests(intended_ms=(0.5, 1e17), sent_ms=(0.625, None), end_ms=(5.0, 1e17))
    warehouse.ingest(replace(load, results=(replace(load.results[0], requests=(far,)),)))
    first, second = warehouse.query("SELECT intended_at FROM request_times ORDER BY ordinal").dicts()
    assert first["intended_at"].isoformat() == "2026-01-02T03:04:05.500500"
    assert second["intended_at"] is None


def test_a_response_that_arrived_in_one_piece_has_no_time_per_output_token(warehouse):
    load = make_load(rates=(1.0,))
    (result,) = load.results
    whole = make_requests(first_token_ms=(4.2, None), token_ms=((4.2, 4.25), ()))
    warehouse.ingest(replace(load, results=(replace(result, requests=(whole,)),)))
    times = warehouse.query("SELECT time_per_output_token_ms FROM request_times ORDER BY ordinal").dicts()
    assert [row["time_per_output_token_ms"] for row in times] == [None, None]


def test_launches_of_a_load_are_compared_by_their_own_rates_not_by_their_latencies(warehouse):
    load = make_load(rates=(1.0,))
    (result,) = load.results
    launches = [{"launch": place, "metrics": {"requests_per_sec": 4.0 + place}} for place in range(3)]
    warehouse.ingest(replace(load, results=(replace(result, extra={**result.extra, "launches": launches}),)))
    found = launch_values(warehouse, [result.result_id], METRICS["throughput_samples_per_sec"])
    assert found == {result.result_id: {0: 4.0, 1: 5.0, 2: 6.0}}
    assert launch_values(warehouse, [result.result_id], METRICS["throughput_tokens_per_sec"]) == {}


def test_requests_with_a_field_that_lacks_a_value_are_refused(warehouse):
    load = make_load()
    bad = replace(load.results[0], requests=(make_requests(end_ms=(1.0,)),))
    with pytest.raises(FormatError, match=r"expected one value per request in every field, found .*end_ms 1"):
        warehouse.ingest(replace(load, results=(bad,)))


def test_merging_takes_requests_with_their_load_once(warehouse, database):
    load = make_load()
    with Warehouse.open(database) as other:
        other.ingest(load)
    assert [merge(warehouse, database).added["requests"] for _ in range(2)] == [4, 0]
    with Warehouse.open(database) as other:
        other.query("UPDATE requests SET end_ms = end_ms + 1")
    with pytest.raises(FormatError, match=r"request .* differs in end_ms"):
        merge(warehouse, database)


def test_a_request_without_a_load_is_found(warehouse):
    warehouse.ingest(make_load())
    warehouse.query("INSERT INTO requests BY NAME SELECT * REPLACE ('gone' AS result_id) FROM requests LIMIT 1")
    assert {(one.kind, one.subject) for one in verify(warehouse)} == {("orphan", "gone")}
