"""Models of images and text: LLaVA and Qwen2-VL, which generate text about an image, and FLAVA.

The sequence length is that of the whole prompt: the image's placeholders (576 in LLaVA-1.5, one per block of 28 x 28
pixels in Qwen2-VL) and the text around them; for FLAVA it is the text only. There is one image per sequence.

A generating call has three phases: image_encode (the vision part and its projection), prefill (the prompt with the
image's embeddings, up to the first token) and decode. FLAVA does not generate: its task is feature-extraction, in one
pass, and its output is the multimodal embeddings of image and text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarking.core.contracts import FamilyOperation, Mark
from benchmarking.core.lazy_modules import np, torch
from benchmarking.core.model_contracts import Modality, QualityKind, Recipe
from benchmarking.core.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads.support.configuration import part
from benchmarking.workloads.support.families import positions, too_long, wrong_axes
from benchmarking.workloads.support.generation import (
    CACHES,
    DecoderGeneration,
    ForwardPass,
    Generated,
    floats_as,
    non_finite,
)
from benchmarking.workloads.support.synthetic_inputs import PROMPTS, LlavaPrompt, Qwen2VLPrompt, prompt_of
from benchmarking.workloads.support.transformers_models import DEFAULT_NEW_TOKENS, TransformersFamily

TEXT_LENGTHS = (128, 512)
"""Default prompt lengths without the image's placeholders."""

FEATURES, GENERATION = "feature-extraction", "image-text-to-text"


class Multimodal(TransformersFamily):
    """LLaVA, Qwen2-VL and 2.5-VL, FLAVA."""

    name: Family = "multimodal"
    rank = 6
    modalities: tuple[Modality, ...] = ("text", "image")
    model_types = frozenset(PROMPTS)
    unsupported_model_types = frozenset({"idefics2", "llava_next", "paligemma"})
    without_sdpa = frozenset({"flava"})
    quality: Mapping[str, QualityKind] = {GENERATION: "tokens", FEATURES: "embeddings"}
    caches: tuple[str, ...] = CACHES
    counts_image_tokens = True

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        return (FEATURES,) if config.get("model_type") == "flava" else (GENERATION,)

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        prompt = prompt_of(workload.config)
        size = prompt.default_size
        lengths = tuple(prompt.tokens(size) + length for length in TEXT_LENGTHS)
        new_tokens = {"new_tokens": DEFAULT_NEW_TOKENS} if workload.task in self.generative_tasks else {}
        return {"sequence_length": lengths, "image_size": (size,), **new_tokens}

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        return positions(part(config, "text_config") or config)

    def check(self, workload: Workload, point: Point) -> str | None:
        prompt = prompt_of(workload.config)
        if isinstance(prompt, LlavaPrompt) and prompt.tower not in prompt.towers:
            known = ", ".join(prompt.towers)
            return f"{workload.model_id} has a {prompt.tower}, which is not supported (supported: {known})"
        if (problem := wrong_axes(workload, point, self.axes(workload))) is not None:
            return problem
        size, length = int(point.axes["image_size"]), point.sequence_length or 0
        if (accepted := prompt.wrong_size(size)) is not None:
            return f"image size {size}: {workload.model_id} takes {accepted}"
        if length < prompt.shortest(size):
            return (
                f"sequence length {length}: an image of {size} x {size} pixels takes {prompt.tokens(size)} tokens of "
                f"the prompt of {workload.model_id}, which must have {prompt.shortest(size)} or more"
            )
        return too_long(workload, length, point.new_tokens or 0, shared_positions=True)

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """Token ids with the image's placeholders, and the images in the form that the model's processor makes."""
        prompt, size = prompt_of(workload.config), int(point.axes["image_size"])
        generator = np.random.default_rng([seed, point.batch_size, size])
        pixels = prompt.pixels(point.batch_size, size, generator)
        return {"input_ids": prompt.input_ids(workload, point, seed), **pixels}

    def recipe(self, workload: Workload) -> Recipe | str:
        if isinstance(prompt_of(workload.config), Qwen2VLPrompt):
            return (
                f"exporting {workload.config.get('model_type')} is not supported: its vision part takes patches of "
                "images of any shape, and its tokens have three positions each"
            )
        return Recipe(plan="forward" if workload.task == FEATURES else "picture-prompt", fixed_axes=("image_size",))

    def image_tokens(self, workload: Workload, point: Point) -> int:
        return prompt_of(workload.config).tokens(int(point.axes["image_size"]))

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        prompt = prompt_of(workload.config)
        if prompt.placeholder is None:
            return ImageTextForward(model, point, inputs)
        kind = GridTextGeneration if isinstance(prompt, Qwen2VLPrompt) else ImageTextGeneration
        return kind(model, point, inputs, cache=str(mode.get("cache", CACHES[0])), placeholder=prompt.placeholder)


