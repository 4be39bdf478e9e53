"""How well the model of a server predicts a text: by the probabilities of the text's tokens, as far as it gives them.

    echo              the prompt repeated with the log-probabilities of its tokens: vLLM, SGLang, and others that have
                      OpenAI's completions as they were
    prompt_logprobs   vLLM's own field with the same
    n_probs           llama-server repeats nothing: it is asked for each token of the text in turn, with the tokens
                      before it as the prompt, for the probabilities of the likeliest next tokens, or of all

The text, its windows and the perplexity are those of `benchhouse run --quality`. The tokens are sent as ids, which
--tokenizer makes, or the server itself. What compares with the eager float32 model has no value: its logits are not
on this side of the connection.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarking.core.codec import is_number
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.lazy_modules import np
from benchmarking.core.quality import MIN_WINDOWS, Quality, QualitySettings, without_quality
from benchmarking.core.records import FAILED, NOT_SUPPORTED, Json
from benchmarking.core.untrusted.input_files import parse_json
from benchmarking.core.untrusted.redaction import cut_to
from benchmarking.load.connections import Target
from benchmarking.load.observer import fetch
from benchmarking.measure.quality_measures import WindowScores, text_values

if TYPE_CHECKING:
    from benchmarking.workloads.support.quality_inputs import TextWindows

MAX_S = 300.0
"""Time for the text, after which its other windows are left out; and for one window that takes a request per token,
after which none are measured."""
LIKELIEST, ALL = 200, 1_000_000
"""How many of the likeliest next tokens are asked for: most texts' tokens are among the first, which keeps the answers
short; then all."""
MAX_ANSWER_BYTES = 100_000_000
"""Of an answer with the probabilities of all tokens of a vocabulary."""
MAX_REASON = 300
"""Characters of an error that are kept as the reason."""
IMPOSSIBLE = -9999.0
"""vLLM's logarithm of a probability of 0."""
MOST = 1 << 31
"""Above all ids of tokens."""
COMPARED = ("perplexity_increase", "kl_divergence", "kl_divergence_p99", "top1_agreement")
OF_TEXT = ("perplexity", *COMPARED)
"""The measures of a text, of which the latter compare with the reference."""
NO_REFERENCE = f"{NOT_SUPPORTED}: no eager float32 model stands beside a server: measure it by benchhouse run --quality"
Scored = Callable[[Target, Sequence[int], int], list[float]]
"""(server, tokens, count) -> log-probabilities of the last `count` tokens by those before each. Raises UnsupportedError
if the server does not give them."""


def server_quality(target: Target, settings: QualitySettings, folder: Path | None) -> Quality:
    """The perplexity of a server's model. `folder` has its tokenizer; None: the server makes the tokens. Whatever goes
    wrong becomes the reason of missing values."""
    try:
        windows = _windows(target, settings, folder)
        by, found, begin_s = "", list[WindowScores](), time.perf_counter()
        for index, tokens in enumerate(windows.tokens.tolist()):
            if index >= MIN_WINDOWS and (time.perf_counter() - begin_s) * (index + 1) / index > MAX_S:
                break
            by, logarithms = _first_given(target, tokens, windows.scored, by)
            found.append(WindowScores(surprise=-np.array(logarithms)))
    except UnsupportedError as error:
        return without_quality(f"{NOT_SUPPORTED}: {error}", OF_TEXT)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong costs the quality, not the levels
        name = "" if isinstance(error, BenchhouseError | OSError | ValueError) else f"{type(error).__name__}: "
        return without_quality(f"{FAILED}: {name}{cut_to(' '.join(str(error).split()), MAX_REASON)}", OF_TEXT)
    perplexity, missing = text_values(found)["perplexity"], dict.fromkeys(COMPARED, NO_REFERENCE)
    is_finite = math.isfinite(perplexity.value)
    if not is_finite:
        missing["perplexity"] = f"{NOT_SUPPORTED}: infinite, since an expected token has a probability of 0"
    how: dict[str, Json] = {
        "kind": "text",
        **windows.how,
        "windows": len(found),
        "windows_planned": len(windows.tokens),
        "by": by,
        "tokens_by": "the server" if folder is None else "--tokenizer",
        "seconds": time.perf_counter() - begin_s,
    }
    return Quality(
        inputs=windows.digest, values={"perplexity": perplexity} if is_finite else {}, missing=missing, how=how
    )


def _windows(target: Target, settings: QualitySettings, folder: Path | None) -> TextWindows:
    from benchmarking.workloads.support import processing
    from benchmarking.workloads.support.quality_inputs import first_tokens, windows_of

    if folder is not None:
        tokenizer = processing.load(folder, "text")
        prefix = first_tokens(tokenizer)

        def encode(text: str) -> list[int]:
            return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    else:
        plain, whole = (_tokens(target, "a", is_whole=is_whole) for is_whole in (False, True))
        prefix = whole[: len(whole) - len(plain)] if whole[-len(plain) :] == plain else []

        def encode(text: str) -> list[int]:
            return _tokens(target, text, is_whole=False)

    return windows_of(encode, prefix, settings)


