"""Users' own benchmarks: a class, found by file and name, with a new instance for each point."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarking.benches.model_benchmark import (
    BenchmarkConfig,
    ModelBenchmark,
    TimingResult,
    made,
    overrides,
    takes_config,
    timed_by,
)
from benchmarking.core.codec import is_number
from benchmarking.core.contracts import NOT_AS_REQUESTED, ForeignCode, Mark, Operation, Option, Runtime, Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import (
    BenchhouseError,
    UnsupportedError,
    UsageError,
    always_after,
    is_out_of_memory,
    memory_errors,
    out_of_memory,
)
from benchmarking.core.metrics import (
    LATENCY_WALL,
    NS_PER_MS,
    NS_PER_S,
    STATED_PER_TOKEN,
    TIME_TO_FIRST_TOKEN,
    CustomMetric,
)
from benchmarking.core.plugins import has, kind_of, names_with
from benchmarking.core.records import (
    BENCH_FIELDS,
    NOT_APPLICABLE,
    NOT_SUPPORTED,
    Cell,
    Device,
    Json,
    Point,
    Precision,
    Readings,
    Scalar,
    Workload,
)
from benchmarking.core.untrusted.redaction import LEFT_OUT
from benchmarking.runtimes.support.torch.counting import BY_DEVICE, NAMES, count_work

OPTION = "variant"
PACKAGE = Path(__file__).resolve().parents[1]


class BenchRuntime(Runtime):
    """The runtime `bench`. Its settings are timed_by (who times the calls) and the variant. A benchmark's file imports
    what it needs."""

    name = "bench"
    runs_models = False
    is_compared = False
    declared_options = (Option(OPTION, "benchmark variant, as defined in its file", has_flag=False),)

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if workload.source != "bench":
            return "runtime bench runs your own benchmarks, not models: use benchhouse batch --benches"
        devices = workload.config["devices"]
        if isinstance(devices, list) and devices and device.type not in devices:
            return f"{workload.config['bench']} runs on {', '.join(map(str, devices))}, not on {device.type}"
        if not devices and not has(device.type, lambda kind: kind.runs_torch or not kind.is_hardware):
            return (
                f"{workload.config['bench']} does not declare {device.type}: without `devices` a benchmark runs on "
                f"torch's devices only ({', '.join(names_with(lambda kind: kind.runs_torch))})"
            )
        if has(device.type, lambda kind: not kind.is_hardware) and workload.config["timed_by"] != "bench":
            return f"device {device.type} has no clock of its own: the benchmark must time itself"
        return None

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        chosen = super().mode(device, workload, options)
        return {"timed_by": str(workload.config["timed_by"]), **chosen}

    def foreign_code(self, mode: Mapping[str, Scalar], model_path: str | None = None) -> ForeignCode | None:
        """The benchmark's file, unless it is part of this installation."""
        if model_path is not None and Path(model_path).resolve().is_relative_to(PACKAGE):
            return None
        return ForeignCode(path=model_path or "", flag="--benches")

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.benches.discovery import load_class

        path = Path(cell.workload.path or "")
        options = cell.workload.config.get("options")
        if isinstance(options, dict) and (secret := next((key for key in options if options[key] == LEFT_OUT), None)):
            raise UsageError(
                f"{cell.workload.model_id}: its {secret} is a secret, which is neither stored nor sent to other "
                "machines: measure it here in a new run, or let the benchmark read it from the environment"
            )
        with stage("import"):
            bench = load_class(path, str(cell.workload.config["bench"]))
        return BenchSession(bench, path, cell, handle)


CLAIMED_RATE = "claimed_tokens_per_second"
"""The custom metric of the generation rate that a benchmark reports."""