IMAGE_ENCODE = "image_encode"


class ImageTextGeneration(DecoderGeneration):
    """LLaVA's generation: the image's embeddings replace its placeholders in the text model's input."""

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any], cache: str, placeholder: int) -> None:
        super().__init__(model, point, inputs, cache)
        self._pixels = floats_as(model, {name: value for name, value in inputs.items() if name != "input_ids"})
        self._is_image = (self._prompt == placeholder).unsqueeze(-1)

    def run(self, mark: Mark) -> Generated:
        output = self._model.get_image_features(**self._pixels)
        features = getattr(output, "pooler_output", output)  # transformers 5.0 returned them directly
        is_whole = isinstance(features, torch.Tensor)
        # The placeholders of all images x hidden size.
        self._encoded = features.flatten(0, -2) if is_whole else torch.cat(tuple(features))
        mark(IMAGE_ENCODE)
        return super().run(mark)

    def _step(self, tokens: Any) -> Any:
        step_input = {"input_ids": tokens}
        if tokens is self._prompt:
            embeddings = self._model.get_input_embeddings()(tokens)
            features = self._encoded.to(embeddings.dtype)
            step_input = {"inputs_embeds": embeddings.masked_scatter(self._is_image, features)}
        output = self._model(
            **step_input, **self._positions(), past_key_values=self._cache, use_cache=True, **self._last_only
        )
        return output.logits[:, -1]

    def _positions(self) -> dict[str, Any]:
        """The positions of this step's tokens, for a model that does not derive them from its cache."""
        return {}


class GridTextGeneration(ImageTextGeneration):
    """Qwen2-VL's generation: every token has three positions, and those of an image form a square."""

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any], cache: str, placeholder: int) -> None:
        super().__init__(model, point, inputs, cache, placeholder)
        rows = self._is_image[:, :, 0].tolist()
        positions = torch.tensor([grid_positions(row, self._steps - 1) for row in rows], device=self._prompt.device)
        lengths = [self._prompt.shape[1]] + [1] * (self._steps - 1)
        # Computed before the call, so that no step waits for numbers from the host.
        self._positions_by_step = torch.split(positions.transpose(0, 1), lengths, dim=-1)
        self._remaining_positions: Iterator[Any] = iter(())

    def prefill(self) -> Any:
        self._remaining_positions = iter(self._positions_by_step)
        return super().prefill()

    def _positions(self) -> dict[str, Any]:
        return {"position_ids": next(self._remaining_positions)}


class ImageTextForward(ForwardPass):
    """FLAVA's forward pass: image and text through their own encoders, then both through the multimodal one."""

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any]) -> None:
        super().__init__(model, point, floats_as(model, inputs))

    def problem(self, output: Any) -> str | None:
        return non_finite("multimodal embeddings", output.multimodal_embeddings)

    def tensors(self, output: Any) -> Mapping[str, Any]:
        """The multimodal embeddings, batch x (1 + 1 + patches + tokens) x hidden size."""
        return {"multimodal_embeddings": output.multimodal_embeddings}


def grid_positions(is_picture: list[bool], new_tokens: int) -> list[list[int]]:
    """The positions of a prompt's tokens and of `new_tokens` after it, in time, height and width.

    For text the three are equal and increase by one. A square image of n x n placeholders after text up to p - 1 has p
    in time and p to p + n - 1 in height and width, and the text after it continues at p + n (Wang et al., "Qwen2-VL",
    2024, multimodal rotary embedding).
    """
    image_start, tokens = is_picture.index(True), sum(is_picture)
    side = round(tokens**0.5)
    square = [(image_start, image_start + index // side, image_start + index % side) for index in range(tokens)]
    text_after = len(is_picture) - image_start - tokens + new_tokens
    triples = [
        *((at, at, at) for at in range(image_start)),
        *square,
        *((at, at, at) for at in range(image_start + side, image_start + side + text_after)),
    ]
    return [list(axis) for axis in zip(*triples, strict=True)]


PLUGIN = Multimodal()
