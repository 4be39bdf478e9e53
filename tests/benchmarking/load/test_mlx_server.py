"""A load on a second real server, which is no llama.cpp: mlx-lm's, with a small Llama in a folder."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.error import URLError

import pytest

pytest.importorskip("mlx_lm")
pytest.importorskip("httptools")

from benchmarking import load_server

REQUESTS, TOKENS, WORDS = 12, 6, 400
SETTINGS = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": WORDS,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
START_S = 120


def write_folder(folder: Path) -> None:
    """A Llama of random weights with a tokenizer of whole words, without an end of texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    config = LlamaConfig(**SETTINGS, bos_token_id=None, eos_token_id=None)
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"word{number}": number for number in range(WORDS)}, unk_token="word0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="word0").save_pretrained(folder)


@contextmanager
def mlx_server(folder: Path) -> Iterator[str]:
    """The address of a server in a process of its own, which answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-P", "-m", "mlx_lm", "server", "--model", str(folder), "--port", str(port)]
    log = folder / "server.log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            url = f"http://127.0.0.1:{port}/v1"
            deadline = time.monotonic() + START_S
            while not answers(f"{url}/models"):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_every_request_is_answered_with_the_tokens_that_were_asked_for(tmp_path, monkeypatch, endpoint):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_folder(tmp_path / "model")
    with mlx_server(tmp_path / "model") as url:
        code = load_server.main(
            [
                *(
                    "--url",
                    url,
                    "--model",
                    str(tmp_path / "model"),
                    "--engine",
                    "mlx-lm",
                    "--endpoint",
                    endpoint,
                    "--quiet",
                ),
                *("--concurrency", "1,4", "--num-requests", str(REQUESTS), "--warmup-requests", "4"),
                *("--input-length", "8", "--output-length", str(TOKENS), "--capacity-seconds", "0", "--save"),
                *("--slo", "ttft:60s", "--db-path", str(tmp_path / "a.duckdb"), "--output-dir", str(tmp_path)),
            ]
        )
    assert code == 0
    (file,) = tmp_path.glob("load_*.json")
    levels = json.loads(file.read_text())["results"]
    assert [level["point"]["concurrency"] for level in levels] == [1, 4]
    for level in levels:
        (requests,) = level["requests"]
        assert (set(requests["error"]), set(requests["detail"])) == ({None}, {None})
        assert set(requests["tokens_out"]) == {TOKENS}
        assert level["metrics"]["goodput_share"] == 1.0
