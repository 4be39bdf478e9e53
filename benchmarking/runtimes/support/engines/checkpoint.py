"""A model's weights as a Hugging Face folder, the input of the engines' converters.

A catalog model has no tokenizer, but converters and engines need one. It gets a vocabulary with one word per embedding,
whose text names its id: `t17` is 17. Whether an engine returns ids or text, the ids are known, and every token is
complete text on its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarking.builds.store import BuildKey, Make, model_parts
from benchmarking.core.plugins import version_of
from benchmarking.core.records import Json, Precision, Workload
from benchmarking.workloads.support.processing import HUB_FILES, has_processor

KIND = "checkpoint"
VERSION = 2
"""Increased whenever the files saved for a model change."""
BEGIN, END = 0, 1
"""Ids of the begin and end tokens in the vocabulary. Calls ignore the end token."""


def token_text(token: int) -> str:
    """The text of a token in the vocabulary of ids."""
    return f"t{token}"


def token_of(text: str) -> int:
    """The token with a text in the vocabulary of ids. Raises ValueError for any other text."""
    if not text.startswith("t"):
        raise ValueError(f"{text!r} is not a token in the vocabulary of ids")
    return int(text[1:])


def vocabulary_size(workload: Workload) -> int:
    """The number of embeddings of the model."""
    return int(str(workload.config["vocab_size"])) if workload.vocab_size is None else workload.vocab_size


def torch_model(workload: Workload, precision: Precision = "float32") -> Any:
    """The model as runtime eager loads it, pretrained or seeded. Needs torch."""
    from benchmarking.runtimes.support.torch.model_loading import load_model

    return load_model(workload, precision, None)[0]


def checkpoint(workload: Workload, precision: Precision = "float32") -> tuple[BuildKey, Make]:
    """The key of a model's folder, and a function that creates it: config.json, safetensors and a tokenizer."""
    parts: dict[str, Json] = {
        **model_parts(workload),
        "precision": precision,
        "version": VERSION,
        "versions": {name: version_of(name) for name in ("torch", "transformers")},
    }

    def make(folder: Path) -> Mapping[str, Json]:
        model = torch_model(workload, precision)
        model.config.eos_token_id, model.config.bos_token_id = END, BEGIN
        model.generation_config.eos_token_id, model.generation_config.bos_token_id = END, BEGIN
        model.save_pretrained(folder)
        file = folder / "config.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**config, **legacy_rope_keys(config)}, indent=2), encoding="utf-8")
        save_tokenizer(workload, folder)
        return {"parameters": sum(parameter.numel() for parameter in model.parameters())}

    return BuildKey(kind=KIND, parts=parts), make


def legacy_rope_keys(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rotary embedding under the configuration keys used before transformers 5, which engines read.

    transformers 5 stores it under `rope_parameters`. An engine that reads only `rope_theta` and `rope_scaling` would
    silently use its default base instead of the model's. Empty for a model without rotary embeddings, or with separate
    ones per kind of layer.
    """
    rope = config.get("rope_parameters")
    if not isinstance(rope, Mapping) or "rope_theta" not in rope:
        return {}
    keys = {key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    kind = rope.get("rope_type", "default")
    return {**keys, "rope_scaling": None if kind == "default" else {**rope, "type": kind}}


def save_tokenizer(workload: Workload, folder: Path) -> None:
    """Save the model's own tokenizer, or one with the vocabulary of ids."""
    if workload.path is not None and has_processor(Path(workload.path), "text"):
        for name in HUB_FILES:
            if (source := Path(workload.path) / name).is_file():
                shutil.copyfile(source, folder / name)
        return
    vocabulary = {token_text(token): token for token in range(vocabulary_size(workload))}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": token,
                "content": token_text(token),
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in (BEGIN, END)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": token_text(BEGIN)},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": token_text(BEGIN),
        "eos_token": token_text(END),
        "unk_token": token_text(BEGIN),
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
