"""What is observed of a server during a level: its metrics, memory and devices."""

from __future__ import annotations

import itertools

import pytest

from benchmarking.core.records import Readings, Requests
from benchmarking.load import observer
from benchmarking.load.connections import Target
from benchmarking.load.observer import device_use, observed, state
from benchmarking.measure.monitor import Sample, Usage

S = 1_000_000_000


def requests_of(*, tokens=(10, 30)):
    """Two requests, the last of which ends after 2 s."""
    number = len(tokens)
    return Requests(
        launch=0,
        phase="measure",
        started_at="2026-01-01T00:00:00Z",
        intended_ms=tuple(100.0 * place for place in range(number)),
        sent_ms=tuple(100.0 * place for place in range(number)),
        first_token_ms=(None,) * number,
        last_token_ms=(None,) * number,
        end_ms=(1000.0,) * (number - 1) + (2000.0,),
        closed_ms=(None,) * number,
        tokens_in=(None,) * number,
        tokens_out=tokens,
        tokens_counted_by=(None,) * number,
        cached_tokens=(None,) * number,
        error=(None,) * number,
        detail=(None,) * number,
        meets_limits=(None,) * number,
        token_ms=((),) * number,
        conversation=(None,) * number,
        turn=(None,) * number,
    )


def usage_of(**series):
    """Samples at intervals of 1 s; None is no reading."""
    number = len(next(iter(series.values())))
    return Usage(
        samples=tuple(
            Sample(at_ns=place * S, values={name: of[place] for name, of in series.items() if of[place] is not None})
            for place in range(number)
        )
    )


def test_extremes_energy_and_series_of_a_level():
    found = observed(
        usage_of(
            resident_bytes=[1e6, 3e6, 2e6],
            power_w=[100, 200, 300],
            server_running=[1, 2, 3],
            server_waiting=[0, 7, 1],
        ),
        requests_of(),
    )
    assert found.metrics == {
        "server_memory_max_mb": 3.0,
        "server_running_mean": 2.0,
        "server_waiting_max": 7,
        "server_power_mean_w": 200.0,
        "server_energy_j_per_request": pytest.approx(200 * 2.0 / 2),
        "server_energy_j_per_token": pytest.approx(200 * 2.0 / 40),
    }
    assert {one.metric: (one.unit, one.values) for one in found.samples} == {
        "monitor_time": ("ms", (0.0, 1000.0, 2000.0)),
        "memory_resident": ("MB", (1.0, 3.0, 2.0)),
        "power": ("W", (100, 200, 300)),
        "server_running": ("requests", (1, 2, 3)),
        "server_waiting": ("requests", (0, 7, 1)),
    }
    assert found.doubts == ()


def test_energy_per_token_is_unknown_if_the_tokens_of_a_request_are():
    found = observed(usage_of(power_w=[100, 100, 100]), requests_of(tokens=(10, None)))
    assert "server_energy_j_per_request" in found.metrics
    assert "server_energy_j_per_token" not in found.metrics


def test_preemptions_and_a_full_cache_are_doubts_that_a_level_without_them_does_not_have():
    usage = usage_of(server_preemptions=[5, 5, 8], server_kv_cache_percent=[80, 99.5, 90])
    assert {one.kind: dict(one.evidence) for one in observed(usage, requests_of()).doubts} == {
        "server_preempted": {"preemptions": 3},
        "kv_cache_full": {"kv_cache_max_percent": 99.5},
    }
    (series,) = (one for one in observed(usage, requests_of()).samples if one.metric == "server_preemptions")
    assert series.values == (0, 0, 3), "those of the level, not those since the server started"
    usage = usage_of(server_preemptions=[5, 5, 5], server_kv_cache_percent=[80, 98, 90])
    assert observed(usage, requests_of()).doubts == ()


