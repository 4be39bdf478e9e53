"""What is sent and when: arrivals, lengths, traces and limits; and the knee of a curve."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import islice, pairwise
from statistics import mean, stdev

import pytest

from benchmarking.core.errors import UsageError
from benchmarking.core.load_doubts import LIMIT_WORDS
from benchmarking.core.shared_settings import parse_limits
from benchmarking.load import traces
from benchmarking.load.curve import knee
from benchmarking.load.results import tails
from benchmarking.load.traffic import Lengths, Pauses, Traffic, limits_text, slowed

DRAWN = {"lengths_in": Lengths("16"), "lengths_out": Lengths("8")}
SHAREGPT = [{"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "It is so."}]}, {"id": "x"}]


def variation(gaps):
    return stdev(gaps) / mean(gaps)


@pytest.mark.parametrize(
    ("arrivals", "fields", "least", "most"),
    [("constant", {}, 0, 0), ("poisson", {}, 0.9, 1.1), ("gamma", {"variation": 2.0}, 1.8, 2.2)],
)
def test_arrivals_have_their_rate_and_their_spread(arrivals, fields, least, most):
    starts = Traffic(arrivals=arrivals, **fields, **DRAWN).starts(4.0, 8000)
    assert len(starts) / starts[-1] == pytest.approx(4.0, rel=0.05)
    assert least - 1e-9 <= variation([b - a for a, b in pairwise(starts)]) <= most + 1e-9
    assert starts == Traffic(arrivals=arrivals, **fields, **DRAWN).starts(4.0, 8000)


def test_repetitions_have_prompts_that_no_other_seed_has_and_the_arrivals_that_stored_ones_had():
    traffics = [Traffic(seed=seed, repetition=repetition, **DRAWN) for seed in (0, 1) for repetition in (0, 1)]
    assert len({next(one.conversations())[0].prompt for one in traffics}) == 4
    arrivals = [one.starts(4.0, 9) for one in traffics]
    assert arrivals == [Traffic(seed=seed, **DRAWN).starts(4.0, 9) for seed in (0, 1, 1, 2)]


def test_bursts_start_together_and_a_ramp_gets_faster():
    assert Traffic(arrivals="burst", burst=3, **DRAWN).starts(6.0, 7) == [0, 0, 0, 0.5, 0.5, 0.5, 1.0]
    ramp = Traffic(arrivals="ramp", **DRAWN).starts(10.0, 100)
    assert ramp[25] == pytest.approx(5.0)  # a quarter of them in the first half of the time


def test_prompts_differ_but_for_the_shared_part():
    prompts = [one.prompt.split() for one in islice(Traffic(shared_prefix=0.5, **DRAWN).requests(), 20)]
    assert {len(prompt) for prompt in prompts} == {16}
    assert len({tuple(prompt[:8]) for prompt in prompts}) == 1
    assert len({prompt[8] for prompt in prompts}) == 20


def test_prompts_of_token_ids_have_their_exact_length():
    prompts = [one.prompt for one in islice(Traffic(vocabulary=50, shared_prefix=0.25, **DRAWN).requests(), 5)]
    assert {len(prompt) for prompt in prompts} == {16}
    assert {prompt[:4] for prompt in prompts} == {prompts[0][:4]}
    assert all(0 <= token < 50 for prompt in prompts for token in prompt)


@pytest.mark.parametrize(
    "text",
    [
        '{"timestamp": 1000, "input_length": 5, "output_length": 2, "hash_ids": [1]}\n'
        '{"timestamp": 3000, "input_length": 7, "output_length": 3, "hash_ids": [2]}\n',
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,5,2\n2023-11-16 18:15:48.6805900,7,3\n",
    ],
    ids=["mooncake", "azure"],
)
def test_a_trace_defines_times_and_lengths(text, tmp_path):
    (tmp_path / "trace").write_text(text)
    found = list(Traffic(arrivals="trace", file=tmp_path / "trace", **DRAWN).requests())
    assert [(one.offset_s, len(one.prompt.split()), one.tokens_out) for one in found] == [(0.0, 5, 2), (2.0, 7, 3)]
    assert slowed([0.0, 2.0], rate=4.0) == [0.0, 0.25]
    assert slowed([0.0, 0.0, 3.0, 3.0, 9.0], rate=2.0) == pytest.approx([0.0, 0.0, 2 / 3, 2 / 3, 2.0])


def conversations(tmp_path, text, **fields):
    (tmp_path / "trace").write_text(text)
    return list(Traffic(arrivals="trace", file=tmp_path / "trace", **DRAWN, **fields).conversations())


def lines(*rows):
    return "\n".join(json.dumps(row) for row in rows)


SESSIONS = {
    "mooncake": lines(
        {"timestamp": 9000, "input_length": 9, "output_length": 2},
        {"session_id": "a", "timestamp": 1000, "input_length": 5, "output_length": 2},
        {"session_id": "a", "delay": 1500, "input_length": 4, "output_length": 3},
    ),
    "bailian": lines(
        {"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.0, "input_length": 5, "output_length": 2, "turn": 1},
        {"chat_id": 8, "parent_chat_id": 7, "timestamp": 4.0, "input_length": 4, "output_length": 3, "turn": 2},
        {"chat_id": 9, "parent_chat_id": -1, "timestamp": 9.0, "input_length": 9, "output_length": 2, "turn": 1},
    ),
    "burstgpt": "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "1,3,0.5,ChatGPT,5,2,7,Conversation log\n9,,1,GPT-4,9,2,11,API log\n4,3,0.5,ChatGPT,4,3,7,Conversation log\n",
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens,Session_Id\n2024-05-10 00:00:01.5,5,2,x\n"
    "2024-05-10 00:00:04.5,4,3,x\n2024-05-10 00:00:09.5,9,2,y\n",
}


@pytest.mark.parametrize("kind", SESSIONS)
def test_the_sessions_of_a_trace_are_conversations(kind, tmp_path):
    first, second = conversations(tmp_path, SESSIONS[kind])
    assert [(one.length, one.tokens_out) for one in (*first, *second)] == [(5, 2), (4, 3), (9, 2)]
    assert (first[0].offset_s, second[0].offset_s) == (0.0, 8.0)
    due = (None, 1.5) if kind == "mooncake" else (3.0, None)  # a delay after the reply, or a time
    assert (first[1].offset_s, first[1].pause_s) == due
    assert first[1].has_history


def test_lengths_that_include_the_history_leave_the_rest_to_a_turn(tmp_path):
    rows = [{"session_id": 1, "timestamp": at, "input_length": n, "output_length": 4} for at, n in ((0, 10), (9, 30))]
    ((first, second),) = conversations(tmp_path, lines(*rows))
    assert (first.length, second.length) == (10, 30 - 10 - 4)


@pytest.mark.parametrize("vocabulary", [None, 1000])
def test_blocks_of_a_trace_that_are_named_alike_are_alike(vocabulary, tmp_path):
    rows = [
        {"timestamp": at, "input_length": n, "output_length": 1, "hash_ids": ids}
        for at, n, ids in ((0, 1000, [1, 2]), (5, 600, [1, 3]), (9, 512, [4]))
    ]
    prompts = [one.prompt for (one,) in conversations(tmp_path, lines(*rows), vocabulary=vocabulary)]
    words = [prompt.split() if vocabulary is None else prompt for prompt in prompts]
    assert [len(one) for one in words] == [1000, 600, 512]
    assert words[0][:512] == words[1][:512]
    assert words[0][512:600] != words[1][512:600]
    assert words[0][:512] != words[2][:512]
    traffic = Traffic(arrivals="trace", file=tmp_path / "trace", **DRAWN)
    assert traffic.may_hit_a_prefix
    with pytest.raises(UsageError, match="names what its prompts share"):
        next(replace(traffic, shared_prefix=0.5).conversations())


def test_a_prompt_that_its_blocks_do_not_cover_keeps_its_length(tmp_path):
    rows = [{"timestamp": at, "input_length": 700, "output_length": 1, "hash_ids": [1]} for at in (0, 5)]
    first, second = (one.prompt.split() for (one,) in conversations(tmp_path, lines(*rows)))
    assert (len(first), len(second), first[:512] == second[:512], first[512:] == second[512:]) == (
        700,
        700,
        True,
        False,
    )


def test_requests_of_sessions_come_by_time_and_no_more_of_them_are_made_than_are_taken(tmp_path, monkeypatch):
    rows = [
        {"session_id": name, "timestamp": at, "input_length": 5, "output_length": at + 1}
        for name, at in ((1, 0), (1, 30), (2, 10), (3, 20), (3, 40))
    ]
    found = conversations(tmp_path, lines(*rows))
    traffic = Traffic(arrivals="trace", file=tmp_path / "trace", **DRAWN)
    assert [one.tokens_out for one in traffic.requests()] == [1, 11, 21, 31, 41]
    assert (traffic.total(1), traffic.total(2), traffic.total(9)) == (2, 3, 5)
    made = []
    monkeypatch.setattr(Traffic, "conversations", lambda self: (made.append(turns) or turns for turns in found))
    next(traffic.requests())
    assert len(made) == 1


def test_dates_without_a_zone_are_those_of_utc(tmp_path):
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-07-10 00:00:01.5,5,2\n2024-07-10 00:00:03+00:00,7,3\n"
    assert [turns[0].offset_s for turns in conversations(tmp_path, text)] == [0.0, 1.5]


def test_a_file_of_one_long_line_is_no_trace(tmp_path):
    with pytest.raises(UsageError, match="expected a trace"):
        conversations(tmp_path, "x" * 200_000)


def test_an_agent_pauses_for_its_tools_and_a_user_thinks_before_the_next_message():
    talk = Traffic(turns=2, think_time=Pauses("60"), tool_calls=2, tool_pause=Pauses("uniform:1-2"), **DRAWN)
    (turns,) = islice(talk.conversations(), 1)
    assert [one.pause_s == 60 for one in turns] == [False, False, False, True, False, False]
    assert all(1 <= one.pause_s <= 2 for one in (*turns[1:3], *turns[4:]))
    assert len({one.prompt for one in turns}) == 6
    assert talk.keys({}, is_open=False)["tool_pause"] == "uniform:1-2"
    drawn = [Pauses("exponential:5").draw(random.Random(seed)) for seed in range(4000)]
    assert (mean(drawn), stdev(drawn)) == (pytest.approx(5, rel=0.05), pytest.approx(5, rel=0.06))


def test_a_trace_whose_turns_wait_for_replies_is_not_for_a_model_without_them(tmp_path):
    (tmp_path / "trace").write_text(SESSIONS["mooncake"])
    with pytest.raises(UsageError, match="this requires --url"):
        list(Traffic(arrivals="trace", file=tmp_path / "trace", **DRAWN).requests())


def test_conversations_of_sharegpt_give_prompts_and_lengths(tmp_path):
    (tmp_path / "talks.json").write_text(json.dumps(SHAREGPT))
    (one,) = islice(Traffic(file=tmp_path / "talks.json", **DRAWN).requests(), 1)
    assert (one.prompt.partition(":")[2], one.length, one.tokens_out) == ("Why?", 1, 3)
    more = [{"from": "human", "value": "And then?"}, {"from": "gpt", "value": "Nothing."}]
    before = [{"from": "system", "value": "Be brief."}, {"from": "gpt", "value": "Yes?"}]
    for first in ([], before[:1], before[1:], before):  # many files begin so
        talk = [*first, *SHAREGPT[0]["conversations"], *more]
        (path := tmp_path / f"{len(first)}{first[:1] == before[:1]}.json").write_text(
            json.dumps([{"conversations": talk}])
        )
        (turns,) = islice(Traffic(file=path, turns=5, **DRAWN).conversations(), 1)
        found = [(one.prompt.rpartition(":")[2], one.tokens_out) for one in turns]
        assert found == [("Why?", 3), ("And then?", 1)]


def test_no_two_requests_of_a_command_begin_alike_although_a_file_has_few_conversations(tmp_path):
    """Levels and their warm-up send the same conversation, also several times."""
    (tmp_path / "talks.json").write_text(json.dumps(SHAREGPT))
    for turns in (1, 2):
        sent = [
            conversation[0].prompt
            for salt in ("warm-up", "level 1", "level 2")
            for conversation in islice(
                Traffic(file=tmp_path / "talks.json", turns=turns, salt=salt, **DRAWN).conversations(), 50
            )
        ]
        assert len({prompt[:6] for prompt in sent}) > 140
        assert len(set(sent)) == 150


def test_files_of_one_name_with_other_contents_are_other_series(tmp_path):
    found = []
    for name, content in (("a", b"1"), ("b", b"2"), ("c", b"2")):
        (tmp_path / name).mkdir()
        (path := tmp_path / name / "trace.jsonl").write_bytes(content)
        found.append(Traffic(file=path, file_digest=traces.digest_of(path), **DRAWN).keys({}, is_open=True))
    first, second, copied = found
    assert first != second == copied
    assert first["traffic_file"] == second["traffic_file"] == "trace.jsonl"
    assert traces.digest_of(tmp_path) == "", "as of a pipe, which can be read only once"


def test_a_file_of_conversations_is_parsed_once_for_all_levels(tmp_path, monkeypatch):
    (tmp_path / "talks.json").write_text(json.dumps(SHAREGPT))
    parsed, loads = [], json.loads
    monkeypatch.setattr(traces.json, "loads", lambda text: parsed.append(text) or loads(text))
    for seed in (1, 2):
        next(Traffic(file=tmp_path / "talks.json", seed=seed, **DRAWN).conversations())
    assert len(parsed) == 1


def test_the_keys_of_a_series_name_what_differs():
    traffic = Traffic(arrivals="gamma", variation=2.0, **DRAWN)
    limits = parse_limits("tpot:50ms,ttft:0.5s", LIMIT_WORDS)
    assert limits_text(limits) == "tpot:50ms,ttft:500ms"
    assert traffic.keys(limits, is_open=True)["variation"] == 2.0
    closed = traffic.keys({}, is_open=False)
    assert closed == {"loop": "closed", "lengths_in": "16", "lengths_out": "8"}


@pytest.mark.parametrize("text", ["", "ttft", "ttft:5", "itl:5ms", "ttft:5ms;tpot:5ms"])
def test_limits_that_are_none_are_refused(text):
    with pytest.raises(UsageError, match="--limit"):
        parse_limits(text, LIMIT_WORDS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no requests"),
        ("[1]", "expected a trace in Mooncake's format"),
        ('{"timestamp": NaN, "input_length": 5, "output_length": 2}', "expected lengths of at most"),
        ('{"timestamp": 0, "input_length": 1e999, "output_length": 2}', "expected a trace in Mooncake's format"),
        ('{"timestamp": 0, "input_length": 1e12, "output_length": 2}', "at 0 s with 1000000000000 and 2 tokens"),
        ('{"timestamp": 0, "input_length": -1, "output_length": 2}', "none below 0"),
        ("Timestamp,Request tokens,Response tokens\n1e308,1,1\n-1e308,1,1", "a time of at most"),
        ('{"input_length": 5, "output_length": 2, "delay": 5}', "timestamp, or delay with session_id"),
        ('{"session_id": 1, "input_length": 5, "output_length": 2, "delay": 5}', "no timestamp in its first request"),
        ('{"session_id": 1, "timestamp": 0, "input_length": 5, "output_length": 2, "delay": -5}', "a delay of -0.005"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(content, words, tmp_path):
    (tmp_path / "trace").write_text(content)
    with pytest.raises(UsageError, match=words):
        next(Traffic(arrivals="trace", file=tmp_path / "trace", **DRAWN).requests())


def test_the_knee_is_the_last_level_at_which_throughput_follows_the_load():
    assert knee([1, 2, 4, 8, 16, 32], [1, 2, 4, 7.9, 8.1, 8.2]) == 3
    assert knee([1, 2, 4, 8, 16], [1, 2, 4, 8, 16]) is None
    assert knee([1, 2, 4], [1, 2, 2]) is None


def test_percentiles_have_intervals_and_none_is_given_of_too_few_requests():
    found, _ = tails("service_time", [float(one) for one in range(1, 1001)][::-1])
    assert found["service_time_p90_ms"] == pytest.approx(900.1)
    assert "service_time_p999_ms" in found
    few, why = tails("service_time", [1.0] * 20)
    assert set(few) >= {"service_time_p50_ms"}
    assert why["service_time_p90_ms"] == "too_few_samples"
    assert "service_time_p99_ci_low_ms" not in few
