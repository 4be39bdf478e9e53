"""torch's process-wide settings: precisions, threads, TF32; and how it says that memory ran out.

Nothing here imports torch before it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarking.core.errors import OutOfMemoryError
from benchmarking.core.records import Json, Precision

TORCH_DTYPES: dict[Precision, str] = {
    "float32": "float32",
    "tf32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "int8": "float32",
    "int4": "bfloat16",
}
"""Precision -> name of the torch dtype of the parameters. TF32 is float32 in memory, rounded inside matrix products;
int8 and int4 are what everything but the weights of linear layers has."""

OUT_OF_MEMORY_TEXTS = (
    "defaultcpuallocator: can't allocate memory",
    "defaultcpuallocator: not enough memory",
    "out of memory",
)
"""How torch words a failed allocation: CPU on Linux and macOS, CPU on Windows; CUDA, HIP and MPS."""


def dtype_of(precision: Precision) -> Any:
    """The torch dtype that parameters have at a precision."""
    import torch

    return getattr(torch, TORCH_DTYPES[precision])


@contextmanager
def memory_errors(doing: str) -> Iterator[None]:
    """Inside, a failed allocation raises OutOfMemoryError; other errors pass."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise out_of_memory(doing, error) from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is how Python or torch says that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(part in text for part in OUT_OF_MEMORY_TEXTS)


def out_of_memory(doing: str, error: BaseException) -> OutOfMemoryError:
    """The project's error for a failed allocation, with the first line of what was said."""
    said = str(error).strip().split("\n")[0] or type(error).__name__
    return OutOfMemoryError(f"out of memory while {doing}: {said}")


def set_threads(num_threads: int | None) -> Callable[[], None]:
    """Set torch's threads where a number was asked for; what comes back puts the old number back.

    The second pool, between operators, can be set once a process and before its first use; an eager forward pass does
    not use it, so a process that is too far is left as it is. What is in force is in `threads_in_force`.
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
    """The flags that let float32 products be rounded to TF32, set for a precision and put back on `restore`.

    float32 switches them off and tf32 on, whatever the defaults (torch's own has TF32 off in matrix products and on in
    cuDNN's convolutions). The two functions used keep torch's older and newer names of the flags consistent, which
    setting `fp32_precision` alone does not: the older ones then raise when something reads them.
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
        """Bring back what was in force before."""
        import torch

        matmul, cudnn = self._before
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn
