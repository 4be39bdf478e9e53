"""How well a server's model predicts a text, by what its kind of server answers."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from benchmarking.core.quality import MIN_WINDOWS, Quality, QualitySettings, quality_lines
from benchmarking.core.records import from_json, to_json
from benchmarking.load import server_quality as server_quality_module
from benchmarking.load.connections import Target
from benchmarking.load.server_quality import COMPARED, OF_TEXT, server_quality
from benchmarking.workloads.support.quality_inputs import checked_text

BOS, VOCABULARY = 300, 301
SETTINGS = QualitySettings(windows=5)


def log_q(prompt: list[int], token: int) -> float:
    """The model: half of the probability is on the token before plus one, the rest is even."""
    return math.log(0.5 * (token == (prompt[-1] + 1) % VOCABULARY) + 0.5 / VOCABULARY)


def tokens_of(body: dict[str, Any]) -> dict[str, Any]:
    tokens = list(body.get("prompt", body.get("content")).encode())
    is_whole = body.get("add_special_tokens", body.get("add_special"))
    return {"tokens": [BOS, *tokens] if is_whole else tokens}


def completion(body: dict[str, Any], **choice: Any) -> dict[str, Any]:
    return {"choices": [{"text": "x", **choice}]}


def scores(ids: list[int]) -> list[float | None]:
    return [None, *(log_q(ids[:end], ids[end]) for end in range(1, len(ids)))]


def echoed(body: dict[str, Any]) -> dict[str, Any]:
    """vLLM and SGLang: the prompt's tokens, then the generated one."""
    return completion(body, logprobs={"token_logprobs": [*scores(body["prompt"]), -0.5]} if body.get("echo") else None)


def prompted(body: dict[str, Any]) -> dict[str, Any]:
    """vLLM's own field."""
    values = zip(body["prompt"], scores(body["prompt"]), strict=True)
    entries = [None if value is None else {str(token): {"logprob": value}, "7": {}} for token, value in values]
    return completion(body, prompt_logprobs=entries) if "prompt_logprobs" in body else completion(body)


def predicted(body: dict[str, Any]) -> dict[str, Any]:
    """llama-server: the likeliest next tokens."""
    ids = body["prompt"]
    order = sorted(range(VOCABULARY), key=lambda token: -log_q(ids, token))[: body["n_probs"]]
    return {"completion_probabilities": [{"top_logprobs": [{"id": one, "logprob": log_q(ids, one)} for one in order]}]}


@contextmanager
def server(pages: dict[str, Any]) -> Iterator[Target]:
    """A server whose pages are functions of a request, or a status."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            page = pages.get(self.path, 404)
            content = b"" if isinstance(page, int) else json.dumps(page(body)).encode()
            self.send_response(page if isinstance(page, int) else 200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        try:
            yield Target(url=f"http://127.0.0.1:{found.server_port}/v1", model="m", timeout_s=10)
        finally:
            found.shutdown()
            thread.join()


def unechoed(body: dict[str, Any]) -> dict[str, Any]:
    """Only the generated token."""
    return completion(body, logprobs={"token_logprobs": [-1.0]})


def retokenized(body: dict[str, Any]) -> dict[str, Any]:
    """Other tokens than those that were sent."""
    return echoed({**body, "prompt": [*body["prompt"], 1, 1]})


KINDS = {
    "echo": {"/v1/completions": echoed},
    "prompt_logprobs": {"/v1/completions": prompted},
    "n_probs": {"/v1/completions": 400, "/completion": predicted},
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_server_gives_the_perplexity_of_its_model(kind):
    with server({"/tokenize": tokens_of, **KINDS[kind]}) as target:
        found = server_quality(target, SETTINGS, None)
    ids = list(checked_text(None).encode())
    surprises = [-log_q(ids[:end], ids[end]) for end in range(64, 64 + 5 * 64)]
    assert found.values["perplexity"].value == pytest.approx(math.exp(sum(surprises) / len(surprises)))
    assert len(found.values["perplexity"].by_window) == 5
    assert (found.how["by"], found.how["tokens_by"], found.how["context_tokens"]) == (kind, "the server", 65)
    assert set(found.missing) == set(COMPARED)
    assert all("no eager float32 model stands beside a server" in why for why in found.missing.values())


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        ({"/tokenize": 404}, "the server makes no tokens of a text (status 404): give --tokenizer DIR"),
        ({"/tokenize": lambda body: {"tokens": ["a"]}}, "the server's /tokenize answers without tokens"),
        ({"/tokenize": lambda body: {"tokens": [10**200]}}, "the server's /tokenize answers without tokens"),
        ({"/tokenize": tokens_of, "/v1/completions": lambda body: []}, "echo: the answer is not an object"),
        ({"/tokenize": tokens_of, "/v1/completions": completion}, "n_probs: status 404"),
        ({"/tokenize": tokens_of, "/v1/completions": unechoed}, "echo: the prompt is not repeated with its tokens"),
        ({"/tokenize": tokens_of, "/v1/completions": retokenized}, "echo: the prompt is not repeated"),
    ],
)
def test_what_a_server_does_not_give_is_missing_with_the_reason(pages, why):
    with server(pages) as target:
        found = server_quality(target, SETTINGS, None)
    assert not found.values
    assert set(found.missing) == set(OF_TEXT)
    assert all(why in one for one in found.missing.values()), found.missing


def test_a_token_that_is_impossible_to_the_model_makes_the_perplexity_infinite():
    def impossible(body):
        return completion(body, logprobs={"token_logprobs": [None, *(-9999.0 for _ in body["prompt"])]})

    with server({"/tokenize": tokens_of, "/v1/completions": impossible}) as target:
        found = server_quality(target, SETTINGS, None)
    assert not found.values
    assert "infinite" in found.missing["perplexity"]


def test_a_token_that_a_server_does_not_list_has_an_unknown_probability():
    def cut(body):
        return predicted({**body, "n_probs": 10})

    with server({"/tokenize": tokens_of, "/v1/completions": 400, "/completion": cut}) as target:
        found = server_quality(target, SETTINGS, None)
    assert not found.values
    assert "a token of the text is not among those that the server knows or gives" in found.missing["perplexity"]


def test_a_window_that_is_next_to_impossible_leaves_values_that_a_record_can_hold():
    answers = iter([-5000.0, *[0.0] * 15])

    def odd(body):
        return completion(body, logprobs={"token_logprobs": [None, *[next(answers)] * len(body["prompt"])]})

    with server({"/tokenize": tokens_of, "/v1/completions": odd}) as target:
        found = server_quality(target, QualitySettings(), None)
    assert from_json(Quality, to_json(found)) == found


def test_a_text_that_takes_too_long_says_how_many_windows_are_left_out(monkeypatch):
    """Two servers that scored different windows have different perplexities, whatever their models."""
    monkeypatch.setattr(server_quality_module, "MAX_S", 0.0)
    with server({"/v1/completions": echoed, "/tokenize": tokens_of}) as target:
        found = server_quality(target, QualitySettings(windows=8), None)
    assert (found.how["windows"], found.how["windows_planned"]) == (MIN_WINDOWS, 8)
    (line,) = [one for one in quality_lines(found) if "perplexity" in one and "windows" in one]
    assert f"({MIN_WINDOWS} of 8 windows of quality_text.txt; the time was over, and other windows are" in line


def test_a_server_that_is_gone_costs_the_quality_alone():
    with server({}) as target:
        pass
    assert set(server_quality(target, SETTINGS, None).missing.values()) == {"failed: [Errno 111] Connection refused"}
