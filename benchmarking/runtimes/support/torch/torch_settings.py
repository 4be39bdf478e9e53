"""torch's settings: precisions, threads and TF32 of the process; and attention by name, the implementation and torch
kernel that a name selects, enforced and verified. Imports torch only in calls.

`sdpa` lets torch choose among its kernels for scaled-dot-product attention. `sdpa:flash` and the like allow only one
kernel, and torch raises an error if it cannot run."""

from __future__ import annotations

import importlib
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarking.core.contracts import NOT_AS_REQUESTED, NOT_VERIFIED, Option
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import torch
from benchmarking.core.plugins import are_all_assumed, kind_of, names_with, version_of
from benchmarking.core.records import Device, Json, Precision, Scalar, Workload
from benchmarking.devices.support.torch_gpu import TORCH_TYPE, is_gpu_in_use, torch_build
from benchmarking.workloads.support.families import plugin_of

AT_THE_END, CHANNELS_LAST = "end", "channels_last"
TOKEN_SYNC = Option(
    "token_sync",
    "when generated tokens reach the host: each one immediately, or all but the first at the end",
    values=("each", AT_THE_END),
    is_filled_in=False,
)
MEMORY_FORMAT = Option(
    "memory_format",
    "memory layout of images and convolution weights",
    values=("contiguous", CHANNELS_LAST),
    is_filled_in=False,
    tried=(CHANNELS_LAST,),
)


TORCH_DTYPES: dict[Precision, str] = {
    "float32": "float32",
    "tf32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float8_e4m3": "bfloat16",
    "int8": "float32",
    "int4": "bfloat16",
}
"""Name of the parameters' torch dtype by precision. TF32 is float32 in memory, rounded inside matrix products. At
float8, int8 and int4 it is the dtype of everything but the weights of linear layers."""


def dtype_name(precision: Precision, torch_name: str = "") -> str:
    """torch's name of the dtype of parameters at a precision on a device. With int8 it is bfloat16 on GPUs, as in
    torchao's products, and float32 on CPUs, which more of them support."""
    is_gpu = torch_name.partition(":")[0] == TORCH_TYPE
    return "bfloat16" if precision == "int8" and is_gpu else TORCH_DTYPES[precision]


def dtype_of(precision: Precision, torch_name: str = "") -> Any:
    """The torch dtype of parameters at a precision on a device."""
    return getattr(torch, dtype_name(precision, torch_name))


def set_threads(num_threads: int | None) -> Callable[[], None]:
    """Set torch's number of threads, if given. The returned function restores the old number.

    The inter-op pool can be set only once per process and before its first use. An uncompiled forward pass does not use
    it, so it is not restored. `effective_threads` returns the numbers in effect.
    """
    previous = torch.get_num_threads()
    if num_threads is None:
        return lambda: None
    torch.set_num_threads(num_threads)
    if torch.get_num_interop_threads() != num_threads:
        try:
            torch.set_num_interop_threads(num_threads)
        except RuntimeError as error:
            if "cannot set number of interop threads" not in str(error):
                raise
    return lambda: torch.set_num_threads(previous)


def effective_threads() -> dict[str, Json]:
    """`num_threads` (within an operator) and `num_interop_threads` (between operators), as reported by torch."""
    return {"num_threads": torch.get_num_threads(), "num_interop_threads": torch.get_num_interop_threads()}


def effective_arithmetic() -> dict[str, Json]:
    """torch's switches that affect a GPU's arithmetic or choice of kernels, as reported by torch; they have no effect
    on a CPU. `allow_fp16_reduced_precision_reduction`: partial sums of float16 products may be rounded to float16."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    reductions = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": cudnn.allow_tf32,
        "cudnn_benchmark": cudnn.benchmark,
        "cudnn_deterministic": cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        **{name: bool(getattr(matmul, name)) for name in (*reductions, "allow_fp16_accumulation")},
    }


TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""Variable that forces NVIDIA's libraries to use TF32 ("1") or not ("0"), whatever a program requests."""


def check_override(precision: Precision) -> None:
    """Raise UnsupportedError if the variable conflicts with the arithmetic of a precision."""
    override, expected = os.environ.get(TF32_OVERRIDE), {"float32": "0", "tf32": "1"}.get(precision)
    if override in ("0", "1") and expected is not None and override != expected:
        verb = "use" if override == "1" else "avoid"
        raise UnsupportedError(
            f"{TF32_OVERRIDE}={override} makes NVIDIA's libraries {verb} TF32, which conflicts with {precision}: "
            f"unset {TF32_OVERRIDE}"
        )


