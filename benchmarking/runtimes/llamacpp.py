"""llama.cpp in this process, through xllamacpp, or through llama-cpp-python if only that is installed, on the CPU and
on the GPUs that the installed build has a backend for.

Models become GGUF files in the build cache; a user's own `.gguf` file is run unchanged. xllamacpp runs llama.cpp's
server without HTTP: a request is queued to its thread, and each token arrives in a callback, with the slot's own times
at the end. llama-cpp-python is driven token by token.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.builds.store import BuildKey, BuildStore, Make
from benchmarking.core.contracts import Stage, build_path_lines
from benchmarking.core.device_contracts import DeviceKind
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.lazy_modules import np
from benchmarking.core.plugins import is_installed, is_processor
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Scalar, Workload
from benchmarking.devices.support.handles import parts
from benchmarking.runtimes.support.engines import engine_session as common
from benchmarking.runtimes.support.engines import llama_cpp_python
from benchmarking.runtimes.support.engines.computed import GELU, SILU, Computed, head_size
from benchmarking.runtimes.support.engines.engine_runtime import GenerativeEngine, LibraryLog, draft_workload
from benchmarking.runtimes.support.engines.weight_files import (
    FLOAT_TYPES,
    GGUF_FILE,
    QUANTIZED,
    gguf_build,
    token_of,
)
from benchmarking.workloads.support.configuration import LAYERS
from benchmarking.workloads.support.gguf_file import TYPES, precision_of, read_gguf

MAIN, ALTERNATIVE = "xllamacpp", "llama_cpp"
"""Modules: the one whose extra is installed, and the one that is used in its absence."""
GGUF = "gguf"
FLOAT_CACHES = ("f16", "f32", "bf16")
CACHE_TYPES = (*FLOAT_CACHES, "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
FILE_ONLY_TYPES = ("Q5_K_S", "Q5_1", "Q4_K_S", "Q4_1", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K")
"""Types of users' files that benchhouse does not make."""
ERRORS_ONLY = 1
"""Verbosity: llama.cpp writes some hundred lines for each model."""
ALL_ON_GPU = "all"
"""A value of --gpu-layers; so is any number below 0, as in llama.cpp."""
MOST_LAYERS = 10_000
MOST_PROBABILITIES = 1_000_000
"""More tokens than a vocabulary has."""
DRAFT_LAYERS = 999
"""More layers than a draft model has: all of them are on the GPU where the model is."""