def test_the_counters_of_a_server_say_what_happened_during_the_level():
    counters = {
        "server_prompt_tokens": [1000, 1100, 1300],
        "server_prefix_hits": [400, 430, 475],
        "server_queued": [50, 51, 54],
        "server_queue_time": [2.0, 2.5, 3.0],
    }
    found = observed(usage_of(**counters), requests_of())
    assert found.metrics == {"server_prefix_hit_percent": 25.0, "server_queue_time_mean_ms": 250.0}
    assert {one.metric: (one.unit, one.values) for one in found.samples if one.metric != "monitor_time"} == {
        "server_prompt_tokens": ("tokens", (0, 100, 300)),
        "server_prefix_hits": ("tokens", (0, 30, 75)),
        "server_queued": ("requests", (0, 1, 4)),
        "server_queue_time": ("s", (0.0, 0.5, 1.0)),
    }
    none = observed(
        usage_of(**{**counters, "server_prompt_tokens": [9, 9, 9], "server_queued": [1, 9, 3]}), requests_of()
    )
    assert none.metrics == {}, "no prompt: no share; a counter that fell: the server started again"
    assert "server_queued" not in {one.metric for one in none.samples}


def test_a_counter_that_appears_during_the_level_has_counted_from_0():
    """SGLang's retractions and cached tokens appear with the first one: what was read before is not left out."""
    waiting, cache = [50, 50, 50, 50, 1, 1], [90, 90, 90, 90, 30, 30]
    usage = usage_of(
        server_waiting=waiting, server_kv_cache_percent=cache, server_preemptions=[None, None, None, None, 7, 9]
    )
    found = observed(usage, requests_of())
    assert found.metrics["server_waiting_max"] == 50
    assert found.metrics["server_kv_cache_max_percent"] == 90
    assert found.metrics["server_preempted_requests"] == 9
    assert [one.kind for one in found.doubts] == ["server_preempted"]
    (series,) = (one for one in found.samples if one.metric == "server_preemptions")
    assert series.values == (0, 0, 0, 0, 7, 9)
    unanswered = usage_of(resident_bytes=[1e6] * 4, server_preemptions=[None, 5, 5, 6])
    (series,) = (one for one in observed(unanswered, requests_of()).samples if one.metric == "server_preemptions")
    assert series.values == (0, 0, 1), "where the server did not answer, it may have counted before"


@pytest.mark.parametrize("samples", [[], [45, 45, 45], [45, 60, 70]])
def test_what_the_server_counted_before_the_first_sample_and_after_the_last_counts_too(samples):
    """Those of a first wave, and all of a level that is shorter than three samples."""
    names = (
        "vllm:num_preemptions_total",
        "vllm:request_queue_time_seconds_sum",
        "vllm:request_queue_time_seconds_count",
    )
    metrics = observer.changes(
        dict(zip(names, (5, 1.0, 10), strict=True)), dict(zip(names, (85, 9.0, 26), strict=True))
    )
    found = observed(usage_of(server_preemptions=samples), requests_of(), metrics)
    assert found.metrics == {"server_preempted_requests": 80, "server_queue_time_mean_ms": 500.0}
    assert [dict(one.evidence) for one in found.doubts] == [{"preemptions": 80}]
    restarted = observed(usage_of(server_preemptions=[45, 60, 1, 85]), requests_of(), metrics)
    assert "server_preempted_requests" not in restarted.metrics, "it counted anew in between"
    assert observed(usage_of(server_preemptions=samples), requests_of(), observer.changes({}, {})).metrics == (
        {"server_preempted_requests": 25} if samples[-1:] == [70] else {}
    )


def test_figures_are_of_all_samples_with_their_reading():
    """An overloaded server answers requests for its metrics late, when its memory and power are highest."""
    found = observed(
        usage_of(resident_bytes=[1e6, 9e6, 1e6, 1e6], power_w=[100, 500, 100, 100], server_waiting=[1, None, 2, 3]),
        requests_of(),
    )
    assert found.metrics["server_memory_max_mb"] == 9.0
    assert found.metrics["server_power_mean_w"] == 200.0


def test_a_reading_that_is_missing_now_and_then_keeps_the_times_of_all_series_equal():
    found = observed(usage_of(resident_bytes=[1e6] * 5, server_running=[1, None, 2, 3, 4]), requests_of())
    assert {len(one.values) for one in found.samples} == {4}
    rare = observed(usage_of(resident_bytes=[1e6] * 5, server_running=[1, None, None, None, 4]), requests_of())
    assert {one.metric for one in rare.samples} == {"monitor_time", "memory_resident"}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_too_few_samples_say_nothing(number):
    found = observed(usage_of(resident_bytes=[1e6] * number), requests_of())
    assert (found.samples, found.metrics, found.doubts) == ((), {}, ())


