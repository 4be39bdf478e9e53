"""Encoder-decoder text models (T5, BART and relatives): encode the input once, then generate one token at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.model_contracts import QualityKind, Recipe
from benchmarking.core.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads.support.families import positions
from benchmarking.workloads.support.generation import CACHES, EncoderDecoderGeneration
from benchmarking.workloads.support.transformers_models import TextFamily

RELATIVE_POSITIONS = frozenset({"longt5", "mt5", "t5", "umt5"})
"""Model types without a position table, and thus without a longest input (T5's `n_positions` is unused)."""


class EncoderDecoder(TextFamily):
    """T5, mT5, BART, mBART, Pegasus, M2M-100, Marian, Blenderbot, ..."""

    name: Family = "encoder-decoder"
    rank = 2
    without_sdpa = frozenset({"longt5", "mvp"})
    sdpa_since = {"mt5": (5, 15), "t5": (5, 15), "umt5": (5, 15)}  # noqa: RUF012 - TextFamily's annotation covers it
    model_types = (
        RELATIVE_POSITIONS
        | without_sdpa
        | {"bart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "pegasus", "plbart"}
    )
    quality: Mapping[str, QualityKind] = {"text2text-generation": "tokens"}

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        return None if config.get("model_type") in RELATIVE_POSITIONS else positions(config)

    def why_not_architecture(self, config: Mapping[str, Json], architectures: Sequence[str]) -> str | None:
        halves = [name for name in architectures if name.endswith(("EncoderModel", "ForCausalLM"))]
        if not halves and config.get("is_encoder_decoder") is not False:
            return None
        return f"half of an encoder-decoder model ({halves[0] if halves else 'is_encoder_decoder is false'})"

    def shares_positions(self, config: Mapping[str, Json]) -> bool:
        return False

    def recipe(self, workload: Workload) -> Recipe | str:
        return Recipe(plan="sequence-to-sequence")

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        return EncoderDecoderGeneration(model, point, inputs, cache=str(mode.get("cache", CACHES[0])))


PLUGIN = EncoderDecoder()