class MatmulPrecision:
    """The flags that round float32 products to TF32, set for a precision until `restore`.

    float32 turns them off and tf32 turns them on, whatever the defaults (torch's are off in matrix products and on in
    cuDNN's convolutions). The two functions used keep torch's older and newer flags consistent; setting only
    `fp32_precision` does not, and reading the older flags then raises an error.
    """

    def __init__(self, precision: Precision) -> None:
        self._previous = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
        uses_tf32 = precision == "tf32"
        torch.set_float32_matmul_precision("high" if uses_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = uses_tf32

    def restore(self) -> None:
        matmul, cudnn = self._previous
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn


SDPA, EAGER = "sdpa", "eager"
FLEX = "flex_attention"
BACKENDS: Mapping[str, str] = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
"""Kernels of scaled-dot-product attention, with their names in torch.nn.attention.SDPBackend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlashPackage:
    """A version of FlashAttention that transformers uses through a separate package."""

    version: int
    distribution: str
    capability: tuple[int, int]
    """Minimum compute capability of an NVIDIA GPU for the package, as documented by transformers for 3 and 4."""
    is_torchs: bool = False
    """Whether only torch's own index has it, for each CUDA version."""


FLASH_PACKAGES: Mapping[str, FlashPackage] = {
    "flash_attention_2": FlashPackage(version=2, distribution="flash-attn", capability=(8, 0)),
    "flash_attention_3": FlashPackage(version=3, distribution="flash-attn-3", capability=(8, 0), is_torchs=True),
    "flash_attention_4": FlashPackage(version=4, distribution="flash-attn-4", capability=(9, 0)),
}
"""Packages by transformers' name. Without the package, transformers would load a kernel from the hub."""
FLASH_PRECISIONS: tuple[Precision, ...] = ("bfloat16", "float16")
"""The only precisions of their kernels."""
ATTENTION = Option(
    "attention",
    "attention implementation",
    values=(EAGER, SDPA, *FLASH_PACKAGES, FLEX, *(f"{SDPA}:{backend}" for backend in BACKENDS)),
    default="the model's own",
)
"""transformers' implementations, and the kernels of `sdpa`."""

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
"""Kernel names on NVIDIA GPUs. They are all that a replayed CUDA graph shows, since it launches kernels without
operators. AMD's kernels have the same names for flash and efficient, so they are not listed."""


def attention_of(mode: Mapping[str, Scalar]) -> str | None:
    """The attention in a runtime's settings; None for a model without a choice."""
    return str(mode[ATTENTION.name]) if ATTENTION.name in mode else None


def implementation_of(attention: str | None) -> str | None:
    """The attention's name in transformers: `sdpa` for `sdpa:flash`."""
    return None if attention is None else attention.partition(":")[0]


def backend_of(attention: str | None) -> str | None:
    """The only allowed kernel: "flash" for `sdpa:flash`; None if torch may choose."""
    return None if attention is None else attention.partition(":")[2] or None


def check(attention: str | None, device: Device) -> None:
    """Raise UnsupportedError if the device or the installed packages do not support an attention."""
    backend, kind = backend_of(attention), kind_of(device.type)
    kernels_here = () if kind is None else kind.sdpa_kernels
    if backend is not None and backend not in kernels_here:
        kernels = ", ".join(f"{SDPA}:{name}" for name in kernels_here) or "none"
        raise UnsupportedError(
            f"attention {attention}: torch does not have this kernel on {device.type}; available: {kernels}"
        )
    package = FLASH_PACKAGES.get(attention or "")
    if package is None:
        return
    if kind is None or package.version not in kind.flash_attention:
        devices = " and ".join(names_with(lambda kind: package.version in kind.flash_attention))
        raise UnsupportedError(f"attention {attention} runs on {devices}, not on {device.type}")
    capability = str(device.facts.values.get("compute_capability", ""))
    if capability and tuple(int(part) for part in capability.split(".")) < package.capability:
        minimum = ".".join(map(str, package.capability))
        raise UnsupportedError(
            f"attention {attention} needs compute capability {minimum}, but {device.name} has {capability}"
        )
    if version_of(package.distribution) is None and not are_all_assumed():
        install = package.distribution
        if package.is_torchs:
            build = torch_build()
            cuda = ((build.cuda if build else None) or "13.0").replace(".", "")
            install += f" --no-deps --index-url https://download.pytorch.org/whl/cu{cuda}"
        raise UnsupportedError(f"attention {attention} needs the package {package.distribution}: pip install {install}")


def check_model(attention: str | None, workload: Workload) -> None:
    """Raise UnsupportedError if the model has only its own attention code in transformers."""
    default = None if workload.source == "module" else plugin_of(workload).default_attention(workload.config)
    if default == EAGER and implementation_of(attention) == SDPA:
        raise UnsupportedError(
            f"attention {attention}: transformers has no scaled-dot-product attention for "
            f"{workload.config.get('model_type')}: use --attention {EAGER}"
        )


def enabled_kernels() -> list[Json]:
    from torch.backends import cuda

    switches: dict[str, Any] = {
        "math": cuda.math_sdp_enabled,
        "flash": cuda.flash_sdp_enabled,
        "efficient": cuda.mem_efficient_sdp_enabled,
        "cudnn": cuda.cudnn_sdp_enabled,
    }
    return [name for name, is_on in switches.items() if is_on()]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounts:
    """Attention kernels in a call's profile, with their counts by name."""

    operators: Mapping[str, int]
    """Counted by operators that torch dispatched on the host."""
    on_gpu: Mapping[str, int]
    """Counted by names of kernels that a GPU ran."""
    gpu_events: int
    """Number of all GPU events in the profile; 0 if the profiler does not see the GPU."""

    @property
    def counts(self) -> dict[str, int]:
        """Both counts combined: each sees the same kernels or misses some."""
        names = sorted({*self.operators, *self.on_gpu})
        return {name: max(self.operators.get(name, 0), self.on_gpu.get(name, 0)) for name in names}


def kernels_run(call: Callable[[], object]) -> KernelCounts:
    """The attention kernels that a call runs, recorded by torch's profiler.

    Attention composed of other operators (transformers' `eager`, or compiled code) runs none.
    """
    torch: Any = importlib.import_module("torch")
    uses_gpu = is_gpu_in_use()
    device = TORCH_TYPE if uses_gpu else None
    # Without `use_kineto`, which is off by default here, torch times operators by events and records no GPU kernel.
    with torch.autograd.profiler.profile(use_device=device, use_kineto=True) as profile:
        call()
        if uses_gpu:
            torch.cuda.synchronize()
    # Only names are read: torch's summary of a long generation takes a hundred times as long as the call.
    gpu = torch.autograd.DeviceType.CUDA
    events = [(event.name(), event.device_type() == gpu) for event in profile.kineto_results.events()]
    host_events = [name for name, is_on_gpu in events if not is_on_gpu]
    return kernel_counts(host_events, [name for name, is_on_gpu in events if is_on_gpu])


def kernel_counts(host_events: Sequence[str], gpu_events: Sequence[str]) -> KernelCounts:
    """The attention kernels among the names of a profile's events."""
    operators = Counter(kernel for name in host_events for begin, kernel in OPERATORS if name.startswith(begin))
    on_gpu = Counter(
        kernel
        for name in gpu_events
        if (kernel := next((kernel for pattern, kernel in GPU_KERNELS if pattern.search(name)), None)) is not None
    )
    return KernelCounts(operators=operators, on_gpu=on_gpu, gpu_events=len(gpu_events))


def verdict(attention: str | None, ran: KernelCounts, *, is_compiled: bool, is_replayed: bool) -> dict[str, Json]:
    """Facts for `Operation.verified`: empty if the named kernel ran or none was named; else that another kernel ran, or
    why it is unknown which one ran.

    A compiler turns the math kernel into its own code, so in compiled code it is recognized by the absence of others.
    In a replayed CUDA graph (`is_replayed`) only the GPU's kernels are visible, and new versions may rename them.
    """
    requested, counts = backend_of(attention) or attention, ran.counts
    if requested not in {*BACKENDS, *FLASH_PACKAGES} or set(counts) == {requested}:
        return {}
    if counts:
        kernels = ", ".join(f"{kernel} {count} times" for kernel, count in counts.items())
        return {NOT_AS_REQUESTED: f"requested attention {attention}, but {kernels} ran"}
    if requested == "math" and is_compiled and not (is_replayed and not ran.gpu_events):
        return {}
    if is_replayed or requested in FLASH_PACKAGES:
        observation = "has no GPU kernels" if not ran.gpu_events else "has no attention kernel with a known name"
        return {NOT_VERIFIED: f"cannot verify that attention {attention} ran: the profile of a call {observation}"}
    return {NOT_AS_REQUESTED: f"requested attention {attention}, but no sdpa kernel ran"}