class BenchOperation(Operation):
    """A benchmark's `run()`, timed from outside. Its state between calls is left alone."""

    def __init__(
        self, bench: ModelBenchmark, config: BenchmarkConfig, device: Device, label: str, setup_s: float
    ) -> None:
        """`config` is as requested; the benchmark may have changed its own."""
        sequence, new_tokens = config.sequence_length, config.new_tokens
        tokens_per_item = sequence if new_tokens is None else new_tokens
        self.items_per_call = config.batch_size
        self.tokens_per_call = None if tokens_per_item is None else config.batch_size * tokens_per_item
        self.prompt_tokens_per_call = None if new_tokens is None or sequence is None else config.batch_size * sequence
        self.new_tokens: int | None = new_tokens if bench.marks_tokens else None
        self.bench = bench
        self._variant = config.variant
        self._device = device
        self._label = label
        self._setup_s = setup_s

    def run(self, mark: Mark) -> Any:
        self.bench.mark = mark
        try:  # no context manager, as it would cost as much as a short call
            return self.bench.run()
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise out_of_memory(f"running {self._label}", error) from error
            raise

    def problem(self, output: Any) -> str | None:
        return self.bench.problem(output)

    def readings(self, output: Any) -> Readings:
        """`setup_s`: the seconds that `setup_model` took."""
        return Readings(values={"setup_s": self._setup_s})

    def metrics(self) -> tuple[CustomMetric, ...]:
        metrics = tuple(self.bench.metrics() or ())  # None: it returned nothing
        if wrong := [metric for metric in metrics if not isinstance(metric, CustomMetric)]:
            raise BenchhouseError(
                f"metrics() of {type(self.bench).__name__} must return CustomMetrics: got {wrong[0]!r}"
            )
        return metrics

    def count(self) -> Readings:
        """The work of a call as declared by the benchmark's `work()`; the rest is counted if torch runs it. Raises
        UnsupportedError if torch computes on another device than the one that the results are stored for."""
        declared = {name: float(value) for name, value in self.bench.work().items()}
        if unknown := sorted(set(declared) - set(NAMES)):
            raise BenchhouseError(
                f"work() of {type(self.bench).__name__} may declare {', '.join(NAMES)}: got {unknown[0]!r}"
            )
        if wrong := [value for value in declared.values() if not math.isfinite(value) or value < 0]:
            raise BenchhouseError(f"work() of {type(self.bench).__name__} takes numbers from 0: got {wrong[0]:g}")
        counted = self._counted() if len(declared) < len(NAMES) else Readings()
        kind, flops_by_device = kind_of(self._device.type), counted.values.get(BY_DEVICE)
        used = flops_by_device if isinstance(flops_by_device, dict) else {}
        expected = None if kind is None else kind.torch_type
        # A benchmark that declares its FLOPs on a device without torch computes outside torch, and torch counts
        # something else.
        if used and expected not in used and not (expected is None and "flops" in declared):
            raise UnsupportedError(
                f"{type(self.bench).__name__} should run on {self._device.selector}, but its calls compute in torch on "
                f"{', '.join(sorted(used))}: put model and inputs on self.torch_device ({self.bench.torch_device}), "
                "or choose the device that it uses with --device or in its `devices`"
            )
        return counted | Readings(values=declared)

    def verified(self) -> Mapping[str, Json]:
        """The variant, if the benchmark replaced it in its config: the calls then are not those requested."""
        config = self.bench.config
        variant = config.variant if isinstance(config, BenchmarkConfig) else self._variant
        if variant == self._variant:
            return {}
        return {NOT_AS_REQUESTED: f"the benchmark replaced the variant {self._variant!r} by {variant!r}"}

    def close(self) -> None:
        self.bench.cleanup_model()

    def _counted(self) -> Readings:
        if "torch" not in sys.modules:
            why = f"{NOT_SUPPORTED}: the benchmark neither uses torch nor declares it in work()"
            return Readings(missing=dict.fromkeys(NAMES, why))
        return count_work(lambda: self.run(lambda name: None))


def _amount(value: object) -> float | None:
    """What a benchmark states; None for anything but a number above 0."""
    return float(value) if is_number(value) and math.isfinite(value) and value > 0 else None


