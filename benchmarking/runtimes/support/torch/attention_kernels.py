"""Attention by name: the implementation and the torch kernel that a name means, enforced and read back.

`sdpa` lets torch choose among its kernels of scaled-dot-product attention; `sdpa:flash` and the like allow only one,
and torch raises where that one cannot run."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarking.core.contracts import NOT_AS_REQUESTED, NOT_VERIFIED
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.plugins import are_all_assumed, version_of
from benchmarking.core.records import Device, Json, Precision
from benchmarking.devices.support.kinds import kind_of, names_with
from benchmarking.devices.support.torch_gpu import TORCH_TYPE, is_gpu_in_use

SDPA = "sdpa"
FLEX = "flex_attention"
BACKENDS: Mapping[str, str] = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
"""Kernels of scaled-dot-product attention -> their names in torch.nn.attention.SDPBackend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlashPackage:
    """A version of FlashAttention that transformers calls through a package of its own."""

    version: int
    distribution: str
    capability: tuple[int, int]
    """The least compute capability of an NVIDIA GPU: that of the package, as transformers states it for 3 and 4."""


FLASH_PACKAGES: Mapping[str, FlashPackage] = {
    "flash_attention_2": FlashPackage(version=2, distribution="flash-attn", capability=(8, 0)),
    "flash_attention_3": FlashPackage(version=3, distribution="flash-attn-3", capability=(8, 0)),
    "flash_attention_4": FlashPackage(version=4, distribution="flash-attn-4", capability=(9, 0)),
}
"""By transformers' name. Without the package transformers would take a kernel from the hub."""
FLASH_PRECISIONS: tuple[Precision, ...] = ("bfloat16", "float16")
"""Their kernels have no other."""
ATTENTIONS = ("eager", SDPA, *FLASH_PACKAGES, FLEX, *(f"{SDPA}:{backend}" for backend in BACKENDS))
"""The values of `--attention`: transformers' implementations, and the kernels of `sdpa`."""

OPERATORS: tuple[tuple[str, str], ...] = (
    ("aten::_scaled_dot_product_flash_attention", "flash"),
    ("aten::_scaled_dot_product_efficient_attention", "efficient"),
    ("aten::_scaled_dot_product_cudnn_attention", "cudnn"),
    ("aten::_scaled_dot_product_attention_math", "math"),
    ("aten::_scaled_dot_product_fused_attention_overrideable", "overrideable"),
    ("flash_attn::_flash_attn", "flash_attention_2"),
    ("flash_attn_3::_flash_attn", "flash_attention_3"),
)
"""Prefixes of the kernels' operators in a profile (`..._flash_attention_for_cpu`, `..._math_for_mps`)."""
GPU_KERNELS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"flash_attncuteflash_fwd"), "flash_attention_4"),
    (re.compile(r"\bflash::FlashAttnFwdSm"), "flash_attention_3"),
    (re.compile(r"\bpytorch_flash::flash_fwd(_splitkv)?_kernel"), "flash"),
    (re.compile(r"\bflash::flash_fwd(_splitkv)?_kernel"), "flash_attention_2"),
    (re.compile(r"\bfmha_cutlassF_"), "efficient"),
    (re.compile(r"\bcudnn_generated_\w*sdpa_\w*fprop"), "cudnn"),
)
"""What NVIDIA GPUs call them, which is all that a replayed CUDA graph shows: it launches kernels without operators.
AMD's are named alike for flash and efficient, so they are not in here."""


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
    package = FLASH_PACKAGES.get(attention or "")
    if package is None:
        return
    if kind is None or package.version not in kind.flash_attention:
        able = " and ".join(names_with(lambda kind: package.version in kind.flash_attention))
        raise UnsupportedError(f"attention {attention} runs on {able}, not on {device.type}")
    capability = str(device.facts.values.get("compute_capability", ""))
    if capability and tuple(int(part) for part in capability.split(".")) < package.capability:
        least = ".".join(map(str, package.capability))
        raise UnsupportedError(
            f"attention {attention} needs compute capability {least}, and {device.name} has {capability}"
        )
    if version_of(package.distribution) is None and not are_all_assumed():
        raise UnsupportedError(
            f"attention {attention} needs the package {package.distribution}: pip install {package.distribution}"
        )


