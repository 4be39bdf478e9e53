"""torch's process-wide settings: precisions, threads, TF32. Imports torch only in calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from benchmarking.core.contracts import Option
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_modules import torch
from benchmarking.core.records import Json, Precision, Scalar
from benchmarking.devices.support.torch_gpu import TORCH_TYPE

AT_THE_END, CHANNELS_LAST = "end", "channels_last"
TOKEN_SYNC = Option(
    name="token_sync",
    help="when generated tokens reach the host: each one immediately, or all but the first at the end",
    values=("each", AT_THE_END),
    is_filled_in=False,
)
MEMORY_FORMAT = Option(
    name="memory_format",
    help="memory layout of images and convolution weights",
    values=("contiguous", CHANNELS_LAST),
    is_filled_in=False,
    tried=(CHANNELS_LAST,),
)


def without_defaults(mode: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The settings without these two at their defaults: naming a default must not start another series."""
    defaults = {option.name: option.values[0] for option in (TOKEN_SYNC, MEMORY_FORMAT)}
    return {name: value for name, value in mode.items() if defaults.get(name) != value}


TORCH_DTYPES: dict[Precision, str] = {
    "float32": "float32",
    "tf32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float8_e4m3": "bfloat16",
    "int8": "float32",
    "int4": "bfloat16",
}
"""Name of the parameters' torch dtype by precision. TF32 is float32 in memory, rounded inside matrix products. At
float8, int8 and int4 it is the dtype of everything but the weights of linear layers."""


def dtype_of(precision: Precision, torch_name: str = "") -> Any:
    """The torch dtype of parameters at a precision on a device. With int8 it is bfloat16 on GPUs, as in torchao's
    products, and float32 on CPUs, which more of them support."""
    is_gpu = torch_name.partition(":")[0] == TORCH_TYPE
    return torch.bfloat16 if precision == "int8" and is_gpu else getattr(torch, TORCH_DTYPES[precision])


def set_threads(num_threads: int | None) -> Callable[[], None]:
    """Set torch's number of threads, if given. The returned function restores the old number.

    The inter-op pool can be set only once per process and before its first use. An uncompiled forward pass does not use
    it, so it is not restored. `effective_threads` returns the numbers in effect.
    """
    previous = torch.get_num_threads()
    if num_threads is None:
        return lambda: None
    torch.set_num_threads(num_threads)
    if torch.get_num_interop_threads() != num_threads:
        try:
            torch.set_num_interop_threads(num_threads)
        except RuntimeError as error:
            if "cannot set number of interop threads" not in str(error):
                raise
    return lambda: torch.set_num_threads(previous)


def effective_threads() -> dict[str, Json]:
    """`num_threads` (within an operator) and `num_interop_threads` (between operators), as reported by torch."""
    return {"num_threads": torch.get_num_threads(), "num_interop_threads": torch.get_num_interop_threads()}


def effective_arithmetic() -> dict[str, Json]:
    """torch's switches that affect a GPU's arithmetic or choice of kernels, as reported by torch; they have no effect
    on a CPU. `allow_fp16_reduced_precision_reduction`: partial sums of float16 products may be rounded to float16."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    reductions = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": cudnn.allow_tf32,
        "cudnn_benchmark": cudnn.benchmark,
        "cudnn_deterministic": cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        **{name: bool(getattr(matmul, name)) for name in (*reductions, "allow_fp16_accumulation")},
    }


TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""Variable that forces NVIDIA's libraries to use TF32 ("1") or not ("0"), whatever a program requests."""


def check_override(precision: Precision) -> None:
    """Raise UnsupportedError if the variable conflicts with the arithmetic of a precision."""
    override, expected = os.environ.get(TF32_OVERRIDE), {"float32": "0", "tf32": "1"}.get(precision)
    if override in ("0", "1") and expected is not None and override != expected:
        verb = "use" if override == "1" else "avoid"
        raise UnsupportedError(
            f"{TF32_OVERRIDE}={override} makes NVIDIA's libraries {verb} TF32, which conflicts with {precision}: "
            f"unset {TF32_OVERRIDE}"
        )


class MatmulPrecision:
    """The flags that round float32 products to TF32, set for a precision until `restore`.

    float32 turns them off and tf32 turns them on, whatever the defaults (torch's are off in matrix products and on in
    cuDNN's convolutions). The two functions used keep torch's older and newer flags consistent; setting only
    `fp32_precision` does not, and reading the older flags then raises an error.
    """

    def __init__(self, precision: Precision) -> None:
        self._previous = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
        uses_tf32 = precision == "tf32"
        torch.set_float32_matmul_precision("high" if uses_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = uses_tf32

    def restore(self) -> None:
        matmul, cudnn = self._previous
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn
