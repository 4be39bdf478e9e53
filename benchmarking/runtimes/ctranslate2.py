"""CTranslate2: a C++ engine for transformers on CPUs and NVIDIA GPUs, which runs models made by its own converter.

The converter reads the same weights as the eager runtime, in the preparing process. Folders converted elsewhere are run
unchanged. A call is `generate_batch` with a callback, which CTranslate2 calls for each token of each row, when it is on
the host.

2026-11-26: no machine with a GPU was available; the GPU's part follows CTranslate2's documentation.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarking.builds.store import BuildKey, Make, model_parts
from benchmarking.core.contracts import EXAMPLE_TEXT, Stage, build_path_lines
from benchmarking.core.device_contracts import DeviceKind
from benchmarking.core.errors import BenchhouseError, UnsupportedError, first_line, is_out_of_memory, memory_errors
from benchmarking.core.lazy_modules import np
from benchmarking.core.plugins import is_processor, version_of
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Workload
from benchmarking.devices.support.binding import binding_lines
from benchmarking.runtimes.support.engines import engine_session as common
from benchmarking.runtimes.support.engines.computed import GELU, SILU, Computed
from benchmarking.runtimes.support.engines.engine_runtime import GenerativeEngine
from benchmarking.runtimes.support.engines.weight_files import (
    BEGIN,
    END,
    legacy_rope_keys,
    token_text,
    torch_model,
    vocabulary_size,
)
from benchmarking.workloads.support.engine_file import model_of, vocabulary_of

FOLDER_FORMAT = "ct2"
VERSION = 2
VENDOR = "nvidia"
"""Vendor of the GPUs that its wheels have kernels for."""
PROCESSOR, GPU = "cpu", "cuda"
"""CTranslate2's names for devices."""
QUANTIZED: Mapping[str, Precision] = dict.fromkeys(("int8_float32", "int8", "int8_bfloat16", "int8_float16"), "int8")
"""CTranslate2's type names: 8-bit weights and products, and the type of everything else."""
LOADERS: Mapping[str, str] = {
    "gemma": "GemmaConfig",
    "gpt2": "GPT2Config",
    "llama": "LlamaConfig",
    "mistral": "MistralConfig",
    "opt": "OPTConfig",
    "qwen2": "Qwen2Config",
    "qwen3": "Qwen3Config",
}
"""The converter's loader by transformers' model type. The loader of Phi-3 needs attributes that transformers 5 lacks,
and that of Gemma 2 leaves out the soft-capping, which all of these models have."""
ACTIVATIONS = (*GELU, *SILU, "quick_gelu", "relu")
"""What the converter reads from models that name their activation `activation_function`."""
LLAMA3_TRAINED = 8192
"""Context length of Llama 3 before position scaling, a constant of the engine."""