def check_precision(attention: str | None, precision: Precision) -> None:
    """Raise UnsupportedError for an attention whose kernels do not have the precision."""
    if attention in FLASH_PACKAGES and precision not in FLASH_PRECISIONS:
        raise UnsupportedError(
            f"attention {attention} computes in {' and '.join(FLASH_PRECISIONS)}, not in {precision}: "
            f"take --precision {FLASH_PRECISIONS[0]}, or another --attention"
        )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The kernels of attention in a profile of a call: name -> how often."""

    operators: Mapping[str, int]
    """By the operators that torch dispatched on the host."""
    on_gpu: Mapping[str, int]
    """By the names of the kernels that a GPU ran."""
    gpu_events: int
    """All that the profile has of a GPU; 0 where the profiler cannot see it."""

    @property
    def counts(self) -> dict[str, int]:
        """Both ways of counting in one: each sees the same kernels, or misses some."""
        names = sorted({*self.operators, *self.on_gpu})
        return {name: max(self.operators.get(name, 0), self.on_gpu.get(name, 0)) for name in names}


def kernels_run(call: Callable[[], object]) -> Ran:
    """The kernels of attention that a call runs, recorded by torch's profiler.

    Attention made of other operators (transformers' `eager`, or compiled code) runs none.
    """
    torch: Any = importlib.import_module("torch")
    uses_gpu = is_gpu_in_use()
    with torch.autograd.profiler.profile(use_device=TORCH_TYPE if uses_gpu else None) as watched:
        call()
        if uses_gpu:
            torch.cuda.synchronize()
    # Only names are read: torch's summary of a long generation takes a hundred times as long as the call.
    gpu = torch.autograd.DeviceType.CUDA
    events = [(event.name(), event.device_type() == gpu) for event in watched.kineto_results.events()]
    return counted(
        [name for name, is_on_gpu in events if not is_on_gpu], [name for name, is_on_gpu in events if is_on_gpu]
    )


def counted(host_events: Sequence[str], gpu_events: Sequence[str]) -> Ran:
    """The kernels of attention among the names of a profile's events."""
    operators = Counter(kernel for name in host_events for begin, kernel in OPERATORS if name.startswith(begin))
    on_gpu = Counter(
        kernel
        for name in gpu_events
        if (kernel := next((kernel for named, kernel in GPU_KERNELS if named.search(name)), None)) is not None
    )
    return Ran(operators=operators, on_gpu=on_gpu, gpu_events=len(gpu_events))


def verdict(attention: str | None, ran: Ran, *, is_compiled: bool, is_replayed: bool) -> dict[str, Json]:
    """Facts for `Operation.verified`: empty when the named kernel ran, or none was named; else that another one ran, or
    why it is not known which.

    A compiler turns the math kernel into its own code, so compiled it is recognized by the absence of the others. Of a
    replayed CUDA graph (`is_replayed`) only the GPU's kernels can be seen, and a new version may call them otherwise.
    """
    named, counts = backend_of(attention) or attention, ran.counts
    if named not in {*BACKENDS, *FLASH_PACKAGES} or set(counts) == {named}:
        return {}
    if counts:
        found = ", ".join(f"{kernel} {count} times" for kernel, count in counts.items())
        return {NOT_AS_REQUESTED: f"asked for attention {attention}, but {found} ran"}
    if named == "math" and is_compiled and not (is_replayed and not ran.gpu_events):
        return {}
    if is_replayed or named in FLASH_PACKAGES:
        seen = "has no kernels of the GPU" if not ran.gpu_events else "has none of a known name"
        return {NOT_VERIFIED: f"whether attention {attention} ran is not known: the profile of a call {seen}"}
    return {NOT_AS_REQUESTED: f"asked for attention {attention}, but no kernel of sdpa ran"}
