"""A state-space model as two graphs: "prefill" reads a prompt into fixed-size states, "decode" updates them.

transformers implements Mamba's scan as a Python loop, which an exporter would unroll for one length into thousands of
nodes. Here it is traced as torch's scan operator, which becomes ONNX's Scan, and the graph takes prompts of any length.
Mamba-2 computes in blocks and does not need this."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

from benchmarking.core.model_contracts import Recipe
from benchmarking.core.records import Point, Workload
from benchmarking.graphs.bundle import State
from benchmarking.graphs.export.agreement import traced_point
from benchmarking.graphs.export.graph_plans import BATCH, SEQUENCE, Plan, Traced
from benchmarking.workloads.support.generation import last_logits_only

CONV, RECURRENT = "conv", "recurrent"
SCAN = "mamba_selective_scan"
"""The loop's name in transformers' modules."""


class Prefill(torch.nn.Module):
    """From the prompt to states. The convolution's states always have its width, however short the prompt."""

    def __init__(self, model: Any, width: int) -> None:
        super().__init__()
        self.model = model
        self._width = width
        self._last_only = last_logits_only(model)

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        with scan_as_operator(self.model):
            output = self.model(input_ids=input_ids, use_cache=True, **self._last_only)
        states = states_of(output.cache_params, "present")
        for name, state in states.items():
            if name.endswith(CONV):
                # The traced graph keeps only the prompt's positions; the convolution pads them on the left itself.
                zeros = state.new_zeros((*state.shape[:-1], self._width))
                states[name] = torch.cat([zeros, state], dim=-1)[..., -self._width :]
        return {"logits": output.logits, **states}


class Decode(torch.nn.Module):
    """From a token and states to logits and the next states."""

    def __init__(self, model: Any, layers: int) -> None:
        super().__init__()
        self.model = model
        self._layers = layers

    def forward(self, input_ids: torch.Tensor, **past: torch.Tensor) -> dict[str, torch.Tensor]:
        from transformers import DynamicCache

        cache = DynamicCache(config=self.model.config)
        for index in range(self._layers):
            layer: Any = cache.layers[index]
            conv, recurrent = past[f"past_{index}_{CONV}"], past[f"past_{index}_{RECURRENT}"]
            # Cloned, because the layer updates its states in place.
            layer.conv_states[0], layer.recurrent_states[0] = conv.clone(), recurrent.clone()
            layer.conv_kernel_size[0] = conv.shape[-1]
            layer.is_conv_states_initialized[0] = layer.is_recurrent_states_initialized[0] = True
            layer.has_previous_state[0] = True
            layer.dtype, layer.device = conv.dtype, conv.device
        output = self.model(input_ids=input_ids, cache_params=cache, use_cache=True)
        return {"logits": output.logits, **states_of(output.cache_params, "present")}


def plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The graphs "prefill" and "decode"."""
    where = traced_point(workload, point, recipe)
    prompt = torch.ones((where.batch_size, where.sequence_length or 1), dtype=torch.int64)
    with torch.no_grad():
        past = states_of(model(input_ids=prompt, use_cache=True).cache_params, "past")
    prefill = Traced(
        module=Prefill(model, int(past[f"past_0_{CONV}"].shape[-1])),
        inputs={"input_ids": prompt},
        axes={"input_ids": {0: BATCH, 1: SEQUENCE}},
        feeds={"input_ids": "tokens"},
        result="logits",
    )
    outputs = {name: name.replace("past", "present", 1) for name in past}
    decode = Traced(
        module=Decode(model, len(past) // 2),
        inputs={"input_ids": prompt[:, :1], **past},
        axes={"input_ids": {0: BATCH}, **{name: {0: BATCH} for name in past}},
        feeds={"input_ids": "tokens"},
        states=tuple(
            State(input=name, output=output, first=(BATCH, *map(int, past[name].shape[1:])), first_from=output)
            for name, output in outputs.items()
        ),
        result="logits",
    )
    return Plan(graphs={"prefill": prefill, "decode": decode}, fields={"prompt_input": "input_ids"})


def states_of(cache: Any, prefix: str) -> dict[str, torch.Tensor]:
    """The states of every layer by name, cloned because a step writes to the layers' own tensors."""
    tensors: dict[str, torch.Tensor] = {}
    for index, layer in enumerate(cache.layers):
        tensors[f"{prefix}_{index}_{CONV}"] = layer.conv_states[0].clone()
        tensors[f"{prefix}_{index}_{RECURRENT}"] = layer.recurrent_states[0].clone()
    return tensors


@contextmanager
def scan_as_operator(model: Any) -> Iterator[None]:
    """Replaces the model's Python loop by torch's scan operator while inside."""
    module = sys.modules[type(model).__module__]
    before = getattr(module, SCAN, None)
    if before is not None:
        setattr(module, SCAN, selective_scan)
    try:
        yield
    finally:
        if before is not None:
            setattr(module, SCAN, before)


def selective_scan(
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,  # noqa: N803 - the paper's letters, and the names that the caller passes them by
    B: torch.Tensor,  # noqa: N803
    C: torch.Tensor,  # noqa: N803
    D: torch.Tensor,  # noqa: N803
    z: torch.Tensor,
    delta_bias: torch.Tensor | None = None,
    **unused: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mamba's recurrence over a sequence, and its last state.

    With hidden states x and gate z (batch x channels x length), time steps dt, A (channels x states), B and C (batch x
    states x length): h_t = exp(dt A) h_(t-1) + dt B x_t and y_t = C h_t + D x_t, times silu(z). Gu and Dao, "Mamba:
    Linear-Time Sequence Modeling with Selective State Spaces", 2023, formula 2 with the step sizes of section 3.2."""
    from torch._higher_order_ops.scan import scan

    step_sizes = functional.softplus(dt if delta_bias is None else dt + delta_bias[..., None].to(dt.dtype))
    by_time = step_sizes.permute(2, 0, 1)[..., None]  # length x batch x channels x 1
    decay = torch.exp(A * by_time)
    drive = by_time * B.permute(2, 0, 1)[:, :, None, :].float() * hidden_states.permute(2, 0, 1)[..., None].float()
    first = torch.zeros_like(drive[0]).to(hidden_states.dtype)

    def step(state: torch.Tensor, now: Any) -> tuple[torch.Tensor, torch.Tensor]:
        state = now[0] * state + now[1]
        return state, torch.matmul(state, now[2][..., None])[..., 0]

    last, outputs = scan(step, first, (decay, drive, C.permute(2, 0, 1)))
    scanned = outputs.permute(1, 2, 0) + hidden_states * D[None, :, None]
    return scanned * functional.silu(z), last