class LlamaCpp(GenerativeEngine):
    """The runtime `llamacpp`."""

    name = "llamacpp"
    aliases = ("llama.cpp", "llama-cpp")
    other_words = ("gguf",)
    modules = (MAIN, GGUF)
    packages: tuple[str, ...] = ("xllamacpp", "llama-cpp-python", "gguf")
    reads = (GGUF,)
    computed: Mapping[str, Computed] = {
        **dict.fromkeys(("gemma", "gpt2", "phi"), Computed(activations=GELU)),
        **dict.fromkeys(("llama", "mistral"), Computed(activations=SILU, positions=("default", "llama3"))),
        **dict.fromkeys(("phi3", "qwen2", "qwen3"), Computed(activations=SILU)),
    }
    float_precisions = tuple(FLOAT_TYPES)
    # Of Vulkan (ggml-vulkan.cpp). Metal's kernel for prompts has halves only (ggml-metal.metal, kernel_mul_mm_f32_f32).
    exact_float32: Mapping[str, str] = {f"GGML_VK_DISABLE_{one}": "1" for one in ("F16", "COOPMAT", "COOPMAT2")}
    quantized: Mapping[str, Precision] = {**QUANTIZED, **{name: precision_of(name) for name in FILE_ONLY_TYPES}}
    declared_options = (
        common.CONTEXT_DEPTH,
        replace(common.KV_CACHE_TYPE, values=CACHE_TYPES, tried=("q8_0",)),
        common.FLASH_ATTENTION,
        common.BATCH_THREADS,
        common.DRAFT_MODEL,
        common.NGRAM_LOOKUP,
        common.DRAFT_TOKENS,
        common.PREFIX_CACHE,
        common.LORA,
        replace(common.quantization(quantized), tried=("Q6_K", "Q5_K_M", "Q4_0")),
        common.GPU_LAYERS,
        common.SPLIT_MODE,
        common.TENSOR_SPLIT,
    )
    runs_on_several = True

    def drives(self, kind: DeviceKind) -> bool:
        return kind.runs_torch and kind.gpu_vendor in llama_cpp_python.BACKENDS

    def why_not_here(self, device: Device) -> str | None:
        llama_cpp_python.placement(device, _listed(), 1, None)
        return None

    def missing(self) -> str | None:
        return None if is_installed(ALTERNATIVE) and is_installed(GGUF) else super().missing()

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        options = _with_counted_layers(device, workload, options)
        mode = super().mode(device, workload, options)
        if (path := mode.get(common.LORA.name)) is not None:
            adapter = Path(os.path.expanduser(str(path)))
            if adapter.is_dir():
                raise UsageError(
                    f"--lora {path} is a folder: llama.cpp needs a GGUF file (from its convert_lora_to_gguf.py)"
                )
            kind = read_gguf(adapter).metadata.get("general.type")
            if kind != "adapter":
                raise UsageError(f"--lora {path} is a GGUF file of {kind or 'a model'}, not of an adapter")
        count = len(parts(device))
        split = common.shares(str(mode.get(common.TENSOR_SPLIT.name) or ""))
        for option in (common.SPLIT_MODE, common.TENSOR_SPLIT):
            if option.name in mode and count == 1:
                raise UsageError(f"{option.flag} needs several GPUs, such as --device {device.type}:0,{device.type}:1")
        if split and len(split) != count:
            raise UsageError(f"--tensor-split has {len(split)} shares for {count} GPUs: give one for each")
        # llama.cpp would refuse these quantized caches without a reason.
        cache = mode.get(common.KV_CACHE_TYPE.name)
        block = next((kind.block for kind in TYPES.values() if kind.name.lower() == cache), 1)
        if block > 1 and mode.get(common.FLASH_ATTENTION.name) == common.OFF:
            raise UnsupportedError(f"--kv-cache-type {cache}: llama.cpp quantizes the cache with flash attention only")
        head = head_size(workload.config)
        if head is not None and head % block:
            raise UnsupportedError(
                f"--kv-cache-type {cache}: its blocks hold {block} values, and a head of {workload.model_id} has {head}"
            )
        if not is_installed(MAIN) and is_installed(ALTERNATIVE):
            for option in (common.DRAFT_MODEL, common.NGRAM_LOOKUP):
                if option.name in mode:
                    raise UnsupportedError(
                        f"{option.flag}: llama-cpp-python does not report how many proposed tokens were accepted: "
                        "pip install xllamacpp"
                    )
        return mode

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """A float32 model has a float32 cache by default, as in every runtime here; llama.cpp's own default is f16. Its
        flash attention, the default for the rest, has parts in half precision, and only it reads quantized caches."""
        settings = super().mode_at(precision, mode)
        if precision != "float32":
            return settings
        settings = {common.KV_CACHE_TYPE.name: "f32", **settings}
        is_quantized = settings[common.KV_CACHE_TYPE.name] not in FLOAT_CACHES
        return settings if is_quantized else {common.FLASH_ATTENTION.name: common.OFF, **settings}

    def build(self, cell: Cell) -> tuple[BuildKey, Make]:
        return gguf_build(cell.workload, _type_of(cell))

    def further_builds(self, cell: Cell) -> Sequence[tuple[BuildKey, Make]]:
        draft = draft_workload(cell)
        return () if draft is None or draft.source == "file" else (gguf_build(draft, _type_of(cell)),)

    def load(self, cell: Cell, path: Path, stage: Stage, points: Sequence[Point]) -> common.EngineModel:
        file = path / GGUF_FILE if path.is_dir() else path
        settings = common.EngineSettings.of(cell)
        draft = None
        if (draft_model := draft_workload(cell)) is not None:
            if draft_model.source == "file":
                from benchmarking.workloads.support.engine_file import check_unchanged

                draft = check_unchanged(draft_model)
            else:
                key, _ = gguf_build(draft_model, _type_of(cell))
                draft = BuildStore().require(key, draft_model.model_id)[0] / GGUF_FILE
        has_token_ids = cell.workload.source != "file"
        placed = llama_cpp_python.placement(
            cell.device, _listed(), llama_cpp_python.layer_count(file), settings.gpu_layers
        )
        with stage("to_device"):
            if is_installed(MAIN):
                return InProcessServer(file, settings, points, draft, placed, has_token_ids=has_token_ids)
            return llama_cpp_python.PythonBinding(file, settings, points, placed)

    def deployment(self, cell: Cell, point: Point) -> str | None:
        """The command of llama.cpp's own server: its slots are the rows of the point's batch. None for drafted tokens
        and for layers on a GPU, whose flags differ between versions."""
        settings = common.EngineSettings.of(cell)
        if not is_processor(cell.device.type) or settings.is_speculative or settings.gpu_layers:
            return None
        path = self.model_path(cell)
        file = path / GGUF_FILE if path.is_dir() else path
        tokens = point.batch_size * (settings.context_depth + (point.sequence_length or 0) + (point.new_tokens or 0))
        flash = settings.flash_attention
        flags = {
            "--model": file,
            "--parallel": point.batch_size,
            "--ctx-size": tokens,
            "--threads": settings.threads,
            "--threads-batch": settings.batch_threads,
            "--cache-type-k": settings.kv_cache_type,
            "--cache-type-v": settings.kv_cache_type,
            "--flash-attn": None if flash == common.FLASH_ATTENTION.values[0] else flash,
            "--lora": settings.lora,
        }
        lines = []
        if cell.workload.source != "file":
            lines = [
                build_path_lines(file)[0],
                "# its tokens are numbers (17 is t17), and none ends a text: to serve text, convert the model and its",
                "# tokenizer by llama.cpp's convert_hf_to_gguf.py",
            ]
        pinned = [] if cell.cpu_list is None else ["taskset", "-c", cell.cpu_list]
        values = (word for flag, value in flags.items() if value is not None for word in (flag, str(value)))
        return "\n".join([*lines, f"$ {shlex.join([*pinned, 'llama-server', *values])}"])

    def import_libraries(self) -> None:
        if is_installed(MAIN):
            import xllamacpp  # noqa: F401
        else:
            import llama_cpp  # noqa: F401


