"""A model's weights: the safetensors files of a folder (whether they are complete, and how much of them is in the page
cache), and seeded random ones, made in about the time it takes to write them.

Of files only headers are read. Load times depend on the page cache more than on anything else. Linux reports it through
cachestat(2), since 6.5, or mincore(2) on a mapping; other systems have no such call.

Every random tensor has its own stream, seeded by the seed and the tensor's name. So values do not depend on the order
or the number of threads, and are the same on every platform and at every precision (up to rounding).
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import mmap
import os
import struct
import sys
import zlib
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarking.core.errors import FormatError, StorageError, UsageError
from benchmarking.core.lazy_modules import np, torch
from benchmarking.core.plugins import is_installed
from benchmarking.core.records import FAILED, NO_PERMISSION, NOT_APPLICABLE, NOT_SUPPORTED, Json, Workload
from benchmarking.core.untrusted.input_files import lfs_pointer, open_regular, parse_json
from benchmarking.workloads.support.configuration import CONFIG_NAME, read_json

MODEL_FILES = ("model.safetensors", "model.safetensors.index.json")
"""The weights that transformers loads, the first of them that exists."""
DENOISER_FILES = ("diffusion_pytorch_model.safetensors.index.json", "diffusion_pytorch_model.safetensors")
"""The same of diffusers."""
FILE_KEY = "transformers_weights"
"""Key of a configuration with another name of the weights."""
PROCESS_SHARDS, ADAPTER = "shard-*-model-*-of-*.safetensors", "adapter_config.json"
"""Weights saved by several processes, which transformers loads before any other, and an adapter, which it adds to the
weights if peft is installed."""

PICKLED_PATTERNS = ("pytorch_model*.bin", "diffusion_pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")

Tensor = dict[str, Any]
"""A header entry: dtype, shape, data_offsets."""

VALUE_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
}
"""Bits per value by dtype."""

MAX_DIMENSIONS = 32

LENGTH_BYTES = 8

MAX_HEADER_BYTES = 100_000_000
"""safetensors' own limit; a file with a longer header is not a safetensors file."""


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The weight files that the library loads, one or all shards; empty if there are none.

    Raises UsageError if there are only pickled weights, or if transformers would load others, StorageError for a
    missing shard, FormatError for a truncated file or another format.
    """
    config = read_json(folder / CONFIG_NAME) if (folder / CONFIG_NAME).is_file() else {}
    is_denoiser = isinstance(config, dict) and "_class_name" in config and "model_type" not in config
    names = (*DENOISER_FILES, *MODEL_FILES) if is_denoiser else (*MODEL_FILES, *DENOISER_FILES)
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if not is_denoiser:
        _check_no_others(folder, config.get(FILE_KEY) if isinstance(config, dict) else None, found)
    files: tuple[Path, ...] = ()
    if found is not None:
        files = _shards(folder, found) if found.suffix == ".json" else (found,)
    for path in files:
        check_whole(path)
    if not files and (pickled := tuple(sorted(path for pattern in PICKLED_PATTERNS for path in folder.glob(pattern)))):
        raise UsageError(
            f"{folder} has only pickled weights ({pickled[0].name}), which can run code when loaded. If you trust "
            "them, load the model with transformers and call save_pretrained, which writes safetensors"
        )
    return files


def _check_no_others(folder: Path, named: Json, found: Path | None) -> None:
    """Raise UsageError if transformers would load other weights than those found."""
    if named is not None and (found is None or named != found.name):
        raise UsageError(
            f"{folder / CONFIG_NAME} names its weights in {named!r:.100} ({FILE_KEY}), which is not supported: rename "
            f"them to {MODEL_FILES[0]}, without the key"
        )
    if (part := next(folder.glob(PROCESS_SHARDS), None)) is not None:
        raise UsageError(f"{folder} has weights of several processes ({part.name}): save it with save_pretrained")
    if (folder / ADAPTER).is_file() and is_installed("peft"):
        raise UsageError(
            f"{folder} has an adapter ({ADAPTER}), which peft would add to the weights: merge it into them or remove it"
        )


def revision_of(files: tuple[Path, ...]) -> str:
    """SHA-256 (hex) of the files' names and sizes: the version of a local folder, without reading weights."""
    text = "\n".join(f"{path.name} {path.stat().st_size}" for path in files)
    return hashlib.sha256(text.encode()).hexdigest()


