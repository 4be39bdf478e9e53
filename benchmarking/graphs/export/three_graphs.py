"""An encoder-decoder model as three graphs.

encoder  from the family's inputs to hidden states
cross    from hidden states to the keys and values of the decoder's cross-attention, layer by layer
decode   from tokens, keys and values of earlier tokens, and those of cross, to logits, keys and values

So no step repeats computations on the encoder's output, and the cost of cross is in the prefill, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarking.core.model_contracts import Recipe
from benchmarking.core.records import Point, Workload
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
from benchmarking.workloads.support.generation import last_logits_only, start_token

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
