"""Models that are exported as several graphs: an encoder-decoder model as three, a state-space model as two.

The graphs of an encoder-decoder model:

encoder  from the family's inputs to hidden states
cross    from hidden states to the keys and values of the decoder's cross-attention, layer by layer
decode   from tokens, keys and values of earlier tokens, and those of cross, to logits, keys and values

So no step repeats computations on the encoder's output, and the cost of cross is in the prefill, as in torch.

Those of a state-space model: "prefill" reads a prompt into fixed-size states, "decode" updates them.

transformers implements Mamba's scan as a Python loop, which an exporter would unroll for one length into thousands of
nodes. Here it is traced as torch's scan operator, which becomes ONNX's Scan, and the graph takes prompts of any length.
Mamba-2 computes in blocks and does not need this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from benchmarking.core.model_contracts import Recipe
from benchmarking.core.records import Point, Workload
from benchmarking.graphs.bundle import State
from benchmarking.graphs.export.agreement import traced_point
from benchmarking.graphs.export.graph_plans import (
    BATCH,
    ENCODED,
    FREE_AXES,
    KEY,
    PAST,
    SEQUENCE,
    TRACED_PAST,
    VALUE,
    Plan,
    Traced,
    cache_tensors,
    family_inputs,
    growing_states,
)
from benchmarking.workloads.support.generation import last_logits_only, start_token, state_name

TRACED_TOKENS = 3
HIDDEN = "encoded"

Encode = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]
"""Computes the hidden states from the family's inputs."""
Decode = Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]
"""Computes logits from tokens, hidden states and a cache, which it updates."""


class Encoder(torch.nn.Module):
    """Only the encoder. It holds the whole model, so that nodes are named by the modules' paths in it."""

    def __init__(self, model: torch.nn.Module, encode: Encode) -> None:
        super().__init__()
        self.model = model
        self._encode = encode

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {HIDDEN: self._encode(inputs)}


class Cross(torch.nn.Module):
    """The decoder's keys and values for the hidden states. The rest of the step that makes them feeds no output, so the
    exporter drops it from the graph."""

    def __init__(self, model: torch.nn.Module, decode: Decode) -> None:
        super().__init__()
        self.model = model
        self._decode = decode

    def forward(self, encoded: torch.Tensor) -> dict[str, torch.Tensor]:
        cache = empty_cache()
        self._decode(torch.ones((encoded.shape[0], 1), dtype=torch.int64), encoded, cache)
        return cache_tensors(cache.cross_attention_cache, "cross")


