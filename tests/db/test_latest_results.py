"""Which results stand for a series: kept as runs come in, the same as computed from all results."""

from dataclasses import replace

import pytest

from db import ingestion
from db.upkeep.verify import verify

KEPT = "SELECT * FROM series_heads ORDER BY series_id"


def with_validity(run, validity):
    return replace(run, results=tuple(replace(result, validity=validity) for result in run.results))


def stands(warehouse):
    """(latest, accepted) run of the only series."""
    (row,) = warehouse.query(
        "SELECT l.run_id AS latest, a.run_id AS accepted FROM series_heads h "
        "JOIN benchmark_results l ON l.result_id = h.latest_result_id "
        "LEFT JOIN benchmark_results a ON a.result_id = h.accepted_result_id"
    ).dicts()
    return row["latest"], row["accepted"]


@pytest.fixture
def run(make_run):
    def make(day, validity):
        run = make_run(batch_sizes=(1,), sequence_lengths=(32,), started_at=f"2026-01-{day:02}T00:00:00+00:00")
        return with_validity(run, validity)

    return make


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_the_newest_valid_result_is_the_latest_in_any_order_of_storing(warehouse, run, order):
    runs = [run(1, "valid"), run(2, "valid"), run(3, "noisy"), run(4, "invalid")]
    for index in order:
        warehouse.ingest(runs[index])
    assert stands(warehouse) == (runs[3].run_id, runs[1].run_id)
    assert verify(warehouse) == []


def test_a_noisy_result_is_accepted_until_there_is_a_valid_one_and_an_invalid_one_never(warehouse, run):
    invalid, noisy, valid = run(1, "invalid"), run(3, "noisy"), run(2, "valid")
    warehouse.ingest(invalid)
    assert stands(warehouse) == (invalid.run_id, None)
    warehouse.ingest(noisy)
    assert stands(warehouse) == (noisy.run_id, noisy.run_id)
    warehouse.ingest(valid)
    assert stands(warehouse) == (noisy.run_id, valid.run_id)


def test_the_latest_results_equal_those_computed_from_the_results(warehouse, make_run):
    for model_id in ("bert-base-uncased", "gpt2", "bert-base-uncased"):
        warehouse.ingest(make_run(model_id=model_id))
    kept = warehouse.query(KEPT).dicts()
    assert len(kept) == warehouse.query("SELECT count(*) AS n FROM series").dicts()[0]["n"]
    with warehouse.transaction() as connection:
        ingestion.compute_latest(connection)
    assert warehouse.query(KEPT).dicts() == kept


def test_verify_finds_outdated_latest_results(warehouse, run):
    warehouse.ingest(run(1, "valid"))
    warehouse.query("UPDATE series_heads SET accepted_result_id = NULL")
    assert [finding.kind for finding in verify(warehouse)] == ["heads"]


def test_a_failed_ingest_leaves_the_latest_results_unchanged(warehouse, run):
    first, second = run(1, "valid"), run(2, "valid")
    warehouse.ingest(first)
    broken = replace(
        second, results=tuple(replace(r, metrics={"latency_median_ms": float("nan")}) for r in second.results)
    )
    with pytest.raises(Exception, match="not a finite number"):
        warehouse.ingest(broken)
    assert stands(warehouse) == (first.run_id, first.run_id)
