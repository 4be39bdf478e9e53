"""What the runtimes on torch share: their options, and loading a model, verifying on the way that it is what was asked.

eager runs the model as it is loaded; the others change it, or how it is called, after the loading.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarking.core.contracts import Runtime, Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Scalar, Workload
from benchmarking.devices.support.kinds import has, names_with, processor
from benchmarking.runtimes.support.torch import attention_kernels, quantization
from benchmarking.workloads.support.families import families, plugin_of

if TYPE_CHECKING:
    from benchmarking.runtimes.support.torch.session import Loaded

PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bfloat16", "float16", "int8", "int4")
PACKAGES = ("torch", "transformers")


class TorchRuntime(Runtime):
    """A runtime on torch, Modes: attention, for generation the kind of key-value cache,
    at quantized precisions the method of quantization; and what a runtime has besides (`own_options`)."""

    packages: tuple[str, ...] = PACKAGES
    """Distributions (of the same name as their modules) that it needs."""
    is_quantizing = True
    """Whether it has the precisions that torchao quantizes to."""

    def own_options(self, device: Device, workload: Workload) -> Mapping[str, tuple[str, ...]]:
        """The values of each further option, the default first."""
        return {}

    def prepare_process(self, cell: Cell, torch_name: str, points: Sequence[Point], cleanup: ExitStack) -> Any:
        """What must be done before torch has run anything, undone by `cleanup`; it comes back in `session`."""
        return None

    def change(self, model: Any, cell: Cell, stage: Stage) -> Mapping[str, Json]:
        """Change the loaded model in place, in a stage of its own; what was done goes to `verified`."""
        return {}

    def session(self, loaded: Loaded, prepared: Any) -> Session:
        """The session on a loaded model. `prepared` is what `prepare_process` gave."""
        from benchmarking.runtimes.support.torch.session import TorchSession

        return TorchSession(loaded)

    def missing(self) -> str | None:
        absent = [name for name in self.packages if importlib.util.find_spec(name) is None]
        return f"not installed: {', '.join(absent)}: pip install {' '.join(absent)}" if absent else None

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if not has(device.type, lambda kind: kind.runs_torch):
            able = ", ".join(names_with(lambda kind: kind.runs_torch))
            return f"runtime {self.name} runs on {able}, not on {device.type}"
        if precision == "tf32" and not has(device.type, lambda kind: kind.has_tf32):
            return f"tf32 is a mode of NVIDIA's tensor cores (cuda), not of {device.type}"
        if workload.source != "module" and workload.family not in {plugin.name for plugin in families()}:
            return f"runtime {self.name} does not run family {workload.family}"
        if precision in quantization.METHODS and not self.is_quantizing:
            return f"runtime {self.name} does not quantize: {precision} runs on eager and compiled"
        return quantization.why_not(device, precision)

    def options(self, workload: Workload) -> tuple[str, ...]:
        any_kind = processor().name
        any_device = Device(type=any_kind, selector=any_kind, found=True)
        return (*self._options(any_device, workload), *self._quantization_option())

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        known = self._options(device, workload)
        has = (*known, *self._quantization_option())
        if unknown := sorted(set(options) - set(has)):
            names = ", ".join(has) or "none"
            raise UsageError(
                f"runtime {self.name} has no option {unknown[0]!r} at task {workload.task}; it has {names}"
            )
        mode = {name: self._choice(name, options.get(name, values[0]), values) for name, values in known.items()}
        if (method := options.get(quantization.OPTION)) is not None:
            mode[quantization.OPTION] = self._choice(quantization.OPTION, method, quantization.ALL_METHODS)
        attention_kernels.check(mode.get("attention"), device)
        return mode

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        return quantization.completed(self.name, precision, mode)

    def import_libraries(self) -> None:
        import torch  # noqa: F401
        import transformers.models.auto.modeling_auto  # noqa: F401

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes.support.torch import settings
        from benchmarking.runtimes.support.torch.session import Loaded
        from benchmarking.workloads.support.processing import open_processing
        from benchmarking.workloads.support.weights import page_cache_of

        if handle.torch_name is None:
            raise UnsupportedError(f"torch cannot use {cell.device.selector}")
        with stage("import"):
            plugin_of(cell.workload).model_class(cell.workload)
        files = page_cache_of(cell.workload)  # before anything reads them; it is no part of the load
        processing = open_processing(cell.workload, stage)
        with ExitStack() as cleanup:
            cleanup.callback(settings.set_threads(cell.num_threads))
            flags = settings.MatmulPrecision(cell.precision)
            cleanup.callback(flags.restore)
            cleanup.enter_context(attention_kernels.only(_attention_of(cell)))
            prepared = self.prepare_process(cell, handle.torch_name, points, cleanup)
            model, count, verified = self._load(cell, handle.torch_name, stage)
            verified |= {**files, **processing.verified, **settings.threads_in_force(), **flags.in_force()}
            _check_threads(cell, verified["num_threads"])
            loaded = Loaded(
                model=model,
                parameter_count=count,
                cell=cell,
                torch_name=handle.torch_name,
                verified=verified,
                cleanup=cleanup.pop_all(),
                processing=processing,
            )
            return self.session(loaded, prepared)

    def _load(self, cell: Cell, torch_name: str, stage: Stage) -> tuple[Any, int, dict[str, Json]]:
        """The model on its device, how many parameters it was published with, and what was read back of it."""
        from benchmarking.runtimes.support.torch import model_loading

        attention, precision = _attention_of(cell), cell.precision
        implementation = attention_kernels.implementation_of(attention)
        with stage("weights_read"):
            model, loaded = model_loading.load_model(cell.workload, precision, implementation)
        count = model_loading.parameter_count(model)
        with stage("to_device"):
            model = model_loading.to_device(model, torch_name)
        if cell.workload.weights == "pretrained":
            model_loading.check_finite(model, cell.workload.model_id)
        if precision in quantization.METHODS:
            method = str(quantization.completed(self.name, precision, cell.runtime_mode)[quantization.OPTION])
            with stage("quantize"):
                loaded |= quantization.quantize(model, precision, method, torch_name.partition(":")[0])
        verified = model_loading.verify(model, precision, torch_name, implementation)
        if attention_kernels.backend_of(attention) is not None:
            loaded |= {"attention": attention, "attention_kernels_allowed": attention_kernels.allowed()}
        changed = self.change(model, cell, stage)
        return model, count, {**verified, **loaded, **model_loading.implementation(model, cell.workload), **changed}

    def _options(self, device: Device, workload: Workload) -> dict[str, tuple[str, ...]]:
        """The values of each option that a workload always has, the default first."""
        plugin = plugin_of(workload)
        known: dict[str, tuple[str, ...]] = {}
        default = plugin.default_attention(workload.config)
        if default is not None:
            known["attention"] = (default, *(name for name in attention_kernels.ATTENTIONS if name != default))
        if "new_tokens" in plugin.axes(workload):
            known["cache"] = plugin.caches
        return {**known, **self.own_options(device, workload)}

    def _quantization_option(self) -> tuple[str, ...]:
        return (quantization.OPTION,) if self.is_quantizing else ()

    def _choice(self, option: str, value: Scalar, known: tuple[str, ...]) -> str:
        if value not in known:
            raise UsageError(f"{option} {value!r}: runtime {self.name} has {', '.join(known)}")
        return str(value)


def _attention_of(cell: Cell) -> str | None:
    return str(cell.runtime_mode["attention"]) if "attention" in cell.runtime_mode else None


def _check_threads(cell: Cell, in_force: object) -> None:
    if cell.num_threads is not None and in_force != cell.num_threads:
        raise BenchhouseError(f"asked for {cell.num_threads} threads, but torch uses {in_force}")
