"""The CPU, present on every machine."""

from __future__ import annotations

import math
import os
import platform
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarking.core.device_contracts import (
    STATE_NAMES,
    ColdCache,
    DeviceHandle,
    DeviceKind,
    Gauge,
    Memory,
    Placement,
)
from benchmarking.core.lazy_modules import np
from benchmarking.core.metrics import BYTES_PER_MIB, NS_PER_MS
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Device, Json, Precision, Readings
from benchmarking.devices.support.binding import allowed_cpus, placements
from benchmarking.devices.support.energy_counters import HostEnergy
from benchmarking.devices.support.gauges import ProcessorGauge, usable_processors
from benchmarking.devices.support.handles import HostHandle
from benchmarking.devices.support.host import host_facts, text_fact, usable_memory_bytes
from benchmarking.devices.support.ort_providers import HOST_MEMORY, OrtProvider
from benchmarking.devices.support.system_values import (
    UnreadableError,
    all_missing,
    gather,
    last_level_cache_bytes,
    processor_clock_hz,
    processor_temperature_c,
    read_int,
)

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "float16", "int8", "int4")
"""Precisions that PyTorch runs on any CPU. Without native support it converts, at a cost (fact `native_precisions`)."""

NATIVE_CAPABILITIES: dict[Precision, frozenset[str]] = {
    "bfloat16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "float16": frozenset({"avx512_fp16", "amx_fp16", "fphp", "asimdhp"}),
    "int8": frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm"}),
}
"""CPU capabilities, by Linux's names; any one of them is enough to compute natively in a precision."""

ORT_PROVIDER = OrtProvider(
    name="CPUExecutionProvider",
    install="onnxruntime",
    precisions=("float32", "float16", "int8", "int4"),  # its kernels have no bfloat16: NOT_IMPLEMENTED
    memory=HOST_MEMORY,
)

FLUSH_FACTOR = 2
"""Multiple of the cache size: caches do not evict strictly in order of use."""
UNKNOWN_CACHE_BYTES = 256 * BYTES_PER_MIB
"""Used if the cache size is unknown: more than the last-level cache of any desktop CPU."""
MIN_SHARE_BYTES = 8 * BYTES_PER_MIB
"""Minimum per processor: more than twice the size of any private cache."""


class CpuHandle(HostHandle):
    """The open CPU. Clocks and temperatures are read from Linux's /sys; other systems need privileges or drivers."""

    torch_name: str | None = "cpu"
    is_accelerator = False

    def __init__(self, energy: HostEnergy | None = None, sys: Path = Path("/sys"), system: str | None = None) -> None:
        super().__init__(energy)
        self._sys = sys
        self._system = system or platform.system()

    def last_level_cache_bytes(self) -> int | None:
        return last_level_cache_bytes(self._sys / "devices/system/cpu") if self._system == "Linux" else None

    @contextmanager
    def cold_cache(self) -> Iterator[ColdCache]:
        """Threads empty the CPU's caches: one on each processor that the process may use, which reads and writes
        memory, in total twice the size of the last-level caches. That also empties every private cache, and every part
        of a last-level cache that only some processors share. Plain stores to a large block (memset) would bypass the
        caches."""
        try:
            processors = allowed_cpus()
        except UnreadableError:  # a system without affinity
            processors = []
        total_bytes = FLUSH_FACTOR * (self.last_level_cache_bytes() or UNKNOWN_CACHE_BYTES)
        # More threads than the CPU quota allows would exhaust it, and the timed call would wait for the next period.
        count = max(1, min(len(processors) or os.cpu_count() or 1, math.floor(usable_processors(os.getpid()))))
        share = max(MIN_SHARE_BYTES, math.ceil(total_bytes / count))
        flushers = FlushThreads([(share, processors[index] if processors else None) for index in range(count)])
        try:
            yield ColdCache(flush=flushers.flush, size_bytes=share * count)
        finally:
            flushers.end()

    def state(self) -> Readings:
        shared = all_missing(f"{NOT_APPLICABLE}: every process shares the CPU", ("foreign_pids",))
        unread = all_missing(f"{NOT_SUPPORTED}: no interface on {self._system}", STATE_NAMES) | shared
        if self._system != "Linux":
            return unread
        no_counter = all_missing(f"{NOT_SUPPORTED}: the CPU reports energy, not power", ("power_w",))
        no_reasons = all_missing(
            f"{NOT_SUPPORTED}: Linux counts throttling but gives no reasons", ("throttle_reasons",)
        )
        read = gather(
            {
                "clock_hz": lambda: processor_clock_hz(self._sys),
                "clock_default_hz": lambda: processor_clock_hz(self._sys, "base_frequency"),
                "temperature_c": lambda: processor_temperature_c(self._sys),
                "violation_ns": self._violation_ns,
            }
        )
        return unread | no_counter | no_reasons | read

    def _violation_ns(self) -> int:
        """The longest thermal throttling of any package since boot (Intel, Linux 5.7 or newer)."""
        name = "thermal_throttle/package_throttle_total_time_ms"
        paths = list(self._sys.glob(f"devices/system/cpu/cpu[0-9]*/{name}"))
        if not paths:
            raise UnreadableError(f"{NOT_SUPPORTED}: no {self._sys}/devices/system/cpu/cpu0/{name}")
        return max(read_int(path) for path in paths) * NS_PER_MS


