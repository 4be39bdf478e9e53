"""Loads on real servers that are no llama.cpp, each in a process of its own with a small Llama from a folder: mlx-lm's,
and vLLM's where BENCHHOUSE_TEST_VLLM names the Python that has it. vLLM needs an environment of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError

import pytest

pytest.importorskip("httptools")

from benchmarking.commands import load_server

pytestmark = pytest.mark.forked_children

REQUESTS, TOKENS, WORDS = 12, 6, 400
SETTINGS = {
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": WORDS,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
START_S = 240
BLOCK = 128
"""Tokens of which vLLM's prefix cache on a processor is made; shorter prompts are not in it."""
VLLM = os.environ.get("BENCHHOUSE_TEST_VLLM", "")
OF_VLLM = (
    *("-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "512", "--max-num-seqs", "8"),
)
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
}


def write_folder(folder: Path) -> None:
    """A Llama of random weights with a tokenizer of whole words, without an end of texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    config = LlamaConfig(**SETTINGS, bos_token_id=None, eos_token_id=None)
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"word{number}": number for number in range(WORDS)}, unk_token="word0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="word0")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)


@contextmanager
def serving(command: list[str], log: Path) -> Iterator[str]:
    """The address of a server in a process of its own, which answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    command = [*command, "--port", str(port)]
    environment = os.environ | ENVIRONMENT
    with (
        log.open("w") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=log.parent) as process,
    ):
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


def command_of(name: str, folder: Path) -> list[str]:
    """What starts a server; skips where it is not installed."""
    if name == "vllm":
        if not VLLM:
            pytest.skip("vLLM: set BENCHHOUSE_TEST_VLLM to the Python of an environment that has it")
        return [VLLM, "-P", *OF_VLLM, "--model", str(folder)]
    if find_spec("mlx_lm") is None:
        pytest.skip('mlx-lm: not installed: pip install "benchhouse[mlx]"')
    return [sys.executable, "-P", "-m", "mlx_lm", "server", "--model", str(folder)]


@pytest.fixture(scope="module", params=["mlx-lm", "vllm"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """The name, address and model of a server."""
    folder = tmp_path_factory.mktemp("server")
    command = command_of(request.param, folder / "model")
    write_folder(folder / "model")
    with serving(command, folder / "server.log") as url:
        yield request.param, url, str(folder / "model")


def loaded(server: tuple[str, str, str], folder: Path, *flags: str) -> list[dict]:
    """The levels of a load that was stored."""
    name, url, model = server
    code = load_server.main(
        [
            *("--url", url, "--model", model, "--engine", name, "--quiet", "--num-requests", str(REQUESTS)),
            *(
                "--warmup-requests",
                "4",
                "--output-length",
                str(TOKENS),
                "--capacity-seconds",
                "0",
                "--limit",
                "ttft:60s",
            ),
            *("--save", "--db-path", str(folder / "a.duckdb"), "--output-dir", str(folder), *flags),
        ]
    )
    assert code == 0
    newest = max(folder.glob("load_*.json"), key=lambda file: file.stat().st_mtime_ns)
    return json.loads(newest.read_text())["results"]


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_every_response_has_the_requested_tokens(server: tuple[str, str, str], tmp_path: Path, endpoint: str) -> None:
    levels = loaded(server, tmp_path, "--endpoint", endpoint, "--concurrency", "1,4", "--input-length", "8")
    assert [level["point"]["concurrency"] for level in levels] == [1, 4]
    for level in levels:
        (requests,) = level["requests"]
        assert (set(requests["error"]), set(requests["detail"])) == ({None}, {None})
        assert set(requests["tokens_out"]) == {TOKENS}
        assert level["metrics"]["goodput_share"] == 1.0


def test_vllms_counters_cover_the_measured_requests_and_reveal_cached_prompts(
    server: tuple[str, str, str], tmp_path: Path
) -> None:
    if server[0] != "vllm":
        pytest.skip(f"{server[0]} shows no counters")
    flags = ("--prompt-ids", str(WORDS), "--input-length", str(2 * BLOCK), "--concurrency", "2")
    (first,), (again,) = (loaded(server, tmp_path, *flags) for _ in range(2))
    change = {name: one["change"] for name, one in first["extra"]["load"]["server_metrics"].items()}
    assert change["vllm:generation_tokens_total"] == REQUESTS * TOKENS
    assert change["vllm:prompt_tokens_total"] == REQUESTS * 2 * BLOCK
    assert [one["tokens_in"] for one in first["requests"]] == [[2 * BLOCK] * REQUESTS]
    of_cache = [{one["kind"] for one in level["doubts"]} & {"prefix_cache_hit"} for level in (first, again)]
    assert of_cache == [set(), {"prefix_cache_hit"}]
