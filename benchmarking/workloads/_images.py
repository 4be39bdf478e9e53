"""Images as models take them: seeded pixel values, and the sizes that a model can be given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.errors import UnsupportedError
from benchmarking.records import Json, Point
from benchmarking.workloads._config import integer
from benchmarking.workloads._generation import takes

if TYPE_CHECKING:
    import numpy as np

AXIS = "image_size"
CHANNELS = 3
"""Red, green and blue, where a configuration does not say otherwise."""


def pixel_values(config: Mapping[str, Json], point: Point, seed: int) -> np.ndarray:
    """Standard normal values, float32 of shape (batch size, channels, image size, image size): what processors make of
    photos by taking the mean away and dividing by the standard deviation. The same seed and point give the same."""
    import numpy as np

    channels, size = integer(config, "num_channels", CHANNELS), int(point.axes[AXIS])
    generator = np.random.default_rng([seed, point.batch_size, size])
    return generator.standard_normal((point.batch_size, channels, size, size), dtype=np.float32)


def own_size(config: Mapping[str, Json], default: int) -> int:
    """Pixels a side of the images that a configuration is made for; `default` where it does not say.

    Raises UnsupportedError for images that are not square.
    """
    value = config.get(AXIS, default)
    sides = set(value) if isinstance(value, list) else {value}
    side = sides.pop() if len(sides) == 1 else None
    if not isinstance(side, int):
        raise UnsupportedError(f"the configuration's {AXIS} is {value}: only square images are supported")
    return side


def interpolation(model: Any, point: Point, own_size: int) -> dict[str, bool]:
    """The argument that makes a model with a table of positions take images of another size than its own. It then
    interpolates the table in every call: that is part of the work."""
    other = point.axes[AXIS] != own_size and takes(model, "interpolate_pos_encoding")
    return {"interpolate_pos_encoding": True} if other else {}


def cut_up(model_id: str, size: float, patch_size: int) -> str | None:
    """None, or why images of this size are no whole number of patches: the rest of their pixels would be ignored."""
    if size % patch_size == 0:
        return None
    below = int(size // patch_size) * patch_size
    near = " or ".join(str(each) for each in (below, below + patch_size) if each)
    return f"image size {size}: {model_id} takes whole patches of {patch_size} pixels: {near}"


def too_small(model_id: str, size: float, least: int) -> str | None:
    """None, or what the smallest images are that leave something to every stage of the model."""
    return None if size >= least else f"image size {size}: {model_id} takes images of at least {least} pixels a side"
