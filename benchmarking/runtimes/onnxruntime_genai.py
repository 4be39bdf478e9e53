"""onnxruntime-genai: ONNX Runtime with its own generation loop, on CPUs, on NVIDIA GPUs, and on GPUs of Windows with
DirectML.

Its model builder runs in a separate process and writes the graph for one execution provider from the same weights as
the eager runtime's. Folders built elsewhere are run unchanged, on the provider of the device.

A call is `append_tokens` followed by `generate_next_token` for each token. The cache is allocated once, for the longest
call of the point, and rewound between calls.

2026-11-26: no machine with a GPU was available; the GPUs' part follows the engine's interface, whose refusals without
a GPU were seen.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.builds.store import BuildKey, Make, model_parts
from benchmarking.core.child_process import run_module
from benchmarking.core.contracts import Stage
from benchmarking.core.device_contracts import DeviceKind
from benchmarking.core.errors import BenchhouseError, UnsupportedError, first_line, memory_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np, onnx, torch
from benchmarking.core.plugins import distributions_of, is_processor, version_of
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Scalar, Workload
from benchmarking.core.untrusted.input_files import read_json
from benchmarking.devices.support import ort_providers as directml
from benchmarking.runtimes.support.engines import engine_session as common
from benchmarking.runtimes.support.engines.computed import Computed
from benchmarking.runtimes.support.engines.engine_runtime import GenerativeEngine
from benchmarking.runtimes.support.engines.weight_files import checkpoint
from benchmarking.runtimes.support.onnxruntime import ort_runtime as shared
from benchmarking.workloads.support.engine_folder import counted_weights
from benchmarking.workloads.support.graph_contents import ACTIVATIONS, INT8
from benchmarking.workloads.support.weights import weight_files

PACKAGES, BELOW = ("onnxruntime-genai", "onnxruntime-genai-cuda"), ("onnxruntime", "onnxruntime-gpu")
"""Distributions of the engine, and of the ONNX Runtime that each requires. The CUDA build also runs on a CPU; all
builds install into the same folder, also those for other devices."""
PROCESSOR = "cpu"
"""The builder's name for the CPU."""
BUILDER = "onnxruntime_genai.models.builder"
TYPES: Mapping[Precision, str] = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int8": "int8",
    "int4": "int4",
}
"""The builder's names for precisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An execution provider, as the engine and its builder call it."""

    name: str
    """For `Config.append_provider`, and in the builder's lower case; empty for the CPU, which needs none."""
    precisions: tuple[Precision, ...]
    """The floating-point precisions that the builder writes for it."""
    reported: str
    """In `Model.device_type`."""


CPU = Provider(name="", precisions=("float32",), reported="CPU")
CUDA = Provider(name="cuda", precisions=("float32", "float16", "bfloat16"), reported="CUDA")
DIRECTML = Provider(name="DML", precisions=("float32", "float16"), reported="DirectML")
BY_ORT_NAME = {"CUDAExecutionProvider": CUDA, directml.NAME: DIRECTML}
"""The engine's providers by ONNX Runtime's names, with which devices declare them."""
PROVIDER = replace(shared.PROVIDER, is_filled_in=False)
QUANTIZED: Mapping[str, Precision] = {"int8": "int8", "int4": "int4"}
"""Weights of matrix products in blocks with one scale each, as chosen by the builder."""
GRAPH, CONFIG, WEIGHTS = "model.onnx", "genai_config.json", "weights.json"
BUILD_VERSION = 2
"""Incremented when `WEIGHTS` holds other values of the same graph, so that older builds are no longer found."""
DRAFT_TOKENS = 4
"""Default of --draft-tokens, which is the engine's."""
OUTPUT_TABLES = ("lm_head.weight", "model.embed_tokens.weight")
"""Names of the output table, with one row per token; the second name if it is tied to the embeddings."""
GREEDY: Mapping[str, Any] = {
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
}
"""Search options that override the configuration of a user's folder."""
NO_PADDING = -1
"""Padding token that no prompt contains, so that no prompt token is masked."""
MAX_CONFIG_BYTES = 1_000_000


