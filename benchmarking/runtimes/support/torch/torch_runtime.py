"""Shared base of the runtimes on torch: their options, and loading and verifying a model.

The default runtime calls the model as loaded; others then change the model or how it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from benchmarking.core.contracts import EXAMPLE_TEXT, Option, Runtime, Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.plugins import has, how_to_install, is_installed, kind_of, why_not_on
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Scalar, Workload
from benchmarking.devices.support.binding import binding_lines
from benchmarking.devices.support.handles import parts
from benchmarking.runtimes.support.torch import model_loading, torch_settings
from benchmarking.runtimes.support.torch.torch_session import Loaded, TorchSession
from benchmarking.runtimes.support.torch.torch_settings import (
    ATTENTION,
    CHANNELS_LAST,
    MEMORY_FORMAT,
    TOKEN_SYNC,
    attention_of,
    backend_of,
    implementation_of,
)
from benchmarking.workloads.support import quantized_weights
from benchmarking.workloads.support.exported_folder import is_export
from benchmarking.workloads.support.families import families, plugin_of
from benchmarking.workloads.support.generation import CACHES
from benchmarking.workloads.support.graph_file import format_of
from benchmarking.workloads.support.processing import open_processing
from benchmarking.workloads.support.synthetic_inputs import IMAGE_AXIS
from benchmarking.workloads.support.transformers_models import AUTO_CLASSES
from benchmarking.workloads.support.weights import page_cache_of

PACKAGES = ("torch", "transformers")
CACHE = Option("cache", "key-value cache for text generation", values=CACHES, tried=CACHES)

WITH_CONV1D = ("gpt2", "openai-gpt")
"""Model types whose layers torchao skips until they are replaced by linear ones, which takes more than a few lines."""

SHARED_OPTIONS = (ATTENTION, CACHE, TOKEN_SYNC, MEMORY_FORMAT)
"""Options of every runtime on torch."""


class TorchRuntime(Runtime):
    """A runtime on torch. Options: attention; for generation, the kind of cache and when tokens reach the host; for
    images, their memory format; at quantized precisions, the method; and those that the runtime adds."""

    libraries: tuple[str, ...] = ("torch", "transformers.models.auto.modeling_auto")
    packages: tuple[str, ...] = PACKAGES
    """Required distributions, with their module names."""
    declared_options: tuple[Option, ...] = (*SHARED_OPTIONS, model_loading.QUANTIZATION)
    loads_quantized = True
    compiles: bool = False
    """Whether the model's code is compiled."""
    profiler = "torch.profiler"

    def prepare_process(self, cell: Cell, points: Sequence[Point], cleanup: ExitStack) -> Any:
        """Prepare the process before torch runs anything, until `cleanup`. The result is passed to `session`."""
        return None

    def change(self, model: Any, cell: Cell, stage: Stage) -> Mapping[str, Json]:
        """Change the loaded model in place, in a separate stage. Returns facts for `verified`."""
        return {}

    def session(self, loaded: Loaded, prepared: Any) -> Session:
        """The session on a loaded model; `prepared` is the result of `prepare_process`."""
        return TorchSession(loaded)

    def missing(self) -> str | None:
        absent = [name for name in self.packages if not is_installed(name)]
        return f"not installed: {', '.join(absent)}: {how_to_install(*absent)}" if absent else None

    def why_not_on(self, device: Device) -> str | None:
        return why_not_on(self.name, device.type, lambda kind: kind.runs_torch)

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if (why_not := self.why_not_on(device)) is not None:
            return why_not
        if precision == "tf32" and not has(device.type, lambda kind: kind.has_tf32):
            return f"tf32 is a mode of NVIDIA's tensor cores (cuda), not of {device.type}"
        if workload.source == "file":
            kind, reader = "a graph file", "a runtime for graphs"
            if is_export(workload):
                kind = f"an export to {format_of(workload)}"
            elif workload.family is not None:
                kind, reader = f"in an engine's own format ({format_of(workload)})", "the --runtime that reads it"
            return f"{workload.model_id} is {kind}, which has no torch model: choose {reader}"
        if workload.source != "module" and workload.family not in {plugin.name for plugin in families()}:
            return f"runtime {self.name} does not support family {workload.family}"
        if precision in model_loading.METHODS and model_loading.QUANTIZATION not in self.declared_options:
            return f"runtime {self.name} does not quantize: use --runtime eager or compiled for {precision}"
        if quantized_weights.quantization_of(workload) is not None:
            return None
        return model_loading.why_not_quantized(device, precision, compiles=self.compiles)

    def options(self, workload: Workload, device: Device | None = None) -> tuple[Option, ...]:
        plugin = plugin_of(workload)
        default, axes = plugin.default_attention(workload.config), plugin.axes(workload)
        values: dict[str, tuple[str, ...]] = {
            ATTENTION.name: ()
            if default is None
            else (default, *(name for name in ATTENTION.values if name != default)),
            CACHE.name: plugin.caches if "new_tokens" in axes else (),
            TOKEN_SYNC.name: TOKEN_SYNC.values if "new_tokens" in axes else (),
            MEMORY_FORMAT.name: MEMORY_FORMAT.values if IMAGE_AXIS in axes else (),
        }
        options = (replace(option, values=values.get(option.name, option.values)) for option in self.declared_options)
        return tuple(option for option in options if option.values or option.name not in values)

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        # Without these two at their defaults: naming a default must not start another series.
        defaults = {option.name: option.values[0] for option in (TOKEN_SYNC, MEMORY_FORMAT)}
        chosen = super().mode(device, workload, options)
        mode = {name: value for name, value in chosen.items() if defaults.get(name) != value}
        torch_settings.check(attention_of(mode), device)
        torch_settings.check_model(attention_of(mode), workload)
        if (stored := quantized_weights.quantization_of(workload)) is None:
            return mode
        if (requested := mode.get(model_loading.OPTION)) is not None:
            raise UnsupportedError(f"--quantization {requested}: {workload.model_id} holds {stored.setting}: omit it")
        return {**mode, model_loading.OPTION: stored.setting}

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        attention, precisions = attention_of(mode), torch_settings.FLASH_PRECISIONS
        if attention in torch_settings.FLASH_PACKAGES and precision not in precisions:
            raise UnsupportedError(
                f"attention {attention} supports {' and '.join(precisions)}, not {precision}: "
                f"use --precision {precisions[0]}, or another --attention"
            )
        if quantized_weights.is_setting(mode.get(model_loading.OPTION)):
            return mode
        return model_loading.with_method(self.name, precision, mode)

    def deployment(self, cell: Cell, point: Point) -> str | None:
        """For models of transformers that read text, on one device."""
        workload, mode = cell.workload, cell.runtime_mode
        classes = AUTO_CLASSES.get(workload.task, ())
        quantized = model_loading.configuration(cell.precision, mode.get(model_loading.OPTION))
        is_text = point.sequence_length is not None and not point.axes
        if workload.source not in ("catalog", "hub", "local") or len(classes) != 1 or not is_text:
            return None
        if len(parts(cell.device)) > 1:
            return None
        if cell.precision in model_loading.METHODS and quantized is None:
            return None
        if quantized and workload.config.get("model_type") in WITH_CONV1D:
            return None
        kind = kind_of(cell.device.type)
        assert kind is not None
        device = f"{kind.torch_type}{cell.device.selector.removeprefix(cell.device.type)}"
        dtype = torch_settings.dtype_name(cell.precision, device)
        attention = attention_of(mode)
        implementation = "" if attention is None else f", attn_implementation={implementation_of(attention)!r}"
        only_kernel = ""
        if (backend := backend_of(attention)) is not None:
            in_torch = "torch.nn.attention"
            only_kernel = f", {in_torch}.sdpa_kernel({in_torch}.SDPBackend.{torch_settings.BACKENDS[backend]})"
        name = workload.path if workload.source == "local" else workload.model_id
        lines = [
            *binding_lines(cell.cpu_list),
            "import torch",
            "import transformers",
            *(["import torchao.quantization as ao"] if quantized else []),
            "",
            *([] if cell.num_threads is None else [f"torch.set_num_threads({cell.num_threads})"]),
            *(["torch.set_float32_matmul_precision('high')  # TF32"] if cell.precision == "tf32" else []),
            f"model = transformers.{classes[0]}.from_pretrained({name!r}, dtype=torch.{dtype}{implementation})",
            *([f"ao.quantize_(model, ao.{quantized})"] if quantized else []),
            f"model = model.eval().to({device!r})",
            *self.deployed_changes(cell),
            f"tokenizer = transformers.AutoTokenizer.from_pretrained({name!r})",
            f"inputs = tokenizer([{EXAMPLE_TEXT!r}] * {point.batch_size}, return_tensors='pt').to({device!r})",
            f"with torch.inference_mode(){only_kernel}:",
        ]
        if point.new_tokens is None:
            return "\n".join([*lines, "    output = model(**inputs)"])
        cache = ", cache_implementation='static'" if mode.get("cache") == "static" else ""
        call = f"model.generate(**inputs, max_new_tokens={point.new_tokens}, do_sample=False{cache})"
        return "\n".join([*lines, f"    tokens = {call}"])

    def deployed_changes(self, cell: Cell) -> list[str]:
        """The lines that change the loaded model, in `deployment`."""
        return []

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        if handle.torch_name is None:
            raise UnsupportedError(f"torch cannot use {cell.device.selector}")
        with stage("import"):
            plugin_of(cell.workload).model_class(cell.workload)
        file_facts = page_cache_of(cell.workload)  # before anything reads the files
        processing = open_processing(cell.workload, stage)
        with ExitStack() as cleanup:
            cleanup.callback(torch_settings.set_threads(cell.num_threads))
            if has(cell.device.type, lambda kind: kind.has_tf32):
                torch_settings.check_override(cell.precision)
            cleanup.callback(torch_settings.MatmulPrecision(cell.precision).restore)
            attention = attention_of(cell.runtime_mode)
            if (backend := backend_of(attention)) is not None:
                from torch.nn.attention import SDPBackend, sdpa_kernel

                # torch's switches are process-wide. Set once around a session, they add no cost to its calls.
                cleanup.enter_context(sdpa_kernel(getattr(SDPBackend, torch_settings.BACKENDS[backend])))
            prepared = self.prepare_process(cell, points, cleanup)
            model, count, verified = self._load(cell, handle.torch_name, stage)
            if backend is not None:
                verified |= {"attention": attention, "attention_kernels_allowed": torch_settings.enabled_kernels()}
            if cell.runtime_mode.get(MEMORY_FORMAT.name) == CHANNELS_LAST:
                verified |= model_loading.to_channels_last(model)
            verified |= {
                **file_facts,
                **processing.verified,
                **torch_settings.effective_threads(),
                **torch_settings.effective_arithmetic(),
            }
            if cell.num_threads is not None and (used := verified["num_threads"]) != cell.num_threads:
                raise BenchhouseError(f"requested {cell.num_threads} threads, but torch uses {used}")
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
        """The model on its device, its number of parameters before quantization, and the facts read from it."""
        precision = cell.precision
        implementation = implementation_of(attention_of(cell.runtime_mode))
        with stage("weights_read"):
            model, loaded = model_loading.load_model(cell.workload, precision, implementation, torch_name)
        stored = quantized_weights.quantization_of(cell.workload)
        if stored is None:
            count = model_loading.parameter_count(model)
            with stage("to_device"):
                model = model_loading.to_device(model, torch_name)
        else:
            count = quantized_weights.parameter_count(model)
            loaded |= quantized_weights.read_back(model, stored)
        if cell.workload.weights == "pretrained":
            model_loading.check_finite(model, cell.workload.model_id)
        if precision in model_loading.METHODS and stored is None:
            method = str(model_loading.with_method(self.name, precision, cell.runtime_mode)[model_loading.OPTION])
            with stage("quantize"):
                loaded |= model_loading.quantize(model, precision, method, torch_name.partition(":")[0])
        has_own_types = stored is not None or cell.workload.weights == "given"
        verified = model_loading.verify(model, precision, torch_name, implementation, has_own_types=has_own_types)
        changed = self.change(model, cell, stage)
        return model, count, {**verified, **loaded, **plugin_of(cell.workload).verified(model), **changed}
