"""Calls of torch models under torch's profiler, with every module's forward as a range in the trace.

The ranges come from hooks on all modules, which are present only while a call is profiled. They cost a few microseconds
per module; Python stacks (`with_stack`) would cost many times as much, and `with_modules` only sees TorchScript
modules. Compiled code does not call hooks and would be recompiled for them, so there the compiled modules are the
ranges.

FLOPs and bytes of operators are counted in one additional call (`counting`), whose modules are tracked by the same
hooks.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.contracts import TOKEN
from benchmarking.core.lazy_modules import torch
from benchmarking.core.metrics import ns_to_ms
from benchmarking.core.plugins import processor
from benchmarking.core.profiles import (
    COMPILE_S,
    KERNEL_TIME,
    OTHER,
    OUTSIDE,
    TRACE_FILE,
    Breakdown,
    CallProfiler,
    ModuleInfo,
    ModuleTime,
    ModuleTraits,
    OperatorTime,
    classify_modules,
)
from benchmarking.core.records import NOT_APPLICABLE, NOT_SUPPORTED, Json, Readings
from benchmarking.runtimes.support.torch import trace
from benchmarking.runtimes.support.torch.counting import count_work, has_failed
from benchmarking.runtimes.support.torch.trace import CALL, MARK, CallTrace

if TYPE_CHECKING:
    from benchmarking.runtimes.support.torch.torch_session import TorchOperation


SHORT_NS = 100_000_000
"""Calls below this follow another one within the profiler: its start costs the first layer of a call half a
millisecond, as much as a small layer takes."""
GRAPHS = ("graph_count", "graph_break_count", "recompile_count")
"""Numbers of a compiled call, reported by its operation."""
ON_DEVICE = ("kernel_launches", "device_busy_ms", "device_idle_ms", "largest_gap_ms")
"""Numbers of a call with kernels on an accelerator."""
PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_addmm_activation")
UNSEEN = f"{NOT_SUPPORTED}: torch's profiler does not see this device's kernels"


class TorchProfiler(CallProfiler):
    """torch's profiler around an operation's calls."""

    def __init__(self, operation: TorchOperation, model: Any, folder: Path, synchronize: Callable[[], None]) -> None:
        self._operation = operation
        self._model = model
        self._folder = folder
        self._synchronize = synchronize
        self._module_infos = modules_in(model)
        self._labels = {path: f"{path} ({info.class_name})" for path, info in self._module_infos.items()}
        self._calls: list[CallTrace] = []
        self._is_short = False
        """Whether the last call was so short that the costs of its beginning matter."""

    def run(self, *, is_kept: bool = True) -> int:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        # The activity that records a device's kernels has its name; of some devices, such as mps, there is none.
        own = getattr(ProfilerActivity, _device_of(self._model).upper(), ProfilerActivity.CPU)
        if own not in activities:
            activities.append(own)
        self._operation.reset()
        self._synchronize()
        with ExitStack() as inside:
            inside.enter_context(self._ranges())
            profiler = inside.enter_context(profile(activities=activities, profile_memory=True))
            if self._is_short:
                # Otherwise the first layer pays for the start of the profiler and for cold caches.
                self._operation.run(lambda name: None)
                self._operation.reset()
                self._synchronize()
            with _range(CALL):
                begin_ns = time.perf_counter_ns()
                self._operation.run(self._mark)
                self._synchronize()
                elapsed_ns = time.perf_counter_ns() - begin_ns
        self._is_short = elapsed_ns < SHORT_NS
        path = self._folder / TRACE_FILE
        if is_kept:
            profiler.export_chrome_trace(str(path))
            names = {label: path for path, label in self._labels.items()}
            self._calls.append(trace.read_call(json.loads(path.read_text(encoding="utf-8")), names))
        return elapsed_ns

    def breakdown(self) -> Breakdown:
        calls = self._calls
        host_ms = ns_to_ms(sum(call.duration_ns for call in calls) / len(calls))
        on_device = any(call.kernels for call in calls)
        means = trace.mean_totals([call.operators for call in calls])
        work, counts = self._count_work()
        work = by_run_operator(work, means)
        # What the operation reports about compilation, which happened before the profile.
        reported = self._operation.verified() if self._operation.is_compiled else {}
        prefixes = ("graph", "recompile", COMPILE_S)
        read_back = {name: value for name, value in reported.items() if name.startswith(prefixes)}
        graphs = {name: value for name, value in read_back.items() if name in GRAPHS}
        metrics = _metrics(calls, on_device=on_device)
        metrics |= {name: float(n) for name, n in {**counts.values, **graphs}.items() if isinstance(n, int | float)}
        missing = dict(counts.missing)
        device = _device_of(self._model)
        if not on_device and device == processor().torch_type:
            missing |= dict.fromkeys(ON_DEVICE, f"{NOT_APPLICABLE}: no kernel ran on an accelerator")
        elif not on_device:
            missing |= dict.fromkeys((*ON_DEVICE, KERNEL_TIME), UNSEEN)
        if "graph_count" not in metrics:
            missing |= dict.fromkeys(GRAPHS, f"{NOT_APPLICABLE}: nothing is compiled")
        times = [
            OperatorTime(
                module=module,
                operator=name,
                kind=self._info(module).kind,
                layer=self._info(module).layer,
                placed=device,
                calls=mean["calls"],
                exclusive_ms=mean["exclusive_ms"],
                inclusive_ms=mean["inclusive_ms"],
                device_ms=mean["device_exclusive_ms"] if on_device else None,
                device_inclusive_ms=mean["device_inclusive_ms"] if on_device else None,
                flops=work[module, name]["flops"] or None,
                bytes_accessed=work[module, name]["bytes_accessed"] or None,
            )
            for (module, name), mean in means.items()
        ]
        # The phases of the last call. The first token is the prefill; all others are one phase, the decoding.
        last, begin_ns, tokens = calls[-1], 0.0, 0
        phases: dict[str, Json] = {}
        if not last.phases:
            phases["call"] = {"ms": ns_to_ms(last.duration_ns), "peak_bytes": last.peak_bytes}
        totals: dict[str, dict[str, float]] = defaultdict(lambda: {"ms": 0.0, "peak_bytes": 0})
        for (name, end_ns), peak in zip(last.phases, last.phase_peaks, strict=False):
            tokens += name == TOKEN
            phase = totals[name if name != TOKEN else "prefill" if tokens == 1 else "decode"]
            phase["ms"] += ns_to_ms(end_ns - begin_ns)
            phase["peak_bytes"] = max(phase["peak_bytes"], peak)  # above the start of the call
            begin_ns = end_ns
        phases.update(totals)
        return Breakdown(
            host_ms=host_ms,
            modules=self._modules(on_device=on_device, work=work),
            operators=tuple(sorted(times, key=lambda time: (-time.work_ms, time.module, time.operator))),
            metrics=metrics,
            missing=missing,
            details={"phases": phases, **read_back},
        )

    def _mark(self, name: str) -> None:
        """As in timed calls: a token is on the host, while a phase's end may still be queued."""
        if name != TOKEN:
            self._synchronize()
        with _range(f"{MARK}{name}"):
            pass

    @contextmanager
    def _ranges(self) -> Iterator[None]:
        """Turns the forwards of modules, or the calls of compiled ones, into ranges with the modules' labels."""
        if self._operation.is_compiled:

            def in_range(label: str, call: Callable[..., Any]) -> Callable[..., Any]:
                def ranged(*arguments: Any, **named: Any) -> Any:
                    with _range(label):
                        return call(*arguments, **named)

                return ranged

            with ExitStack() as restored:
                for path, module in self._model.named_modules():
                    if (call := module._compiled_call_impl) is not None:
                        module._compiled_call_impl = in_range(self._labels[path or root_name(self._model)], call)
                        restored.callback(setattr, module, "_compiled_call_impl", call)
                yield
            return
        opened: list[Any] = []

        def enter(path: str) -> None:
            opened.append(_range(self._labels[path]))
            opened[-1].__enter__()

        with module_hooks(self._model, enter, lambda path: opened.pop().__exit__(None, None, None)):
            yield

    def _modules(self, *, on_device: bool, work: Mapping[tuple[str, str], Counter[str]]) -> tuple[ModuleTime, ...]:
        means = trace.mean_totals([call.modules for call in self._calls])
        by_module: dict[str, Counter[str]] = defaultdict(Counter)
        for (module, _), item in work.items():
            by_module[module].update(item)
        order = [*(path for path in self._module_infos if path in means), OUTSIDE]
        name = "device_inclusive_ns" if on_device else "inclusive_ns"
        times = []
        for path in (path for path in order if path in means):
            info, mean = self._info(path), means[path]
            samples = [ns_to_ms(getattr(call.modules[path], name)) for call in self._calls if path in call.modules]
            times.append(
                ModuleTime(
                    module=path,
                    class_name=info.class_name or None,
                    kind=info.kind,
                    layer=info.layer,
                    calls=mean["calls"],
                    inclusive_ms=mean["inclusive_ms"],
                    exclusive_ms=mean["exclusive_ms"],
                    outside_operators_ms=mean["outside_ms"],
                    device_inclusive_ms=mean["device_inclusive_ms"] if on_device else None,
                    device_exclusive_ms=mean["device_exclusive_ms"] if on_device else None,
                    inclusive_samples_ms=tuple(samples),
                    allocations=mean["allocations"],
                    allocated_bytes=mean["allocated_bytes"],
                    peak_bytes=mean["peak_bytes"],
                    flops=by_module[path]["flops"] or None,
                    bytes_accessed=by_module[path]["bytes_accessed"] or None,
                )
            )
        return tuple(times)

    def _info(self, path: str) -> ModuleInfo:
        return self._module_infos.get(path) or ModuleInfo(path=path, class_name="", kind=OTHER, layer=None)

    def _count_work(self) -> tuple[dict[tuple[str, str], Counter[str]], Readings]:
        """FLOPs and bytes by module and operator, none if the call failed in between; and those of the whole call."""
        stack = [OUTSIDE]
        work: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

        def on_kernel(operator: str, flops: int, bytes_accessed: int) -> None:
            work[stack[-1], operator].update(flops=flops, bytes_accessed=bytes_accessed)

        self._operation.reset()
        with module_hooks(self._model, stack.append, lambda path: stack.pop()):
            readings = count_work(lambda: self._operation.run(lambda name: None), on_kernel)
        self._operation.reset()
        if has_failed(readings):
            work.clear()
        return work, readings


