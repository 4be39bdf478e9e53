"""The graphs to trace for a model, by export plan: forward pass, decoder, prompt with an image, denoiser.

forward         "model": one pass
decoder         "decode": from tokens, and keys and values of earlier tokens, to logits, keys and values. The prompt
                passes through the same graph with a past of length 0. Keys and values of all positions are kept, even
                by layers with a sliding window, which the graph implements by its mask.
picture prompt  "encoder": from pixels to the image's embeddings; "prefill": from the prompt, with embeddings instead of
                placeholders, to logits, keys and values; "decode" as above
denoiser        "model": from latents and a time step to the noise. The scheduler's arithmetic stays outside, as in
                torch; its numbers are in the bundle's facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import torch

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.model_contracts import Recipe
from benchmarking.core.records import Point, Workload
from benchmarking.graphs.bundle import State
from benchmarking.graphs.export.agreement import TRACED_BATCH_SIZE, TRACED_SEQUENCE_LENGTH, traced_point
from benchmarking.workloads.diffusion import denoiser_of, latents_input, schedule_of
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.generation import floats_as, last_logits_only
from benchmarking.workloads.support.synthetic_inputs import prompt_of

BATCH, SEQUENCE, PAST, ENCODED = "batch", "sequence", "past", "encoded"
"""Names of free dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A graph to export. The module takes the inputs as keywords and returns a dict of tensors; the graph's inputs and
    outputs have the same names."""

    module: torch.nn.Module
    inputs: Mapping[str, torch.Tensor]
    axes: Mapping[str, Mapping[int, str]]
    """Names of free axes, by input and axis number."""
    feeds: Mapping[str, str]
    states: tuple[State, ...] = ()
    result: str | None = None
    """The output with the call's result, which has the same name in `arrays` of the torch operation."""
    more_results: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The graphs of a bundle to export, and other fields of its manifest."""

    graphs: Mapping[str, Traced]
    fields: Mapping[str, Any] = field(default_factory=dict)


FEATURES = "features"


class ImageEncoder(torch.nn.Module):
    """Pixels to embeddings, batch x placeholders x hidden size.

    Like LLaVA's `get_image_features`, which splits the batch into a list at its end and cannot be traced for a free
    batch size."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.tower, self.projector = model.model.vision_tower, model.model.multi_modal_projector
        layers = model.config.vision_feature_layer
        self._layers = [layers] if isinstance(layers, int) else list(layers)
        self._first = 1 if model.config.vision_feature_select_strategy == "default" else 0

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        states = self.tower(pixel_values, output_hidden_states=True, return_dict=True).hidden_states
        selected = [states[layer][:, self._first :] for layer in self._layers]
        return {FEATURES: self.projector(torch.cat(selected, dim=-1))}


class ImagePrompt(torch.nn.Module):
    """The prompt with the image, to logits and a cache."""

    def __init__(self, model: Any, placeholder: int) -> None:
        super().__init__()
        self.model = model
        self._placeholder = placeholder
        self._last_only = last_logits_only(model)

    def forward(self, input_ids: torch.Tensor, features: torch.Tensor) -> dict[str, torch.Tensor]:
        from transformers import DynamicCache

        is_image = input_ids == self._placeholder
        # Placeholder n of a row gets embedding n. Text positions gather any embedding, which `where` then discards.
        order = (is_image.to(torch.int64).cumsum(dim=1) - 1).clamp(min=0)
        image_embeddings = features.gather(1, order[..., None].expand(-1, -1, features.shape[-1]))
        text_embeddings = self.model.get_input_embeddings()(input_ids)
        embeddings = torch.where(is_image[..., None], image_embeddings.to(text_embeddings.dtype), text_embeddings)
        cache = DynamicCache()
        output = self.model(inputs_embeds=embeddings, past_key_values=cache, use_cache=True, **self._last_only)
        return {"logits": output.logits, **cache_tensors(cache, "present")}


def picture_prompt_plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The graphs "encoder", "prefill" and "decode"."""
    point_traced = traced_point(workload, point, recipe)
    inputs = family_inputs(model, workload, point_traced)
    pixels = {"pixel_values": inputs["pixel_values"]}
    with torch.no_grad():
        features = ImageEncoder(model)(**pixels)[FEATURES]
    placeholder = prompt_of(workload.config).placeholder
    assert placeholder is not None  # models without a placeholder are one pass over both
    prefill = Traced(
        module=ImagePrompt(model, placeholder),
        inputs={"input_ids": inputs["input_ids"], FEATURES: features},
        axes={"input_ids": {0: BATCH, 1: SEQUENCE}, FEATURES: {0: BATCH}},
        feeds={"input_ids": "tokens", FEATURES: f"encoder.{FEATURES}"},
        result="logits",
    )
    encoder = Traced(
        module=ImageEncoder(model),
        inputs=pixels,
        axes={"pixel_values": {0: BATCH}},
        feeds={"pixel_values": "inputs.pixel_values"},
    )
    decode = decoder_plan(model, workload, recipe, point).graphs["decode"]
    decode = replace(decode, states=tuple(replace(state, first_from=state.output) for state in decode.states))
    return Plan(
        graphs={"encoder": encoder, "prefill": prefill, "decode": decode},
        fields={"prompt_input": "input_ids", "encode_phase": "image_encode"},
    )


TRACED_PAST = 5

KEY, VALUE = "key", "value"


class CachedStep(torch.nn.Module):
    """A model with its cache as input and output tensors: past_0_key, past_0_value, past_1_key, ..."""

    def __init__(self, model: Any, layers: int) -> None:
        super().__init__()
        self.model = model
        self._layers = layers
        self._last_only = last_logits_only(model)

    def forward(self, input_ids: torch.Tensor, **past: torch.Tensor) -> dict[str, torch.Tensor]:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(self._layers):
            cache.update(past[f"past_{layer}_{KEY}"], past[f"past_{layer}_{VALUE}"], layer)
        output = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True, **self._last_only)
        return {"logits": output.logits, **cache_tensors(cache, "present")}


def decoder_plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The graph "decode", which also reads the prompt."""
    from transformers import DynamicCache

    cache = DynamicCache()
    ids = torch.ones((TRACED_BATCH_SIZE, TRACED_PAST), dtype=torch.int64)
    with torch.no_grad():
        model(input_ids=ids, past_key_values=cache, use_cache=True)
    past = cache_tensors(cache, "past")
    traced = Traced(
        module=CachedStep(model, len(cache.layers)),
        inputs={"input_ids": torch.ones((TRACED_BATCH_SIZE, TRACED_SEQUENCE_LENGTH), dtype=torch.int64), **past},
        axes={"input_ids": {0: BATCH, 1: SEQUENCE}, **{name: {0: BATCH, 2: PAST} for name in past}},
        feeds={"input_ids": "tokens"},
        states=growing_states(past),
        result="logits",
    )
    return Plan(graphs={"decode": traced}, fields={"prompt_input": "input_ids"})


