"""Each launch's own value, for every kind of metric."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarking.core.metrics import JUDGED
from benchmarking.core.sample_statistics import TAIL_MIN_SAMPLES
from db.analysis.compare.stored_results import launch_values
from tests.helpers.load import make_load


@pytest.fixture
def result(warehouse, make_run):
    """A stored result of three launches: 10, 20 and 40 ms, with a reading of each."""
    run = make_run(batch_sizes=(4,), sequence_lengths=(32,), launches=3, iterations=5)
    (one,) = run.results
    samples = tuple(replace(each, values=(10.0 * 2**each.launch,) * 5) for each in one.samples)
    facts = [
        {
            "launch": launch,
            "status": "ok",
            "first_call_ms": 30.0 + launch,
            "metrics": {"peak_rss_infer_bytes": 2_000_000 * (launch + 1)},
        }
        for launch in range(2)
    ]
    failed = {"launch": 2, "status": "failed", "error": "x"}
    # 4 items in 10, 20 and 40 ms are 400, 200 and 100 a second: the median is the result's.
    metrics = {**one.metrics, "throughput_samples_per_sec": 200.0}
    one = replace(one, samples=samples, extra={"launches": [*facts, failed]}, metrics=metrics)
    stages = [{"spawn": 1.0, "import": 2.0}, {"spawn": 1.5, "import": 2.5}, {"spawn": 1.0}]
    loads = tuple(replace(load, stages_s=own) for load, own in zip(run.loads, stages, strict=True))
    warehouse.ingest(replace(run, results=(one,), loads=loads))
    return one


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("latency_median_ms", {0: 10.0, 1: 20.0, 2: 40.0}),
        ("throughput_samples_per_sec", {0: 400.0, 1: 200.0, 2: 100.0}),
        ("first_call_ms", {0: 30.0, 1: 31.0}),
        ("memory_peak_rss_infer_mb", {0: 2.0, 1: 4.0}),
        ("load_time_s", {0: 3.0, 1: 4.0, 2: 1.0}),
    ],
)
def test_every_kind_of_metric_has_a_value_for_each_launch(warehouse, result, column, values):
    assert launch_values(warehouse, [result.result_id], JUDGED[column]) == {result.result_id: values}


@pytest.mark.parametrize("column", ["latency_p99_ms", "time_per_output_token_ms", "compile_s"])
def test_an_unmeasured_metric_has_no_values(warehouse, result, column):
    assert launch_values(warehouse, [result.result_id], JUDGED[column]) == {}


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize(("column", "share"), [("latency_p90_ms", 0.9), ("latency_p95_ms", 0.95)])
def test_percentiles_need_launches_with_enough_samples(warehouse, make_run, column, share, is_compacted):
    least = TAIL_MIN_SAMPLES[share]
    run = make_run(batch_sizes=(4,), sequence_lengths=(32,), launches=3, iterations=5)
    (one,) = run.results
    counts = {0: least - 1, 1: least, 2: 2 * least}
    samples = [replace(each, values=tuple(map(float, range(counts[each.launch])))) for each in one.samples]
    blocks = replace(samples[2], inner_loops=4)
    warehouse.ingest(replace(run, results=(replace(one, samples=(*samples[:2], blocks)),)))
    if is_compacted:
        warehouse.query(COMPACTED)
    found = launch_values(warehouse, [one.result_id], JUDGED[column])
    assert found == {one.result_id: {1: pytest.approx(share * (least - 1))}}  # launch 2 was timed in blocks


COMPACTED = """
UPDATE raw_benchmark_data SET
    sketch = list_aggregate(samples, 'quantile_cont', [i / 20 for i in range(21)]), samples = [], compacted_at = now()
"""


def test_the_rate_with_requests_in_flight_is_that_of_completed_requests(warehouse, make_run):
    """Five requests of 10 ms, two at a time: 30 ms if a place is empty at the end, 25 ms if none is."""
    run = make_run(batch_sizes=(4,), sequence_lengths=(32,), launches=3, iterations=5)
    (one,) = run.results
    samples = tuple(replace(each, values=(10.0,) * 5) for each in one.samples)
    facts = [{"launch": launch, "requests_wall_ms": wall} for launch, wall in enumerate((30.0, 25.0))]
    metrics = {**one.metrics, "throughput_samples_per_sec": 800.0}
    one = replace(
        one, point=replace(one.point, concurrency=2), samples=samples, extra={"launches": facts}, metrics=metrics
    )
    warehouse.ingest(replace(run, results=(one,)))
    (found,) = launch_values(warehouse, [one.result_id], JUDGED["throughput_samples_per_sec"]).values()
    # Launch 2 does not state its time: two requests in 10 ms.
    assert found == pytest.approx({0: 800 * 25 / 30, 1: 800.0, 2: 800.0})


def test_the_rate_of_a_load_is_not_derived_from_request_times(warehouse):
    load = make_load(metrics={"throughput_samples_per_sec": 5.0})
    warehouse.ingest(load)
    ids = [result.result_id for result in load.results]
    assert launch_values(warehouse, ids, JUDGED["throughput_samples_per_sec"]) == {}
    assert set(launch_values(warehouse, ids, JUDGED["latency_median_ms"])) == set(ids)