def check_whole(path: Path) -> None:
    """Raise FormatError if the file is shorter than its safetensors header requires."""
    tensors, header_end = _header(path)
    needed = header_end + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
    if (size := path.stat().st_size) < needed:
        raise FormatError(f"{path} is truncated: {size} of {needed} bytes: fetch it again")


def value_count(path: Path) -> int:
    """Number of values in all tensors of a file. Raises FormatError as `check_whole` does."""
    return sum(math.prod(entry["shape"]) for entry in _header(path)[0].values())


def tensor_shapes(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of each tensor in a file, by name. Raises FormatError as `check_whole` does."""
    return {name: (str(entry["dtype"]), tuple(entry["shape"])) for name, entry in _header(path)[0].items()}


def _header(path: Path) -> tuple[dict[str, Tensor], int]:
    """The tensors by name, and the offset of their bytes."""
    with open_regular(path) as file:
        start = file.read(LENGTH_BYTES)
        length = struct.unpack("<Q", start)[0] if len(start) == LENGTH_BYTES else 0
        if not 0 < length <= MAX_HEADER_BYTES:
            raise FormatError(lfs_pointer(path) or f"{path} is not a safetensors file")
        size = os.fstat(file.fileno()).st_size
        header = file.read(min(length, size))
    if len(header) < length:
        raise FormatError(f"{path} is truncated: {size} of at least {LENGTH_BYTES + length} bytes: fetch it again")
    where = f"{path} is not a safetensors file: invalid header"
    data = parse_json(header, where)
    if not isinstance(data, dict):
        raise FormatError(f"{where}: not an object")
    tensors = {name: entry for name, entry in data.items() if name != "__metadata__"}
    for name, entry in tensors.items():
        if (problem := _entry_problem(entry)) is not None:
            raise FormatError(f"{where}: tensor {name}: {problem}")
    end = 0
    for name, entry in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
        first, after = entry["data_offsets"]
        if first < end:
            raise FormatError(f"{where}: tensor {name} overlaps another one")
        end = after
    return tensors, LENGTH_BYTES + length


def _entry_problem(entry: Any) -> str | None:
    """None, or the problem with a tensor's header entry."""
    if not isinstance(entry, dict):
        return "not an object"
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not (_is_sizes(shape) and len(shape) <= MAX_DIMENSIONS):
        return "its shape is not a list of sizes"
    if not (_is_sizes(offsets) and len(offsets) == 2 and offsets[0] <= offsets[1]):
        return "its data_offsets are not a valid byte range"
    bits = VALUE_BITS.get(str(entry.get("dtype")))
    if bits is not None and math.prod(shape) * bits != 8 * (offsets[1] - offsets[0]):
        return f"{offsets[1] - offsets[0]} bytes for shape {shape} of {entry['dtype']}"
    return None


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 1 << 63 for size in value)


