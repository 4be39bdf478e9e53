"""llama.cpp through llama-cpp-python, which is driven token by token; and what both of llama.cpp's libraries for Python
share: the facts in a model's file, the devices, checks after loading, and the reason when loading fails.

llama.cpp names a device after its backend: "CUDA0", "ROCm0", "Vulkan0", "MTL0", "SYCL0". The backend of the GPU's
vendor sees only the requested GPU, since the process hides the others from it. Vulkan sees all, so its devices are
matched by PCI address or name.

2026-11-26: seen running with a Vulkan build on Mesa's software device. The names of the other backends are those of
llama.cpp's sources; no machine with a GPU was available.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from benchmarking.core.errors import (
    BenchhouseError,
    FormatError,
    OutOfMemoryError,
    UnsupportedError,
    first_line,
    is_out_of_memory,
)
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.plugins import is_processor, kind_of
from benchmarking.core.records import Device, Json, Point
from benchmarking.devices.support.handles import parts
from benchmarking.devices.support.host import is_software
from benchmarking.runtimes.support.engines import engine_session as common
from benchmarking.workloads.support.gguf_file import TYPES, read_gguf, read_gguf_model

BACKENDS = {
    "nvidia": ("CUDA", "Vulkan"),
    "amd": ("ROCm", "Vulkan"),
    "apple": ("MTL", "Metal"),
    "intel": ("SYCL", "Vulkan"),
}
"""GPU vendor -> llama.cpp's backends for it, the vendor's own first. Metal's name was "Metal" before it was "MTL"."""
BUILDS = {
    "nvidia": ("whl/cu128", "-DGGML_CUDA=on"),
    "amd": ("whl/rocm-7.2.4", "-DGGML_HIP=on"),
    "intel": ("whl/vulkan", "-DGGML_VULKAN=on"),
}
"""GPU vendor -> folder of xllamacpp's wheels, and CMake's flag for llama-cpp-python."""
NEWER_CUDA, NEWER_WHEEL = (13, 2), "whl/cu132"
"""The driver's CUDA version from which there is a newer wheel."""
WHEEL_TARGETS = ("gfx1030", "gfx1031", "gfx1032", "gfx1100", "gfx1101", "gfx1102")
"""What the wheel for AMD's GPUs is compiled for (AMDGPU_TARGETS of xllamacpp's scripts/setup.sh)."""
WHEELS = "https://xorbitsai.github.io/xllamacpp"
GPU, INTEGRATED_GPU = 1, 2
"""llama.cpp's types of devices (ggml_backend_dev_type); 0 is the CPU, 3 a library such as BLAS."""
MIN_SHARE_ON_GPU = 0.5
"""Of the bytes of offloaded layers, what a GPU's free memory must lose. The rest may be memory that it had in reserve,
or that other processes released."""
OFFLOADED = re.compile(r"offloaded (?P<layers>\d+)/(?P<of>\d+) layers to GPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class GgmlDevice:
    """A device as llama.cpp lists it."""

    name: str
    description: str
    type: int
    address: str = ""
    """Its PCI address ("0000:01:00.0"); empty where the backend reports none."""
    free_bytes: int | None = None

    @property
    def label(self) -> str:
        return f"{self.name}: {self.description}"

    @property
    def is_software(self) -> bool:
        """Whether it is a renderer on the CPU."""
        return is_software(self.description)


def listed_by_xllamacpp() -> tuple[GgmlDevice, ...]:
    import xllamacpp

    return tuple(
        GgmlDevice(
            name=str(one["name"]),
            description=str(one["description"]),
            type=int(one["type"]),
            address=str(one.get("device_id") or ""),
            free_bytes=int(one["memory_free"]),
        )
        for one in xllamacpp.get_device_info()
    )


def listed_by_binding() -> tuple[GgmlDevice, ...]:
    """The devices of the installed llama-cpp-python. It has no function for them, so ggml's own are called, which are
    in the library that it loads (ggml-backend.h)."""
    from llama_cpp import _ggml

    library: Any = _ggml.libggml
    count, get = library.ggml_backend_dev_count, library.ggml_backend_dev_get
    count.restype, count.argtypes = ctypes.c_size_t, []
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    texts = (library.ggml_backend_dev_name, library.ggml_backend_dev_description)
    for function in texts:
        function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    kind = library.ggml_backend_dev_type
    kind.restype, kind.argtypes = ctypes.c_int, [ctypes.c_void_p]
    found = []
    for device in (get(index) for index in range(count())):
        name, description = (function(device).decode(errors="replace") for function in texts)
        found.append(GgmlDevice(name=name, description=description, type=int(kind(device))))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What llama.cpp is told about devices: the ones that compute, and how many of the model's layers."""

    devices: tuple[GgmlDevice, ...] = ()
    """Empty for the CPU."""
    main: int = 0
    """The number of the first device among those that llama.cpp would use."""
    layers: int = 0
    total_layers: int = 0
    """All layers, the output's included."""

    @property
    def is_on_gpu(self) -> bool:
        """Whether a GPU computes, if only a part of the layers."""
        return bool(self.devices)

    @property
    def main_gpu(self) -> int:
        """llama.cpp's parameter main_gpu; with -1 it uses no GPU, not even for buffers. It refuses 0 where it has
        no GPU (llama_model_load_from_file_impl)."""
        return self.main if self.is_on_gpu else -1

    @property
    def facts(self) -> dict[str, Json]:
        """What is stored of it; `adapter` and `is_simulated` as for a browser's."""
        facts: dict[str, Json] = {"gpu_layers": self.layers, "layers": self.total_layers}
        if self.devices:
            facts["compute_devices"] = [device.label for device in self.devices]
        if any(device.is_software for device in self.devices):
            facts |= {"is_simulated": True, "adapter": {"architecture": self.devices[0].label}}
        return facts


def used_by_default(listed: Sequence[GgmlDevice]) -> tuple[GgmlDevice, ...]:
    """The devices that llama.cpp would use: GPUs, or integrated ones if there are no others. A GPU that a second
    backend lists again, by its address, is left out."""
    for kind in (GPU, INTEGRATED_GPU):
        found: dict[str, GgmlDevice] = {}
        for device in listed:
            if device.type == kind:
                found.setdefault(device.address or device.name, device)
        if found:
            return tuple(found.values())
    return ()


def placement(
    device: Device, listed: Sequence[GgmlDevice], total_layers: int, requested_layers: int | None
) -> Placement:
    """Where the layers of a model go on a device. Raises UnsupportedError if llama.cpp cannot use the device.

    On the CPU that is nowhere, unless layers are requested for a software GPU, which runs on the CPU.
    """
    usable = used_by_default(listed)
    layers = total_layers if requested_layers is None else min(requested_layers, total_layers)
    if is_processor(device.type):
        if not requested_layers:
            return Placement(total_layers=total_layers)
        if not usable or not usable[0].is_software:
            there = f"which is {usable[0].label}: use --device for it" if usable else "but llama.cpp lists none"
            raise UnsupportedError(f"--gpu-layers {requested_layers}: layers are offloaded to a GPU, {there}")
        return Placement(devices=usable[:1], layers=layers, total_layers=total_layers)
    if layers == 0:
        raise UnsupportedError(f"--gpu-layers 0 leaves nothing to {device.selector}: use --device cpu instead")
    devices = _matching(device, usable, listed)
    if len(devices) > 1 and len(devices) < len(usable):
        others = ", ".join(other.label for other in usable if other not in devices)
        raise UnsupportedError(f"llama.cpp would use {others} beside {device.selector}: hide it from this process")
    return Placement(devices=devices, main=usable.index(devices[0]), layers=layers, total_layers=total_layers)


def _matching(device: Device, usable: Sequence[GgmlDevice], listed: Sequence[GgmlDevice]) -> tuple[GgmlDevice, ...]:
    """llama.cpp's devices that are the requested ones, in the order of the request."""
    kind = kind_of(device.type)
    vendor = "" if kind is None else kind.gpu_vendor or ""
    backends, requested = BACKENDS.get(vendor, ()), parts(device)
    for backend in backends:
        of_backend = [one for one in usable if re.fullmatch(rf"{backend}\d*", one.name)]
        if not of_backend:
            continue
        sees_all = backend == "Vulkan"
        if not sees_all and len(of_backend) == len(requested):
            return tuple(of_backend)  # the process sees no others, in the order of the request
        return tuple(_one(part, of_backend) for part in requested)
    found = ", ".join(one.label for one in listed) or "no device"
    raise UnsupportedError(
        f"llama.cpp has no backend for {device.selector} here: it lists {found}: {advice(vendor, requested[0])}"
    )


def _one(device: Device, candidates: Sequence[GgmlDevice]) -> GgmlDevice:
    """The candidate that is this GPU: with its address, else the only one with its name."""
    address = str(device.facts.values.get("pci_address") or "").lower()
    for candidate in candidates:
        if address and candidate.address.lower().startswith(address):
            return candidate
    wanted = _plain(device.name or "")
    plain = {candidate.name: _plain(candidate.description) for candidate in candidates}
    named = [
        candidate
        for candidate in candidates
        if wanted and (wanted in plain[candidate.name] or plain[candidate.name] in wanted)
    ]
    if len(named) == 1 and not named[0].is_software:
        return named[0]
    listed = ", ".join(candidate.label for candidate in candidates)
    why = f"{len(named)} have its name" if len(named) > 1 else "none has its name"
    raise UnsupportedError(
        f"llama.cpp's devices do not tell which one is {device.selector} ({device.name}): {why}. It lists {listed}: "
        "leave one visible to it (GGML_VK_VISIBLE_DEVICES)"
    )


def _plain(name: str) -> str:
    return re.sub(r"\((r|tm)\)|\s+", " ", name.lower()).strip()


def advice(vendor: str, device: Device) -> str:
    """How to install a llama.cpp with a backend for a vendor's GPU."""
    if vendor not in BUILDS:
        return "install a build for this GPU"
    wheel, flag = BUILDS[vendor]
    source = f'CMAKE_ARGS="{flag}" pip install llama-cpp-python --force-reinstall --no-binary llama-cpp-python'
    facts = device.facts.values
    cuda, target = (str(facts.get(name, "")) for name in ("cuda_driver_version", "gfx_target"))
    if cuda and tuple(map(int, cuda.split("."))) >= NEWER_CUDA:
        wheel = NEWER_WHEEL
    if target and target not in WHEEL_TARGETS:
        return f"xllamacpp has no wheel for {target}: {source}"
    return f"pip install xllamacpp --force-reinstall --index-url {WHEELS}/{wheel}, or {source}"


def check_offloaded(log: str, placed: Placement) -> dict[str, Json]:
    """What llama.cpp's log says of the layers that it offloaded, as facts. Raises BenchhouseError if it is not what
    was requested."""
    match = OFFLOADED.search(log)
    if match is None:
        if placed.is_on_gpu:
            raise BenchhouseError(f"requested {placed.devices[0].label}, but llama.cpp reports no offloaded layers")
        return {}
    layers = int(match["layers"])
    if layers != placed.layers:
        where = placed.devices[0].label if placed.is_on_gpu else "the CPU"
        raise BenchhouseError(
            f"requested {placed.layers} layers on {where}, but llama.cpp offloaded {layers} of {match['of']} to a GPU"
        )
    return {"gpu_layers_reported": layers}


def check_memory(before: Sequence[GgmlDevice], after: Sequence[GgmlDevice], placed: Placement, weights: int) -> None:
    """Raise BenchhouseError if a GPU's free memory shows that the layers are not there. A backend that reports the
    same number before and after (Vulkan without a memory budget) shows nothing."""
    names = {device.name for device in placed.devices}
    free = [[one.free_bytes for one in listed if one.name in names] for listed in (before, after)]
    if not placed.is_on_gpu or None in (*free[0], *free[1]):
        return
    taken = sum(filter(None, free[0])) - sum(filter(None, free[1]))
    expected = weights * placed.layers / max(1, placed.total_layers)
    if taken != 0 and taken < MIN_SHARE_ON_GPU * expected:
        raise BenchhouseError(
            f"requested {placed.layers} layers on {placed.devices[0].label}, but loading took {taken / 1e6:.0f} MB of "
            f"its memory, and the layers have {expected / 1e6:.0f} MB"
        )


N_GRAM_DRAFT = 8
"""Default of --draft-tokens with an n-gram lookup."""
ON_CPU = Placement()
ERROR_LINE = re.compile(r"^\S+ E (?P<why>[^\n]+)", re.MULTILINE)
"""An error in llama.cpp's log: time, level, message."""


def layer_count(file: Path) -> int:
    """All layers of the model in a file as llama.cpp counts them: its blocks, and the output. Raises FormatError."""
    blocks = read_gguf(file).of_architecture("block_count")
    if not isinstance(blocks, int) or blocks < 1:
        raise FormatError(f"{file} does not say how many layers it has (block_count): convert it again")
    return blocks + 1


def check_parameters(gpu_layers: int, placed: Placement, *, op_offload: bool, kv_offload: bool) -> None:
    """Raise BenchhouseError if llama.cpp computes elsewhere than requested, as its parameters say after loading."""
    if placed.is_on_gpu:
        if gpu_layers != placed.layers:
            raise BenchhouseError(f"requested {placed.layers} layers on a GPU, but llama.cpp has {gpu_layers} there")
        return
    on_gpu = [name for name, is_on in (("operators", op_offload), ("the cache", kv_offload)) if is_on]
    on_gpu += [f"{gpu_layers} layers"] if gpu_layers else []
    if on_gpu:
        raise BenchhouseError(f"requested the CPU, but llama.cpp offloads {', '.join(on_gpu)} to a GPU")


def not_loaded(file: Path, error: Exception, log: str) -> BenchhouseError:
    """The error of a model that was not loaded, with the reason from llama.cpp's log."""
    lines = [match["why"].strip() for match in ERROR_LINE.finditer(log)]
    if is_out_of_memory(log) or is_out_of_memory(error):
        why = next((line for line in lines if is_out_of_memory(line)), first_line(error))
        return OutOfMemoryError(f"out of memory while llama.cpp loaded {file.name}: {why}")
    why = lines[0] if lines else first_line(error)
    return BenchhouseError(f"llama.cpp cannot load {file.name} with these settings: {why}")


class LlamaModel(common.EngineModel):
    """What both libraries share: the sizes in the file's header, and room for the longest point."""

    def __init__(self, file: Path, settings: common.EngineSettings, points: Sequence[Point]) -> None:
        header, files = read_gguf_model(file)
        self.weights_bytes: int | None = header.weights_bytes
        self.parameter_count: int | None = header.parameter_count
        self.settings = settings
        self.rows = max(point.batch_size for point in points)
        longest = max((point.sequence_length or 1) + (point.new_tokens or 0) for point in points)
        spare = 8 + (settings.draft_tokens or N_GRAM_DRAFT) if settings.is_speculative else 8
        self.row_tokens = settings.context_depth + longest + spare
        kinds: dict[str, int] = {}
        for tensor in header.tensors:
            kinds[tensor.type.name] = kinds.get(tensor.type.name, 0) + tensor.values
        self.header: dict[str, Json] = {
            "parameters_by_dtype": dict[str, Json](sorted(kinds.items())),
            "model_size_bytes": sum(part.stat().st_size for part in files),
            "gguf_architecture": header.architecture,
            "quantized_type": header.quantization,
        }


class PythonBinding(LlamaModel):
    """llama.cpp through llama-cpp-python."""

    def __init__(
        self,
        file: Path,
        settings: common.EngineSettings,
        points: Sequence[Point],
        placed: Placement = ON_CPU,
    ) -> None:
        import llama_cpp

        super().__init__(file, settings, points)
        types = {
            option: number
            for number, kind in TYPES.items()
            if kind.name.lower() == settings.kv_cache_type
            for option in ("type_k", "type_v")
        }
        threads = {"n_threads": settings.threads, "n_threads_batch": settings.batch_threads}
        is_split = len(placed.devices) > 1
        split_mode = f"LLAMA_SPLIT_MODE_{settings.split_mode.upper() if is_split else 'NONE'}"
        printed: list[str] = []
        try:
            with _binding_log(printed):
                self.model: Any = llama_cpp.Llama(
                    str(file),
                    n_ctx=self.row_tokens,
                    flash_attn=settings.flash_attention != common.OFF,  # llama.cpp's "auto" is on on processors
                    n_gpu_layers=placed.layers,
                    split_mode=getattr(llama_cpp, split_mode),
                    main_gpu=placed.main_gpu,
                    tensor_split=list(settings.tensor_split) or None,
                    offload_kqv=placed.is_on_gpu,
                    op_offload=placed.is_on_gpu,
                    no_perf=False,
                    lora_path=None if settings.lora is None else str(settings.lora),
                    logits_all=False,
                    verbose=False,
                    **{name: value for name, value in threads.items() if value is not None},
                    **types,
                )
        except (RuntimeError, ValueError) as error:
            raise not_loaded(file, error, "".join(printed)) from error
        parameters = self.model.context_params
        check_parameters(
            self.model.model_params.n_gpu_layers,
            placed,
            op_offload=bool(getattr(parameters, "op_offload", False)),
            kv_offload=bool(parameters.offload_kqv),
        )
        devices: list[Json] = [device.label for device in listed_by_binding()]
        flash = {
            llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED: "enabled",
            llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED: "disabled",
        }
        self.facts: Mapping[str, Json] = {
            **self.header,
            **placed.facts,
            **check_offloaded("".join(printed), placed),
            "engine": f"llama-cpp-python {llama_cpp.__version__}",
            "engine_system": llama_cpp.llama_print_system_info().decode().strip(),
            "engine_devices": devices,
            "num_threads": int(self.model.n_threads),
            "batch_threads": int(self.model.n_threads_batch),
            "context_tokens": int(self.model.n_ctx()),
            "kv_cache_type": [TYPES[number].name.lower() for number in (parameters.type_k, parameters.type_v)],
            "flash_attention": flash[parameters.flash_attn_type],
        }

    def request(self, prompts: np.ndarray, new_tokens: int, context: np.ndarray | None) -> common.EngineRequest:
        if len(prompts) > 1:
            raise UnsupportedError(
                "llama-cpp-python runs one sequence at a time: use --batch-sizes 1, or pip install xllamacpp"
            )
        context_tokens = [] if context is None else context[0].tolist()
        return BindingRequest(
            self.model, prompts[0].tolist(), new_tokens, context_tokens, has_prefix_cache=self.settings.has_prefix_cache
        )

    def close(self) -> None:
        self.model.close()


@contextmanager
def _binding_log(printed: list[str]) -> Iterator[None]:
    """Inside, llama.cpp's log goes to `printed`, each line as with its server; afterwards the binding's own takes
    it."""
    import llama_cpp
    from llama_cpp import _logger

    def keep(level: int, text: bytes, _: Any) -> None:  # levels of ggml's log: 3 an error, 5 a line's continuation
        start = "" if level == 5 else "- E " if level == 3 else "- I "
        printed.append(start + text.decode(errors="replace"))

    callback = llama_cpp.llama_log_callback(keep)
    llama_cpp.llama_log_set(callback, None)
    try:
        yield
    finally:
        llama_cpp.llama_log_set(_logger.llama_log_callback, None)


class BindingRequest(common.EngineRequest):
    """A loop over `Llama.eval` and the most likely token; the library's own `generate` does the same with samplers."""

    def __init__(
        self, model: Any, prompt: list[int], new_tokens: int, context: list[int], *, has_prefix_cache: bool
    ) -> None:
        self._model = model
        self._prompt = prompt
        self._context = context
        self._new_tokens = new_tokens
        self._has_prefix_cache = has_prefix_cache
        self._reused = 0
        if has_prefix_cache and context:
            self._prompt = [*context, *prompt]

    def reset(self) -> None:
        """Forget the last call, and process the context; the library's cursor moves and llama.cpp's timers restart."""
        import llama_cpp

        if not self._has_prefix_cache:
            self._model.reset()
            if self._context:
                self._model.eval(self._context)
        known = self._model.input_ids[: self._model.n_tokens].tolist() if self._has_prefix_cache else []
        same = takewhile(lambda pair: pair[0] == pair[1], zip(known, self._prompt[:-1], strict=False))
        self._reused = sum(1 for _ in same)
        llama_cpp.llama_perf_context_reset(self._model.ctx)

    def generate(self, arrived: common.Arrivals) -> None:
        continues_context = bool(self._context) and not self._has_prefix_cache
        tokens = self._model.generate(self._prompt, temp=0.0, top_k=1, repeat_penalty=1.0, reset=not continues_context)
        for number, token in enumerate(tokens, start=1):
            arrived(0, (int(token),))
            if number == self._new_tokens:
                break

    def report(self) -> common.EngineReport:
        """By llama.cpp's own timers of the context. A part of the prompt that is one token counts as a generated one
        there, so the tokens are counted here."""
        import llama_cpp

        timings = llama_cpp.llama_perf_context(self._model.ctx)
        first_s, others_s = timings.t_p_eval_ms / 1e3, timings.t_eval_ms / 1e3
        is_timed = timings.n_p_eval > 0
        return common.EngineReport(
            first_s=first_s if is_timed else None,
            per_token_s=others_s / max(1, self._new_tokens - 1) if is_timed else None,
            total_s=first_s + others_s,
            prompt_tokens=len(self._prompt),
            reused_tokens=self._reused,
        )

    def verified(self) -> Mapping[str, Json]:
        return {"reused_prompt_tokens": self._reused} if self._has_prefix_cache else {}
