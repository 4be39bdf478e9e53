"""The module `framework` of benchmark_v2, for benchmark files that import it: its names, made of ours.

`provide` makes it importable in a process that loads such files, and in no other. It differs from our own names in
returning lists instead of tuples, in the tokens that a config generates by default, and in a GPU monitor that reports
the absence of a GPU instead of raising an error.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from benchmarking.benches import model_benchmark
from benchmarking.benches.model_benchmark import ModelBenchmark, TimingResult
from benchmarking.benches.runner import BenchmarkRunner
from benchmarking.core.command_line import choice
from benchmarking.core.metrics import BYTES_PER_MIB
from benchmarking.core.scenario_file import NO_GPU, gpu_summary
from benchmarking.measure.memory import flush_memory
from benchmarking.measure.monitor import INTERVAL_S, USED, UTILIZATION, DeviceMonitor, MonitorError
from benchmarking.measure.monitor import GPUMonitor as Monitor

__all__ = [
    "BenchmarkConfig",
    "BenchmarkRunner",
    "GPUMonitor",
    "ModelBenchmark",
    "SDPAContext",
    "TimingResult",
    "create_config_variants",
    "flush_memory",
    "get_available_sdpa_backends",
]
NAME = "framework"
TOKENS, DEFAULT_TOKENS = "num_tokens_to_generate", 100
SDPA_BACKENDS: Mapping[str, str] = {
    "math": "MATH",
    "flash_attention": "FLASH_ATTENTION",
    "efficient_attention": "EFFICIENT_ATTENTION",
    "cudnn_attention": "CUDNN_ATTENTION",
}
"""Name of a kernel of torch's scaled dot-product attention -> its name in torch."""
GPU_READINGS: Mapping[str, tuple[str, float]] = {
    "gpu_utilization": (UTILIZATION, 1.0),
    "gpu_memory_used": (USED, float(BYTES_PER_MIB)),
}
"""Metric -> the monitor's reading, and how much of its unit is one of the metric's (percent, MiB)."""


def provide(folder: Path) -> None:
    """Make this module importable as `framework`, unless the folder of the benchmark file has its own."""
    if not (folder / f"{NAME}.py").exists() and not (folder / NAME / "__init__.py").exists():
        sys.modules[NAME] = sys.modules[__name__]


def withdraw() -> None:
    """Undo `provide`."""
    if sys.modules.get(NAME) is sys.modules[__name__]:
        del sys.modules[NAME]


class BenchmarkConfig(model_benchmark.BenchmarkConfig):
    """As ours, with benchmark_v2's number of generated tokens if none is given, since its files count on a number."""

    def __init__(self, *unnamed: Any, **values: Any) -> None:
        is_given = "new_tokens" in values or len(unnamed) > model_benchmark.POSITIONAL.index(TOKENS)
        super().__init__(*unnamed, **values if is_given else {TOKENS: DEFAULT_TOKENS, **values})


def create_config_variants(
    base: model_benchmark.BenchmarkConfig, values: Mapping[str, Sequence[Any]]
) -> list[model_benchmark.BenchmarkConfig]:
    """As ours, as a list."""
    return list(model_benchmark.create_config_variants(base, values))


class GPUMonitor:
    """Samples the utilization and memory of the machine's first GPU from `start` to `stop`, every `sample_interval`
    seconds. Without a GPU both work, and `stop` returns the reason."""

    def __init__(self, sample_interval: float = INTERVAL_S, logger: logging.Logger | None = None) -> None:
        self.sample_interval = sample_interval
        self.logger = logger or logging.getLogger(__name__)
        self._monitor: DeviceMonitor | None = None
        self._why_not: str | None = None

    def start(self) -> None:
        self._why_not = None
        try:
            self._monitor = Monitor(sample_interval=self.sample_interval).start()
        except MonitorError as error:
            self._monitor, self._why_not = None, str(error)
            self.logger.debug("%s", error)

    def stop(self) -> dict[str, Any]:
        """Mean, maximum and minimum of the utilization (percent) and the used memory (MiB), and the number of samples;
        or `gpu_monitoring_reason`."""
        if self._monitor is None:
            return {**NO_GPU, **({} if self._why_not is None else {"gpu_monitoring_message": self._why_not})}
        monitor, self._monitor = self._monitor, None
        usage = monitor.stop()
        found = {name: [value / by for value in usage.series(of)] for name, (of, by) in GPU_READINGS.items()}
        return gpu_summary(found)


def get_available_sdpa_backends() -> list[str]:
    """The kernels of scaled dot-product attention that this torch knows; not all of them run on every device."""
    from torch.nn.attention import SDPBackend

    return [name for name, member in SDPA_BACKENDS.items() if hasattr(SDPBackend, member)]


class SDPAContext:
    """Inside, torch's scaled dot-product attention uses this kernel only; None: any. Raises UsageError for an unknown
    one. A kernel that cannot run there is torch's own error in the call, never another kernel."""

    def __init__(self, backend_name: str | None, logger: logging.Logger | None = None) -> None:
        self._context: AbstractContextManager[Any] = nullcontext()
        if backend_name is not None:
            from torch.nn.attention import SDPBackend, sdpa_kernel

            choice(backend_name, tuple(SDPA_BACKENDS), "sdpa_backend")
            self._context = sdpa_kernel(getattr(SDPBackend, SDPA_BACKENDS[backend_name]))

    def __enter__(self) -> SDPAContext:
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)
