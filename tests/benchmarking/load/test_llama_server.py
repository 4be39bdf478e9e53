"""A load on a real server: llama.cpp's, with a small Llama."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytest.importorskip("httptools")

from benchmarking.commands import load_server
from tests.helpers.llama_server import llama_server, write_model

REQUESTS, TOKENS, WORDS = 12, 6, 8
OF_RESPONSES = {
    *("failed_requests", "whole_replies", "chunks_not_tokens", "tokens_counted_as_chunks", "other_output_length"),
    *("other_input_length", "prefix_cache_hit", "held_open"),
}
"""Doubts about what the server sends. The others depend on what else the machine does."""


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    """The load facts, numbers and doubts of each level of a closed loop, with ten requests of warm-up before each."""
    folder = tmp_path_factory.mktemp("llama")
    write_model(folder / "tiny.gguf")
    with llama_server(folder / "tiny.gguf", slots=4) as url:
        code = load_server.main(
            [
                *("--url", url, "--model", "tiny", "--engine", "llama-server", "--concurrency", "1,4", "--quiet"),
                *("--num-requests", str(REQUESTS), "--warmup-requests", "10", "--input-length", str(WORDS)),
                *("--output-length", str(TOKENS), "--capacity-seconds", "0", "--limit", "ttft:60s", "--save"),
                *("--db-path", str(folder / "a.duckdb"), "--output-dir", str(folder)),
            ]
        )
    assert code == 0
    (file,) = folder.glob("load_*.json")
    return json.loads(file.read_text())["results"]


def test_every_response_of_each_level_has_the_requested_tokens(levels):
    assert [level["point"]["concurrency"] for level in levels] == [1, 4]
    for level in levels:
        (requests,) = level["requests"]
        assert (set(requests["error"]), set(requests["detail"])) == ({None}, {None})
        assert set(requests["tokens_out"]) == {TOKENS}
        assert {len(tokens) for tokens in requests["token_ms"]} == {TOKENS}
        assert level["metrics"]["goodput_share"] == 1.0
        doubts = {one["kind"]: one["evidence"] for one in level["doubts"]}
        assert doubts.keys() & OF_RESPONSES == {"other_input_length"}, "this model's tokens are single letters"
        assert doubts["other_input_length"]["asked"] == WORDS
        assert doubts["other_input_length"]["tokens"] == pytest.approx(level["point"]["sequence_length"], rel=0.2)


def test_the_servers_own_counters_are_those_of_the_measured_requests_without_the_warm_up(levels):
    for level in levels:
        (requests,) = level["requests"]
        change = {name: one["change"] for name, one in level["extra"]["load"]["server_metrics"].items()}
        assert change["llamacpp:tokens_predicted_total"] == REQUESTS * TOKENS
        computed = change["llamacpp:prompt_tokens_total"] + change["llamacpp:prompt_tokens_cached_total"]
        assert computed == sum(requests["tokens_in"])