def _tokens(target: Target, text: str, *, is_whole: bool) -> list[int]:
    """The server's tokens of a text, with those that begin one if it is whole. Raises UnsupportedError if it makes
    none."""
    fields: dict[str, Json] = {
        **dict.fromkeys(("prompt", "content"), text),  # of vLLM and SGLang, of llama-server
        **dict.fromkeys(("add_special_tokens", "add_special"), is_whole),
        "model": target.model,
    }
    try:
        tokens = _asked(target, _beside(target, "/tokenize"), fields).get("tokens")
    except UnsupportedError as error:
        raise UnsupportedError(f"the server makes no tokens of a text ({error}): give --tokenizer DIR") from error
    are_ids = isinstance(tokens, list) and all(isinstance(token, int) and 0 <= token < MOST for token in tokens)
    if not tokens or not are_ids:
        raise UnsupportedError("the server's /tokenize answers without tokens: give --tokenizer DIR")
    return list(tokens)


def _first_given(target: Target, tokens: Sequence[int], count: int, by: str) -> tuple[str, list[float]]:
    """The way in which the server gives the probabilities, or `by`, the one in which it did, and the logarithms. Raises
    UnsupportedError with the reason of each."""
    reasons = []
    for name, scored in WAYS.items():
        if by in ("", name):
            try:
                return name, scored(target, tokens, count)
            except UnsupportedError as error:
                reasons.append(f"{name}: {error}")
    raise UnsupportedError(f"the server gives no probabilities of a text's tokens ({'; '.join(reasons)})")


def _echoed(target: Target, tokens: Sequence[int], count: int) -> list[float]:
    fields = {"echo": True, "logprobs": 1}
    found = _choice(_completed(target, tokens, fields)).get("logprobs")
    values = found.get("token_logprobs") if isinstance(found, dict) else None
    if not isinstance(values, list) or not len(tokens) <= len(values) <= len(tokens) + 1:
        raise UnsupportedError("the prompt is not repeated with its tokens")
    return [_logarithm(value) for value in values[len(tokens) - count : len(tokens)]]


def _prompted(target: Target, tokens: Sequence[int], count: int) -> list[float]:
    answer = _completed(target, tokens, {"prompt_logprobs": 1})
    found = _choice(answer).get("prompt_logprobs", answer.get("prompt_logprobs"))
    if not isinstance(found, list) or len(found) != len(tokens):
        raise UnsupportedError("the answer has none")
    values = []
    for token, entry in list(zip(tokens, found, strict=True))[-count:]:
        one = entry.get(str(token)) if isinstance(entry, dict) else None
        values.append(_logarithm(one.get("logprob") if isinstance(one, dict) else None))
    return values


def _predicted(target: Target, tokens: Sequence[int], count: int) -> list[float]:
    found, begin_s = list[float](), time.perf_counter()
    for end in range(len(tokens) - count, len(tokens)):
        if time.perf_counter() - begin_s > MAX_S:
            raise UnsupportedError(f"{len(found)} of the {count} tokens of a window took {MAX_S:g} s")
        found.append(_next(target, tokens[:end], tokens[end]))
    return found


def _next(target: Target, prompt: Sequence[int], token: int) -> float:
    """The log-probability of a token after a prompt, by llama-server."""
    for number in (LIKELIEST, ALL):
        fields: dict[str, Json] = {"prompt": list(prompt), "n_predict": 1, "n_probs": number}
        fields |= {"temperature": 0, "cache_prompt": True}
        found = _asked(target, _beside(target, "/completion"), fields).get("completion_probabilities")
        first = found[0] if isinstance(found, list) and found else None
        entries = first.get("top_logprobs") if isinstance(first, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) and "id" in entry for entry in entries):
            raise UnsupportedError("the answer has no tokens with their ids")
        for entry in entries:
            if entry["id"] == token:
                return _logarithm(entry.get("logprob"))
    raise UnsupportedError("a token of the text is not among those that the server knows or gives")


WAYS: Mapping[str, Scored] = {"echo": _echoed, "prompt_logprobs": _prompted, "n_probs": _predicted}
"""How servers give the probabilities, in the order in which they are tried."""


def _logarithm(value: Any) -> float:
    """Raises UnsupportedError for what is no logarithm of a probability."""
    if not is_number(value) or math.isnan(value) or value > 1e-3:
        raise UnsupportedError("a token of the text has no log-probability")
    return -math.inf if value <= IMPOSSIBLE else min(0.0, float(value))


def _completed(target: Target, tokens: Sequence[int], fields: Mapping[str, Json]) -> dict[str, Any]:
    shared: dict[str, Json] = {"model": target.model, "prompt": list(tokens), "max_tokens": 1, "temperature": 0}
    return _asked(target, f"{urlsplit(target.url).path.rstrip('/')}/completions", {**shared, **fields})


def _beside(target: Target, path: str) -> str:
    """The path of a page that is not below /v1."""
    return urlsplit(target.url).path.rstrip("/").removesuffix("/v1") + path


def _choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _asked(target: Target, path: str, fields: Mapping[str, Json]) -> dict[str, Any]:
    """The server's answer to a request. Raises UnsupportedError for a refusal, OSError and ValueError for no answer."""
    body = json.dumps(fields).encode()
    status, text = fetch(target, path, body, target.timeout_s, MAX_ANSWER_BYTES)
    if status != HTTPStatus.OK:
        raise UnsupportedError(f"status {status}")
    answer = parse_json(text.encode(), f"the answer of {path}", constant=lambda name: None)
    if not isinstance(answer, dict):
        raise UnsupportedError("the answer is not an object")
    return answer