def test_a_long_level_is_stored_in_evenly_spaced_samples_with_the_extremes_of_all():
    found = observed(usage_of(resident_bytes=[1e6] * 4321 + [9e6]), requests_of())
    assert found.metrics["server_memory_max_mb"] == 9.0
    times = next(one.values for one in found.samples if one.metric == "monitor_time")
    assert len(times) <= 1000
    assert {b - a for a, b in itertools.pairwise(times)} == {5000.0}


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"vllm:num_requests_running": [3.0, 1.0]}, {"server_running": 4.0}),
        ({"vllm:kv_cache_usage_perc": [0.25, 0.5]}, {"server_kv_cache_percent": 50.0}),
        ({"vllm:gpu_cache_usage_perc": [0.1]}, {"server_kv_cache_percent": 10.0}),
        ({"sglang:num_queue_reqs": [2.0]}, {"server_waiting": 2.0}),
        ({"sglang:token_usage": [1.0]}, {"server_kv_cache_percent": 100.0}),
        ({"llamacpp:requests_deferred": [0.0]}, {"server_waiting": 0.0}),
        ({"vllm:prefix_cache_hits_total": [5.0, 6.0]}, {"server_prefix_hits": 11.0}),
        (  # without a prefix cache nothing is looked up: its queries are no number of prompt tokens
            {"vllm:prompt_tokens_total": [1600.0], "vllm:prefix_cache_queries_total": [0.0]},
            {"server_prompt_tokens": 1600.0},
        ),
        (
            {"vllm:prefix_cache_hits_total": [5.0], "vllm:external_prefix_cache_hits_total": [30.0]},
            {"server_prefix_hits": 35.0},
        ),
        (
            {"vllm:prefix_cache_hits_total": [9.0], "vllm:prompt_tokens_cached_total": [35.0]},
            {"server_prefix_hits": 35.0},
        ),
        ({"sglang:prompt_tokens_total": [7.0]}, {"server_prompt_tokens": 7.0}),
        (
            {"llamacpp:prompt_tokens_total": [17.0], "llamacpp:prompt_tokens_cached_total": [15.0]},
            {"server_prompt_tokens": 32.0, "server_prefix_hits": 15.0},
        ),
        ({"llamacpp:prompt_tokens_total": [17.0]}, {}),  # older versions do not count those from the cache
        ({"vllm:request_queue_time_seconds_sum": [0.5]}, {"server_queue_time": 0.5}),
        ({"tgi_queue_size": []}, {}),
        ({"other": [1.0]}, {}),
    ],
)  # fmt: skip
def test_the_state_of_a_server_by_the_names_of_its_engine(metrics, expected):
    assert state(metrics) == expected


def test_a_device_exporter_counts_several_gpus_as_one():
    found = device_use(
        {
            "DCGM_FI_DEV_GPU_UTIL": [50.0, 100.0],
            "DCGM_FI_DEV_FB_USED": [1.0, 2.0],
            "DCGM_FI_DEV_POWER_USAGE": [300.0, 400.0],
        }
    )
    assert found.values == {"utilization_percent": 75.0, "device_used_bytes": 3 * 2**20, "power_w": 700.0}
    memory = {"node_memory_MemTotal_bytes": [10.0], "node_memory_MemAvailable_bytes": [4.0]}
    assert device_use(memory).values == {"machine_used_bytes": 6.0}
    assert device_use({"node_memory_MemTotal_bytes": [10.0]}) == Readings()


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://x/v1", "/metrics"),
        ("http://x", "/metrics"),
        ("http://x/v3/", "/metrics"),
        ("http://x/team-a/v1", "/team-a/metrics"),
        ("http://x/team-a/v1?k=1", "/team-a/metrics"),
        ("http://x:9400/metrics", "/metrics"),
    ],
)
def test_metrics_are_those_beside_the_api_of_the_server(url, asked, monkeypatch):
    """Behind a gateway with paths, those at the root are of another server."""
    seen = []
    monkeypatch.setattr(observer, "fetch", lambda target, path: (seen.append(path), (404, ""))[1])
    observer.read(Target(url=url, model="m"))
    assert seen == [asked]


