"""Models that read pictures and text together: LLaVA and Qwen2-VL, which write text about them, and FLAVA.

The sequence length is that of the whole prompt: the placeholders of the picture (576 in LLaVA-1.5, one for each block
of 28 x 28 pixels in Qwen2-VL) and the text around them; FLAVA's is its text alone. There is one picture a sequence.
FLAVA generates nothing: its task is feature-extraction, and its output the multimodal embeddings of picture and text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads import Modality, _limits
from benchmarking.workloads._config import part
from benchmarking.workloads._generation import CACHES
from benchmarking.workloads._image_generation import GridTextGeneration, ImageTextForward, ImageTextGeneration
from benchmarking.workloads._image_prompts import PROMPTS, LlavaPrompt, Qwen2VLPrompt, prompt_of
from benchmarking.workloads._text import DEFAULT_NEW_TOKENS
from benchmarking.workloads._transformers_family import TransformersFamily

if TYPE_CHECKING:
    import numpy as np

    from benchmarking.workloads import FamilyOperation

TEXT_LENGTHS = (128, 512)
"""Default lengths of the prompt without the picture's placeholders."""
FEATURES, GENERATION = "feature-extraction", "image-text-to-text"


class Multimodal(TransformersFamily):
    """LLaVA, Qwen2-VL and 2.5-VL, FLAVA."""

    name: Family = "multimodal"
    modalities: tuple[Modality, ...] = ("text", "image")
    model_types = frozenset(PROMPTS)
    without_sdpa = frozenset({"flava"})
    tasks: tuple[str, ...] = (GENERATION, FEATURES)
    generative_tasks = frozenset({GENERATION})
    caches: tuple[str, ...] = CACHES

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        return (FEATURES,) if config.get("model_type") == "flava" else (GENERATION,)

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        prompt = prompt_of(workload.config)
        size = prompt.default_size
        lengths = tuple(prompt.tokens(size) + length for length in TEXT_LENGTHS)
        new_tokens = {"new_tokens": DEFAULT_NEW_TOKENS} if workload.task in self.generative_tasks else {}
        return {"sequence_length": lengths, "image_size": (size,), **new_tokens}

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        return _limits.positions(part(config, "text_config") or config)

    def check(self, workload: Workload, point: Point) -> str | None:
        prompt = prompt_of(workload.config)
        if isinstance(prompt, LlavaPrompt) and prompt.tower not in prompt.towers:
            known = ", ".join(prompt.towers)
            return f"{workload.model_id} sees with a {prompt.tower}, which is not supported: {known} are"
        if (problem := _limits.wrong_axes(workload, point, self.axes(workload))) is not None:
            return problem
        size, length = int(point.axes["image_size"]), point.sequence_length or 0
        if (takes := prompt.wrong_size(size)) is not None:
            return f"image size {size}: {workload.model_id} takes {takes}"
        if length < prompt.shortest(size):
            return (
                f"sequence length {length}: a picture of {size} pixels a side is {prompt.tokens(size)} tokens of "
                f"{workload.model_id}'s prompt, which must have {prompt.shortest(size)} or more"
            )
        return _limits.too_long(workload, length, point.new_tokens or 0, shared_positions=True)

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """Token ids with the picture's placeholders, and the pictures as the model's processor gives them."""
        import numpy as np

        prompt, size = prompt_of(workload.config), int(point.axes["image_size"])
        generator = np.random.default_rng([seed, point.batch_size, size])
        pixels = prompt.pixels(point.batch_size, size, generator)
        return {"input_ids": prompt.input_ids(workload, point, seed), **pixels}

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        prompt = prompt_of(workload.config)
        if prompt.placeholder is None:
            return ImageTextForward(model, point, inputs)
        kind = GridTextGeneration if isinstance(prompt, Qwen2VLPrompt) else ImageTextGeneration
        return kind(model, point, inputs, cache=str(mode.get("cache", CACHES[0])), placeholder=prompt.placeholder)


PLUGIN = Multimodal()
