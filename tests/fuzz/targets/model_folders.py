"""Folders of models: configuration, tokenizer, headers and indexes of weights, names, links, code."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from random import Random

from tests.fuzz.base import MODEL, TENSORS, TOKENIZER, write_model
from tests.fuzz.mutations import bytes_mutated, tree_mutated
from tests.fuzz.sandbox import Command, Scratch

TYPES = ("bert", "gpt2", "llama", "t5", "vit", "whisper", "clip", "mamba", "mixtral", "llava", "x", "../x", "auto")
NAMES = ("model", "m" * 240, "m\x1b[31m", "é", "=1+1", "m;touch x", " m ", "[red]x", "m\udcff")
MEASURING = ("--batch-sizes", "1", "--sequence-lengths", "8", "--profile", "quick", "--iterations", "2", "--quiet")
ONCE = ("--warmup-iterations", "0", "--launches", "1", "--timeout", "30")
MEASURED_SHARE = 0.04
"""Of cases that load the model: each takes many seconds."""
TORCHS_CACHE = "tmp/torchinductor_"
"""An empty folder that torch makes for compiled code as soon as transformers is imported."""


def make(random: Random, scratch: Scratch, base: Path) -> tuple[Command, ...]:
    """Write the input of a case; its commands."""
    name = random.choice((*NAMES, *["model"] * 12))
    folder = scratch.work / name
    write_model(folder, {file: content for _ in range(random.choice((1, 1, 2))) for file, content in _file(random)})
    _replace(random, folder)
    weights = random.choice(("auto", "random", "pretrained"))
    place = name if random.random() < 0.7 else f"./{name}"
    if random.random() < 0.1:  # in the folder itself
        for path in folder.iterdir():
            if not (scratch.work / path.name).exists():
                path.rename(scratch.work / path.name)
        place = "."
    words = ("run_hardware_benchmark", "--model-id", place, "--weights", weights)
    if random.random() < MEASURED_SHARE:
        words = (*words, "--device", "cpu", *MEASURING, *ONCE)
        return (Command(words=words, limit_s=150, lines=5, writes=(TORCHS_CACHE,)),)
    words = (*words, "--device", random.choice(("cpu", "null")), "--dry-run")
    return (Command(words=words, limit_s=60),)


def _file(random: Random) -> tuple[tuple[str, bytes], ...]:
    match random.randrange(8):
        case 0 | 1 | 2:
            config = {**MODEL, "model_type": random.choice(TYPES)} if random.random() < 0.4 else MODEL
            return (("config.json", _mutated(random, config)),)
        case 3:
            return (("tokenizer.json", _mutated(random, TOKENIZER)),)
        case 4:
            file = random.choice(("tokenizer_config.json", "generation_config.json", "preprocessor_config.json"))
            return ((file, _mutated(random, {"tokenizer_class": "BertTokenizer", "size": 8, "max_new_tokens": 4})),)
        case 5:
            index = {"metadata": {"total_size": 16}, "weight_map": {"w": "model-00001-of-00001.safetensors"}}
            return (("model.safetensors.index.json", _mutated(random, index)),)
    header = _mutated(random, TENSORS)
    length = len(header) if random.random() < 0.8 else random.choice((0, 1, 2**32, 2**62, 2**64 - 1))
    content = struct.pack("<Q", length) + header + bytes(random.choice((0, 15, 16, 1000)))
    return (("model.safetensors", content if random.random() < 0.8 else bytes_mutated(random, content)),)


def _mutated(random: Random, data: object) -> bytes:
    text = tree_mutated(random, json.loads(json.dumps(data))).encode()
    return bytes_mutated(random, text) if random.random() < 0.1 else text


def _replace(random: Random, folder: Path) -> None:
    """Put something else in the place of a file."""
    if random.random() < 0.8:
        return
    path = folder / random.choice(("config.json", "tokenizer.json", "model.safetensors", "generation_config.json"))
    path.unlink(missing_ok=True)
    match random.randrange(5):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(random.choice(("nowhere", "/dev/zero", "../../outside/canary.txt", path.name)))
        case 3:
            (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch ../outside/pwned'\ntR.")
        case _:
            path.touch()