class CTranslate2(GenerativeEngine):
    """The runtime `ctranslate2`."""

    name = "ctranslate2"
    aliases = ("ct2",)
    modules = ("ctranslate2",)
    libraries: tuple[str, ...] = ("ctranslate2",)
    packages: tuple[str, ...] = ("ctranslate2",)
    reads = (FOLDER_FORMAT,)
    computed: Mapping[str, Computed] = {
        "gemma": Computed(activations=GELU),
        "gpt2": Computed(activations=ACTIVATIONS),
        "llama": Computed(
            activations=SILU,
            positions=("default", "linear", "llama3"),
            llama3_length=LLAMA3_TRAINED,
            has_own_head_size=False,
        ),
        "mistral": Computed(activations=SILU, positions=("default", "linear")),
        "opt": Computed(activations=ACTIVATIONS),
        "qwen2": Computed(activations=SILU, positions=("default", "linear"), has_own_head_size=False),
        "qwen3": Computed(activations=SILU, positions=("default", "linear")),
    }
    float_precisions = ("float32", "float16", "bfloat16")
    quantized = QUANTIZED
    declared_options = (common.CONTEXT_DEPTH, common.PREFIX_CACHE, common.quantization(QUANTIZED))
    lacks: Mapping[str, str] = {
        "kv_cache_type": "CTranslate2 stores keys and values in its compute type",
        "flash_attention": "CTranslate2 has flash attention only on NVIDIA GPUs, and its wheels are built without it",
        "batch_threads": "CTranslate2 uses the same threads for prefill and decode: use --num-threads",
        "draft_model": "CTranslate2 has no speculative decoding",
        "ngram_lookup": "CTranslate2 has no speculative decoding",
        "draft_tokens": "CTranslate2 has no speculative decoding",
        "lora": "CTranslate2 cannot load adapters: merge the adapter into the weights before conversion",
    }

    def drives(self, kind: DeviceKind) -> bool:
        return kind.gpu_vendor == VENDOR

    def why_not_here(self, device: Device) -> str | None:
        import ctranslate2

        try:
            supported = ctranslate2.get_supported_compute_types(GPU)
        except (RuntimeError, ValueError) as error:
            return f"CTranslate2 {ctranslate2.__version__} cannot use {device.selector}: {first_line(error)}"
        if not ctranslate2.get_cuda_device_count() or not supported:
            return f"CTranslate2 {ctranslate2.__version__} finds no GPU: install cuBLAS of CUDA 12"
        return None

    def build(self, cell: Cell) -> tuple[BuildKey, Make]:
        workload = cell.workload
        kind = compute_type(cell)
        parts: dict[str, Json] = {
            **model_parts(workload),
            "type": kind,
            "version": VERSION,
            "versions": {name: version_of(name) for name in ("torch", "transformers", "ctranslate2")},
        }

        def make(folder: Path) -> Mapping[str, Json]:
            convert(workload, kind, folder)
            return {"type": kind, "file": "model.bin"}

        return BuildKey(kind=self.name, parts=parts), make

    def load(self, cell: Cell, path: Path, stage: Stage, points: Sequence[Point]) -> common.EngineModel:
        with stage("to_device"):
            return Ct2Model(path, compute_type(cell), common.EngineSettings.of(cell), place_of(cell.device))

    def deployment(self, cell: Cell, point: Point) -> str | None:
        workload = cell.workload
        if workload.source == "file":
            return None
        folder = self.model_path(cell)
        kind, place = compute_type(cell), place_of(cell.device)
        name = workload.path if workload.source == "local" else workload.model_id
        lines = [
            *binding_lines(cell.cpu_list),
            "import ctranslate2",
            "import transformers",
            "",
            *build_path_lines(folder),
            "generator = ctranslate2.Generator(",
            f"    path, device={place!r}, compute_type={kind!r}, intra_threads={cell.num_threads or 0}",
            ")",
            f"tokenizer = transformers.AutoTokenizer.from_pretrained({name!r})",
            "# token 17 is 't17' in the converted files",
            f"tokens = [f't{{token}}' for token in tokenizer.encode({EXAMPLE_TEXT!r})]",
            "results = generator.generate_batch(",
            f"    [tokens] * {point.batch_size}, max_length={point.new_tokens}, include_prompt_in_result=False,",
            "    end_token=f't{tokenizer.eos_token_id}',",
            ")",
            "texts = [tokenizer.decode(result.sequences_ids[0]) for result in results]",
        ]
        return "\n".join(lines)


def place_of(device: Device) -> str:
    """CTranslate2's name for a kind of device; the process sees a single GPU, which is its number 0."""
    return PROCESSOR if is_processor(device.type) else GPU


def compute_type(cell: Cell) -> str:
    """CTranslate2's name for a cell's compute type, which is the precision's own without quantization."""
    return str(cell.runtime_mode.get(common.QUANTIZATION.name) or cell.precision)


def convert(workload: Workload, kind: str, folder: Path) -> None:
    """Convert a model's weights with CTranslate2's own loaders. Raises UnsupportedError if they reject it."""
    from ctranslate2.converters import transformers as converters

    loader = converters._MODEL_LOADERS[LOADERS[str(workload.config["model_type"])]]
    model = torch_model(workload)
    rope = legacy_rope_keys(model.config.to_dict())
    for key, value in rope.items():
        setattr(model.config, key, value)
    # The part of a tokenizer that the converter needs, for a model without one: an id's text is its number.
    vocabulary = {token_text(token): token for token in range(vocabulary_size(workload))}
    tokenizer = SimpleNamespace(
        bos_token=token_text(BEGIN),
        unk_token=token_text(BEGIN),
        eos_token=token_text(END),
        additional_special_tokens=(),
        get_vocab=lambda: vocabulary,
    )
    gc.freeze()  # the loader looks for garbage after each layer, which would take a sixth of a second with torch
    try:
        spec = loader(model, tokenizer)
        spec.validate()
        spec.optimize(quantization=kind)
    except (NotImplementedError, AttributeError, ValueError) as error:
        raise UnsupportedError(f"CTranslate2 cannot convert {workload.model_id}: {first_line(error)}") from error
    spec.save(str(folder))


