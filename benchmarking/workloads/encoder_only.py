"""Encoder-only text models (BERT and relatives): one bidirectional pass over the whole input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.model_contracts import QualityKind, Recipe
from benchmarking.core.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads.support.families import positions
from benchmarking.workloads.support.generation import ForwardPass
from benchmarking.workloads.support.transformers_models import TextFamily

POSITIONS_AFTER_PADDING = frozenset(
    {"camembert", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl"}
)
"""Model types whose positions start at `pad_token_id` + 1, so the first ones are never used."""


class EncoderOnly(TextFamily):
    """BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA, DeBERTa, MPNet, ModernBERT, ..."""

    name: Family = "encoder-only"
    rank = 0
    without_sdpa = frozenset({"convbert", "deberta", "deberta-v2", "megatron-bert", "mpnet", "rembert", "roformer"})
    model_types = (
        POSITIONS_AFTER_PADDING
        | without_sdpa
        | {"albert", "bert", "distilbert", "electra", "ernie", "mobilebert", "modernbert"}
    )
    quality: Mapping[str, QualityKind] = {
        "feature-extraction": "embeddings",
        "fill-mask": "labels",
        "text-classification": "labels",
    }

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        limit = positions(config)
        if limit is None or config.get("model_type") not in POSITIONS_AFTER_PADDING:
            return limit
        padding = config.get("pad_token_id")
        return limit - (padding if isinstance(padding, int) else 1) - 1

    def why_not_architecture(self, config: Mapping[str, Json], architectures: Sequence[str]) -> str | None:
        if config.get("is_decoder") is True:
            return f"a {config.get('model_type')} configured as a decoder (is_decoder)"
        return None

    def recipe(self, workload: Workload) -> Recipe | str:
        return Recipe(plan="forward")

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        return ForwardPass(model, point, inputs)


PLUGIN = EncoderOnly()