class OnnxRuntimeGenai(GenerativeEngine):
    """The runtime `onnxruntime-genai`."""

    name = "onnxruntime-genai"
    aliases = ("ort-genai",)
    modules = ("onnxruntime_genai",)
    libraries: tuple[str, ...] = ("onnxruntime_genai",)
    packages: tuple[str, ...] = (*PACKAGES, *BELOW)
    # As of the builder in 0.18. Its graphs of OLMo and Phi generate different tokens than the models, its graph of
    # Gemma 2 needs a cache as long as the window, and it cannot build Phi-3 without long positions, nor SmolLM3, whose
    # layers without rotation it gives positions that its graph lacks. Linear and yarn's scaling are not in its graphs.
    computed: Mapping[str, Computed] = {
        **dict.fromkeys(("gemma", "granite", "mistral", "qwen2", "qwen3"), Computed(activations=None)),
        "llama": Computed(activations=None, positions=("default", "llama3")),
    }
    reads = ("ort-genai",)
    float_precisions: tuple[Precision, ...] = ("float32",)
    quantized = QUANTIZED
    declared_options = (
        common.CONTEXT_DEPTH,
        common.NGRAM_LOOKUP,
        common.DRAFT_TOKENS,
        common.quantization(QUANTIZED),
        PROVIDER,
    )
    lacks: Mapping[str, str] = {
        "kv_cache_type": "onnxruntime-genai's cache has the graph's type",
        "flash_attention": "ONNX Runtime chooses its own attention kernel",
        "batch_threads": "ONNX Runtime uses the same threads for prefill and decode: use --num-threads",
        "draft_model": "onnxruntime-genai reads a draft model from the graph's folder, which is built without one: use "
        "--ngram-lookup, which needs no model",
        "prefix_cache": "onnxruntime-genai does not reuse prompts",
        "lora": "onnxruntime-genai supports adapters only for graphs built with them: merge the adapter into the "
        "weights",
    }

    def drives(self, kind: DeviceKind) -> bool:
        return bool(_providers(kind.absent("")))

    def floats_on(self, device: Device) -> tuple[Precision, ...]:
        found = (CPU,) if is_processor(device.type) else _providers(device).values()
        return tuple(dict.fromkeys(precision for provider in found for precision in provider.precisions))

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if (why_not := super().supports(device, workload, precision)) is not None or workload.source != "file":
            return why_not
        exported_for = str(workload.config.get("provider", ""))  # a user's graph is exported for one provider
        names = [provider.name.lower() for provider in _providers(device).values()] or [CPU.name]
        if exported_for in names:
            return None
        target = names[0] or PROCESSOR
        return f"{workload.model_id} is exported for {exported_for or PROCESSOR}, not for {target}: export it again"

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        mode = super().mode(device, workload, options)
        # The builder's graphs for the CPU have it, a user's graph may.
        activations = workload.config.get(ACTIVATIONS) if workload.source == "file" else INT8
        is_quantizing = provider_on(device, mode) == CPU and activations == INT8
        return {**mode, common.ACTIVATIONS: INT8} if is_quantizing else mode

    def why_not_here(self, device: Device) -> str | None:
        whys = [why_not_provider(provider) for provider in _providers(device).values()]
        return None if None in whys else whys[0]

    def build(self, cell: Cell) -> tuple[BuildKey, Make]:
        workload, kind = cell.workload, TYPES[cell.precision]
        provider = provider_on(cell.device, cell.runtime_mode)
        source, make_source = checkpoint(workload)
        parts: dict[str, Json] = {
            **model_parts(workload),
            "type": kind,
            "build_version": BUILD_VERSION,
            **({"provider": provider.name} if provider.name else {}),
            "source": source.digest,
            "versions": {"onnxruntime-genai": _version(PACKAGES), "onnx-ir": version_of("onnx-ir")},
        }

        def make(folder: Path) -> Mapping[str, Json]:
            with tempfile.TemporaryDirectory(dir=folder) as whole:
                facts = make_source(Path(whole))
                target = (provider.name or PROCESSOR).lower()
                with tempfile.TemporaryDirectory(dir=folder) as cache:
                    done = run_module(BUILDER, "-i", whole, "-o", str(folder), "-p", kind, "-e", target, "-c", cache)
                if done.exit_code != 0 or not (folder / CONFIG).is_file():
                    raise UnsupportedError(
                        f"onnxruntime-genai's builder does not support {workload.model_id}: {done.last_line}"
                    )
                # A call has a fixed number of tokens, but onnxruntime-genai requires an end token. It suppresses that
                # token until then, so it should be a token that would not be chosen.
                config = read_json(folder / CONFIG, MAX_CONFIG_BYTES)
                assert isinstance(config, dict)
                config["model"] |= {"eos_token_id": shortest_row(Path(whole)), "pad_token_id": NO_PADDING}
                (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
            weights = counted_weights(onnx.load(str(folder / GRAPH), load_external_data=False).graph)
            (folder / WEIGHTS).write_text(json.dumps(weights), encoding="utf-8")
            return {**facts, "type": kind, "weights_bytes": weights["bytes"]}

        return BuildKey(kind=self.name, parts=parts), make

    def load(self, cell: Cell, path: Path, stage: Stage, points: Sequence[Point]) -> common.EngineModel:
        workload = cell.workload
        if workload.source == "file":
            given: Any = workload.config
            weights = {"bytes": given["weights_bytes"], "values": given["values_by_type"]}
            files = [path / name for name in given["files"]]
        else:
            weights = json.loads((path / WEIGHTS).read_text(encoding="utf-8"))
            files = list(path.glob(f"{GRAPH}*"))
        weights["file_bytes"] = sum(file.stat().st_size for file in files)
        with stage("to_device"):
            provider = provider_on(cell.device, cell.runtime_mode)
            return GenaiModel(path, common.EngineSettings.of(cell), workload.parameter_count, weights, provider)


def _providers(device: Device) -> dict[str, Provider]:
    """The engine's providers for a device, the default first, by the words of --provider."""
    return {
        one.word: provider for one in shared.providers_of(device) if (provider := BY_ORT_NAME.get(one.name)) is not None
    }


def provider_on(device: Device, mode: Mapping[str, Scalar]) -> Provider:
    """The provider of a device: the named one, or the default. Raises UnsupportedError if it lacks the named one."""
    found = _providers(device)
    word = mode.get(PROVIDER.name)
    if word is None:
        return next(iter(found.values()), CPU)
    if word not in found:
        words = ", ".join(found) or "none to choose from"
        raise UnsupportedError(f"--provider {word}: onnxruntime-genai has {words} for {device.selector}")
    return found[str(word)]


def _version(names: Sequence[str]) -> str | None:
    """The version of the first of these distributions that is installed, or of another with the same module."""
    return shared.installed_version((*names, *distributions_of(names[0].replace("-", "_"))))


ABSENT = "absent.onnx"
"""The graph of the configuration that asks for a provider: if the engine misses it, it has the provider."""


def why_not_provider(provider: Provider) -> str | None:
    """None, or why the installed engine cannot use a provider, in its own words. Its functions is_cuda_available and so
    on tell only what it was built with."""
    import onnxruntime_genai as engine

    decoder = {"filename": ABSENT, "session_options": {"provider_options": [{provider.name: {}}]}}
    model = {"type": "llama", "vocab_size": 8, "context_length": 8, "decoder": decoder}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / CONFIG).write_text(json.dumps({"model": model, "search": {}}), encoding="utf-8")
        try:
            engine.Model(engine.Config(folder))
        except RuntimeError as error:
            return None if ABSENT in str(error) else f"onnxruntime-genai: {first_line(error)}"
    return None


