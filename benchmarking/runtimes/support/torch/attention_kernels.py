"""Attention by name: the implementation and the torch kernel that a name means, enforced and read back.

`sdpa` lets torch choose among its kernels of scaled-dot-product attention; `sdpa:flash` and the like allow only one,
and torch raises where that one cannot run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Device, Json
from benchmarking.devices.support.kinds import kind_of, names_with

SDPA = "sdpa"
FLASH_PACKAGE = "flash_attention_2"
FLEX = "flex_attention"
BACKENDS: Mapping[str, str] = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
"""Kernels of scaled-dot-product attention -> their names in torch.nn.attention.SDPBackend."""
ATTENTIONS = ("eager", SDPA, FLASH_PACKAGE, FLEX, *(f"{SDPA}:{backend}" for backend in BACKENDS))
"""The values of `--attention`: transformers' implementations, and the kernels of `sdpa`."""

KERNELS: tuple[tuple[str, str], ...] = (
    ("aten::_scaled_dot_product_flash_attention", "flash"),
    ("aten::_scaled_dot_product_efficient_attention", "efficient"),
    ("aten::_scaled_dot_product_cudnn_attention", "cudnn"),
    ("aten::_scaled_dot_product_attention_math", "math"),
    ("aten::_scaled_dot_product_fused_attention_overrideable", "overrideable"),
    ("flash_attn::_flash_attn", FLASH_PACKAGE),
)
"""Prefixes of the kernels' operators in a profile (`..._flash_attention_for_cpu`, `..._math_for_mps`)."""


def implementation_of(attention: str | None) -> str | None:
    """Its name in transformers: `sdpa` for `sdpa:flash`."""
    return None if attention is None else attention.partition(":")[0]


def backend_of(attention: str | None) -> str | None:
    """The only allowed kernel: "flash" for `sdpa:flash`; None where torch may choose."""
    return None if attention is None else attention.partition(":")[2] or None


def check(attention: str | None, device: Device) -> None:
    """Raise UnsupportedError for an attention that the device or the installed packages do not have."""
    backend, kind = backend_of(attention), kind_of(device.type)
    has = () if kind is None else kind.sdpa_kernels
    if backend is not None and backend not in has:
        kernels = ", ".join(f"{SDPA}:{name}" for name in has) or "none"
        raise UnsupportedError(f"attention {attention}: torch has no such kernel on {device.type}; it has {kernels}")
    if attention != FLASH_PACKAGE:
        return
    if kind is None or not kind.has_flash_attention:
        able = " and ".join(names_with(lambda kind: kind.has_flash_attention))
        raise UnsupportedError(f"attention {attention} runs on {able}, not on {device.type}")
    if importlib.util.find_spec("flash_attn") is None:
        raise UnsupportedError(f"attention {attention} needs the package flash-attn: pip install flash-attn")


@contextmanager
def only(attention: str | None) -> Iterator[None]:
    """Inside, scaled-dot-product attention runs on the named kernel, or raises.

    torch's switches are process-wide: set once around a session they cost its calls nothing.
    """
    backend = backend_of(attention)
    if backend is None:
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, BACKENDS[backend])):
        yield


def allowed() -> list[Json]:
    """The enabled kernels, read back."""
    from torch.backends import cuda

    switches: dict[str, Any] = {
        "math": cuda.math_sdp_enabled,
        "flash": cuda.flash_sdp_enabled,
        "efficient": cuda.mem_efficient_sdp_enabled,
        "cudnn": cuda.cudnn_sdp_enabled,
    }
    return [name for name, is_on in switches.items() if is_on()]


def kernels_run(call: Callable[[], object]) -> dict[str, int]:
    """Kernels of attention that a call runs -> how often, recorded by torch's profiler on the host.

    Attention made of other operators (transformers' `eager`, or compiled code) runs none.
    """
    from torch.autograd import profiler

    with profiler.profile() as watched:
        call()
    counts: dict[str, int] = {}
    # Only names are read: torch's summary of a long generation takes a hundred times as long as the call.
    for event in watched.kineto_results.events():
        name = event.name()
        kernel = next((kernel for begin, kernel in KERNELS if name.startswith(begin)), None)
        if kernel is not None:
            counts[kernel] = counts.get(kernel, 0) + 1
    return dict(sorted(counts.items()))


def check_run(attention: str | None, ran: Mapping[str, int], *, is_compiled: bool) -> None:
    """Raise UnsupportedError when a kernel was named and another ran, or none.

    A compiler turns the math kernel into its own code, so compiled it is recognized by the absence of the others.
    """
    backend = backend_of(attention)
    if backend is None or set(ran) == {backend} or (backend == "math" and is_compiled and not ran):
        return
    found = ", ".join(f"{kernel} {count} times" for kernel, count in ran.items())
    raise UnsupportedError(f"asked for attention {attention}, but {found or 'no kernel of sdpa'} ran")
