"""A model that reads a picture among the tokens of its prompt, as three graphs.

encoder  pixels in, the picture's embeddings out
prefill  the prompt and those in; the embeddings take the places of their placeholders
decode   a token and what is kept of those before in, as of any decoder
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from benchmarking.graphs.bundle import State
from benchmarking.graphs.export import decoder
from benchmarking.graphs.export.agreement import traced_point
from benchmarking.graphs.export.forward import family_inputs
from benchmarking.graphs.export.tracing import BATCH, SEQUENCE, Plan, Traced
from benchmarking.graphs.recipes import Recipe
from benchmarking.records import Point, Workload
from benchmarking.workloads._generation import takes
from benchmarking.workloads._image_prompts import prompt_of

FEATURES = "features"


class Picture(torch.nn.Module):
    """Pixels to embeddings, batch x placeholders x hidden size.

    As LLaVA's `get_image_features`, which makes a list of the batch at its end and so cannot be traced for any."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.tower, self.projector = model.model.vision_tower, model.model.multi_modal_projector
        layers = model.config.vision_feature_layer
        self._layers = [layers] if isinstance(layers, int) else list(layers)
        self._first = 1 if model.config.vision_feature_select_strategy == "default" else 0

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        states = self.tower(pixel_values, output_hidden_states=True, return_dict=True).hidden_states
        chosen = [states[layer][:, self._first :] for layer in self._layers]
        return {FEATURES: self.projector(torch.cat(chosen, dim=-1))}


class PicturePrompt(torch.nn.Module):
    """The prompt with the picture in it, to logits and a cache."""

    def __init__(self, model: Any, placeholder: int) -> None:
        super().__init__()
        self.model = model
        self._placeholder = placeholder
        self._last_only = {"logits_to_keep": 1} if takes(model, "logits_to_keep") else {}

    def forward(self, input_ids: torch.Tensor, features: torch.Tensor) -> dict[str, torch.Tensor]:
        from transformers import DynamicCache

        is_picture = input_ids == self._placeholder
        # The first placeholder of a row takes the first embedding, and so on; text takes any, which is then left out.
        order = (is_picture.to(torch.int64).cumsum(dim=1) - 1).clamp(min=0)
        placed = features.gather(1, order[..., None].expand(-1, -1, features.shape[-1]))
        words = self.model.get_input_embeddings()(input_ids)
        embeddings = torch.where(is_picture[..., None], placed.to(words.dtype), words)
        cache = DynamicCache()
        output = self.model(inputs_embeds=embeddings, past_key_values=cache, use_cache=True, **self._last_only)
        return {"logits": output.logits, **decoder.kept(cache, "present")}


def plan(model: Any, workload: Workload, recipe: Recipe, point: Point) -> Plan:
    """The graphs "encoder", "prefill" and "decode"."""
    where = traced_point(workload, point, recipe)
    inputs = family_inputs(model, workload, where)
    pixels = {"pixel_values": inputs["pixel_values"]}
    with torch.no_grad():
        features = Picture(model)(**pixels)[FEATURES]
    placeholder = prompt_of(workload.config).placeholder
    assert placeholder is not None  # models without one are one pass over both
    prefill = Traced(
        module=PicturePrompt(model, placeholder),
        inputs={"input_ids": inputs["input_ids"], FEATURES: features},
        axes={"input_ids": {0: BATCH, 1: SEQUENCE}, FEATURES: {0: BATCH}},
        feeds={"input_ids": "tokens", FEATURES: f"encoder.{FEATURES}"},
        result="logits",
        result_name="logits",
    )
    encoder = Traced(
        module=Picture(model),
        inputs=pixels,
        axes={"pixel_values": {0: BATCH}},
        feeds={"pixel_values": "inputs.pixel_values"},
    )
    decode = decoder.plan(model, workload, recipe, point).graphs["decode"]
    decode = replace(decode, states=tuple(_from_prefill(state) for state in decode.states))
    return Plan(
        graphs={"encoder": encoder, "prefill": prefill, "decode": decode},
        fields={"prompt_input": "input_ids", "encode_phase": "image_encode"},
    )


def _from_prefill(state: State) -> State:
    return replace(state, first_from=state.output)
