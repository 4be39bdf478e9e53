"""The two benchmarks of a calibration: matrix products and copies. Their sizes are axes of the points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.benches import BenchmarkConfig, ModelBenchmark
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_modules import torch
from benchmarking.core.plugins import names_with
from benchmarking.core.records import Precision
from benchmarking.measure.aggregate import CACHE_MARGIN, COPY_AXIS, MATRIX_AXIS, TASK

CHECKED_SIZE = 8
"""Rows and columns of a product that are compared with float64 on the host."""
TOLERANCES: dict[Precision, float] = {"float32": 1e-4, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 5e-2}
"""Largest error of a product of standard normal matrices, relative to the square root of their size, which is the
standard deviation of its entries. float32 reaches 1e-6; unrequested TF32 would show as 5e-4."""
SEED = 0


class MatrixProduct(ModelBenchmark):
    """Two square matrices of standard normal values, multiplied into a third: 2 n^3 FLOPs."""

    task = TASK
    devices = names_with(lambda kind: kind.runs_torch)

    def __init__(self, config: BenchmarkConfig) -> None:
        super().__init__(config)
        self._size = int(config.axes[MATRIX_AXIS])
        self._flags: Any = None

    def setup_model(self) -> None:
        from benchmarking.runtimes.support.torch.torch_settings import MatmulPrecision, dtype_of

        self._flags = MatmulPrecision(self.config.precision)
        generator = torch.Generator(device=self.torch_device).manual_seed(SEED)
        shape, dtype = (self._size, self._size), dtype_of(self.config.precision)
        self._left, self._right = (
            torch.randn(shape, generator=generator, device=self.torch_device, dtype=dtype) for _ in range(2)
        )
        self._product = torch.empty_like(self._left)
        self._multiply = torch.mm

    def run(self) -> Any:
        return self._multiply(self._left, self._right, out=self._product)

    def problem(self, output: Any) -> str | None:
        """Compares a corner of the product; all of it must be finite."""
        if not bool(output.isfinite().all()):
            return "NaN or Inf in the product"
        rows, columns = (part.cpu().double() for part in (self._left[:CHECKED_SIZE], self._right[:, :CHECKED_SIZE]))
        error = (
            output[:CHECKED_SIZE, :CHECKED_SIZE].cpu().double() - rows @ columns
        ).abs().max().item() / self._size**0.5
        tolerance = TOLERANCES[self.config.precision]
        return None if error <= tolerance else f"the product has an error of {error:.2g}, more than {tolerance:g}"

    def work(self) -> Mapping[str, float]:
        n = self._size
        return {"flops": 2 * n**3, "bytes_accessed": 3 * n**2 * self._product.element_size()}

    def cleanup_model(self) -> None:
        if self._flags is not None:
            self._flags.restore()


class Copy(ModelBenchmark):
    """A block of device memory copied to another; bytes read and bytes written both count."""

    task = TASK
    devices = names_with(lambda kind: kind.runs_torch)

    def setup_model(self) -> None:
        size_bytes, cache_bytes = int(self.config.axes[COPY_AXIS]), int(self.config.options["cache_bytes"])
        if size_bytes < CACHE_MARGIN * cache_bytes:
            raise BenchhouseError(f"a copy of {size_bytes} bytes would fit in the cache of {cache_bytes} bytes")
        # Distinct values: untouched pages all map to one page, which never leaves the cache.
        self._source = torch.arange(size_bytes // 4, dtype=torch.float32, device=self.torch_device)
        self._target = torch.zeros_like(self._source)

    def run(self) -> Any:
        return self._target.copy_(self._source)

    def problem(self, output: Any) -> str | None:
        return None if bool((output == self._source).all()) else "the copy differs from the source"

    def work(self) -> Mapping[str, float]:
        return {"bytes_accessed": 2 * self._source.numel() * self._source.element_size()}
