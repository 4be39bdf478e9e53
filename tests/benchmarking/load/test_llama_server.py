"""A load on a real server: llama.cpp's, with a small Llama."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytest.importorskip("httptools")
pytest.importorskip("prometheus_client")

from benchmarking import load_server
from tests.helpers.llama_server import llama_server, write_model

REQUESTS, TOKENS = 12, 6


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    """The load facts, numbers and doubts of each level of a closed loop, with ten requests of warm-up before each."""
    folder = tmp_path_factory.mktemp("llama")
    write_model(folder / "tiny.gguf")
    with llama_server(folder / "tiny.gguf", slots=4) as url:
        code = load_server.main(
            [
                *("--url", url, "--model", "tiny", "--engine", "llama-server", "--concurrency", "1,4", "--quiet"),
                *("--num-requests", str(REQUESTS), "--warmup-requests", "10", "--input-length", "8"),
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
        assert {one["kind"] for one in level["doubts"]} <= {"shared_processors"}


def test_the_servers_own_counters_are_those_of_the_measured_requests_without_the_warm_up(levels):
    for level in levels:
        (requests,) = level["requests"]
        change = {name: one["change"] for name, one in level["extra"]["load"]["server_metrics"].items()}
        assert change["llamacpp:tokens_predicted_total"] == REQUESTS * TOKENS
        computed = change["llamacpp:prompt_tokens_total"] + change["llamacpp:prompt_tokens_cached_total"]
        assert computed == sum(requests["tokens_in"])
