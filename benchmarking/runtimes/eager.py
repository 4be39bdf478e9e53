"""PyTorch as it is: every operator run as it is reached, on a CPU, an NVIDIA or AMD GPU, or an Apple GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from benchmarking.devices import DeviceHandle
from benchmarking.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.records import Cell, Device, Point, Precision, Scalar, Workload
from benchmarking.runtimes import Session, Stage
from benchmarking.workloads._families import families, plugin_of

DEVICES = ("cpu", "cuda", "rocm", "mps")
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bfloat16", "float16")
ATTENTIONS = ("eager", "sdpa", "flash_attention_2", "flex_attention")


class Eager:
    """The runtime `eager`. Modes: attention, and for generation the kind of key-value cache."""

    name = "eager"
    is_compared = True
    point_per_process = False

    def missing(self) -> str | None:
        absent = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
        return f"not installed: {', '.join(absent)}: pip install {' '.join(absent)}" if absent else None

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if device.type not in DEVICES:
            return f"runtime eager runs on {', '.join(DEVICES)}, not on {device.type}"
        if precision not in PRECISIONS:
            return f"runtime eager has {', '.join(PRECISIONS)}, not {precision}"
        if precision == "tf32" and device.type != "cuda":
            return f"tf32 is a mode of NVIDIA's tensor cores (cuda), not of {device.type}"
        if workload.source != "module" and workload.family not in {plugin.name for plugin in families()}:
            return f"runtime eager does not run family {workload.family}"
        return None

    def options(self, workload: Workload) -> tuple[str, ...]:
        return tuple(_known_options(workload))

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        known = _known_options(workload)
        if unknown := sorted(set(options) - set(known)):
            has = ", ".join(known) or "none"
            raise UsageError(f"runtime eager has no option {unknown[0]!r} at task {workload.task}; it has {has}")
        mode = {name: _choice(name, options.get(name, values[0]), values) for name, values in known.items()}
        if mode.get("attention") == "flash_attention_2":
            _check_flash_attention(device)
        return mode

    def import_libraries(self) -> None:
        import torch  # noqa: F401
        import transformers.models.auto.modeling_auto  # noqa: F401

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from benchmarking.runtimes import _torch, _torch_model
        from benchmarking.runtimes._torch_session import TorchSession
        from benchmarking.workloads._page_cache import page_cache_of
        from benchmarking.workloads._processing import open_processing

        if handle.torch_name is None:
            raise UnsupportedError(f"torch cannot use {cell.device.selector}")
        attention = str(cell.runtime_mode["attention"]) if "attention" in cell.runtime_mode else None
        with stage("import"):
            plugin_of(cell.workload).model_class(cell.workload)
        files = page_cache_of(cell.workload)  # before anything reads them; it is no part of the load
        processing = open_processing(cell.workload, stage)
        with ExitStack() as cleanup:
            cleanup.callback(_torch.set_threads(cell.num_threads))
            flags = _torch.MatmulPrecision(cell.precision)
            cleanup.callback(flags.restore)
            with stage("weights_read"):
                model, loaded = _torch_model.load_model(cell.workload, cell.precision, attention)
            with stage("to_device"):
                model = _torch_model.to_device(model, handle.torch_name)
            if cell.workload.weights == "pretrained":
                _torch_model.check_finite(model, cell.workload.model_id)
            verified = _torch_model.verify(model, cell.precision, handle.torch_name, attention)
            verified |= {**loaded, **files, **processing.verified, **_torch.threads_in_force(), **flags.in_force()}
            verified |= _torch_model.implementation(model, cell.workload)
            _check_threads(cell, verified["num_threads"])
            return TorchSession(model, cell, handle.torch_name, verified, cleanup.pop_all(), processing)


def _known_options(workload: Workload) -> dict[str, tuple[str, ...]]:
    """The values of each option that a workload has, the default first."""
    plugin = plugin_of(workload)
    known: dict[str, tuple[str, ...]] = {}
    default = plugin.default_attention(workload.config)
    if default is not None:
        known["attention"] = (default, *(name for name in ATTENTIONS if name != default))
    if "new_tokens" in plugin.axes(workload):
        known["cache"] = plugin.caches
    return known


def _choice(option: str, value: Scalar, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UsageError(f"{option} {value!r}: runtime eager has {', '.join(known)}")
    return str(value)


def _check_flash_attention(device: Device) -> None:
    if device.type not in ("cuda", "rocm"):
        raise UnsupportedError(f"attention flash_attention_2 runs on cuda and rocm, not on {device.type}")
    if importlib.util.find_spec("flash_attn") is None:
        raise UnsupportedError("attention flash_attention_2 needs the package flash-attn: pip install flash-attn")


def _check_threads(cell: Cell, in_force: object) -> None:
    if cell.num_threads is not None and in_force != cell.num_threads:
        raise BenchhouseError(f"asked for {cell.num_threads} threads, but torch uses {in_force}")


PLUGIN = Eager()
