"""Latencies of imported loads at a rate: the tools count from sending, and a schedule gives those from the intended
start."""

from __future__ import annotations

from db.importers.support.serving import Sent, common_length, load_result, requests_record, same_length, with_requests


def load(rate):
    return load_result(
        concurrency=None,
        request_rate=rate,
        prompt_tokens=8,
        prompt_tokens_mean=8.0,
        new_tokens=1,
        requests=60,
        failed=0,
        metrics={},
        stated={"latency_median_ms": 100.0, "latency_p90_ms": 120.0},
    )


def kinds(result):
    return {one.kind for one in result.doubts}


def test_latencies_of_a_load_at_a_rate_are_service_times_with_a_doubt():
    found = load(4.0)
    assert found.metrics == {"service_time_p50_ms": 100.0, "service_time_p90_ms": 120.0}
    assert found.missing["latency_median_ms"].startswith("not_stated: the tool counts from sending")
    assert "latency_from_sending" in kinds(found)
    closed = load(None)
    assert closed.metrics == {"latency_median_ms": 100.0, "latency_p90_ms": 120.0}
    assert "latency_from_sending" not in kinds(closed)


def test_a_schedule_gives_the_latencies_from_the_intended_start():
    late_s = 0.05
    sent = [
        Sent(intended_s=at / 4, sent_s=at / 4 + late_s, first_s=None, end_s=at / 4 + late_s + 0.1) for at in range(60)
    ]
    found = with_requests(load(4.0), requests_record(sent))
    assert abs(found.metrics["latency_median_ms"] - 150) < 1e-6
    assert "latency_median_ms" not in found.missing
    assert found.metrics["service_time_p50_ms"] == 100.0
    assert "latency_from_sending" not in kinds(found)
    on_time = [Sent(intended_s=at / 4, sent_s=at / 4, first_s=None, end_s=at / 4 + 0.1) for at in range(60)]
    assert "latency_from_sending" in kinds(with_requests(load(4.0), requests_record(on_time)))


def test_a_length_of_all_requests_is_a_whole_number_that_a_column_holds():
    assert (same_length(16.0, 16.0), same_length(16, 17), same_length(None, None)) == (16, None, None)
    assert (same_length(16.5, 16.5), same_length(1e12, 1e12), same_length(0.5, 0.5)) == (None, None, None)
    assert (common_length(512.0, 4), common_length(510.0, 4), common_length(1e15, 4), common_length(5.0, None)) == (
        128,
        None,
        None,
        None,
    )