def page_of(text, monkeypatch):
    """The metrics of a page."""
    monkeypatch.setattr(observer, "fetch", lambda target, path: (200, text))
    return observer.read(Target(url="http://127.0.0.1:1/v1", model="m"))


def test_what_is_read_is_found_wherever_it_stands_on_a_long_page(monkeypatch):
    others = "".join(f"node_other_{number} 1\n" for number in range(2 * observer.MOST_METRICS))
    memory = "node_memory_MemTotal_bytes 4e9\nnode_memory_MemAvailable_bytes 1e9\n"
    found = page_of(f"{others}{memory}vllm:num_requests_waiting 3\n", monkeypatch)
    assert len(found) == observer.MOST_METRICS + 3
    assert (found["node_memory_MemTotal_bytes"], observer.state(found)["server_waiting"]) == ([4e9], 3)


# As dcgm-exporter writes it for a board with three instances (NVIDIA/dcgm-exporter#257, #216), and for a whole GPU that
# two containers share.
MIG = """\
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",device="nvidia0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 300
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",device="nvidia0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="8"} 300
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",device="nvidia0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="9"} 300
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b",device="nvidia1",pod="a"} 100
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b",device="nvidia1",pod="b"} 100
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",device="nvidia0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 10
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",device="nvidia0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="8"} 20
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",device="nvidia1",pod="a"} 70
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",device="nvidia1",pod="b"} 70
"""
UTILIZATION_OF_PARTS = """\
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="8"} 0
"""
WHOLE = 'DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",device="nvidia1"} 50\n'


def test_the_power_of_a_board_counts_once_and_the_utilization_of_mig_instances_is_unknown(monkeypatch):
    found = device_use(page_of(MIG + UTILIZATION_OF_PARTS + WHOLE, monkeypatch))
    assert found.values == {"device_used_bytes": 100 * 2**20, "power_w": 400.0}
    assert found.missing["utilization_percent"].startswith("not_supported: DCGM knows no utilization of a GPU in MIG")
    found = device_use(page_of(MIG + WHOLE, monkeypatch))
    assert (found.values["utilization_percent"], found.missing) == (50.0, {})


# As SGLang's metrics_collector.py writes them: the total under priority="", and the same from each rank of an engine.
RANKS = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",model_name="m",moe_ep_rank="0",pp_rank="1",priority="",tp_rank="0"} 7.0
sglang:num_running_reqs{dp_rank="0",model_name="m",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="0"} 8.0
sglang:num_running_reqs{dp_rank="0",model_name="m",moe_ep_rank="0",pp_rank="0",priority="0",tp_rank="0"} 6.0
sglang:num_running_reqs{dp_rank="0",model_name="m",moe_ep_rank="0",pp_rank="0",priority="-1",tp_rank="0"} 2.0
sglang:num_running_reqs{dp_rank="1",model_name="m",moe_ep_rank="2",pp_rank="0",priority="",tp_rank="2"} 3.0
sglang:num_running_reqs{dp_rank="1",model_name="m",moe_ep_rank="3",pp_rank="0",priority="",tp_rank="3"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 5.0
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m",priority="0"} 10.0
sglang:prompt_tokens_total{model_name="m",priority="1"} 20.0
"""


def test_requests_that_several_ranks_or_priorities_of_sglang_state_count_once(monkeypatch):
    assert state(page_of(RANKS, monkeypatch)) == {
        "server_running": 11.0,
        "server_waiting": 5.0,
        "server_prompt_tokens": 30.0,
    }


def test_ovms_states_the_graphs_of_language_models_in_process(monkeypatch):
    page = 'ovms_infer_req_active{name="m",version="1"} 1\n'
    assert state(page_of(page, monkeypatch)) == {"server_running": 1.0}
    assert state(page_of(page + 'ovms_current_graphs{name="m"} 4\n', monkeypatch)) == {"server_running": 4.0}
