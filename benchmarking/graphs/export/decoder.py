"""A decoder-only model as one graph: tokens and what is kept of those before in, logits and what to keep out.

The prompt goes through the same graph as the tokens after it, with nothing kept yet (a past of length 0). Keys and
values of every layer are kept whole, also where a layer looks back over a window only: the mask that is in the graph
sees to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from benchmarking.graphs.bundle import State
from benchmarking.graphs.export.agreement import TRACED_BATCH_SIZE, TRACED_SEQUENCE_LENGTH
from benchmarking.graphs.export.tracing import BATCH, PAST, SEQUENCE, Plan, Traced
from benchmarking.graphs.recipes import Recipe
from benchmarking.records import Point, Workload
from benchmarking.workloads._generation import takes

TRACED_PAST = 5
KEY, VALUE = "key", "value"


class CachedStep(torch.nn.Module):
    """A model over a cache that is given and taken as tensors: past_0_key, past_0_value, past_1_key, ..."""

    def __init__(self, model: Any, layers: int) -> None:
        super().__init__()
        self.model = model
        self._layers = layers
        self._last_only = {"logits_to_keep": 1} if takes(model, "logits_to_keep") else {}

    def forward(self, input_ids: torch.Tensor, **past: torch.Tensor) -> dict[str, torch.Tensor]:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(self._layers):
            cache.update(past[f"past_{layer}_{KEY}"], past[f"past_{layer}_{VALUE}"], layer)
        output = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True, **self._last_only)
        return {"logits": output.logits, **kept(cache, "present")}


def plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The graph "decode", which takes the prompt too."""
    from transformers import DynamicCache

    cache = DynamicCache()
    ids = torch.ones((TRACED_BATCH_SIZE, TRACED_PAST), dtype=torch.int64)
    with torch.no_grad():
        model(input_ids=ids, past_key_values=cache, use_cache=True)
    past = kept(cache, "past")
    traced = Traced(
        module=CachedStep(model, len(cache.layers)),
        inputs={"input_ids": torch.ones((TRACED_BATCH_SIZE, TRACED_SEQUENCE_LENGTH), dtype=torch.int64), **past},
        axes={"input_ids": {0: BATCH, 1: SEQUENCE}, **{name: {0: BATCH, 2: PAST} for name in past}},
        feeds={"input_ids": "tokens"},
        states=growing_states(past),
        result="logits",
        result_name="logits",
    )
    return Plan(graphs={"decode": traced}, fields={"prompt_input": "input_ids"})


def kept(cache: Any, prefix: str) -> dict[str, torch.Tensor]:
    """The tensors of a cache by name."""
    tensors: dict[str, torch.Tensor] = {}
    for index, layer in enumerate(cache.layers):
        tensors |= {f"{prefix}_{index}_{KEY}": layer.keys, f"{prefix}_{index}_{VALUE}": layer.values}
    return tensors


def growing_states(past: Mapping[str, torch.Tensor]) -> tuple[State, ...]:
    """States that begin with no position (axis 2 of batch x heads x positions x width)."""
    return tuple(
        State(
            input=name,
            output=name.replace("past", "present", 1),
            first=(BATCH, int(tensor.shape[1]), 0, int(tensor.shape[3])),
        )
        for name, tensor in past.items()
    )