def cache_tensors(cache: Any, prefix: str) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for index, layer in enumerate(cache.layers):
        tensors |= {f"{prefix}_{index}_{KEY}": layer.keys, f"{prefix}_{index}_{VALUE}": layer.values}
    return tensors


def growing_states(past: Mapping[str, torch.Tensor]) -> tuple[State, ...]:
    """States that start empty along the positions (axis 2 of batch x heads x positions x width)."""
    return tuple(
        State(
            input=name,
            output=name.replace("past", "present", 1),
            first=(BATCH, int(tensor.shape[1]), 0, int(tensor.shape[3])),
        )
        for name, tensor in past.items()
    )


LATENTS, TIMESTEP, NOISE = "latents", "timestep", "noise"


class Denoiser(torch.nn.Module):
    """The family's call of its model for one step."""

    def __init__(self, model: Any, workload: Workload) -> None:
        super().__init__()
        self.model = model
        self._config = workload.config

    def forward(self, latents: torch.Tensor, timestep: torch.Tensor, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {NOISE: denoiser_of(self.model, self._config, dict(inputs))(latents, timestep)}


def denoiser_plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The graph "model", and the noise schedule: the share of the image left at each training step."""
    point_traced = traced_point(workload, point, recipe)
    inputs = family_inputs(model, workload, point_traced)
    name = latents_input(workload.config)
    latents = inputs.pop(name)
    traced_inputs = {
        LATENTS: latents,
        TIMESTEP: torch.full((point_traced.batch_size,), 500, dtype=torch.int64),
        **inputs,
    }
    traced = Traced(
        module=Denoiser(model, workload),
        inputs=traced_inputs,
        axes={name: {0: BATCH} for name in traced_inputs},
        feeds={LATENTS: "latents", TIMESTEP: "timestep", **{name: f"inputs.{name}" for name in inputs}},
        result=NOISE,
    )
    schedule = schedule_of(workload.config)
    alphas, last = schedule.alphas()
    facts = {
        "latents": name,
        "schedule": {"alphas": alphas, "last": last, "offset": schedule.steps_offset},
    }
    return Plan(graphs={"model": traced}, fields={"facts": facts})


FREE_AXES: Mapping[str, Mapping[int, str]] = {
    "input_ids": {0: BATCH, 1: SEQUENCE},
    "input_values": {0: BATCH, 1: SEQUENCE},
}
"""Inputs with more free axes than their first."""


class FamilyCall(torch.nn.Module):
    """The family's call of its model, so that other arguments become part of the graph."""

    def __init__(self, model: Any, workload: Workload, point: Point, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self._family, self._workload, self._point, self._outputs = plugin_of(workload), workload, point, outputs

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        operation = self._family.torch_operation(self.model, self._workload, self._point, inputs, {})
        operation.reset()
        outputs = self._family.outputs(operation.run(lambda name: None))
        return {name: outputs[name] for name in self._outputs}


def forward_plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The graph "model", from the family's inputs to the compared outputs."""
    point_traced = traced_point(workload, point, recipe)
    inputs = family_inputs(model, workload, point_traced)
    with torch.no_grad():
        family = plugin_of(workload)
        operation = family.torch_operation(model, workload, point_traced, inputs, {})
        operation.reset()
        output = operation.run(lambda name: None)
    outputs = tuple(operation.arrays(output))
    # Also the model's other output tensors, without which the exporter would drop parts of the model (BERT's pooler).
    tensors = (name for name, value in family.outputs(output).items() if isinstance(value, torch.Tensor))
    extra_outputs = (name for name in tensors if name not in outputs)
    traced = Traced(
        module=FamilyCall(model, workload, point_traced, (*outputs, *extra_outputs)),
        inputs=inputs,
        axes={} if recipe.is_of_one_point else {name: FREE_AXES.get(name, {0: BATCH}) for name in inputs},
        feeds={name: f"inputs.{name}" for name in inputs},
        result=outputs[0],
        more_results={name: name for name in outputs[1:]},
    )
    return Plan(graphs={"model": traced})


def family_inputs(model: Any, workload: Workload, point: Point) -> dict[str, torch.Tensor]:
    """The family's inputs as tensors, with floating-point inputs in the dtype of the model's parameters."""
    arrays = plugin_of(workload).inputs(workload, point, workload.seed)
    return floats_as(model, {name: torch.from_numpy(array) for name, array in arrays.items()})
