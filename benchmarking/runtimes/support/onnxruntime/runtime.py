"""What the runtimes over ONNX Runtime share: requirements, and which execution provider runs on a device."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from benchmarking.core import plugins
from benchmarking.core.contracts import Option, Runtime
from benchmarking.core.device_contracts import DeviceKind
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.plugins import are_all_assumed
from benchmarking.core.records import Device, Precision, Scalar
from benchmarking.devices.support import ort_providers as directml
from benchmarking.devices.support.ort_providers import OrtProvider
from benchmarking.graphs import session as graphs

DEVICES = "benchmarking.devices"
IO_MODE = Option(name="io_mode", help="memory of a call's inputs and outputs", values=("device", "host"))
ALWAYS = "CPUExecutionProvider"
"""The provider that every ONNX Runtime has."""


class OrtRuntime(Runtime):
    """A runtime that runs a model's exported graphs in ONNX Runtime, in a process without torch."""

    prepares = True
    needs_no_torch = True

    def missing(self) -> str | None:
        if importlib.util.find_spec("onnxruntime") is None:
            return "not installed: onnxruntime: pip install onnxruntime (onnxruntime-gpu for NVIDIA GPUs)"
        return graphs.missing()

    def import_libraries(self) -> None:
        import onnxruntime  # noqa: F401


def providers_of(device: Device) -> tuple[OrtProvider, ...]:
    """The providers that drive a device; none where ONNX Runtime cannot."""
    if device.type not in plugins.names(DEVICES):
        return ()
    plugin: DeviceKind = plugins.load(DEVICES, device.type)
    return plugin.ort_providers(device)


def built_provider(device: Device, known: Sequence[OrtProvider], word: Scalar | None = None) -> OrtProvider | str:
    """The named provider of a device, else the first that can be a default, if the installed ONNX Runtime has it; or
    why there is none.

    A provider that is built in may still not load: `open_graph` checks what the session runs on.
    """
    wanted = [one for one in known if (not one.on_request_only if word is None else one.word == word)]
    if not wanted:
        return f"provider {word!r}: ONNX Runtime has {', '.join(one.word for one in known)} for {device.selector}"
    if wanted[0].name == ALWAYS or are_all_assumed():
        return wanted[0]
    if (why_not := _why_not_here(wanted[0])) is not None:
        return why_not
    import onnxruntime

    built = onnxruntime.get_available_providers()
    return next((one for one in wanted if one.name in built), None) or _not_built(device, known, wanted, built)


def _why_not_here(provider: OrtProvider) -> str | None:
    return None if provider.why_not_here is None else provider.why_not_here()


def _not_built(device: Device, known: Sequence[OrtProvider], wanted: Sequence[OrtProvider], built: list[str]) -> str:
    import onnxruntime

    needed = " or ".join(f"{one.name} ({one.install})" for one in wanted)
    others = [one.word for one in known if one.name in built and one not in wanted]
    choose = f" (--provider {others[0]} is available)" if others else ""
    return (
        f"{device.selector} needs ONNX Runtime with {needed}: pip install {wanted[0].install}. "
        f"Found: onnxruntime {onnxruntime.__version__} with {', '.join(built)}{choose}"
    )


def provider_of(device: Device, word: Scalar | None = None) -> OrtProvider:
    """The provider for a device: the named one, or the device's default. Raises UnsupportedError when there is none."""
    known = providers_of(device)
    found = built_provider(device, known, word) if known else f"ONNX Runtime has no provider for {device.type}"
    if isinstance(found, str):
        raise UnsupportedError(found)
    return found


def possible_provider(device: Device, known: Sequence[OrtProvider]) -> OrtProvider | str:
    """The device's default provider if it is available, else one that is available by name, or why there is none."""
    own = built_provider(device, known)
    named = (built_provider(device, known, one.word) for one in known if one.on_request_only)
    return own if isinstance(own, OrtProvider) else next((one for one in named if isinstance(one, OrtProvider)), own)


def check_named_precision(word: Scalar | None, precision: Precision) -> None:
    """Raise UnsupportedError for a precision that a provider which must be named does not have."""
    for provider in (directml.PROVIDER,):
        if provider.word == word and precision not in provider.precisions:
            raise UnsupportedError(f"provider {word} has {', '.join(provider.precisions)}, not {precision}")


def why_not_precision(device: Device, provider: OrtProvider, precision: Precision) -> str | None:
    """None, or why a provider does not run graphs in a precision."""
    native = device.facts.values.get("native_precisions")
    if provider.name == ALWAYS and precision == "float16" and isinstance(native, list) and precision not in native:
        return (
            f"ONNX Runtime converts {precision} to float32 on this processor, which has {', '.join(map(str, native))}"
        )
    if precision == "tf32" and precision not in provider.precisions:
        return f"tf32 is a mode of NVIDIA's tensor cores, which {provider.name} does not use"
    if precision not in provider.precisions:
        return f"{provider.name} has no kernels for {precision}; it has {', '.join(provider.precisions)}"
    if precision not in graphs.PRECISIONS:
        return f"graphs are made in {', '.join(graphs.PRECISIONS)}, not in {precision}"
    return None