def shortest_row(source: Path) -> int:
    """The token whose row in the output table has the smallest norm, which a model is least likely to choose."""
    from safetensors import safe_open

    for file in weight_files(source):
        with safe_open(file, "pt") as opened:
            names = frozenset(opened.keys())
            found = [name for name in OUTPUT_TABLES if name in names]
            if found:
                return int(torch.linalg.vector_norm(opened.get_tensor(found[0]).float(), dim=1).argmin())
    raise UnsupportedError(f"onnxruntime-genai: the model has no output table; expected {' or '.join(OUTPUT_TABLES)}")


class GenaiModel(common.EngineModel):
    """A graph written by the builder."""

    def __init__(
        self,
        folder: Path,
        settings: common.EngineSettings,
        parameter_count: int | None,
        weights: Mapping[str, Any],
        provider: Provider,
    ) -> None:
        """`weights` holds their size (`bytes`), the number of `values` by type, and the `file_bytes`."""
        import onnxruntime_genai as engine

        self.settings = settings
        self.weights_bytes: int | None = weights["bytes"]
        self.parameter_count: int | None = parameter_count
        own: dict[str, Json] = {"pad_token_id": NO_PADDING}
        if settings.threads is not None:
            own["decoder"] = {"session_options": {"intra_op_num_threads": settings.threads}}
        try:
            config = engine.Config(str(folder))
            config.clear_providers()
            if provider.name:
                config.append_provider(provider.name)
            config.overlay(json.dumps({"model": own}))
            with memory_errors(f"loading {folder.name}"):
                self.model: Any = engine.Model(config)
        except RuntimeError as error:
            raise BenchhouseError(f"onnxruntime-genai cannot load {folder}: {first_line(error)}") from error
        if str(self.model.device_type).lower() not in (provider.name.lower(), provider.reported.lower()):
            raise BenchhouseError(
                f"requested {provider.reported}, but onnxruntime-genai computes on {self.model.device_type}"
            )
        self.facts: Mapping[str, Json] = {
            "engine": ", ".join(f"{names[0]} {_version(names)}" for names in (PACKAGES, BELOW)),
            "engine_system": {"device": str(self.model.device_type), "model_type": str(self.model.type)},
            "num_threads": settings.threads,
            "activations": settings.activations,
            "parameters_by_dtype": weights["values"],
            "model_size_bytes": weights["file_bytes"],
        }

    def request(self, prompts: np.ndarray, new_tokens: int, context: np.ndarray | None) -> common.EngineRequest:
        return GenaiRequest(self, prompts, new_tokens, context)

    def close(self) -> None:
        self.model = None