def by_run_operator(
    work: Mapping[tuple[str, str], Counter[str]], means: Mapping[tuple[str, str], Mapping[str, float]]
) -> dict[tuple[str, str], Counter[str]]:
    """Counts by module and operator, with products under the operator that ran: torch may choose another one for the
    same product in the counted call (`bmm` for `mm`). Of several, it is the module's longest."""
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (module, name), item in work.items():
        alike = [(module, other) for other in PRODUCTS if (module, other) in means]
        if (module, name) in means or name not in PRODUCTS or not alike:
            found[module, name].update(item)
        else:
            found[max(alike, key=lambda key: means[key]["exclusive_ms"])].update(item)
    return found


def root_name(model: Any) -> str:
    """The path of the model itself, which has none among its modules."""
    return type(model).__name__


def modules_in(model: Any) -> dict[str, ModuleInfo]:
    """All modules of a torch model by path, in the model's order. The path of the model itself is its class."""
    traits = {
        path: ModuleTraits(
            class_name=type(module).__name__,
            is_lookup=isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag),
            is_convolution=isinstance(module, torch.nn.modules.conv._ConvNd),
            is_activation="activation" in type(module).__module__,
            has_weights=any(parameter.dim() > 1 for parameter in module.parameters()),
        )
        for path, module in model.named_modules()
    }
    infos = classify_modules(traits)
    return {path or root_name(model): replace(info, path=path or root_name(model)) for path, info in infos.items()}