def _shards(folder: Path, index: Path) -> tuple[Path, ...]:
    """The files in an index of shards. Raises StorageError for a missing file, FormatError for an invalid index."""
    try:
        weight_map: dict[str, str] = read_json(index, MAX_HEADER_BYTES)["weight_map"]
        shards = sorted(set(weight_map.values()))
        paths = {name: folder / name for name in shards}
    except (FormatError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{index} is not an index of safetensors shards: it has no valid weight_map") from error
    outside = [name for name in shards if "/" in name or "\\" in name or not name.endswith(".safetensors")]
    if outside:
        raise FormatError(f"{index} names {outside[0]}: expected names of .safetensors files in its own folder")
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        raise StorageError(
            f"{folder} lacks {len(missing)} of {len(shards)} weight files: {', '.join(missing)}: fetch the model again"
        )
    held = {name: frozenset(_header(path)[0]) for name, path in paths.items()}
    absent = [tensor for tensor, name in weight_map.items() if tensor not in held[name]]
    if absent:
        raise FormatError(
            f"{index} lists {len(absent)} tensors that are not in its files, such as {absent[0]}: fetch the model again"
        )
    return tuple(paths.values())


WARM_SHARE = 0.99
COLD_SHARE = 0.01

CACHESTAT_NUMBER = 451
"""System call number, equal on every architecture but alpha (include/uapi/asm-generic/unistd.h)."""


class _Range(ctypes.Structure):
    """struct cachestat_range of linux/mman.h."""

    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    """struct cachestat of linux/mman.h, in pages."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def page_cache_of(workload: Workload) -> dict[str, Json]:
    """`weights_file_bytes` and the weight files' `page_cache` state; empty for random weights."""
    if workload.weights != "pretrained" or workload.path is None:
        return {}
    files = weight_files(Path(workload.path))
    return {"weights_file_bytes": sum(path.stat().st_size for path in files), **page_cache(files)}


def page_cache(files: Sequence[Path]) -> dict[str, Json]:
    """The state of all files: `page_cache` is warm (99 % of the pages or more), cold (1 % or less), mixed or unknown.
    `page_cache_share` is the share of pages in memory; `page_cache_reason` tells why it is unknown."""
    if sys.platform != "linux":
        return _unknown(f"{NOT_SUPPORTED}: {sys.platform} does not report which pages of a file are in memory")
    if not sum(path.stat().st_size for path in files):
        return _unknown(f"{NOT_APPLICABLE}: no weight files")
    try:
        counts = [_resident_pages(path) for path in files]
    except OSError as error:
        return _unknown(f"{NO_PERMISSION if isinstance(error, PermissionError) else FAILED}: {error}")
    share = sum(resident for resident, _ in counts) / sum(total for _, total in counts)
    return {"page_cache": state_of(share), "page_cache_share": round(share, 4)}


def state_of(share: float) -> str:
    """The word for a share of resident pages."""
    return "warm" if share >= WARM_SHARE else "cold" if share <= COLD_SHARE else "mixed"


def _unknown(reason: str) -> dict[str, Json]:
    return {"page_cache": "unknown", "page_cache_reason": reason}


def _resident_pages(path: Path) -> tuple[int, int]:
    """Number of the file's pages in memory, and of all its pages. Raises OSError."""
    size = path.stat().st_size
    if not size:
        return 0, 0
    total = -(-size // mmap.PAGESIZE)
    with path.open("rb") as file:
        cached = _cachestat(file.fileno(), size)
        if cached is not None:
            return min(cached, total), total
        # Since Linux 5.2, mincore reports all pages of a file that is neither this user's nor writable as in memory.
        if path.stat().st_uid != os.geteuid() and not os.access(path, os.W_OK):
            raise PermissionError(f"{path.name} belongs to another user: Linux does not report its pages")
        return _mincore(file.fileno(), size, total), total


def _cachestat(descriptor: int, size: int) -> int | None:
    """Number of an open file's pages in memory; None if the kernel has no cachestat or a sandbox forbids it."""
    pages = _Pages()
    whole = _Range(0, size)
    status = ctypes.CDLL(None).syscall(
        ctypes.c_long(CACHESTAT_NUMBER), ctypes.c_uint(descriptor), ctypes.byref(whole), ctypes.byref(pages), 0
    )
    return int(pages.cached) if status == 0 else None


def _mincore(descriptor: int, size: int, total: int) -> int:
    """Number of an open file's pages in memory, by mapping it without touching a page. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    # ctypes only gives the address of writable mappings, so this one is private; nothing is written.
    with mmap.mmap(descriptor, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapping:
        start = ctypes.c_char.from_buffer(mapping)
        vector = (ctypes.c_ubyte * total)()
        status = library.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), vector)
        error = ctypes.get_errno()
        del start  # the mapping cannot be closed while a pointer to it exists
    if status != 0:
        raise OSError(error, f"mincore: {os.strerror(error)}")
    return sum(byte & 1 for byte in bytes(vector))


DEFAULT_STANDARD_DEVIATION = 0.02
CHUNK_VALUES = 1 << 20
"""4 MB of float32: fits into a core's share of the cache, and limits the additional memory for a half-precision
model."""

RANDOM_INITIALISERS = frozenset({"normal_", "uniform_", "kaiming_uniform_", "xavier_uniform_"})
"""torch's in-place random fills. Without them, building a model takes milliseconds."""

AS_CONSTRUCTED = frozenset(
    {"A_log", "D", "time_decay", "time_first", "time_mix_key", "time_mix_receptance", "time_mix_value"}
)
"""Parameters of recurrences (Mamba, RWKV) that keep their constructors' values, which are not random: one decay per
channel, from fast to slow. Normal values would make all channels forget at the same rate."""

TIME_STEP_BIASES = ("dt_bias", "dt_proj.bias")
"""Name suffixes of Mamba's time-step biases."""


@contextmanager
def skip_random_initialisation() -> Iterator[None]:
    """A context in which torch's random fills do nothing.

    A model built in it has the usual structure and buffers, but uninitialized parameters.
    """
    from torch.overrides import TorchFunctionMode

    class SkipRandomInitialisation(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = getattr(func, "__name__", None)
            if name in RANDOM_INITIALISERS:
                return args[0] if args else kwargs["tensor"]
            if name == "linalg_qr":  # part of an orthogonal fill: half a minute for a large embedding
                return args[0], args[0].new_empty(args[0].shape[-1], args[0].shape[-1])
            return func(*args, **kwargs)

    # It redraws until all values are within bounds, which might never end without draws.
    truncated_normal = torch.nn.init._no_grad_trunc_normal_
    torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *_, **__: tensor
    try:
        with SkipRandomInitialisation():
            yield
    finally:
        torch.nn.init._no_grad_trunc_normal_ = truncated_normal


def fill(
    model: Any, *, seed: int, standard_deviation: float | None = None, only: Collection[str] | None = None
) -> None:
    """Fill the model's parameters (those named in `only`, or all) with seeded values, in host memory.

    Weights and biases are normal with the configuration's `initializer_range` (default 0.02). Weights of normalisation
    layers are 1 and their biases 0, as before training. Rates of recurrences keep their constructors' values
    (`AS_CONSTRUCTED`), or are drawn (`TIME_STEP_BIASES`). Shared parameters are filled once.
    """
    if standard_deviation is None:
        configured = (getattr(getattr(model, "config", None), name, None) for name in ("initializer_range", "init_std"))
        valid = (value for value in configured if isinstance(value, float) and 0 < value < 1)
        standard_deviation = next(valid, DEFAULT_STANDARD_DEVIATION)
    deviation = standard_deviation
    # LayerNorm, RMSNorm, T5LayerNorm, GroupNorm, BatchNorm2d and all others have "Norm" in their names.
    normalising = [module for module in model.modules() if "norm" in type(module).__name__.lower()]
    norms = {id(parameter) for module in normalising for parameter in module.parameters(recurse=False)}
    normal: list[tuple[str, Any]] = []
    for name, parameter in model.named_parameters():
        if (only is not None and name not in only) or name.rsplit(".", 1)[-1] in AS_CONSTRUCTED:
            continue
        if name.endswith(TIME_STEP_BIASES):
            # Biases b whose time steps dt = softplus(b) are log-uniform between the configuration's `time_step_min` and
            # `time_step_max`, and at least `time_step_floor`: b = dt + ln(1 - exp(-dt)), as Mamba's authors do.
            generator = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))
            low, high = np.log(model.config.time_step_min), np.log(model.config.time_step_max)
            steps = np.maximum(np.exp(generator.uniform(low, high, parameter.numel())), model.config.time_step_floor)
            parameter.detach().view(-1).copy_(torch.from_numpy(steps + np.log(-np.expm1(-steps))))
        elif id(parameter) in norms:
            torch.nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)
        else:
            normal.append((name, parameter.detach()))
    # Largest first, so that no thread is left with a big tensor at the end.
    normal.sort(key=lambda item: -item[1].numel())
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda item: _fill_normal(item[1], seed, item[0], deviation), normal))


def _fill_normal(tensor: Any, seed: int, name: str, standard_deviation: float) -> None:
    """Normal values, made in float32 chunks and rounded to the tensor's dtype when written."""
    generator = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))
    flat = tensor.view(-1)
    chunk = np.empty(min(CHUNK_VALUES, flat.numel()), dtype=np.float32)
    for start in range(0, flat.numel(), CHUNK_VALUES):
        values = chunk[: min(CHUNK_VALUES, flat.numel() - start)]
        generator.standard_normal(dtype=np.float32, out=values)
        values *= np.float32(standard_deviation)
        flat[start : start + len(values)].copy_(torch.from_numpy(values))
