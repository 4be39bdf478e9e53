"""Mixture-of-experts text models (Mixtral, OLMoE, Switch and their kin): each token passes through a few experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads import _limits
from benchmarking.workloads._text import TextFamily

if TYPE_CHECKING:
    from benchmarking.workloads import FamilyOperation

ENCODER_DECODERS = frozenset({"switch_transformers"})
"""Model types with an encoder. They have relative positions, and so no longest input."""


class MixtureOfExperts(TextFamily):
    """Mixtral, OLMoE, Qwen's, DeepSeek's, gpt-oss, Phi-3.5 and Granite mixtures, ERNIE 4.5; Switch Transformers.

    With random weights the routing is not that of the trained model: its times are good to compare, its load of the
    experts is not (such results have the doubt random_routing).
    """

    name: Family = "mixture-of-experts"
    without_sdpa = frozenset({"gpt_oss", "switch_transformers"})
    model_types = (
        without_sdpa
        | ENCODER_DECODERS
        | {
            "deepseek_v2",
            "deepseek_v3",
            "ernie4_5_moe",
            "granitemoe",
            "mixtral",
            "olmoe",
            "phimoe",
            "qwen2_moe",
            "qwen3_moe",
        }
    )
    tasks: tuple[str, ...] = ("text-generation", "text2text-generation")
    generative_tasks = frozenset({"text-generation", "text2text-generation"})

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        return ("text2text-generation",) if config.get("model_type") in ENCODER_DECODERS else ("text-generation",)

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        return None if config.get("model_type") in ENCODER_DECODERS else _limits.positions(config)

    def check(self, workload: Workload, point: Point) -> str | None:
        shared = workload.config.get("model_type") not in ENCODER_DECODERS
        return _limits.why_not(workload, point, generates=True, shared_positions=shared)

    def verified(self, model: Any) -> Mapping[str, Json]:
        """`experts`: how the chosen experts are computed (transformers' name), "eager" being one after the other."""
        return {"experts": getattr(model.config, "_experts_implementation", None) or "eager"}

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        from benchmarking.workloads import _routing

        cache = str(mode.get("cache", self.caches[0]))
        if workload.task == "text2text-generation":
            return _routing.RoutedEncoderDecoderGeneration(model, point, inputs, cache)
        return _routing.RoutedDecoderGeneration(model, point, inputs, cache)


PLUGIN = MixtureOfExperts()