class Ct2Model(common.EngineModel):
    def __init__(self, folder: Path, kind: str, settings: common.EngineSettings, place: str) -> None:
        import ctranslate2

        stored = model_of(folder)
        self.weights_bytes: int | None = stored.weights_bytes
        self.parameter_count: int | None = stored.parameter_count
        self.settings = settings
        with memory_errors(f"loading {folder.name}"):
            try:
                supported = ctranslate2.get_supported_compute_types(place)
                if kind not in supported:
                    where = "this CPU" if place == PROCESSOR else "this GPU"
                    raise UnsupportedError(
                        f"CTranslate2 does not support {kind} on {where}; it supports {', '.join(sorted(supported))}"
                    )
                self.generator: Any = ctranslate2.Generator(
                    str(folder), device=place, compute_type=kind, inter_threads=1, intra_threads=settings.threads or 0
                )
            except (RuntimeError, ValueError) as error:
                if is_out_of_memory(error):
                    raise
                raise BenchhouseError(f"CTranslate2 cannot load {folder}: {first_line(error)}") from error
        if self.generator.device != place:
            raise BenchhouseError(f"requested {place}, but CTranslate2 computes on {self.generator.device}")
        if self.generator.compute_type != kind:
            raise UnsupportedError(f"requested {kind}, but CTranslate2 computes in {self.generator.compute_type}")
        self.texts = vocabulary_of(folder)
        self.facts: Mapping[str, Json] = {
            "engine": f"ctranslate2 {ctranslate2.__version__}",
            "engine_system": {"compute_types": sorted(supported), "device": self.generator.device},
            "compute_type": self.generator.compute_type,
            "num_threads": settings.threads,
            "parameters_by_dtype": dict[str, Json](stored.values_by_type),
            "model_size_bytes": (folder / "model.bin").stat().st_size,
        }

    def request(self, prompts: np.ndarray, new_tokens: int, context: np.ndarray | None) -> common.EngineRequest:
        return Ct2Request(self, prompts, new_tokens, context)

    def close(self) -> None:
        self.generator = None


class Ct2Request(common.EngineRequest):
    """Calls of `generate_batch`."""

    def __init__(self, model: Ct2Model, prompts: np.ndarray, new_tokens: int, context: np.ndarray | None) -> None:
        if context is not None and len(context) > 1:
            raise UnsupportedError("--context-depth: CTranslate2 shares one context among all rows: use batch size 1")
        if context is not None and model.settings.has_prefix_cache:
            raise UnsupportedError(
                "--prefix-cache: CTranslate2 caches the context as its prefix: omit --prefix-cache or --context-depth"
            )
        if model.settings.has_prefix_cache and len(prompts) > 1:
            raise UnsupportedError("--prefix-cache: CTranslate2 shares one prefix among all rows: use batch size 1")
        self._generator = model.generator
        self._texts = model.texts
        self._tokens = [[model.texts[token] for token in row] for row in prompts.tolist()]
        self._reused = 0
        prefix = None if context is None else [model.texts[token] for token in context[0].tolist()]
        if model.settings.has_prefix_cache:  # all but the last token, which must be computed to get the next one
            prefix, self._tokens = self._tokens[0][:-1], [self._tokens[0][-1:]]
            self._reused = len(prefix)
        self._prompt_tokens = prompts.size
        self._parameters: dict[str, Any] = {
            "max_length": new_tokens,
            "min_length": new_tokens,
            "beam_size": 1,
            "sampling_topk": 1,
            "end_token": [],
            "include_prompt_in_result": False,
            "static_prompt": prefix,
            "cache_static_prompt": prefix is not None,
        }

    def reset(self) -> None:
        """CTranslate2 computes a static prompt in the first call that has it and caches it: the first reset does so."""
        if self._parameters["static_prompt"] is not None:
            self._generator.generate_batch(self._tokens, **{**self._parameters, "max_length": 1, "min_length": 1})

    def generate(self, arrived: common.Arrivals) -> None:
        def on_step(step: Any) -> bool:
            arrived(step.batch_id, (step.token_id,))
            return False

        self._generator.generate_batch(self._tokens, callback=on_step, **self._parameters)

    def next_token_logits(self, text: np.ndarray, scored: int) -> np.ndarray:
        """In one pass over the text, with the weights and the arithmetic of the calls."""
        import ctranslate2

        tokens = [self._texts[token] for token in text[:-1].tolist()]
        logits: Any = self._generator.forward_batch([tokens])
        on_host = logits.to_device(ctranslate2.Device.cpu).to(ctranslate2.DataType.float32)
        rows: np.ndarray = np.array(on_host)[0, -scored:]
        return rows

    def report(self) -> common.EngineReport:
        """CTranslate2 reports no times of its own."""
        return common.EngineReport(prompt_tokens=self._prompt_tokens, reused_tokens=self._reused)


PLUGIN = CTranslate2()
