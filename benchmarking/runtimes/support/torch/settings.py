"""torch's process-wide settings: precisions, threads, TF32. Imports torch only in calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarking.core.records import Json, Precision

TORCH_DTYPES: dict[Precision, str] = {
    "float32": "float32",
    "tf32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "int8": "float32",
    "int4": "bfloat16",
}
"""Precision -> name of the torch dtype of the parameters. TF32 is float32 in memory, rounded inside matrix products; at
int8 and int4 it is the dtype of everything but the weights of linear layers."""


def dtype_of(precision: Precision) -> Any:
    """The torch dtype of parameters at a precision."""
    import torch

    return getattr(torch, TORCH_DTYPES[precision])


def set_threads(num_threads: int | None) -> Callable[[], None]:
    """Set torch's number of threads, if one is given; the returned function restores the old one.

    The second pool, between operators, can be set once a process and only before its first use; a forward pass without
    compilation does not use it, so it is left alone afterwards. `threads_in_force` has the numbers in effect.
    """
    import torch

    before = torch.get_num_threads()
    if num_threads is None:
        return lambda: None
    torch.set_num_threads(num_threads)
    if torch.get_num_interop_threads() != num_threads:
        try:
            torch.set_num_interop_threads(num_threads)
        except RuntimeError as error:
            if "cannot set number of interop threads" not in str(error):
                raise
    return lambda: torch.set_num_threads(before)


def threads_in_force() -> dict[str, Json]:
    """`num_threads` (inside an operator) and `num_interop_threads` (between them), read back."""
    import torch

    return {"num_threads": torch.get_num_threads(), "num_interop_threads": torch.get_num_interop_threads()}


class MatmulPrecision:
    """The flags that round float32 products to TF32, set for a precision until `restore`.

    float32 switches them off and tf32 on, whatever the defaults (torch's are off in matrix products and on in cuDNN's
    convolutions). The two functions used keep torch's older and newer flags consistent; setting `fp32_precision` alone
    does not, and reading the older ones then raises.
    """

    def __init__(self, precision: Precision) -> None:
        import torch

        self._before = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
        wanted = precision == "tf32"
        torch.set_float32_matmul_precision("high" if wanted else "highest")
        torch.backends.cudnn.allow_tf32 = wanted

    def in_force(self) -> dict[str, Json]:
        """The flags, read back: `float32_matmul_precision` ("highest" or "high") and `cudnn_allow_tf32`."""
        import torch

        return {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        }

    def restore(self) -> None:
        """Restore the earlier flags."""
        import torch

        matmul, cudnn = self._before
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn
