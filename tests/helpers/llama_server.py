"""llama.cpp's own HTTP server (by xllamacpp), with a Llama of random weights that is made in an instant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, LAYERS, HEADS, INNER, VOCABULARY, CONTEXT = 64, 2, 4, 128, 512, 512


def write_model(path: Path, **parts: Any) -> None:
    """A GGUF file of 0.2 million values, with a vocabulary of words that prompts of text are made of; in parts as
    GGUFWriter takes them."""
    import gguf

    chance = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama", **parts)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_merges(["a b"])
    # The texts of ASCII and of the space as GPT-2 has them: prompts are made of them, and each token is a whole text.
    letters = [chr(code) for code in (*range(33, 127), 288)]
    writer.add_token_list([*letters, "ab", *(f"<{number}>" for number in range(VOCABULARY - len(letters) - 1))])
    writer.add_token_types([int(gguf.TokenType.NORMAL)] * VOCABULARY)
    writer.add_add_bos_token(False)
    shapes = {
        "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER),
    }  # fmt: skip
    writer.add_tensor("token_embd.weight", chance.normal(size=(VOCABULARY, WIDTH)).astype(np.float32))
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            values = chance.normal(scale=0.12, size=shape).astype(np.float32)
            writer.add_tensor(f"blk.{layer}.{name}.weight", values)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, dtype=np.float32))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@contextmanager
def llama_server(path: Path, slots: int, port: int = 0) -> Iterator[str]:
    """The address of a server in this process, by default at a port of the system's choice, with its metrics shown."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_parallel, parameters.n_ctx, parameters.kv_unified = slots, slots * CONTEXT, False
    parameters.warmup, parameters.verbosity, parameters.fit_params = False, -1, False
    parameters.cache_ram_mib = 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.hostnames, parameters.port, parameters.endpoint_metrics = ["127.0.0.1"], port, True
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server


if __name__ == "__main__":  # MODEL PORT SLOTS, as a program of its own
    import sys
    import time

    with llama_server(Path(sys.argv[1]), slots=int(sys.argv[3]), port=int(sys.argv[2])) as address:
        print(f"listening at {address}", flush=True)
        while True:
            time.sleep(1)
