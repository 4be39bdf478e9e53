"""torch's process-wide settings (precisions, threads, TF32) and its out-of-memory errors. Imports torch only in
calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarking.core.errors import OutOfMemoryError, first_line
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

OUT_OF_MEMORY_TEXTS = (
    "defaultcpuallocator: can't allocate memory",
    "defaultcpuallocator: not enough memory",
    "out of memory",
)
"""Texts of a failed allocation: CPU on Linux and macOS, CPU on Windows; CUDA, HIP and MPS."""


def dtype_of(precision: Precision) -> Any:
    """The torch dtype of parameters at a precision."""
    import torch

    return getattr(torch, TORCH_DTYPES[precision])


@contextmanager
def memory_errors(doing: str) -> Iterator[None]:
    """Inside, a failed allocation raises OutOfMemoryError; other errors pass through."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise out_of_memory(doing, error) from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error of Python or torch means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(part in text for part in OUT_OF_MEMORY_TEXTS)


def out_of_memory(doing: str, error: BaseException) -> OutOfMemoryError:
    """This project's error for a failed allocation, with the first line of its message."""
    return OutOfMemoryError(f"out of memory while {doing}: {first_line(error) or type(error).__name__}")


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
