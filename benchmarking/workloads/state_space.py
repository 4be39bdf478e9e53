"""State-space and other recurrent text models (Mamba, RWKV), with a fixed-size state instead of a growing cache."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.model_contracts import QualityKind, Recipe
from benchmarking.core.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads.support.configuration import integer
from benchmarking.workloads.support.generation import GreedyGeneration, last_logits_only, state_name
from benchmarking.workloads.support.transformers_models import TextFamily

KERNEL_PACKAGES = ("mamba_ssm", "causal_conv1d")
"""Packages with Mamba's scan and convolution; without them transformers runs its slow reference code."""

FALLBACK_LOGGER = "transformers.integrations.hub_kernels"
FALLBACK_WORDS = "reference PyTorch implementation"

CACHES = ("recurrent",)
"""The state has a fixed size, so there is no choice of cache."""


class RecurrentGeneration(GreedyGeneration):
    """Generation with a state-space model: the prompt becomes a fixed-size state, which each token updates.

    The model creates the state in the prefill, as in `generate`. No attention mask is passed: nothing is padded, and
    later steps never have one.
    """

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any]) -> None:
        super().__init__(point)
        self._model = model
        self._prompt = inputs["input_ids"]
        self._state_name = state_name(model)
        self._last_only = last_logits_only(model)

    def prefill(self) -> Any:
        return self._step(self._prompt)

    def decode(self, tokens: Any) -> Any:
        return self._step(tokens, **{self._state_name: self._cache})

    def _step(self, tokens: Any, **state: Any) -> Any:
        output = self._model(input_ids=tokens, use_cache=True, **state, **self._last_only)
        self._cache = getattr(output, self._state_name)
        return output.logits[:, -1]


@cache
def quiet_fallback() -> None:
    """Suppress the log line for every missing kernel, once per process: the running implementation is stored."""
    logging.getLogger(FALLBACK_LOGGER).addFilter(lambda record: FALLBACK_WORDS not in record.getMessage())


ONE_SEQUENCE = frozenset({"rwkv"})
"""Model types whose decode step is wrong for a batch: RWKV's state of the previous token lacks the sequence axis, which
mixes the sequences (seen in transformers 5.17 and 5.23)."""

BLOCK_SIZES = {"mamba2": 256}
"""Model types that compute in blocks of positions, with transformers' default size."""

SHORTEST_PROMPT = 2
"""Prompts shorter than the convolution's width change the shape of its state."""


class StateSpace(TextFamily):
    """Mamba, Mamba-2, Falcon Mamba, RWKV-4.

    A recurrence has no longest input. RWKV's `context_length` is the limit of its CUDA kernel, which checks it itself.
    """

    name: Family = "state-space"
    rank = 9
    has_attention_cache = False
    without_attention = frozenset({"falcon_mamba", "mamba", "mamba2", "rwkv"})
    model_types = without_attention
    quality: Mapping[str, QualityKind] = {"text-generation": "text"}
    caches: tuple[str, ...] = CACHES

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        return None

    def check(self, workload: Workload, point: Point) -> str | None:
        if (problem := super().check(workload, point)) is not None:
            return problem
        model_type, has_steps = workload.config.get("model_type"), (point.new_tokens or 0) > 1
        if model_type in ONE_SEQUENCE and has_steps and point.batch_size > 1:
            return (
                f"batch size {point.batch_size}: {model_type} in transformers mixes the sequences of a batch when "
                "decoding, so tokens and times would be wrong: use batch size 1"
            )
        return None

    def verified(self, model: Any) -> Mapping[str, Json]:
        """`recurrence`: "kernels" or "reference" (transformers' torch code, an order of magnitude slower);
        `recurrence_kernels`: the packages in use, or why each is not."""
        if model.config.model_type == "rwkv":
            # Its kernel is fetched from a hub and used on CUDA only.
            kernel = getattr(sys.modules[type(model).__module__], "rwkv_cuda_kernel", None)
            on_cuda = next(model.parameters()).device.type == "cuda"
            if kernel is not None and on_cuda:
                return {"recurrence": "kernels", "recurrence_kernels": {"rwkv": "in use"}}
            why = "not loaded" if on_cuda else "runs on CUDA only"
            return {"recurrence": "reference", "recurrence_kernels": {"rwkv": why}}
        states = dict.fromkeys(KERNEL_PACKAGES, "in use")
        for package in KERNEL_PACKAGES:
            try:
                importlib.import_module(package)
            except (ImportError, OSError) as error:  # OSError: an incompatible compiled library
                states[package] = str(error)
        is_complete = set(states.values()) == {"in use"}
        return {"recurrence": "kernels" if is_complete else "reference", "recurrence_kernels": dict[str, Json](states)}

    def recipe(self, workload: Workload) -> Recipe | str:
        model_type = str(workload.config.get("model_type"))
        if model_type == "rwkv":
            return "RWKV's state is updated in place, layer by layer, which neither exporter supports"
        default = BLOCK_SIZES.get(model_type)
        block_size = 0 if default is None else integer(workload.config, "chunk_size", default)
        return Recipe(plan="recurrent", block_size=block_size, shortest_prompt=SHORTEST_PROMPT)

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        quiet_fallback()
        return RecurrentGeneration(model, point, inputs)


PLUGIN = StateSpace()