class Decoder(torch.nn.Module):
    """A decoder step on tensors: past_0_key, ..., cross_0_key, ..."""

    def __init__(self, model: torch.nn.Module, decode: Decode, layers: int, hidden_size: int) -> None:
        super().__init__()
        self.model = model
        self._decode, self._layers, self._hidden_size = decode, layers, hidden_size

    def forward(self, input_ids: torch.Tensor, **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        cache = empty_cache()
        for layer in range(self._layers):
            for part, prefix in ((cache.self_attention_cache, "past"), (cache.cross_attention_cache, "cross")):
                part.update(tensors[f"{prefix}_{layer}_{KEY}"], tensors[f"{prefix}_{layer}_{VALUE}"], layer)
            cache.is_updated[layer] = True  # makes the layer use the given keys and values
        first = tensors[f"cross_0_{KEY}"]
        # The layers read the presence and length of hidden states, but not their values.
        unread = torch.zeros((first.shape[0], first.shape[2], self._hidden_size), dtype=first.dtype)
        logits = self._decode(input_ids, unread, cache)
        return {"logits": logits, **cache_tensors(cache.self_attention_cache, "present")}


def plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The three graphs of a model with `get_encoder`, such as transformers' sequence-to-sequence models."""
    encoder = model.get_encoder()
    inputs = family_inputs(model, workload, traced_point(workload, point, recipe))
    with torch.no_grad():
        kind = type(encoder(**inputs))  # for a mixture of experts it has more fields, which the model reads

    def decode(tokens: torch.Tensor, encoded: torch.Tensor, cache: Any) -> torch.Tensor:
        output = model(
            decoder_input_ids=tokens,
            encoder_outputs=kind(last_hidden_state=encoded),
            past_key_values=cache,
            use_cache=True,
        )
        logits: torch.Tensor = output.logits
        return logits

    graphs = three_graphs(model, inputs, Encoder(model, lambda given: encoder(**given).last_hidden_state), decode)
    return Plan(graphs=graphs, fields={"start_tokens": recipe.start_tokens or (start_token(model),)})


def caption_plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The three graphs of BLIP: the image tower is the encoder, and the prompt is the start of the caption."""
    from benchmarking.workloads.support import synthetic_inputs
    from benchmarking.workloads.vision_text import own_size

    point_traced = traced_point(workload, point, recipe)
    tower, text = model.vision_model, model.text_decoder
    interpolation = synthetic_inputs.interpolation(tower, point_traced, own_size(workload.config))
    last_only = last_logits_only(text)

    def decode(tokens: torch.Tensor, encoded: torch.Tensor, cache: Any) -> torch.Tensor:
        logits: torch.Tensor = text(
            input_ids=tokens, encoder_hidden_states=encoded, past_key_values=cache, use_cache=True, **last_only
        ).logits
        return logits

    inputs = {"pixel_values": family_inputs(model, workload, point_traced)["pixel_values"]}
    encoder = Encoder(model, lambda given: tower(**given, **interpolation).last_hidden_state)
    return Plan(
        graphs=three_graphs(model, inputs, encoder, decode),
        fields={
            "start_tokens": (model.config.text_config.bos_token_id,),
            "prompt_input": "input_ids",
            "encode_phase": "image_encode",
        },
    )


def three_graphs(model: Any, inputs: Mapping[str, torch.Tensor], encoder: Encoder, decode: Decode) -> dict[str, Traced]:
    """The graphs of a model given as an encoder and a decoder step."""
    with torch.no_grad():
        encoded = encoder(**inputs)[HIDDEN]
        cache = empty_cache()
        decode(torch.ones((encoded.shape[0], TRACED_PAST), dtype=torch.int64), encoded, cache)
    past, cross = cache_tensors(cache.self_attention_cache, "past"), cache_tensors(cache.cross_attention_cache, "cross")
    # The number of hidden states is free for text and fixed for images and spectrograms.
    is_free = any(len(FREE_AXES.get(name, ())) > 1 for name in inputs)
    length, cross_length = ({1: ENCODED}, {2: ENCODED}) if is_free else ({}, {})
    return {
        "encoder": Traced(
            module=encoder,
            inputs=inputs,
            axes={name: FREE_AXES.get(name, {0: BATCH}) for name in inputs},
            feeds={name: f"inputs.{name}" for name in inputs},
        ),
        "cross": Traced(
            module=Cross(model, decode),
            inputs={HIDDEN: encoded},
            axes={HIDDEN: {0: BATCH, **length}},
            feeds={HIDDEN: f"encoder.{HIDDEN}"},
        ),
        "decode": Traced(
            module=Decoder(model, decode, len(past) // 2, int(encoded.shape[-1])),
            inputs={
                "input_ids": torch.ones((encoded.shape[0], TRACED_TOKENS), dtype=torch.int64),
                **past,
                **cross,
            },
            axes={
                "input_ids": {0: BATCH, 1: SEQUENCE},
                **{name: {0: BATCH, 2: PAST} for name in past},
                **{name: {0: BATCH, **cross_length} for name in cross},
            },
            feeds={"input_ids": "tokens", **{name: f"cross.{name}" for name in cross}},
            states=growing_states(past),
            result="logits",
        ),
    }


def empty_cache() -> Any:
    """An empty cache for both attentions."""
    from transformers import DynamicCache, EncoderDecoderCache

    return EncoderDecoderCache(DynamicCache(), DynamicCache())


CONV, RECURRENT = "conv", "recurrent"
SCAN = "mamba_selective_scan"
"""The name in transformers' modules of the Python loop, which is torch's scan operator while a prompt is traced."""


class Prefill(torch.nn.Module):
    """From the prompt to states. The convolution's states always have its width, however short the prompt."""

    def __init__(self, model: Any, width: int) -> None:
        super().__init__()
        self.model = model
        self._width = width
        self._last_only = last_logits_only(model)

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        module = sys.modules[type(self.model).__module__]
        loop = getattr(module, SCAN, None)
        if loop is not None:
            setattr(module, SCAN, selective_scan)
        try:
            output = self.model(input_ids=input_ids, use_cache=True, **self._last_only)
        finally:
            if loop is not None:
                setattr(module, SCAN, loop)
        states = states_of(getattr(output, state_name(self.model)), "present")
        for name, state in states.items():
            if name.endswith(CONV):
                # The traced graph keeps only the prompt's positions; the convolution pads them on the left itself.
                zeros = state.new_zeros((*state.shape[:-1], self._width))
                states[name] = torch.cat([zeros, state], dim=-1)[..., -self._width :]
        return {"logits": output.logits, **states}


class RecurrentDecode(torch.nn.Module):
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
        output = self.model(input_ids=input_ids, use_cache=True, **{state_name(self.model): cache})
        return {"logits": output.logits, **states_of(cache, "present")}


def recurrent_plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The graphs "prefill" and "decode"."""
    where = traced_point(workload, point, recipe)
    prompt = torch.ones((where.batch_size, where.sequence_length or 1), dtype=torch.int64)
    with torch.no_grad():
        past = states_of(getattr(model(input_ids=prompt, use_cache=True), state_name(model)), "past")
    prefill = Traced(
        module=Prefill(model, int(past[f"past_0_{CONV}"].shape[-1])),
        inputs={"input_ids": prompt},
        axes={"input_ids": {0: BATCH, 1: SEQUENCE}},
        feeds={"input_ids": "tokens"},
        result="logits",
    )
    outputs = {name: name.replace("past", "present", 1) for name in past}
    decode = Traced(
        module=RecurrentDecode(model, len(past) // 2),
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