class SelfTimedOperation(BenchOperation):
    times_itself = True

    def __init__(
        self, bench: ModelBenchmark, config: BenchmarkConfig, device: Device, label: str, setup_s: float
    ) -> None:
        super().__init__(bench, config, device, label, setup_s)
        self.new_tokens = None  # its tokens are not marked individually
        self._config = bench.config
        self._has_latency = overrides(type(bench), "measure_latency")
        self._has_first_token = overrides(type(bench), "measure_time_to_first_token")
        self._own_ns: dict[str, int] = {}
        self._claims: dict[str, list[tuple[float, float]]] = {}
        self._rates: list[float] = []

    def run(self, mark: Mark) -> None:
        self._own_ns = {}  # a time that only some calls report is not one of the others
        with memory_errors(f"running {self._label}"):
            if self._has_first_token:
                self._measure("measure_time_to_first_token", TIME_TO_FIRST_TOKEN)
            if self._has_latency:
                self._measure("measure_latency", LATENCY_WALL)
            else:
                self._own_ns[LATENCY_WALL] = self._own_ns[TIME_TO_FIRST_TOKEN]

    def own_times_ns(self) -> Mapping[str, int]:
        return self._own_ns

    def claimed_ms(self) -> Mapping[str, Sequence[tuple[float, float]]]:
        """Nothing on a device without a clock of its own, where times are invented."""
        return self._claims if has(self._device.type, lambda kind: kind.is_hardware) else {}

    def problem(self, output: Any) -> str | None:
        return None

    def metrics(self) -> tuple[CustomMetric, ...]:
        """The benchmark's own, and the generation rate that it reports with its times."""
        if not self._rates:
            return super().metrics()
        rate = CustomMetric(name=CLAIMED_RATE, value=median(self._rates), unit="tokens/s", better="higher")
        return (*super().metrics(), rate)

    def _measure(self, method: str, metric: str) -> None:
        """Keep the result of a timing method, in nanoseconds. Raises BenchhouseError for an invalid time, but nothing,
        or 0, is no first token, where there is a latency."""
        measure = getattr(self.bench, method)
        in_seconds = takes_config(getattr(type(self.bench), method))
        started_ns = time.perf_counter_ns()
        value: Any = measure(self._config) if in_seconds else measure()
        wall_ns = time.perf_counter_ns() - started_ns
        if isinstance(value, TimingResult):
            rate, tokens = _amount(value.tokens_per_second), _amount(value.total_tokens_generated)
            if rate is not None:
                self._rates.append(rate)
            if value.time_to_first_token and not self._has_first_token:
                self._own_ns[TIME_TO_FIRST_TOKEN] = round(value.time_to_first_token * NS_PER_S)
            value, in_seconds = value.latency, True
            per_token_ns = NS_PER_S * (value / tokens if tokens else 1 / rate if rate else math.inf)
            if metric == LATENCY_WALL and math.isfinite(per_token_ns):
                self._own_ns[STATED_PER_TOKEN] = round(per_token_ns)
        if metric != LATENCY_WALL and self._has_latency and (value is None or value == 0):
            return
        if not is_number(value) or not math.isfinite(value) or value <= 0:
            unit = "seconds" if in_seconds else "milliseconds"
            name = f"{type(self.bench).__name__}.{method}"
            raise BenchhouseError(f"{name} must return {unit}, a number above 0: got {value!r}")
        claimed_ns = float(value) * (NS_PER_S if in_seconds else NS_PER_MS)
        self._claims.setdefault(method, []).append((claimed_ns / NS_PER_MS, wall_ns / NS_PER_MS))
        self._own_ns[metric] = round(claimed_ns)

    def _counted(self) -> Readings:
        why = f"{NOT_APPLICABLE}: the benchmark times itself, so it is unknown what a call includes"
        return Readings(missing=dict.fromkeys(NAMES, why))


class BenchSession(Session):
    """A benchmark's class on a device. No state is kept between points."""

    def __init__(self, bench: type[ModelBenchmark], path: Path, cell: Cell, handle: DeviceHandle) -> None:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self.verified: Mapping[str, Json] = {
            "bench_class": bench.__qualname__,
            "bench_file_sha256": digest,
            "torch_device": handle.torch_name,
        }
        self._class = bench
        self._cell = cell
        self._handle = handle

    def operation(self, point: Point) -> Operation:
        """The benchmark set up for a point. If the set-up raises, it is cleaned up first."""
        kind = SelfTimedOperation if timed_by(self._class) == "bench" else BenchOperation
        config = self._config(point)
        bench = made(self._class, dataclasses.replace(config), logging.getLogger(__name__))
        bench.torch_device = self._handle.torch_name
        bench.synchronize = self._handle.synchronize
        started_s = time.perf_counter()
        try:
            with memory_errors(f"setting up {point.label}"):
                if takes_config(type(bench).setup_model):
                    bench.setup_model(bench.config)
                else:
                    bench.setup_model()
            self._handle.synchronize()
            return kind(bench, config, self._cell.device, point.label, time.perf_counter() - started_s)
        except Exception as error:
            with always_after(bench.cleanup_model):
                raise error

    def close(self) -> None:
        from benchmarking.benches.framework import withdraw

        withdraw()

    def _config(self, point: Point) -> BenchmarkConfig:
        workload, mode = self._cell.workload, self._cell.runtime_mode
        given: dict[str, Any] = {
            name: workload.config[name] for name in (*BENCH_FIELDS, "options") if name in workload.config
        }
        # The device by its selector ("cuda:0"), but as torch names it ("cuda" for the first GPU) for a class of
        # benchmark_v2's form, which passes it to torch.
        torch_name = self._handle.torch_name
        is_selector = torch_name is None or not takes_config(self._class.setup_model)
        device = self._cell.device.selector if is_selector else str(torch_name).removesuffix(":0")
        return BenchmarkConfig(
            **given,
            name=workload.model_id,
            variant=str(mode["variant"]) if "variant" in mode else None,
            batch_size=point.batch_size,
            sequence_length=point.sequence_length,
            new_tokens=point.new_tokens,
            axes=point.axes,
            device=device,
            precision=self._cell.precision,
        )


PLUGIN = BenchRuntime()
