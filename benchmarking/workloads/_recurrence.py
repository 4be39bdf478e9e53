"""Greedy generation with a recurrent state, and which code the recurrence runs in."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping
from typing import Any

from benchmarking.records import Json, Point
from benchmarking.workloads._generation import GreedyGeneration, takes

KERNEL_PACKAGES = ("mamba_ssm", "causal_conv1d")
"""What Mamba's scan and convolution come from where they are installed; transformers has slow ones of its own."""
FALLBACK_LOGGER = "transformers.integrations.hub_kernels"
FALLBACK_WORDS = "reference PyTorch implementation"

CACHES = ("recurrent",)
"""A state of a fixed size, whatever was read: there is nothing to choose."""


class RecurrentGeneration(GreedyGeneration):
    """A state-space model's: the prompt becomes a state of a fixed size, and each token changes it.

    The model makes the state itself in the prefill, as it does in `generate`. No attention mask is passed: nothing is
    padded, and later steps never have one.
    """

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any]) -> None:
        super().__init__(point)
        self._model = model
        self._prompt = inputs["input_ids"]
        self._state_name = "cache_params" if takes(model, "cache_params") else "state"  # Mamba's, RWKV's
        # As `generate` does: only the last position's logits are needed, and a vocabulary is wide.
        self._last_only = {"logits_to_keep": 1} if takes(model, "logits_to_keep") else {}

    def prefill(self) -> Any:
        return self._step(self._prompt)

    def decode(self, tokens: Any) -> Any:
        return self._step(tokens, **{self._state_name: self._cache})

    def _step(self, tokens: Any, **state: Any) -> Any:
        output = self._model(input_ids=tokens, use_cache=True, **state, **self._last_only)
        self._cache = getattr(output, self._state_name)
        return output.logits[:, -1]


def implementation(model: Any) -> dict[str, Json]:
    """`recurrence`: "kernels" or "reference", transformers' own torch code, which is slower by an order of magnitude;
    `recurrence_kernels`: the packages in use, or why each is not."""
    if model.config.model_type == "rwkv":
        return _wkv_implementation(model)
    why_not = {package: _why_not(package) for package in KERNEL_PACKAGES}
    found = not any(why_not.values())
    return {
        "recurrence": "kernels" if found else "reference",
        "recurrence_kernels": {package: why or "in use" for package, why in why_not.items()},
    }


def quiet_fallback() -> None:
    """No line on stderr for every kernel that is not there: which code runs is stored instead."""
    logging.getLogger(FALLBACK_LOGGER).addFilter(_is_no_fallback)


def _is_no_fallback(record: logging.LogRecord) -> bool:
    return FALLBACK_WORDS not in record.getMessage()


def _why_not(package: str) -> str | None:
    """None for a package that is in use, or its ImportError: transformers imports it where it can."""
    try:
        importlib.import_module(package)
    except (ImportError, OSError) as error:  # OSError: a compiled library that does not fit
        return str(error)
    return None


def _wkv_implementation(model: Any) -> dict[str, Json]:
    """RWKV's kernel is fetched from a hub, by a model made on a machine with CUDA, and only used there."""
    kernel = getattr(sys.modules[type(model).__module__], "rwkv_cuda_kernel", None)
    on_cuda = next(model.parameters()).device.type == "cuda"
    if kernel is not None and on_cuda:
        return {"recurrence": "kernels", "recurrence_kernels": {"rwkv": "in use"}}
    why = "not loaded" if on_cuda else "runs on CUDA only"
    return {"recurrence": "reference", "recurrence_kernels": {"rwkv": why}}
