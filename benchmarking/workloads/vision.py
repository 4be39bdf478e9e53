"""Image models (ViT, ResNet and relatives): one pass over a batch of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.lazy_modules import np
from benchmarking.core.model_contracts import Modality, QualityKind, Recipe
from benchmarking.core.records import Family, Json, Point, Scalar, Workload
from benchmarking.workloads.support import synthetic_inputs
from benchmarking.workloads.support.configuration import integer
from benchmarking.workloads.support.families import architectures, wrong_axes
from benchmarking.workloads.support.generation import ForwardPass, floats_as
from benchmarking.workloads.support.transformers_models import TransformersFamily

DEFAULT_IMAGE_SIZE = 224
DEFAULT_PATCH_SIZE = 16
"""transformers' default for models that cut images into patches."""

CONVOLUTIONAL = frozenset({"convnext", "convnextv2", "regnet", "resnet"})
WINDOWED = frozenset({"swin", "swinv2"})
STEM_STRIDES: Mapping[str, int] = {"regnet": 2, "resnet": 4}
"""Downsampling per side before the first stage, in model types without `patch_size`. RegNet's first stage halves the
image, ResNet's does not."""
DEFAULT_STAGES = 4


class Vision(TransformersFamily):
    """ViT, DeiT, BEiT, DINOv2, Swin, ResNet, RegNet, ConvNeXT, ..."""

    name: Family = "vision"
    rank = 3
    modalities: tuple[Modality, ...] = ("image",)
    unit = "images"
    without_attention = CONVOLUTIONAL
    without_sdpa = frozenset({"swinv2"})
    sdpa_since = {"swin": (5, 17)}  # noqa: RUF012 - TransformersFamily's annotation covers it
    model_types = CONVOLUTIONAL | WINDOWED | {"beit", "deit", "dinov2", "dinov2_with_registers", "vit"}
    quality: Mapping[str, QualityKind] = {"image-classification": "labels", "feature-extraction": "embeddings"}

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        """For a model published without a classifier, features come first."""
        names = architectures(config)
        has_classifier = not names or any("ForImageClassification" in name for name in names)
        return self.tasks if has_classifier else self.tasks[::-1]

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        return {synthetic_inputs.IMAGE_AXIS: (synthetic_inputs.own_size(workload.config, DEFAULT_IMAGE_SIZE),)}

    def check(self, workload: Workload, point: Point) -> str | None:
        if (problem := wrong_axes(workload, point, (synthetic_inputs.IMAGE_AXIS,))) is not None:
            return problem
        size = point.axes[synthetic_inputs.IMAGE_AXIS]
        if workload.config.get("model_type") in CONVOLUTIONAL | WINDOWED:
            return synthetic_inputs.too_small(workload.model_id, size, least_size(workload.config))
        patch_size = integer(workload.config, "patch_size", DEFAULT_PATCH_SIZE)
        return synthetic_inputs.cut_up(workload.model_id, size, patch_size)

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        return {"pixel_values": synthetic_inputs.pixel_values(workload.config, point, seed)}

    def recipe(self, workload: Workload) -> Recipe | str:
        return Recipe(plan="forward", fixed_axes=(synthetic_inputs.IMAGE_AXIS,))

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        kind = SwinPass if workload.config.get("model_type") == "swin" else ImagePass
        return kind(model, workload, point, inputs)


class ImagePass(ForwardPass):
    """`model(pixel_values)`."""

    def __init__(self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any]) -> None:
        own_size = synthetic_inputs.own_size(workload.config, DEFAULT_IMAGE_SIZE)
        super().__init__(
            model, point, {**floats_as(model, inputs), **synthetic_inputs.interpolation(model, point, own_size)}
        )


class SwinPass(ImagePass):
    """Swin's pass. Its layers shrink their windows for small images and never enlarge them again, so each call starts
    with the configured windows. Otherwise results would depend on earlier, smaller images."""

    def __init__(self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any]) -> None:
        super().__init__(model, workload, point, inputs)
        window, depths = model.config.window_size, model.config.depths
        layers = [module for module in model.modules() if hasattr(module, "set_shift_and_window_size")]
        shifts = [window // 2 * (index % 2) for depth in depths for index in range(depth)]
        self._windows = [(layer, window, shift) for layer, shift in zip(layers, shifts, strict=True)]

    def reset(self) -> None:
        for layer, window, shift in self._windows:
            layer.window_size, layer.shift_size = window, shift


def least_size(config: Mapping[str, Json]) -> int:
    """Pixels per side of the smallest image for a model whose stages each halve the image.

    The last stage has one pixel per `stride` pixels of the image and needs at least one. Swin's first version needs a
    whole window, because its table of relative positions fits only windows of that size.
    """
    model_type = str(config.get("model_type"))
    depths = config.get("depths")
    stages = len(depths) if isinstance(depths, list) else DEFAULT_STAGES
    first = STEM_STRIDES.get(model_type) or integer(config, "patch_size", 4)
    stride: int = first * 2 ** (stages if model_type == "regnet" else stages - 1)
    window = integer(config, "window_size", 7) if model_type == "swin" else 1
    return (window - 1) * stride + 1 if window > 1 else stride


PLUGIN = Vision()
