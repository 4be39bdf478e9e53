"""A model's weights as a Hugging Face folder, from which converters of engines start.

A model of the catalog has no tokenizer, and converters and engines want one. It gets a vocabulary of as many words as
the model has embeddings, in which the text of an id names the id: `t17` is 17. So whatever an engine gives of a token,
its id or its text, is its id, and every token is a whole text of its own.
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
from benchmarking.workloads.support.processing import HUB_FILES, present

KIND = "checkpoint"
VERSION = 2
"""Raised when the same model is saved as other files."""
BEGIN, END = 0, 1
"""Ids that the vocabulary names as the first and last of a text. Calls ignore the second."""


def token_text(token: int) -> str:
    """The text of a token in the vocabulary of a model without a tokenizer."""
    return f"t{token}"


def token_of(text: str) -> int:
    """The token of a text of that vocabulary. Raises ValueError for any other text."""
    if not text.startswith("t"):
        raise ValueError(f"{text!r} is no token of the vocabulary of ids")
    return int(text[1:])


def vocabulary_size(workload: Workload) -> int:
    """How many embeddings the model has."""
    return int(str(workload.config["vocab_size"])) if workload.vocab_size is None else workload.vocab_size


def torch_model(workload: Workload, precision: Precision = "float32") -> Any:
    """The model that eager runs: the same weights, pretrained or seeded. Needs torch."""
    from benchmarking.runtimes.support.torch.model_loading import load_model

    return load_model(workload, precision, None)[0]


def checkpoint(workload: Workload, precision: Precision = "float32") -> tuple[BuildKey, Make]:
    """The key of a model's folder, and what makes it: config.json, safetensors and a tokenizer."""
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
        _name_as_before(folder / "config.json")
        save_tokenizer(workload, folder)
        return {"parameters": sum(parameter.numel() for parameter in model.parameters())}

    return BuildKey(kind=KIND, parts=parts), make


def rope_as_before(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rotation of positions in a configuration's keys of before transformers 5, where engines look for it.

    transformers 5 keeps all of it under `rope_parameters`. An engine that knows only `rope_theta` and `rope_scaling`
    takes its default base in place of the model's, and says nothing. Empty for a model without a rotation, or with one
    per kind of layer.
    """
    rope = config.get("rope_parameters")
    if not isinstance(rope, Mapping) or "rope_theta" not in rope:
        return {}
    found = {key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    kind = rope.get("rope_type", "default")
    return {**found, "rope_scaling": None if kind == "default" else {**rope, "type": kind}}


def _name_as_before(file: Path) -> None:
    """Add a saved configuration's former keys of positions."""
    config = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**config, **rope_as_before(config)}, indent=2), encoding="utf-8")


def save_tokenizer(workload: Workload, folder: Path) -> None:
    """The model's own tokenizer, or one of ids as text."""
    if workload.path is not None and present(Path(workload.path), "text"):
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
