"""Decoder-only text models (GPT and relatives): the prompt in one pass, then one token at a time from a cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.model_contracts import QualityKind, Recipe
from benchmarking.core.records import Family, Point, Scalar, Workload
from benchmarking.workloads.support.generation import CACHES, DecoderGeneration, ForwardPass
from benchmarking.workloads.support.transformers_models import TextFamily


class DecoderOnly(TextFamily):
    """GPT-2, OPT, GPT-NeoX, Llama, Mistral, Qwen, Gemma, Phi, Falcon, BLOOM, ..."""

    name: Family = "decoder-only"
    rank = 1
    without_sdpa = frozenset({"bloom", "codegen", "gemma2", "gpt_neo", "gptj", "mpt", "xglm"})
    model_types = without_sdpa | {
        *("cohere", "falcon", "gemma", "gemma3_text", "gpt2", "gpt_bigcode", "gpt_neox"),
        *("granite", "llama", "mistral", "olmo", "olmo2", "opt", "phi"),
        *("phi3", "qwen2", "qwen3", "smollm3", "stablelm", "starcoder2"),
    }
    quality: Mapping[str, QualityKind] = {"text-generation": "text", "feature-extraction": "embeddings"}

    def recipe(self, workload: Workload) -> Recipe | str:
        return Recipe(plan="decoder" if workload.task in self.generative_tasks else "forward")

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        if workload.task not in self.generative_tasks:
            return ForwardPass(model, point, inputs)
        return DecoderGeneration(model, point, inputs, cache=str(mode.get("cache", CACHES[0])))


PLUGIN = DecoderOnly()