@contextmanager
def module_hooks(model: Any, enter: Callable[[str], None], leave: Callable[[str], object]) -> Iterator[None]:
    """Calls `enter` and `leave` with the module's path around the forward of each module while inside."""
    from torch.nn.modules import module as modules

    paths = {id(module): path or root_name(model) for path, module in model.named_modules()}

    def before(module: Any, arguments: Any) -> None:
        if (path := paths.get(id(module))) is not None:
            enter(path)

    def after(module: Any, arguments: Any, output: Any) -> None:
        if (path := paths.get(id(module))) is not None:
            leave(path)

    with ExitStack() as hooks:
        hooks.callback(modules.register_module_forward_pre_hook(before).remove)
        hooks.callback(modules.register_module_forward_hook(after, always_call=True).remove)
        yield


def _range(name: str) -> Any:
    """A range in the trace: torch's internal fast one, as used by its compiler, at a tenth of the public one's cost."""
    return torch._C._profiler._RecordFunctionFast(name)


def _device_of(model: Any) -> str:
    """torch's device type of the model; the CPU for a model without parameters."""
    return next((str(parameter.device.type) for parameter in model.parameters()), str(processor().torch_type))


def _metrics(calls: Sequence[CallTrace], *, on_device: bool) -> dict[str, float]:
    """Means over calls, including those of the accelerator if there is one."""

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    metrics = {
        "operator_calls": mean([call.operator_calls for call in calls]),
        "outside_operators_ms": ns_to_ms(
            mean([sum(total.outside_ns for total in call.modules.values()) for call in calls])
        ),
        "allocations": mean([sum(total.allocations for total in call.modules.values()) for call in calls]),
        "allocated_bytes": mean([sum(total.allocated_bytes for total in call.modules.values()) for call in calls]),
        "peak_bytes": mean([call.peak_bytes for call in calls]),
    }
    if not on_device:
        return metrics
    return metrics | {
        "kernel_launches": mean([len(call.kernels) for call in calls]),
        "device_busy_ms": ns_to_ms(mean([call.busy_ns for call in calls])),
        "device_idle_ms": ns_to_ms(mean([max(call.duration_ns - call.busy_ns, 0.0) for call in calls])),
        "largest_gap_ms": ns_to_ms(mean([call.largest_gap_ns for call in calls])),
    }
