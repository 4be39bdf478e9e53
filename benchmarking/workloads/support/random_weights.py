"""Seeded random weights, made in about the time it takes to write them.

Every tensor has its own random stream, seeded by the seed and the tensor's name. So values do not depend on the order
or the number of threads, and are the same on every platform and at every precision (up to rounding).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

DEFAULT_STANDARD_DEVIATION = 0.02
CHUNK_VALUES = 1 << 20
"""4 MB of float32: fits into a core's share of the cache, and limits the additional memory for a half-precision
model."""

RANDOM_INITIALISERS = frozenset({"normal_", "uniform_", "kaiming_uniform_", "xavier_uniform_"})
"""torch's in-place random fills. Without them, building a model takes milliseconds."""

AS_CONSTRUCTED = frozenset(
    {"A_log", "D", "time_decay", "time_first", "time_mix_key", "time_mix_receptance", "time_mix_value"}
)
"""Parameters of recurrences (Mamba, RWKV) that keep their constructors' values, which are not random: one decay per
channel, from fast to slow. Normal values would make all channels forget at the same rate."""

TIME_STEP_BIASES = ("dt_bias", "dt_proj.bias")
"""Name suffixes of Mamba's time-step biases."""


@contextmanager
def skip_random_initialisation() -> Iterator[None]:
    """A context in which torch's random fills do nothing.

    A model built in it has the usual structure and buffers, but uninitialized parameters.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class SkipRandomInitialisation(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = getattr(func, "__name__", None)
            if name in RANDOM_INITIALISERS:
                return args[0] if args else kwargs["tensor"]
            if name == "linalg_qr":  # part of an orthogonal fill: half a minute for a large embedding
                return args[0], args[0].new_empty(args[0].shape[-1], args[0].shape[-1])
            return func(*args, **kwargs)

    # It redraws until all values are within bounds, which might never end without draws.
    truncated_normal = torch.nn.init._no_grad_trunc_normal_
    torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *_, **__: tensor
    try:
        with SkipRandomInitialisation():
            yield
    finally:
        torch.nn.init._no_grad_trunc_normal_ = truncated_normal


def fill(
    model: Any, *, seed: int, standard_deviation: float | None = None, only: Collection[str] | None = None
) -> None:
    """Fill the model's parameters (those named in `only`, or all) with seeded values, in host memory.

    Weights and biases are normal with the configuration's `initializer_range` (default 0.02). Weights of normalisation
    layers are 1 and their biases 0, as before training. Rates of recurrences keep their constructors' values
    (`AS_CONSTRUCTED`, `_fill_time_steps`). Shared parameters are filled once.
    """
    import torch

    if standard_deviation is None:
        configured = (getattr(getattr(model, "config", None), name, None) for name in ("initializer_range", "init_std"))
        valid = (value for value in configured if isinstance(value, float) and 0 < value < 1)
        standard_deviation = next(valid, DEFAULT_STANDARD_DEVIATION)
    deviation = standard_deviation
    # LayerNorm, RMSNorm, T5LayerNorm, GroupNorm, BatchNorm2d and all others have "Norm" in their names.
    normalising = [module for module in model.modules() if "norm" in type(module).__name__.lower()]
    norms = {id(parameter) for module in normalising for parameter in module.parameters(recurse=False)}
    normal: list[tuple[str, Any]] = []
    for name, parameter in model.named_parameters():
        if (only is not None and name not in only) or name.rsplit(".", 1)[-1] in AS_CONSTRUCTED:
            continue
        if name.endswith(TIME_STEP_BIASES):
            _fill_time_steps(parameter.detach(), seed, name, model.config)
        elif id(parameter) in norms:
            torch.nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)
        else:
            normal.append((name, parameter.detach()))
    # Largest first, so that no thread is left with a big tensor at the end.
    normal.sort(key=lambda item: -item[1].numel())
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda item: _fill_normal(item[1], seed, item[0], deviation), normal))


def _fill_normal(tensor: Any, seed: int, name: str, standard_deviation: float) -> None:
    """Normal values, made in float32 chunks and rounded to the tensor's dtype when written."""
    import numpy as np
    import torch

    generator = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))
    flat = tensor.view(-1)
    chunk = np.empty(min(CHUNK_VALUES, flat.numel()), dtype=np.float32)
    for start in range(0, flat.numel(), CHUNK_VALUES):
        values = chunk[: min(CHUNK_VALUES, flat.numel() - start)]
        generator.standard_normal(dtype=np.float32, out=values)
        values *= np.float32(standard_deviation)
        flat[start : start + len(values)].copy_(torch.from_numpy(values))


def _fill_time_steps(tensor: Any, seed: int, name: str, config: Any) -> None:
    """Biases b whose time steps dt = softplus(b) are log-uniform between the configuration's `time_step_min` and
    `time_step_max`, and at least `time_step_floor`: b = dt + ln(1 - exp(-dt)), as Mamba's authors initialise it."""
    import numpy as np
    import torch

    generator = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))
    low, high = np.log(config.time_step_min), np.log(config.time_step_max)
    steps = np.maximum(np.exp(generator.uniform(low, high, tensor.numel())), config.time_step_floor)
    tensor.view(-1).copy_(torch.from_numpy(steps + np.log(-np.expm1(-steps))))