class CpuDevice(DeviceKind):
    """The CPU as a device kind; every machine has it."""

    name = "cpu"
    aliases = ("x86",)
    other_words = ("arm", "arm64", "aarch64", "x64", "amd64", "x86_64", "host")
    typical = MappingProxyType({"cpu": "CPU"})
    is_processor = True
    has_gauge = True
    auto_ranks = ((70, ""),)
    memory: Memory = "host"
    torch_type: str | None = "cpu"
    has_torchao_kernels = True
    runs_openvino = True
    sdpa_kernels = ("math", "flash")
    probes_in_process = True

    def probe(self) -> tuple[Device, ...]:
        return (describe(host_facts()),)

    def open(self, device: Device) -> DeviceHandle:
        return CpuHandle()

    def flushes_cache(self, device: Device, *, with_torch: bool) -> bool:
        return True

    def gauge(self, device: Device, process_ids: Sequence[int]) -> Gauge:
        return ProcessorGauge(process_ids)

    def placements(self, device: Device) -> tuple[Placement, ...]:
        return placements()

    def ort_providers(self, device: Device) -> tuple[OrtProvider, ...]:
        return (ORT_PROVIDER,)


def describe(host: Readings) -> Device:
    names = ("cpu_capabilities", "cpu_cores", "cpu_threads", "architecture", "cgroup_cpu_quota_cores")
    native: Json = list(native_precisions(host.values.get("cpu_capabilities")))
    return Device(
        type="cpu",
        selector="cpu",
        found=True,
        name=text_fact(host, "cpu_model") or f"{text_fact(host, 'architecture') or 'unknown'} processor",
        vendor=text_fact(host, "cpu_vendor") or "unknown",
        memory_bytes=usable_memory_bytes(host),
        facts=host.only(names) | Readings(values={"native_precisions": native}),
        precisions=PRECISIONS,
    )


def native_precisions(capabilities: Json) -> tuple[Precision, ...]:
    """Precisions in which the CPU computes without conversion; always includes float32."""
    available = {str(name) for name in capabilities} if isinstance(capabilities, list) else set()
    return ("float32", *(precision for precision, names in NATIVE_CAPABILITIES.items() if names & available))


class FlushThreads:
    """Threads that sleep until a flush and then walk through their memory."""

    def __init__(self, shares: Sequence[tuple[int, int | None]]) -> None:
        """For each thread: the number of bytes to walk through and the processor to run on."""
        self._start = threading.Barrier(len(shares) + 1)
        self._done = threading.Barrier(len(shares) + 1)
        self._is_over = False
        self._threads = []
        for size_bytes, processor in shares:
            # Allocated here, since the flush would wait forever for a thread that ends without memory. The pages are
            # made where the thread runs, at its first write.
            memory = np.zeros(size_bytes // 8, dtype=np.uint64)
            work = partial(self._work, memory, processor)
            self._threads.append(threading.Thread(target=work, daemon=True, name="cold-cache"))
        for thread in self._threads:
            thread.start()

    def flush(self) -> None:
        """Walk through all of the memory once; returns when done."""
        self._start.wait()
        self._done.wait()

    def end(self) -> None:
        """End the threads and release their memory."""
        self._is_over = True
        self._start.wait()
        for thread in self._threads:
            thread.join()

    def _work(self, memory: Any, processor: int | None) -> None:
        if processor is not None and hasattr(os, "sched_setaffinity"):
            with suppress(OSError):  # the processor went offline: any other will do
                os.sched_setaffinity(0, {processor})  # this thread only
        while True:
            self._start.wait()
            if self._is_over:
                return
            np.add(memory, 1, out=memory)
            self._done.wait()


PLUGIN = CpuDevice()
