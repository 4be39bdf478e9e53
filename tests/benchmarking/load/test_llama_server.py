"""A load on a real server: llama.cpp's, with a small Llama."""

from __future__ import annotations

import json
import math
import urllib.request

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytest.importorskip("httptools")

from benchmarking.commands import load_server
from db.warehouse import Warehouse
from tests.helpers.llama_server import VOCABULARY, llama_server, write_model

pytestmark = pytest.mark.forked_children

REQUESTS, TOKENS, WORDS = 12, 6, 8
TEXT = ("thequickbrownfoxjumpsoverthelazydog" * 4)[:128]
"""One window in the model's tokens, which are letters."""
OF_RESPONSES = {
    *("failed_requests", "tokens_counted_as_chunks", "other_output_length"),
    *("other_input_length", "prefix_cache_hit", "held_open"),
}
"""Doubts about what the server sends. The others depend on what else the machine does, also on a busy one whether
chunks, or those of whole replies, arrive together."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run of two levels of a closed loop, with ten requests of warm-up before each, and of a text's quality."""
    folder = tmp_path_factory.mktemp("llama")
    (folder / "text.txt").write_text(TEXT)
    write_model(folder / "tiny.gguf")
    with llama_server(folder / "tiny.gguf", slots=4) as url:
        code = load_server.main(
            [
                *("--url", url, "--model", "tiny", "--engine", "llama-server", "--concurrency", "1,4", "--quiet"),
                *("--num-requests", str(REQUESTS), "--warmup-requests", "10", "--input-length", str(WORDS)),
                *("--output-length", str(TOKENS), "--capacity-seconds", "0", "--limit", "ttft:60s", "--save"),
                *("--db-path", str(folder / "a.duckdb"), "--output-dir", str(folder)),
                *("--quality-text", str(folder / "text.txt")),
            ]
        )
        assert code == 0
        (file,) = folder.glob("load_*.json")
        found = json.loads(file.read_text())
        found["surprises"] = surprises(url)
    with Warehouse.open(folder / "a.duckdb", read_only=True) as warehouse:
        (found["stored"], *_) = warehouse.query("SELECT perplexity FROM all_results").dicts()
    return found


@pytest.fixture(scope="module")
def levels(run):
    return run["results"]


def surprises(url):
    """-ln q of the tokens of the text that are scored, each by a request of its own for all probabilities."""
    ids, found = [ord(letter) - 33 for letter in TEXT], []
    for end in range(64, len(ids)):
        body = {"prompt": ids[:end], "n_predict": 1, "n_probs": VOCABULARY, "temperature": 0}
        request = urllib.request.Request(url.removesuffix("/v1") + "/completion", json.dumps(body).encode())
        with urllib.request.urlopen(request) as reply:
            (first,) = json.load(reply)["completion_probabilities"]
        of_token = {one["id"]: one["logprob"] for one in first["top_logprobs"]}
        assert math.fsum(map(math.exp, of_token.values())) == pytest.approx(1, abs=1e-4)
        found.append(-of_token[ids[end]])
    return found


def test_the_perplexity_is_by_the_probabilities_that_the_server_gives_for_each_token(run):
    expected = math.exp(math.fsum(run["surprises"]) / len(run["surprises"]))
    assert run["quality"]["values"]["perplexity"]["value"] == pytest.approx(expected, rel=1e-3)
    assert (run["quality"]["how"]["by"], run["quality"]["how"]["tokens_by"]) == ("n_probs", "the server")
    assert "no eager float32 model" in run["quality"]["missing"]["kl_divergence"]
    assert run["stored"]["perplexity"] == run["quality"]["values"]["perplexity"]["value"]


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
        assert doubts["other_input_length"]["tokens"] == pytest.approx(level["extra"]["load"]["prompt_tokens"], rel=0.2)
        assert level["point"]["sequence_length"] == WORDS


def test_the_servers_own_counters_are_those_of_the_measured_requests_without_the_warm_up(levels):
    for level in levels:
        (requests,) = level["requests"]
        change = {name: one["change"] for name, one in level["extra"]["load"]["server_metrics"].items()}
        assert change["llamacpp:tokens_predicted_total"] == REQUESTS * TOKENS
        computed = change["llamacpp:prompt_tokens_total"] + change["llamacpp:prompt_tokens_cached_total"]
        assert computed == sum(requests["tokens_in"])