def _type_of(cell: Cell) -> str:
    """The GGUF type of a cell: its quantized type, or that of its precision. Raises UnsupportedError for a type that
    only users' files have."""
    name = str(cell.runtime_mode.get(common.QUANTIZATION.name) or FLOAT_TYPES[cell.precision])
    if cell.workload.source != "file" and name in FILE_ONLY_TYPES:
        raise UnsupportedError(f"--quantization {name}: benchhouse does not make this type: give a .gguf file of it")
    return name


def _with_counted_layers(device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    """The options with --gpu-layers as a number, and without it if that is the default: all on a GPU, none on a CPU. So
    the ways to say the same are one series."""
    name = common.GPU_LAYERS.name
    if (given := options.get(name)) is None:
        return options
    if workload.source == "file":
        total = llama_cpp_python.layer_count(Path(str(workload.path)))
    else:
        total = 1 + next((int(str(workload.config[key])) for key in LAYERS if key in workload.config), MOST_LAYERS)
    is_all = given == ALL_ON_GPU or str(given).startswith("-") or (str(given).isdecimal() and int(str(given)) >= total)
    others = {key: value for key, value in options.items() if key != name}
    if is_processor(device.type):
        return others if str(given) == "0" else {**others, name: total if is_all else given}
    return others if is_all else options


def _listed() -> tuple[llama_cpp_python.GgmlDevice, ...]:
    """The devices of the library that is used."""
    return llama_cpp_python.listed_by_xllamacpp() if is_installed(MAIN) else llama_cpp_python.listed_by_binding()


class InProcessServer(llama_cpp_python.LlamaModel):
    """llama.cpp's server in this process, by xllamacpp."""

    def __init__(
        self,
        file: Path,
        settings: common.EngineSettings,
        points: Sequence[Point],
        draft: Path | None,
        placed: llama_cpp_python.Placement,
        *,
        has_token_ids: bool,
    ) -> None:
        import xllamacpp

        super().__init__(file, settings, points)
        self.placed = placed
        self.batches_calls = not settings.context_depth  # a context is in one slot, and requests may go to any
        self._has_token_ids = has_token_ids
        try:
            parameters = self._parameters(file, draft)
        except OverflowError as error:
            raise UnsupportedError(f"llama.cpp takes no number as large as one of the options: {error}") from error
        before, log = llama_cpp_python.listed_by_xllamacpp(), LibraryLog()
        try:
            with log:
                self.server: Any = xllamacpp.Server(parameters)
        except RuntimeError as error:
            raise llama_cpp_python.not_loaded(file, error, log.text) from error
        with ExitStack() as refused:
            refused.callback(self.close)
            llama_cpp_python.check_parameters(
                parameters.n_gpu_layers,
                placed,
                op_offload=not parameters.no_op_offload,
                kv_offload=not parameters.no_kv_offload,
            )
            after = llama_cpp_python.listed_by_xllamacpp()
            llama_cpp_python.check_memory(before, after, placed, self.weights_bytes or 0)
            refused.pop_all()
        devices: list[Json] = [device.label for device in after]
        self.facts: Mapping[str, Json] = {
            **self.header,
            **placed.facts,
            "engine": f"xllamacpp {xllamacpp.__version__}",
            "engine_system": str(xllamacpp.get_system_info()).strip(),
            "engine_devices": devices,
            "num_threads": int(parameters.cpuparams.n_threads),
            "batch_threads": int(parameters.cpuparams_batch.n_threads),
            "kv_cache_type": [_short_name(parameters.cache_type_k), _short_name(parameters.cache_type_v)],
            "flash_attention": _short_name(parameters.flash_attn_type),
            "context_tokens": int(parameters.n_ctx),
            "slots": int(parameters.n_parallel),
            "prompt_batch_tokens": int(parameters.n_ubatch),
        }

    def request(self, prompts: np.ndarray, new_tokens: int, context: np.ndarray | None) -> common.EngineRequest:
        return ServerRequest(
            self.server, prompts, new_tokens, context, self.settings, has_token_ids=self._has_token_ids
        )

    def close(self) -> None:
        """A server that never ran a request may wait forever for its own thread when destroyed, so it gets one."""
        if self.server is not None:
            self.server.handle_completions({"prompt": [0], "n_predict": 1, "stream": False})
            self.server = None

    def _parameters(self, file: Path, draft: Path | None) -> Any:
        import xllamacpp

        settings = self.settings
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(file)
        parameters.n_parallel = self.rows
        parameters.kv_unified = False
        parameters.n_ctx = self.rows * -(-self.row_tokens // 256) * 256  # llama.cpp pads each slot to 256
        # Which layers are computed where, also those of a draft model: llama.cpp's own default is all of them on any
        # GPU that it is built for, and large products of the other layers too.
        placed, modes = self.placed, xllamacpp.llama_split_mode
        parameters.n_gpu_layers = placed.layers
        parameters.speculative.draft.n_gpu_layers = DRAFT_LAYERS if placed.is_on_gpu else 0
        parameters.no_op_offload = parameters.no_kv_offload = not placed.is_on_gpu
        parameters.main_gpu = placed.main_gpu
        if len(placed.devices) < 2:
            parameters.split_mode = modes.LLAMA_SPLIT_MODE_NONE
        else:
            parameters.split_mode = getattr(modes, f"LLAMA_SPLIT_MODE_{settings.split_mode.upper()}")
            if split := settings.tensor_split:
                parameters.tensor_split = [*split, *[0.0] * (len(parameters.tensor_split) - len(split))]
        parameters.fit_params = False  # would change the requested settings when memory is short
        parameters.warmup = False  # benchhouse measures the warm-up, as with every runtime
        parameters.verbosity = ERRORS_ONLY
        parameters.no_perf = False
        parameters.cache_ram_mib = 0  # a prompt cache in addition to the slots' own
        if not settings.has_prefix_cache:
            parameters.slot_prompt_similarity = 0.0  # else requests would go to the slot with the most similar text
        if settings.threads is not None:
            parameters.cpuparams.n_threads = settings.threads
        if (threads := settings.batch_threads) is not None:
            parameters.cpuparams_batch.n_threads = threads
        if (kind := settings.kv_cache_type) is not None:
            cache_type = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{kind.upper()}")
            parameters.cache_type_k = parameters.cache_type_v = cache_type
        flash = {common.ON: "ENABLED", common.OFF: "DISABLED"}.get(settings.flash_attention, "AUTO")
        parameters.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{flash}")
        if settings.lora is not None:
            adapter = xllamacpp.CommonAdapterLoraInfo()
            adapter.path = str(settings.lora)
            parameters.lora_adapters = [adapter]
        kinds = xllamacpp.common_speculative_type
        if draft is not None:
            parameters.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            parameters.speculative.draft.mparams.path = str(draft)
            if settings.draft_tokens is not None:
                parameters.speculative.draft.n_max = settings.draft_tokens
        elif settings.ngram_lookup:
            parameters.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
            parameters.speculative.ngram_simple.size_n = settings.ngram_lookup
            parameters.speculative.ngram_simple.size_m = settings.draft_tokens or llama_cpp_python.N_GRAM_DRAFT
        return parameters


class ServerRequest(common.EngineRequest):
    """Requests to the server, one per row, which it runs together."""

    def __init__(
        self,
        server: Any,
        prompts: np.ndarray,
        new_tokens: int,
        context: np.ndarray | None,
        settings: common.EngineSettings,
        *,
        has_token_ids: bool,
    ) -> None:
        self.has_token_ids = has_token_ids
        self._server = server
        self._settings = settings
        self._context = [] if context is None else context.tolist()
        rows = prompts.tolist()
        with_context = [[*before, *row] for before, row in zip(self._context or [[]] * len(rows), rows, strict=True)]
        reuses_cache = settings.has_prefix_cache or bool(self._context)
        self._request: dict[str, Any] = self._request_parameters(with_context, new_tokens, reuses_cache=reuses_cache)
        if len(rows) > 1 and self._context:
            raise UnsupportedError(
                "--context-depth: llama.cpp's server has no fixed slots for a batch's rows: use batch size 1"
            )
        self._new_tokens = new_tokens
        self._last: list[Mapping[str, Any]] = []

    def _request_parameters(self, prompts: list[list[int]], new_tokens: int, *, reuses_cache: bool) -> dict[str, Any]:
        return {
            "prompt": prompts if len(prompts) > 1 else prompts[0],
            "n_predict": new_tokens,
            "temperature": 0,
            "top_k": 1,
            "samplers": ["top_k"],
            "ignore_eos": True,
            "cache_prompt": reuses_cache,
            "stream": True,
            "timings_per_token": not self.has_token_ids,
        }

    def reset(self) -> None:
        """Trim the slot back to the context, by processing nothing but the context."""
        if self._context:
            request = {**self._request_parameters(self._context, 1, reuses_cache=True), "stream": False}
            self._server.handle_completions(request, lambda chunk: False)

    def generate(self, arrived: common.Arrivals) -> None:
        ends: list[Mapping[str, Any]] = []
        counts = [0] * len(arrived.tokens)

        def on_chunk(chunk: Any) -> bool:
            if not isinstance(chunk, dict):
                return False
            if "error" in chunk or "choices" not in chunk:
                ends.append(chunk)
                return True
            choice = chunk["choices"][0]
            if choice["finish_reason"] is not None:
                ends.append(chunk)
            elif self.has_token_ids:
                arrived(choice["index"], (token_of(choice["text"]),) if choice["text"] else ())
            else:  # a chunk has several tokens if one alone is not a whole character
                row, total = choice["index"], chunk["timings"]["predicted_n"]
                arrived(row, (common.UNKNOWN_TOKEN,) * (total - counts[row]))
                counts[row] = total
            return False

        self._server.handle_completions(self._request, on_chunk)
        for end in ends:
            if "choices" not in end:
                error = end.get("error", end)
                raise BenchhouseError(f"llama.cpp refused the request: {dict(error).get('message', error)}")
            row = end["choices"][0]["index"]
            if not self.has_token_ids:  # the last tokens of a row that end inside a character arrive with its end
                arrived(row, (common.UNKNOWN_TOKEN,) * (end["usage"]["completion_tokens"] - len(arrived.tokens[row])))
        self._last = ends

    def next_token_logits(self, text: np.ndarray, scored: int) -> np.ndarray:
        """Logarithms of the probabilities, which the server gives for all tokens of the vocabulary before sampling: a
        request for each token of the text, whose prompt is in the cache but for its last token."""
        rows: list[np.ndarray] = []

        def on_answer(chunk: Any) -> bool:
            if "choices" not in chunk:
                raise BenchhouseError(f"llama.cpp refused the request: {dict(chunk.get('error', chunk))}")
            found = chunk["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            row = np.full(1 + max(entry["id"] for entry in found), -np.inf, dtype=np.float32)
            row[[entry["id"] for entry in found]] = [entry["logprob"] for entry in found]
            rows.append(row)
            return False

        ids = text.tolist()
        for end in range(len(ids) - scored, len(ids)):
            request = self._request_parameters([ids[:end]], 1, reuses_cache=True)
            del request["samplers"], request["top_k"]
            self._server.handle_completions({**request, "stream": False, "n_probs": MOST_PROBABILITIES}, on_answer)
        if len(rows) != scored or len({len(row) for row in rows}) != 1:
            raise BenchhouseError("llama.cpp did not return the probabilities of all tokens")
        return np.stack(rows)

    def report(self) -> common.EngineReport:
        """Times from the slots; with several rows, those of the slowest."""
        timings = [end["timings"] for end in self._last]
        slowest = max(timings, key=lambda timing: timing["prompt_ms"] + timing["predicted_ms"])
        after_first = max(1, self._new_tokens - 1)
        accepted = sum(int(timing.get("draft_n_accepted", 0)) for timing in timings)
        generated = sum(int(timing["predicted_n"]) - 1 for timing in timings)
        return common.EngineReport(
            first_s=slowest["prompt_ms"] / 1e3,
            per_token_s=slowest["predicted_ms"] / 1e3 / after_first,
            total_s=(slowest["prompt_ms"] + slowest["predicted_ms"]) / 1e3,
            prompt_tokens=sum(int(timing["prompt_n"]) + int(timing["cache_n"]) for timing in timings),
            reused_tokens=sum(int(timing["cache_n"]) for timing in timings),
            drafted_tokens=sum(int(timing.get("draft_n", 0)) for timing in timings),
            accepted_tokens=accepted,
            verifications=generated - accepted,
        )

    def verified(self) -> Mapping[str, Json]:
        cached = sum(int(end["timings"]["cache_n"]) for end in self._last)
        return {"reused_prompt_tokens": cached}


def _short_name(member: Any) -> str:
    """The short name of a member of llama.cpp's enumerations: "f16", "auto"."""
    return str(member.name).removeprefix("GGML_TYPE_").removeprefix("LLAMA_FLASH_ATTN_TYPE_").lower()


PLUGIN = LlamaCpp()