class GenaiRequest(common.EngineRequest):
    """Calls of one generator, which is rewound before each call."""

    def __init__(self, model: GenaiModel, prompts: np.ndarray, new_tokens: int, context: np.ndarray | None) -> None:
        import onnxruntime_genai as engine

        settings = model.settings
        if settings.is_speculative and len(prompts) > 1:
            raise UnsupportedError(
                "--ngram-lookup: onnxruntime-genai drafts tokens for a single row only: use batch size 1"
            )
        if context is not None and len(prompts) > 1:
            raise UnsupportedError("--context-depth: onnxruntime-genai appends to a single row only: use batch size 1")
        self._prompts = prompts.astype("int32")
        self._context = None if context is None else context.astype("int32")
        self._new_tokens = new_tokens
        depth = 0 if context is None else context.shape[1]
        parameters = engine.GeneratorParams(model.model)
        length = depth + prompts.shape[1] + new_tokens
        parameters.set_search_options(batch_size=len(prompts), min_length=length, max_length=length, **GREEDY)
        if settings.ngram_lookup:
            tokens = settings.draft_tokens or DRAFT_TOKENS
            try:
                parameters.set_speculative_options(ngram_size=settings.ngram_lookup, max_draft_tokens=tokens)
            except RuntimeError as error:
                raise UnsupportedError(f"--ngram-lookup {settings.ngram_lookup}: {first_line(error)}") from error
        self._is_speculative = settings.is_speculative
        self._generator: Any = engine.Generator(model.model, parameters)
        self._before: Mapping[str, Any] = {}

    def reset(self) -> None:
        generator = self._generator
        if self._context is None:
            generator.rewind_to(0)
        elif generator.token_count() > 0:
            generator.rewind_to(self._context.shape[1])
        else:
            generator.append_tokens(self._context)
        self._before = self._counts()

    def generate(self, arrived: common.Arrivals) -> None:
        generator = self._generator
        generator.append_tokens(self._prompts)
        for _ in range(self._new_tokens):
            generator.generate_next_token()
            for row, token in enumerate(generator.get_next_tokens().tolist()):
                arrived(row, (token,))

    def next_token_logits(self, text: np.ndarray, scored: int) -> np.ndarray:
        generator, ids = self._generator, text.astype("int32")
        generator.rewind_to(0)
        generator.append_tokens(ids[None, :-scored])
        rows = [np.array(generator.get_logits(), dtype=np.float32)[0, -1]]
        for token in ids[-scored:-1]:
            generator.append_tokens(np.full((1, 1), token, dtype=np.int32))
            rows.append(np.array(generator.get_logits(), dtype=np.float32)[0, -1])
        generator.rewind_to(0)  # else a later call would take the text for its context
        return np.stack(rows)

    def report(self) -> common.EngineReport:
        """onnxruntime-genai reports no times per call. Its speculation counters start with the generator."""
        before, after = self._before, self._counts()
        since = {name: int(after[name]) - int(before.get(name, 0)) for name in after}
        return common.EngineReport(
            prompt_tokens=self._prompts.size,
            drafted_tokens=since.get("draft_tokens_evaluated", 0),
            accepted_tokens=since.get("draft_tokens_accepted", 0),
            verifications=since.get("completed_rounds"),
        )

    def close(self) -> None:
        self._generator = None

    def _counts(self) -> dict[str, Any]:
        if not self._is_speculative:
            return {}
        found = self._generator.get_speculative_stats()
        return {name: found[name] for name in ("draft_tokens_evaluated", "draft_tokens_accepted", "completed_rounds")}


PLUGIN = OnnxRuntimeGenai()
