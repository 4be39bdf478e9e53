"""The generator against a server whose times are a script, on a clock that jumps: nothing waits."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
import threading
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count, pairwise

import pytest

pytest.importorskip("httptools")

from benchmarking.core.load_doubts import SHARE_IN_TIME, HighestRate, over_saturated
from benchmarking.core.sample_statistics import quantile
from benchmarking.load import generator, results
from benchmarking.load.connections import RequestError, Target
from benchmarking.load.curve import facts_of, holds, search
from benchmarking.load.generator import Level, Sent, _Reply, requests_of, run_level
from benchmarking.load.load_statistics import look_of
from benchmarking.load.results import Series, result_of
from benchmarking.load.traffic import Lengths, Pauses, Traffic, judged, why_unknown
from benchmarking.load.traffic import per_token_ms as per_token_ms_of
from tests.helpers.certificates import certificate
from tests.helpers.null_server import NullServer, Script, run_jumping

TRAFFIC = Traffic(arrivals="constant", lengths_in=Lengths("16"), lengths_out=Lengths("8"))
SHORT = Traffic(lengths_in=Lengths("8"), lengths_out=Lengths("4"))
BROKEN = {"http_429": "http_429", "http_503": "http_503", "truncated": "truncated", "wrong_json": "wrong_json"}


def loaded(script, level, traffic=TRAFFIC, *, limits=None, busy_s=0.0, seen=None, tokenizer=None, **target):
    """The requests of a level against a server of the script."""

    async def run():
        async with NullServer(script) as server:
            asked = Target(url=server.url, model="m", **target)
            found = await run_level(asked, traffic, level, limits=limits or {}, tokenizer=tokenizer)
            if seen is not None:
                seen.extend(server.seen)
            return found

    return run_jumping(run(), busy_s)


def kinds(result):
    return {one.kind for one in result.doubts}


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_recorded_times_are_those_of_the_script_within_1_percent(endpoint):
    seen = []
    found = loaded(Script(ttft_s=0.2, itl_s=0.05), Level(rate=5.0, number=40), endpoint=endpoint, seen=seen)
    assert (len(found), set(found.error)) == (40, {None})
    assert set(found.tokens_out) == {8}
    assert set(found.tokens_in) == {7}
    series = Series.of(found)
    expected = {"time_to_first_token": 200, "time_per_output_token": 50, "inter_token_latency": 50, "latency": 550}
    for name, value in expected.items():
        times = getattr(series, name)
        assert min(times) >= 0.99 * value, name
        assert max(times) <= 1.01 * value, name
    assert found.intended_ms == tuple(pytest.approx(200 * i, abs=0.001) for i in range(40))
    assert all(body["ignore_eos"] and body["stream_options"]["include_usage"] for body in seen)
    prompts = [body["messages"][0]["content"] if endpoint == "chat" else body["prompt"] for body in seen]
    assert len(set(prompts)) == 40


def test_throughput_goodput_and_percentiles_are_those_of_the_script():
    limits = {"ttft": 250.0, "tpot": 60.0}
    level = Level(rate=5.0, number=400)
    found = loaded(Script(ttft_s=0.2, itl_s=0.05), level, limits=limits)
    result = result_of(TRAFFIC, level, [found])
    assert result.validity == "valid", result.doubts
    metrics = result.metrics
    assert metrics["throughput_samples_per_sec"] == pytest.approx(5, rel=0.005)
    assert metrics["total_requests_per_sec"] == pytest.approx(400 / (399 / 5 + 0.55), rel=0.001)
    assert metrics["throughput_tokens_per_sec"] == pytest.approx(8 * metrics["throughput_samples_per_sec"])
    assert metrics["goodput_requests_per_sec"] == pytest.approx(metrics["throughput_samples_per_sec"])
    assert metrics["time_to_first_token_p99_ms"] == pytest.approx(200, rel=0.01)
    assert "latency_p999_ms" not in metrics
    assert result.missing["latency_p999_ms"] == "too_few_samples"
    strict = loaded(Script(ttft_s=0.2, itl_s=0.05), level, limits={"ttft": 150.0})
    assert set(strict.meets_limits) == {False}
    assert result_of(TRAFFIC, level, [strict]).metrics["goodput_share"] == 0


def test_responses_of_one_token_have_no_time_between_tokens():
    level = Level(rate=5.0, number=20)
    found = loaded(Script(ttft_s=0.2), level, replace(TRAFFIC, lengths_out=Lengths("1")))
    missing = result_of(TRAFFIC, level, [found]).missing
    assert missing["time_per_output_token_ms"] == "not_applicable: no response has a second token"
    assert "not_run" not in {missing[name] for name in missing if name.startswith("time_per_output_token")}


def test_a_stall_of_a_second_is_in_the_p99_from_the_intended_start_and_not_in_one_request_alone():
    script = Script(ttft_s=0.02, itl_s=0.001, slots=1, stall=(2.0, 1.0))
    found = loaded(script, Level(rate=20.0, number=400))
    series = Series.of(found)
    assert quantile(series.time_to_first_token, 0.99) > 800
    assert sum(one > 100 for one in series.time_to_first_token) >= 18
    in_turn = Series.of(loaded(script, Level(concurrency=1, number=400)))
    assert quantile(in_turn.time_to_first_token, 0.99) < 100  # what a closed loop hides: one request in 400 waited


def test_a_result_of_a_generator_that_is_too_slow_is_invalid():
    level = Level(rate=100.0, number=200)
    slow = result_of(TRAFFIC, level, [loaded(Script(ttft_s=0.2), level, busy_s=0.02)])
    assert "late_generator" in kinds(slow)
    assert slow.validity == "invalid"
    assert SHARE_IN_TIME not in slow.extra["load"], "there are no limits"
    found, limits = loaded(Script(ttft_s=0.2), level), {"ttft": 220.0}
    earlier = judged(replace(found, intended_ms=tuple(at - 50 for at in found.intended_ms)), limits)
    limited = result_of(TRAFFIC, level, [earlier], limits=limits)
    assert (limited.metrics["goodput_share"], limited.extra["load"][SHARE_IN_TIME]) == (0.0, 1.0)
    behind = replace(found, sent_ms=tuple(1.05 * sent for sent in found.sent_ms))
    assert "rate_not_achieved" in kinds(result_of(TRAFFIC, level, [behind]))
    assert not kinds(result_of(TRAFFIC, level, [found])) & {"late_generator", "rate_not_achieved", "slow_generator"}
    assert "slow_generator" in kinds(result_of(TRAFFIC, level, [found], capacity_per_s=150.0))
    (slow,) = [one for one in result_of(TRAFFIC, level, [found], capacity_per_s=50.0).doubts if "slow_" in one.kind]
    assert slow.evidence["capacity_per_s"] == slow.evidence["requests_per_sec"], "it has sent as many"


def test_a_generator_that_cannot_keep_up_is_named_whatever_became_of_its_requests():
    level = Level(rate=100.0, number=200)
    found = loaded(Script(), level)
    refused = replace(found, error=("http_429",) * 190 + (None,) * 10)
    assert "slow_generator" in kinds(result_of(TRAFFIC, level, [refused], capacity_per_s=150.0))
    late = result_of(SHORT, level, [loaded(Script(ttft_s=0.001, itl_s=0.0), level, SHORT, busy_s=0.01)])
    assert "late_generator" in kinds(late)
    assert "over_saturated" not in kinds(late), "no request waited for the server"
    assert late.metrics["throughput_samples_per_sec"] > 0.9 * late.metrics["total_requests_per_sec"]


def test_a_server_that_falls_behind_is_over_saturated_and_one_that_keeps_up_is_not():
    script, level = Script(ttft_s=0.1, itl_s=0.01, slots=2), Level(rate=20.0, number=300)
    behind = loaded(script, level, replace(TRAFFIC, arrivals="poisson"))
    (growing,) = over_saturated(behind)
    assert growing.kind == "over_saturated"
    assert 1.5 < growing.evidence["load"] < 2, "20 requests/s for two slots of 0.17 s each"
    assert not over_saturated(loaded(script, replace(level, rate=5.0), replace(TRAFFIC, arrivals="poisson")))
    assert "saturation_unknown" in kinds(result_of(TRAFFIC, level, [loaded(script, replace(level, number=5))]))
    short = over_saturated(loaded(script, replace(level, number=20, rate=5.0)))
    assert "over_saturated" not in [doubt.kind for doubt in short]


def test_a_closed_loop_keeps_its_number_in_flight_until_its_time_is_over():
    level = Level(concurrency=4, duration_s=2.2)
    found = loaded(Script(ttft_s=0.3, itl_s=0.1), level)
    assert len(found) == 12  # three rounds of 1 s start within 2.2 s
    result = result_of(TRAFFIC, level, [found])
    assert (result.point.concurrency, result.point.axes) == (4, {})
    assert result.metrics["in_flight_mean"] == pytest.approx(4, rel=0.01)


def test_a_closed_loop_that_ends_before_its_duration_is_reported(monkeypatch):
    level = Level(concurrency=2, duration_s=100.0)
    for module in (generator, results):
        monkeypatch.setattr(module, "MAX_REQUESTS", 10)
    found = loaded(Script(), level, replace(TRAFFIC, turns=3))
    assert len(found) == 9  # three conversations: another would be more than ten requests
    assert "level_full" in kinds(result_of(replace(TRAFFIC, turns=3), level, [found]))
    assert "level_full" not in kinds(result_of(TRAFFIC, replace(level, number=9), [found]))


@pytest.mark.parametrize("fault", BROKEN)
def test_each_broken_request_is_counted_with_its_reason_and_the_others_continue(fault):
    level = Level(rate=10.0, number=30)
    found = loaded(Script(fault=lambda number: fault if number % 3 == 0 else None), level)
    assert Counter(found.error) == {None: 20, BROKEN[fault]: 10}
    assert all(detail for error, detail in zip(found.error, found.detail, strict=True) if error)
    result = result_of(TRAFFIC, level, [found])
    assert (result.status, result.validity, result.metrics["requests_failed"]) == ("ok", "invalid", 10)
    assert next(one for one in result.doubts if one.kind == "failed_requests").evidence[BROKEN[fault]] == 10


def test_a_stream_without_end_is_ended_by_the_time_limit():
    endless = Script(fault=lambda number: "endless" if number == 1 else None)
    found = loaded(endless, Level(rate=10.0, number=5), timeout_s=3.0)
    assert Counter(found.error) == {None: 4, "timed_out": 1}
    assert found.end_ms[1] == pytest.approx(found.intended_ms[1] + 3000, rel=0.01)


def test_a_stream_that_goes_on_long_after_its_tokens_is_ended_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(generator, "BYTES_PER_REPLY", 4096)
    monkeypatch.setattr(generator, "BYTES_PER_TOKEN", 16)
    flood = Script(fault=lambda number: "endless" if number == 1 else None)
    found = loaded(flood, Level(rate=10.0, number=5))
    assert Counter(found.error) == {None: 4, "endless": 1}
    assert len(found.token_ms[1]) < 4096 / 40
    assert "8 requested tokens" in found.detail[1]


def test_a_refused_connection_is_a_failed_result_with_its_reason():
    async def run():
        async with NullServer() as server:
            gone = server.url
        level = Level(rate=10.0, number=3)
        found = await run_level(Target(url=gone, model="m"), TRAFFIC, level, limits={})
        return result_of(TRAFFIC, level, [found])

    result = run_jumping(run())
    assert result.status == "failed"
    assert "3 refused" in result.error
    assert result.metrics == {"requests_sent": 3.0, "requests_failed": 3.0}


@pytest.mark.parametrize(("host", "error"), [("127.0.0.1", None), ("10.0.0.1", "certificate")])
def test_tls_is_spoken_and_a_certificate_of_another_host_is_an_error(host, error, tmp_path):
    context, ca_file = certificate(tmp_path, host)

    async def run():
        async with NullServer(tls=context) as server:
            target = Target(url=server.url, model="m", ca_file=ca_file)
            return await run_level(target, TRAFFIC, Level(rate=10.0, number=2), limits={})

    assert set(asyncio.run(run()).error) == {error}


def test_chunks_that_arrive_together_are_fewer_than_the_tokens():
    level = Level(rate=10.0, number=30)
    found = loaded(Script(chunks_together=4), level)
    assert {len(tokens) for tokens in found.token_ms} == {8}
    (told,) = [one for one in result_of(TRAFFIC, level, [found]).doubts if one.kind == "chunks_not_tokens"]
    assert told.evidence.items() >= {"requests": 30, "at_once": 0, "chunks": 2, "tokens": 8}.items()
    # Seven tokens in eight pieces are hardly other gaps.
    alone = replace(found, token_ms=tuple(tuple(100.0 + place for place in range(8)) for _ in range(30)))
    assert "chunks_not_tokens" not in kinds(result_of(TRAFFIC, level, [alone]))


def test_tokens_are_the_servers_count_and_not_the_chunks():
    level = Level(rate=10.0, number=30)
    found = loaded(Script(tokens_a_chunk=4), level)
    assert {len(tokens) for tokens in found.token_ms} == {2}
    assert set(found.tokens_out) == {8}
    assert "chunks_not_tokens" in kinds(result_of(TRAFFIC, level, [found]))


def test_tokens_that_the_server_does_not_count_are_counted_by_a_tokenizer_or_are_chunks_with_a_doubt():
    level, script = Level(rate=10.0, number=30), Script(fault=lambda number: "no_usage", tokens_a_chunk=4)
    chunks = loaded(script, level)
    assert (set(chunks.tokens_out), set(chunks.tokens_counted_by)) == ({2}, {"chunks"})
    by_chunks = result_of(TRAFFIC, level, [chunks])
    assert (by_chunks.validity, "tokens_counted_as_chunks" in kinds(by_chunks)) == ("noisy", True)
    counted = loaded(script, level, tokenizer=len)
    assert (set(counted.tokens_out), set(counted.tokens_counted_by)) == ({8}, {"tokenizer"})
    assert set(counted.tokens_in) == {7}, "the tokens that the server reports stay"
    assert "tokens_counted_as_chunks" not in kinds(result_of(TRAFFIC, level, [counted]))


@pytest.mark.parametrize(
    ("limits", "share"), [({"tpot": 1.0}, None), ({"tpot": 15.0}, 1.0), ({"tpot": 1.0, "ttft": 1.0}, 0.0)]
)
def test_a_limit_on_an_unknown_time_is_unknown_unless_a_bound_or_another_limit_decides(limits, share):
    level = Level(rate=10.0, number=30)
    found = loaded(Script(fault=lambda number: "no_usage"), level, limits=limits)  # 10 ms a chunk, of 1 token or more
    result = result_of(TRAFFIC, level, [found], limits=limits)
    assert result.metrics.get("goodput_share") == share
    if share is None:
        assert "--tokenizer" in result.missing["goodput_requests_per_sec"]
        assert set(found.meets_limits) == {None}


@pytest.mark.parametrize("fault", [None, "no_usage"])
def test_of_replies_in_one_piece_the_time_per_token_is_unknown_and_meets_a_limit_only_above_its_bound(fault):
    level, limits = Level(rate=10.0, number=120), {"tpot": 15.0}
    found = loaded(Script(fault=lambda number: fault), level)  # 8 tokens in 170 ms, 10 ms each

    def judge(every, limits):
        whole = [place % every == 0 for place in range(120)]
        firsts = [
            last if one else first
            for one, first, last in zip(whole, found.first_token_ms, found.last_token_ms, strict=True)
        ]
        counts = [1 if one and fault else count for one, count in zip(whole, found.tokens_out, strict=True)]
        tokens = [(first,) if one else each for one, first, each in zip(whole, firsts, found.token_ms, strict=True)]
        mixed = replace(found, first_token_ms=tuple(firsts), tokens_out=tuple(counts), token_ms=tuple(tokens))
        mixed = judged(mixed, limits)
        assert len(Series.of(mixed).time_per_output_token) == 120 - sum(whole)
        return mixed.meets_limits.count(None), result_of(TRAFFIC, level, [mixed], limits=limits)

    unknown, result = judge(12, limits)
    assert (unknown, holds(result), "goodput_share" in result.metrics) == (10, None, False)
    assert ("--tokenizer" if fault else "in one piece") in result.missing["goodput_share"]
    unknown, result = judge(120, limits)  # one of 120, of which one may miss them
    assert (unknown, holds(result), "goodput_share" in result.metrics) == (1, True, False)
    assert judge(12, {"tpot": 25.0})[0] == (10 if fault else 0)  # (170 ms) / 7 for 8 tokens


def test_replies_of_one_token_have_no_time_per_token_to_judge():
    level = Level(rate=10.0, number=30)
    found = loaded(Script(tokens=1), level, limits={"tpot": 50.0})
    result = result_of(TRAFFIC, level, [found], limits={"tpot": 50.0})
    assert "no response has more than one token" in result.missing["goodput_share"]


def test_times_per_token_end_at_the_last_token_and_latency_at_done_no_matter_when_the_body_ends():
    level, limits = Level(rate=2.0, number=20), {"tpot": 12.0, "e2e": 250.0}
    late = loaded(Script(usage_delay_s=0.05, hold_s=0.5), level, limits=limits)
    series = Series.of(late)
    assert series.time_per_output_token == pytest.approx([10.0] * 20, rel=0.01)
    assert max(series.inter_token_latency) == pytest.approx(10, rel=0.02)
    assert series.latency == pytest.approx([100 + 7 * 10 + 50] * 20, rel=0.01)
    assert set(late.meets_limits) == {True}
    result = result_of(TRAFFIC, level, [late], limits=limits)
    held = next(one for one in result.doubts if one.kind == "held_open")
    assert held.evidence["held_open_p50_ms"] == pytest.approx(500, rel=0.01)
    assert "held_open" not in kinds(result_of(TRAFFIC, level, [loaded(Script(usage_delay_s=0.05), level)]))


def test_a_stream_without_done_ends_at_its_reason_for_finishing():
    finished = loaded(Script(fault=lambda number: "no_done"), Level(rate=10.0, number=3))
    assert set(finished.error) == {None}
    assert Series.of(finished).latency == pytest.approx([170.0] * 3, rel=0.01)


LAST = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("delta", "said"),
    [
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, ""),
        ({"content": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]}, "hm"),
        ({"content": [{"type": "reference"}, {"type": "thinking", "thinking": "hm"}]}, ""),
        ({"content": None, "refusal": "hm"}, "hm"),
        ({"role": "assistant", "function_call": {"name": "h", "arguments": "m"}}, ""),
    ],
)
def test_output_in_parts_refusals_and_older_function_calls_are_tokens(delta, said):
    found = answered(*[{"choices": [{"delta": delta}]}] * 3, LAST)
    assert (len(found.tokens_s), found.least_tokens, found.text, found.said) == (3, 3, "hm" * 3, said * 3)


def test_parts_without_a_text_are_no_output():
    for content in ([], ["hm"], [{"type": "image"}], [{"text": [{"text": [{"text": "too deep"}]}]}]):
        with pytest.raises(RequestError, match="without any output"):
            answered({"choices": [{"delta": {"content": content}}]}, LAST)


def test_empty_pieces_after_the_first_are_tokens_and_tool_calls_are_output():
    def of(*events):
        sent = Sent(0.0)
        reply = _Reply(sent, 8, keeps_text=True)
        for at_s, event in enumerate(events):
            reply(b"data: " + json.dumps({"choices": [event]}).encode() + b"\n\n", float(at_s))
        return list(sent.tokens_s), sent.text

    role = {"delta": {"role": "assistant", "content": ""}}
    half = {"delta": {"content": ""}}
    last = {"delta": {"content": ""}, "finish_reason": "length"}
    call = {"delta": {"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}}
    assert of(role, {"delta": {"content": "a"}}, half, last) == ([1.0, 2.0], "a")
    assert of(role, half, call, last) == ([2.0], "f{")
    assert of({"delta": {"content": "a"}}, last, half) == ([0.0], "a"), "gateways send one with the usage"


PLAIN = b'data: {"choices": [{"text": "a"}]}\n\ndata: {"choices": [{"text": "b"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "body",
    [
        PLAIN,
        b"\xef\xbb\xbf" + PLAIN,
        b"data:\n\n" + PLAIN.replace(b"\n\n", b"\n\ndata:\n\n"),
        PLAIN.replace(b"\n", b"\r"),
        PLAIN.replace(b"\n", b"\r\n"),
        PLAIN.replace(b"[{", b'\ndata: [{"index": 0,\ndata:'),
        PLAIN.replace(b"[{", b'\r\ndata: [{"index": 0,\r\ndata:').replace(b"\n\n", b"\r\n\r\n"),
        PLAIN.replace(b"\n\n", b"\n"),
        PLAIN.rstrip(),
    ],
)
def test_events_are_read_as_the_standard_of_server_sent_events_has_them(body, size):
    sent = Sent(0.0)
    reply = _Reply(sent, 8, keeps_text=True)
    for start in range(0, len(body), size):
        reply(body[start : start + size], float(start))
    reply.check()
    assert (sent.text, len(sent.tokens_s), reply.is_whole) == ("ab", 2, True)


def test_an_event_of_several_lines_that_is_no_json_fails():
    reply = _Reply(Sent(0.0), 8, keeps_text=False)
    reply(b'data: {"choices":\ndata: [\n', 1.0)
    with pytest.raises(RequestError, match="choices") as raised:
        reply(b"\n", 2.0)
    assert raised.value.kind == "wrong_json"


def test_an_event_that_is_no_json_and_has_no_empty_line_behind_it_fails():
    reply = _Reply(Sent(0.0), 8, keeps_text=False)
    reply(b'data: {"choices": [{"text": "a"}]}\ndata: {"choic\ndata: [DONE]\n', 1.0)
    with pytest.raises(RequestError, match=r'no JSON until the stream ended: .*"choic') as raised:
        reply.check()
    assert raised.value.kind == "wrong_json"


@pytest.mark.parametrize("cut", [b'data: {"choices": [{"te', b"data", b'data: {"choices": [{"text": "b"}]}'])
def test_a_stream_that_was_cut_within_a_line_ended_early(cut):
    reply = _Reply(Sent(0.0), 8, keeps_text=False)
    reply(b'data: {"choices": [{"text": "a"}]}\n\n' + cut, 1.0)
    with pytest.raises(RequestError, match="without") as raised:
        reply.check()
    assert raised.value.kind == "truncated"


def test_counts_in_a_last_line_without_a_line_feed_are_read_and_later_events_without_them_erase_none():
    events = (
        b'data: {"choices": [{"text": "a", "finish_reason": "stop"}]}\n\n',
        b'data: {"usage": {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}}\n\n',
        b'data: {"usage": {}}\n\n',
        b'data: {"choices": [], "usage": {"completion_tokens": 5}}',
    )
    reply = _Reply(sent := Sent(0.0), 8, keeps_text=False)
    for at_s, piece in enumerate(events):
        reply(piece, float(at_s))
    reply.check()
    assert (sent.tokens_in, sent.tokens_out, sent.cached_tokens, sent.end_s) == (7, 5, 3, 0.0)


@pytest.mark.parametrize("stated", [0, 1])
def test_a_count_of_fewer_tokens_than_chunks_is_none(stated):
    pieces = [{"choices": [{"text": "a"}]}, {"choices": [{"text": ""}]}, {"choices": [{"text": "b"}]}]
    sent = answered(
        *pieces, {"choices": [{"text": "", "finish_reason": "length"}]}, {"usage": {"completion_tokens": 2}}
    )
    assert (requests_of([sent], 0, "", {}).tokens_out, sent.tokens_out) == ((2,), 2)
    sent.tokens_out = stated
    found = requests_of([sent], 0, "", {})
    assert (found.tokens_out, found.tokens_counted_by) == ((3,), ("chunks",))
    sent.tokens_out = stated
    found = requests_of([sent], 0, "", {}, len)
    assert (found.tokens_out, found.tokens_counted_by) == ((2,), ("tokenizer",))
    sent.tokens_out = stated  # what was generated is not the encoding of its text
    found = requests_of([sent], 0, "", {"tpot": 1500.0}, lambda text: 1)
    assert (found.tokens_out, found.tokens_counted_by) == ((3,), ("chunks",))
    assert found.meets_limits == (True,), "two seconds for two tokens or more"
    assert judged(found, {"tpot": 500.0}).meets_limits == (None,)


def answered(*events):
    """What was recorded of a response with these events, a second each, without [DONE]."""
    sent = Sent(0.0)
    reply = _Reply(sent, 8, keeps_text=True)
    for at_s, event in enumerate(events, 1):
        reply(b"data: " + json.dumps(event).encode() + b"\n\n", float(at_s))
    reply.check()
    return sent


@pytest.mark.parametrize(
    ("reasoning", "field", "counter", "per_token_ms"),
    [(8, "content", "hidden", 1000.0), (8, "reasoning_content", None, 7000 / 15), (0, "content", None, 7000 / 15)],
)
def test_tokens_of_reasoning_that_are_not_streamed_came_before_the_first_output(
    reasoning, field, counter, per_token_ms
):
    """Eight chunks, one a second, of sixteen tokens. A chunk of the others may have several, so a limit below is not
    missed either."""
    pieces = [{"choices": [{"delta": {field: "a"}}]} for _ in range(8)]
    usage = {"completion_tokens": 16, "completion_tokens_details": {"reasoning_tokens": reasoning}}
    sent = answered(*pieces, {"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"usage": usage})
    sent.sent_s = 0.0
    found = requests_of([sent], 0, "", {"tpot": 800.0})
    assert (found.tokens_out, found.tokens_counted_by) == ((16,), (counter,))
    assert per_token_ms_of(found, 0) == pytest.approx(per_token_ms)
    assert found.meets_limits == (None if counter else True,)
    assert judged(found, {"tpot": 1000.0}).meets_limits == (True,)
    assert ("did not stream" in (why_unknown([found], {"tpot": 800.0}) or "")) is (counter is not None)
    alone = replace(found, token_ms=(found.token_ms[0][:1],), last_token_ms=found.first_token_ms)
    assert judged(alone, {"tpot": 1000.0}).meets_limits == (None if counter else True,), "one chunk tells nothing"


def test_fields_that_a_server_leaves_empty_say_nothing():
    def piece(text, reason):
        return {"error": None, "choices": [{"delta": {"content": text}, "finish_reason": reason}]}

    sent = answered(piece("a", ""), piece("b", ""), piece("", "stop"))
    assert (list(sent.tokens_s), sent.end_s, sent.text) == ([1.0, 2.0], 3.0, "ab")
    with pytest.raises(RequestError, match=r"without \[DONE\] or a reason"):
        answered(piece("a", ""))


@pytest.mark.parametrize("body", [b'{"choices": [{"text": "a"}]}', b"<html>\n<body>sign in</body>\n</html>\n"])
def test_a_response_that_is_no_stream_of_events_is_called_that(body):
    reply = _Reply(Sent(0.0), 8, keeps_text=False)
    for start in range(0, len(body), 7):
        reply(body[start : start + 7], 1.0)
    with pytest.raises(RequestError, match=re.escape(f"no stream of events: {body!r}")) as raised:
        reply.check()
    assert raised.value.kind == "no_stream"


@pytest.mark.parametrize("told", [b": still here\n\n", b"event: message\n", b": still here\n\ndata: {}\n\n"])
def test_a_stream_that_ends_before_its_first_token_is_a_stream_that_ended_early(told):
    reply = _Reply(Sent(0.0), 8, keeps_text=False)
    reply(told, 1.0)
    with pytest.raises(RequestError) as raised:
        reply.check()
    assert raised.value.kind == "truncated"


@pytest.mark.parametrize(
    "told",
    [
        b'data: {"object": "error", "message": "out of blocks", "code": 500}',
        b'event: error\ndata: {"message": "out of blocks"}',
        b'event:error\r\ndata:{"detail": "out of blocks"}',
        b"event: error\ndata: out of blocks",
        b'data: {"error": {"message": "out of blocks"}}',
    ],
)
def test_an_error_within_a_stream_fails_the_request_however_a_server_tells_it(told):
    reply = _Reply(Sent(0.0), 8, keeps_text=False)
    reply(b'event: message\ndata: {"choices": [{"text": "a"}]}\n\n', 1.0)
    with pytest.raises(RequestError, match="out of blocks") as raised:
        reply(told + b"\n\n", 1.0)
    assert raised.value.kind == "server_error"


def test_fields_that_a_server_refuses_are_left_out_and_an_answer_still_has_a_limit():
    seen = []
    omitted = ("ignore_eos", "max_tokens", "temperature")
    loaded(Script(), Level(concurrency=1, number=1), endpoint="chat", omitted=omitted, seen=seen)
    assert not set(omitted) & set(seen[0])
    assert seen[0]["max_completion_tokens"] == 8
    loaded(Script(), Level(concurrency=1, number=1), seen=seen)
    assert (seen[1]["ignore_eos"], seen[1]["max_tokens"], "max_completion_tokens" in seen[1]) == (True, 8, False)


@pytest.mark.parametrize(
    ("kind", "detail", "advice"),
    [
        ("http_400", "Unrecognized request argument supplied: ignore_eos", "; --omit-fields ignore_eos leaves"),
        ("http_422", '{"type": "extra_forbidden", "loc": ["body", "ignore_eos"]}', "; --omit-fields ignore_eos leaves"),
        ("http_400", "Unsupported parameter: 'max_tokens'", "; --omit-fields max_tokens leaves"),
        ("http_400", "max_tokens is too large: 9000", ""),
        ("http_401", "unknown key", ""),
        ("http_400", "unknown model", ""),
    ],
)
def test_a_refused_field_is_answered_with_the_flag_that_leaves_it_out(kind, detail, advice):
    failed = requests_of([Sent(0.0, sent_s=0.0, end_s=0.1, error=kind, detail=detail)], 0, "", {})
    error = str(result_of(TRAFFIC, Level(concurrency=1, number=1), [failed]).error)
    assert error.partition(detail)[2].startswith(advice)
    assert bool(advice) == ("--omit-fields" in error)


@pytest.mark.parametrize("reason", ["abort", "error", "timeout", "cancelled", "canceled", "Error: out of blocks"])
def test_a_response_that_the_server_gave_up_failed(reason):
    with pytest.raises(RequestError, match=reason) as raised:
        answered({"choices": [{"text": "a"}]}, {"choices": [{"text": "", "finish_reason": reason}]})
    assert raised.value.kind == "server_error"


def test_a_prompt_of_another_length_than_requested_is_a_doubt():
    level = Level(rate=10.0, number=30)
    found = loaded(Script(), level)  # the server counts 7
    doubts = {one.kind: one.evidence for one in result_of(TRAFFIC, level, [found]).doubts}
    assert (doubts["other_input_length"]["asked"], doubts["other_input_length"]["tokens"]) == (16, 7)
    near = replace(TRAFFIC, lengths_in=Lengths("8"))
    assert "other_input_length" not in kinds(result_of(near, level, [found]))


@pytest.mark.parametrize("of", [{"tokens_a_chunk": 8}, {"chunks_together": 8}])
def test_replies_in_a_single_piece_are_invalid_since_token_times_are_unknown(of):
    level = Level(rate=10.0, number=30)
    at_once = result_of(TRAFFIC, level, [loaded(Script(**of), level)])
    assert (at_once.validity, kinds(at_once) - {"other_input_length"}) == ("invalid", {"whole_replies"})
    assert next(one.evidence["at_once"] for one in at_once.doubts if one.kind == "whole_replies") == 30
    assert "in one piece" in at_once.missing["time_per_output_token_ms"]


def test_replies_in_a_single_piece_are_recognized_where_the_times_of_tokens_are_too_many_to_keep(monkeypatch):
    monkeypatch.setattr(generator, "MAX_ARRIVALS", 100)
    level = Level(rate=10.0, number=30)
    for together, expected in ((8, {"whole_replies"}), (1, set())):
        found = loaded(Script(chunks_together=together), level)
        assert set(found.token_ms) == {()}
        assert kinds(result_of(TRAFFIC, level, [found])) - {"other_input_length"} == expected


def test_an_unexpected_prefix_cache_hit_and_a_short_output_are_doubts():
    level = Level(rate=10.0, number=30)
    found = loaded(Script(cached=5, tokens=5), level)
    assert {"prefix_cache_hit", "other_output_length"} <= kinds(result_of(TRAFFIC, level, [found]))
    of_template = loaded(Script(cached=3), level)  # of 7 tokens
    assert "prefix_cache_hit" not in kinds(result_of(TRAFFIC, level, [of_template]))
    shared = replace(TRAFFIC, shared_prefix=0.5)
    assert "prefix_cache_hit" not in kinds(result_of(shared, level, [found]))


def test_a_turn_repeats_the_conversation_and_starts_when_the_previous_one_ended():
    seen = []
    found = loaded(Script(), Level(concurrency=1, number=2), replace(TRAFFIC, turns=3), seen=seen)
    assert list(zip(found.conversation, found.turn, strict=True)) == [(c, t) for c in (0, 1) for t in (0, 1, 2)]
    first, second = seen[0]["prompt"], seen[1]["prompt"]
    assert second.startswith(f"{first}\naaaaaaaa\n")
    assert found.intended_ms[1] == found.closed_ms[0]


def test_a_turn_is_due_when_the_user_has_thought_and_no_latency_counts_the_pause():
    traffic = replace(TRAFFIC, turns=2, think_time=Pauses("30"), tool_calls=1, tool_pause=Pauses("2"))
    found = loaded(Script(ttft_s=0.1, itl_s=0.01), Level(rate=1.0, number=3), traffic)
    assert len(found) == 12
    for talk in range(3):
        rows = [place for place, one in enumerate(found.conversation) if one == talk]
        waits = [found.intended_ms[b] - found.closed_ms[a] for a, b in pairwise(rows)]
        assert waits == pytest.approx([2000, 30_000, 2000], abs=0.002)
    assert max(Series.of(found).latency) == pytest.approx(170, rel=0.02)


def test_the_warm_up_sends_first_turns_without_the_pauses_of_the_others():
    async def run():
        begun_s, seen = asyncio.get_running_loop().time(), []
        async with NullServer() as server:

            def warmed():
                seen.append((len(server.seen), asyncio.get_running_loop().time() - begun_s))

            traffic, target = replace(TRAFFIC, turns=3, think_time=Pauses("3600")), Target(url=server.url, model="m")
            level = Level(concurrency=1, duration_s=1.0)
            await run_level(target, traffic, level, warmup=2, warmed=warmed, limits={})
        return seen

    ((requests, took_s),) = run_jumping(run())
    assert requests == 2
    assert took_s < 60


def test_the_realised_rate_of_conversations_is_that_of_their_starts():
    traffic = replace(TRAFFIC, turns=3, think_time=Pauses("1"))
    level = Level(rate=5.0, number=50)
    found = look_of([loaded(Script(), level, traffic)], 5.0, 0.01, is_unstable=False)
    assert (found.rate, found.requests) == (pytest.approx(5.0, rel=1e-6), 150)


def test_the_realised_rate_of_bursts_is_that_of_the_time_between_them():
    """Five bursts of 40 in 4 s: the last one starts the time of which no more is seen."""
    traffic = replace(TRAFFIC, arrivals="burst", burst=40)
    found = look_of([loaded(Script(), Level(rate=40.0, number=200), traffic)], 40.0, 0.01, is_unstable=False)
    assert (found.rate, found.requests) == (pytest.approx(40.0, rel=1e-6), 200)


@pytest.mark.parametrize(
    ("fault", "answer"),
    [
        (lambda number: "http_429" if number % 10 == 7 else None, r"no rate of 2 .* \(most .*failed: \d+ http_429\)"),
        (lambda number: "http_503" if number % 400 == 7 else None, "at least 8 requests/s"),
    ],
)
def test_refused_requests_are_outside_the_limits_in_a_search_which_says_so(fault, answer):
    looks = count()

    def measured(level):
        traffic = replace(SHORT, look=next(looks))
        found = loaded(Script(ttft_s=0.05, fault=fault), level, traffic, limits={"ttft": 300.0})
        return result_of(traffic, level, [found], limits={"ttft": 300.0})

    *_, outcome = search(measured, Level(rate=2.0, duration_s=25.0), 8.0, lambda line: None)
    found = HighestRate.of(outcome.metrics, facts_of(outcome))
    assert re.match(answer, outcome.error if found is None else found.text)


@pytest.mark.parametrize("status", ["http_429", "http_503"])
def test_a_refused_request_is_counted_once_however_soon_the_server_asks_for_another(status):
    script = Script(ttft_s=0.1, itl_s=0.01, fault=lambda number: status if number % 4 == 1 else None)
    for level in (Level(rate=5.0, number=40), Level(concurrency=2, number=40)):
        seen = []
        found = loaded(script, level, seen=seen, limits={"ttft": 300.0})
        assert (len(found), len(seen)) == (40, 40)
        assert Counter(found.error) == {None: 30, status: 10}
        assert Counter(found.meets_limits) == {True: 30, False: 10}
        result = result_of(TRAFFIC, level, [found], limits={"ttft": 300.0})
        assert result.metrics["goodput_share"] == 0.75
        assert result.metrics["time_to_first_token_ms"] == pytest.approx(100, rel=0.02), "no wait is in it"
        assert "failed_requests" in kinds(result)


@pytest.mark.parametrize(("answers", "sent"), [((), 100), ((50,), 151), (range(10, 400, 95), 400)])
def test_a_closed_loop_ends_early_when_a_hundred_requests_have_failed_in_a_row(answers, sent):
    """Also after answers: a server that died would be sent as many as it can refuse."""
    level = Level(concurrency=1, number=400)
    found = loaded(Script(fault=lambda number: None if number in answers else "http_503"), level)
    assert (len(found), Counter(found.error)["http_503"]) == (sent, sent - len(answers))
    result = result_of(TRAFFIC, level, [found])
    failed = [one.evidence for one in result.doubts if one.kind == "failed_requests"]
    assert [one.get("ended_after_failures") for one in failed] == {0: [], 1: [100]}.get(len(answers), [None])


def test_a_closed_loop_that_has_ended_is_not_continued_by_an_answer_that_was_under_way():
    script = Script(ttft_s=2.0, fault=lambda number: None if number == 1 else "http_503")
    found = loaded(script, Level(concurrency=2, number=400))
    assert Counter(found.error) == {None: 1, "http_503": generator.HOPELESS}


def test_a_closed_loop_ends_its_conversations_with_its_time():
    traffic = replace(TRAFFIC, turns=50, think_time=Pauses("2"))
    found = loaded(Script(), Level(concurrency=3, duration_s=10.0), traffic)
    assert max(found.intended_ms) < 10_000
    assert set(found.conversation) == {0, 1, 2}


def test_the_queue_of_conversations_is_judged_by_all_their_requests():
    traffic = replace(TRAFFIC, turns=3, think_time=Pauses("1"))
    level = Level(rate=5.0, number=200)  # 15 requests/s
    for slots, is_growing in ((1, True), (8, False)):  # of .17 s: 5.9/s and 47/s
        found = loaded(Script(slots=slots), level, traffic)
        assert ("over_saturated" in kinds(result_of(traffic, level, [found]))) == is_growing


def test_a_session_of_a_trace_waits_for_its_reply_but_not_longer_than_its_time(tmp_path):
    rows = [(0, 16), (100, 8), (5000, 8)]
    trace = [{"session_id": 1, "timestamp": at, "input_length": 5, "output_length": n} for at, n in rows]
    trace.append({"session_id": 2, "timestamp": 9000, "input_length": 5, "output_length": 1})
    (tmp_path / "t").write_text("\n".join(map(json.dumps, trace)))
    traffic = replace(TRAFFIC, arrivals="trace", file=tmp_path / "t")
    found = loaded(Script(ttft_s=0.1, itl_s=0.01), Level(rate=1 / 9, number=2), traffic)
    at = dict(zip(zip(found.conversation, found.turn, strict=True), found.intended_ms, strict=True))
    assert at[0, 1] == pytest.approx(found.closed_ms[0])  # the reply took longer than 100 ms
    assert at[0, 2] == pytest.approx(5000, abs=0.01)
    assert max(at.values()) == pytest.approx(9000, abs=0.01)


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_turns_repeat_every_character_of_the_messages_before_them(endpoint, tmp_path):
    said = 'a "quoted"\\ line\n\twith é and \U0001f600'
    turns = [{"from": "human", "value": said}, {"from": "gpt", "value": "b"}] * 2
    (tmp_path / "s").write_text(json.dumps([{"conversations": turns}]))
    seen = []
    traffic = replace(TRAFFIC, file=tmp_path / "s", turns=2)
    loaded(Script(), Level(concurrency=1, number=1), traffic, endpoint=endpoint, seen=seen)
    first, second = [
        [one["content"] for one in body["messages"]] if endpoint == "chat" else body["prompt"] for body in seen
    ]
    if endpoint == "chat":
        assert second == [*first, "a", said]
        assert first[0].endswith(f":{said}")
    else:
        assert second == f"{first}\na\n{said}"


def test_a_chat_repeats_earlier_turns_as_alternating_messages_without_reasoning():
    seen = []
    loaded(Script(reasoning=3), Level(concurrency=1, number=1), replace(TRAFFIC, turns=3), endpoint="chat", seen=seen)
    assert [len(body["messages"]) for body in seen] == [1, 3, 5]
    assert [one["role"] for one in seen[2]["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert [one["content"] for one in seen[2]["messages"][1::2]] == ["aaaaa"] * 2
    assert seen[2]["messages"][:3] == seen[1]["messages"]


def test_a_request_takes_so_few_calls_that_a_processor_sends_2000_a_second():
    """By their number, since a second is not the same on every machine: 370 take 90 microseconds of a slow one."""

    async def calls_per_request():
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        async with generator.answering_at_once() as target, generator.Generator(target) as own:
            await own.run(SHORT, Level(concurrency=32, number=32))
            sys.setprofile(count)
            try:
                found = await own.run(SHORT, Level(concurrency=32, number=500))
            finally:
                sys.setprofile(None)
            assert {one.error for one in found} == {None}
            return calls / len(found)

    assert 10 < asyncio.run(calls_per_request()) < 600


def test_no_search_for_garbage_through_all_prompts_holds_up_the_requests_of_a_level():
    usual, found = gc.get_threshold(), []

    def looked_through(phase, about):
        found.append(about["generation"])

    def fault(number):
        if number == 0:
            gc.callbacks.append(looked_through)
        elif number == 199:
            gc.callbacks.remove(looked_through)

    gc.set_threshold(20, 2, 2)
    try:
        loaded(Script(fault=fault), Level(rate=50.0, number=200))
        assert gc.get_threshold() == (20, 2, 2)
    finally:
        gc.set_threshold(*usual)
    assert set(found) == {0, 1}, "young objects are looked through, so that the memory of a long load is bounded"


def test_a_closed_loop_makes_long_prompts_while_the_server_works_and_whoever_is_free_takes_the_next(monkeypatch):
    made, conversations = [], Traffic.conversations

    def recorded(self):
        for turns in conversations(self):
            made.append((threading.current_thread() is threading.main_thread(), turns[0].prompt))
            yield turns

    monkeypatch.setattr(Traffic, "conversations", recorded)
    for words, are_on_time in (("2000", [True] * 2 + [False] * 4), ("8", [True] * 6)):
        seen = []
        traffic = replace(TRAFFIC, lengths_in=Lengths(words), lengths_out=Lengths("uniform:1-400"))
        loaded(Script(), Level(concurrency=2, number=6), traffic, seen=seen)
        assert [is_main for is_main, _ in made] == are_on_time
        assert [body["prompt"] for body in seen] == [prompt for _, prompt in made]
        made.clear()


@pytest.mark.parametrize("is_open", [False, True])
def test_what_the_generator_can_send_is_measured_with_prompts_of_the_asked_length(is_open, monkeypatch, tmp_path):
    (tmp_path / "t").write_text("".join(f'{{"timestamp":{n},"input_length":{n},"output_length":1}}\n' for n in (2, 4)))
    seen = []

    @asynccontextmanager
    async def at_once(**given):
        async with NullServer(Script(ttft_s=0.01, itl_s=0.0)) as server:
            yield Target(url=server.url, model="m")
            seen.extend(server.seen)

    monkeypatch.setattr(generator, "answering_at_once", at_once)
    for traffic, words in ((replace(TRAFFIC, arrivals="trace", file=tmp_path / "t"), 3), (TRAFFIC, 16)):
        seen.clear()
        assert run_jumping(generator.capacity_per_s(0.1, traffic, is_open=is_open)) > 0
        prompts = [body["prompt"] for body in seen]
        assert {len(prompt.split()) for prompt in prompts} == {words}
        assert len(set(prompts)) == (generator.IN_FLIGHT if is_open else len(prompts)), "an open loop makes them before"


def test_a_thousand_streams_are_in_flight_at_once():
    found = loaded(Script(ttft_s=5.0, tokens=2), Level(concurrency=1000, number=1000))
    assert set(found.error) == {None}
    assert max(found.sent_ms) < min(found.end_ms)
