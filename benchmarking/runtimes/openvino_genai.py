"""OpenVINO GenAI: OpenVINO with its own generation pipeline, from GGUF files and OpenVINO's own files, on CPUs, and on
Intel's GPUs and NPUs.

It reads GGUF files of three kinds of models, with float16 or quantized weights, and users' folders of OpenVINO files
with a tokenizer. A call is `generate` for one row with a streamer, which the pipeline calls for each token. On a CPU,
float products are computed in float32, since bfloat16, the default on newer CPUs, is not the requested precision; on a
GPU, in float16. With quantized weights, a CPU with 8-bit dot products multiplies 8-bit activations, as OpenVINO does by
default: the setting `activations` says so. The pipeline's prefix cache is turned off: by default it would serve the
whole prompt to every call but the first. On an NPU the shapes are fixed beforehand, by the longest point.

The pipeline does not return what it compiled, but prints it: that is read back.

2026-11-26: no machine with an Intel GPU or NPU was available; their part follows OpenVINO GenAI's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.builds.store import BuildKey, Make
from benchmarking.core.child_process import environment_variable
from benchmarking.core.contracts import Stage
from benchmarking.core.device_contracts import DeviceKind
from benchmarking.core.errors import BenchhouseError, UnsupportedError, memory_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.plugins import version_of
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Scalar, Workload
from benchmarking.devices.openvino import device_name, import_openvino, last_line
from benchmarking.runtimes.support.engines import engine_session as common
from benchmarking.runtimes.support.engines.computed import SILU, Computed
from benchmarking.runtimes.support.engines.engine_runtime import STDOUT, GenerativeEngine, LibraryLog
from benchmarking.runtimes.support.engines.weight_files import FLOAT_TYPES, GGUF_FILE, gguf_build
from benchmarking.workloads.support.gguf_file import read_gguf
from benchmarking.workloads.support.graph_file import format_of

CPU, NPU = "CPU", "NPU"
AUTOMATIC = "AUTO"
GGUF = "gguf"
NO_SCALING, ROPE_FACTORS = "none", "rope_freqs.weight"
"""In a GGUF file: a kind of position scaling, and the tensor of the factors of Llama 3's."""
LOG_LEVEL, INFO = "OPENVINO_LOG_LEVEL", "2"
"""The environment variable and the level at which a pipeline prints the properties of its compiled model."""
PROPERTY = re.compile(r"^\s+(?P<name>[A-Z_]+): (?P<value>[^\n]+)$", re.MULTILINE)
QUANTIZED: Mapping[str, Precision] = {"Q8_0": "int8", "Q4_0": "int4"}
"""GGUF types that it reads and that benchhouse makes."""
CACHE_TYPES = ("f16", "f32", "bf16", "u8")
COMPUTE_TYPE, GPU_COMPUTE_TYPE = "f32", "f16"
MOST_TOKENS = 2**64 - 1
"""Maximum of the scheduler's limit of tokens per pass."""


class OpenVinoGenai(GenerativeEngine):
    """The runtime `openvino-genai`."""

    name = "openvino-genai"
    aliases = ("ov-genai",)
    modules = ("openvino_genai", "gguf")
    libraries: tuple[str, ...] = ("openvino_genai",)
    packages: tuple[str, ...] = ("openvino-genai", "openvino-tokenizers", "openvino", "gguf")
    reads = (GGUF, "openvino-ir")
    computed: Mapping[str, Computed] = dict.fromkeys(("llama", "qwen2", "qwen3"), Computed(activations=SILU))
    float_precisions: tuple[Precision, ...] = ("float16",)
    quantized = QUANTIZED
    given_floats: tuple[Precision, ...] = ("float32", "bfloat16")
    given_types: Mapping[str, Precision] = {"int8": "int8", "int4": "int4"}
    declared_options = (
        replace(common.KV_CACHE_TYPE, values=CACHE_TYPES),
        common.quantization(QUANTIZED),
    )
    lacks: Mapping[str, str] = {
        "context_depth": "OpenVINO GenAI continues an earlier text only in a chat, whose template adds tokens",
        "flash_attention": "OpenVINO chooses its own attention kernel",
        "batch_threads": "OpenVINO uses the same threads for prefill and decode: use --num-threads",
        "draft_model": "OpenVINO GenAI cannot use a GGUF file as a draft model",
        "ngram_lookup": "OpenVINO GenAI's prompt lookup does not report how many draft tokens were accepted",
        "draft_tokens": "OpenVINO GenAI has no speculative decoding here",
        "prefix_cache": "OpenVINO GenAI does not report how much of a prompt came from its prefix cache",
        "lora": "OpenVINO GenAI cannot apply an adapter to a GGUF file: merge it into the weights",
    }

    def drives(self, kind: DeviceKind) -> bool:
        return kind.runs_openvino

    def why_not_here(self, device: Device) -> str | None:
        """The device was found by OpenVINO itself; what is left is whether the plugin loads in GenAI's OpenVINO."""
        core = import_openvino().Core()
        try:
            core.get_property(device_name(device), "FULL_DEVICE_NAME")
        except RuntimeError as error:
            return f"OpenVINO {version_of('openvino')} cannot use {device.selector}: {last_line(error)}"
        return None

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if device_name(device) == AUTOMATIC:
            return f"OpenVINO GenAI's pipeline runs on one device: name it instead of {device.selector}"
        reason = super().supports(device, workload, precision)
        if reason is not None or workload.source != "file" or format_of(workload) != GGUF:
            return reason
        header = read_gguf(Path(str(workload.path)))
        scaling = header.metadata.get(f"{header.architecture}.rope.scaling.type", NO_SCALING)
        if scaling == NO_SCALING and all(tensor.name != ROPE_FACTORS for tensor in header.tensors):
            return None
        return f"{workload.model_id} has scaled positions, which OpenVINO GenAI does not read from a GGUF file"

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        from benchmarking.runtimes.support.openvino.compile import leaves_activations

        mode = super().mode(device, workload, options)
        if device_name(device).startswith(NPU) and common.KV_CACHE_TYPE.name in mode:
            raise UnsupportedError("--kv-cache-type: OpenVINO GenAI chooses the type itself on an NPU: omit the option")
        if device_name(device) != CPU or leaves_activations(device):
            return mode
        return {**mode, common.ACTIVATIONS: "int8"}

    def build(self, cell: Cell) -> tuple[BuildKey, Make]:
        name = common.EngineSettings.of(cell).quantization or FLOAT_TYPES[cell.precision]
        return gguf_build(cell.workload, name, "gpt2")

    def load(self, cell: Cell, path: Path, stage: Stage, points: Sequence[Point]) -> common.EngineModel:
        settings = common.EngineSettings.of(cell)
        if cell.workload.source == "file" and path.is_dir():
            config: Any = cell.workload.config
            weights = Weights(
                size_bytes=config["weights_bytes"],
                parameter_count=config["parameter_count"],
                type=config["quantization"],
                file_bytes=sum((path / name).stat().st_size for name in config["files"]),
            )
        else:
            path = path / GGUF_FILE if path.is_dir() else path
            header = read_gguf(path)
            weights = Weights(
                size_bytes=header.weights_bytes,
                parameter_count=header.parameter_count,
                type=header.quantization,
                file_bytes=path.stat().st_size,
            )
        with stage("to_device"):
            return GenaiModel(path, settings, weights, device_name(cell.device), points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights in a GGUF file or a folder."""

    size_bytes: int
    parameter_count: int
    type: str
    file_bytes: int


class GenaiModel(common.EngineModel):
    """A GGUF file or a folder of OpenVINO files in a pipeline."""

    def __init__(
        self, file: Path, settings: common.EngineSettings, weights: Weights, unit: str, points: Sequence[Point]
    ) -> None:
        import openvino_genai as engine

        self.weights_bytes: int | None = weights.size_bytes
        self.parameter_count: int | None = weights.parameter_count
        properties = pipeline_properties(engine, unit, settings, points)
        log = LibraryLog((STDOUT,))
        try:
            with environment_variable(LOG_LEVEL, INFO), log, memory_errors(f"loading {file.name}"):
                self.pipeline: Any = engine.LLMPipeline(str(file), unit, **properties)
        except RuntimeError as error:
            raise BenchhouseError(f"OpenVINO GenAI cannot load {file}: {last_line(error)}") from error
        compiled = read_back(log.text, unit)
        group = compiled.get(ACTIVATION_GROUP, properties.get(ACTIVATION_GROUP))
        core = import_openvino().Core()
        system = {name.lower(): core.get_property(unit, name) for name in ("FULL_DEVICE_NAME", "DEVICE_ARCHITECTURE")}
        capabilities: list[Json] = [*sorted(map(str, core.get_property(unit, "OPTIMIZATION_CAPABILITIES")))]
        self.facts: Mapping[str, Json] = {
            "engine": f"openvino-genai {version_of('openvino-genai')}, openvino {version_of('openvino')}",
            "engine_system": {**{name: str(value) for name, value in system.items()}, "capabilities": capabilities},
            "engine_devices": compiled.get(DEVICES),
            "quantized_type": weights.type,
            "kv_cache_type": compiled.get(CACHE_TYPE, properties.get(CACHE_TYPE)),
            "compute_type": compiled.get(PRECISION, properties.get(PRECISION)),
            "activations": settings.activations,
            "dynamic_quantization_group_size": None if group is None else int(group),
            "num_threads": properties.get(THREADS),
            "model_size_bytes": weights.file_bytes,
        }

    def request(self, prompts: np.ndarray, new_tokens: int, context: np.ndarray | None) -> common.EngineRequest:
        return GenaiRequest(self.pipeline, prompts, new_tokens)

    def close(self) -> None:
        self.pipeline = None


DEVICES, PRECISION, CACHE_TYPE = "EXECUTION_DEVICES", "INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION"
THREADS, ACTIVATION_GROUP = "INFERENCE_NUM_THREADS", "DYNAMIC_QUANTIZATION_GROUP_SIZE"
"""OpenVINO's names of properties."""


def pipeline_properties(
    engine: Any, unit: str, settings: common.EngineSettings, points: Sequence[Point]
) -> dict[str, Any]:
    """What a pipeline on a device is told."""
    if unit.startswith(NPU):  # it has neither a scheduler nor a choice of types
        return {
            "MAX_PROMPT_LEN": max(point.sequence_length or 1 for point in points),
            "MIN_RESPONSE_LEN": max(point.new_tokens or 1 for point in points),
        }
    scheduler = engine.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    scheduler.max_num_batched_tokens = MOST_TOKENS  # a prompt is one pass, as without a scheduler
    properties: dict[str, Any] = {
        "scheduler_config": scheduler,
        PRECISION: COMPUTE_TYPE if unit.startswith(CPU) else GPU_COMPUTE_TYPE,
        CACHE_TYPE: settings.kv_cache_type or CACHE_TYPES[0],
    }
    if settings.activations is not None:  # a user's file may say otherwise
        from benchmarking.runtimes.support.openvino.compile import GROUP_SIZES

        properties[ACTIVATION_GROUP] = GROUP_SIZES["dynamic"]
    if settings.threads is not None and unit.startswith(CPU):
        properties[THREADS] = settings.threads
    return properties


def read_back(log: str, unit: str) -> dict[str, str]:
    """The properties of the compiled model that a pipeline printed. Raises BenchhouseError if it was compiled for
    another device."""
    found = {match["name"]: match["value"].strip() for match in PROPERTY.finditer(log)}
    devices = [name.strip(" ()") for name in found.get(DEVICES, "").replace(",", " ").split()]
    if devices and any(name.removesuffix(".0") != unit.removesuffix(".0") for name in devices):
        raise BenchhouseError(f"requested {unit}, but OpenVINO GenAI compiled the model for {found[DEVICES]}")
    return found


class GenaiRequest(common.EngineRequest):
    """Calls of `generate`, each of which processes its whole prompt."""

    def __init__(self, pipeline: Any, prompts: np.ndarray, new_tokens: int) -> None:
        import openvino
        import openvino_genai as engine

        if len(prompts) > 1:
            raise UnsupportedError("OpenVINO GenAI streams tokens of a single row only: use batch size 1")
        self._pipeline = pipeline
        ids = np.ascontiguousarray(prompts, dtype=np.int64)
        self._inputs = engine.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        self._prompt_tokens = ids.size
        config = engine.GenerationConfig()
        config.max_new_tokens, config.ignore_eos = new_tokens, True
        config.do_sample, config.apply_chat_template = False, False
        self._config = config

        # What receives the tokens, defined here because its base class is the library's.
        class Streamer(engine.StreamerBase):  # type: ignore[misc]
            def __init__(self, arrived: common.Arrivals) -> None:
                super().__init__()
                self._arrived = arrived

            def write(self, token: int | list[int]) -> Any:
                self._arrived(0, token if isinstance(token, list) else (token,))
                return engine.StreamingStatus.RUNNING

            def end(self) -> None:
                """All tokens have arrived."""

        self._streamer = Streamer
        self._metrics: Any = None

    def generate(self, arrived: common.Arrivals) -> None:
        result = self._pipeline.generate(self._inputs, self._config, self._streamer(arrived))
        self._metrics = result.perf_metrics

    def report(self) -> common.EngineReport:
        metrics = self._metrics
        if metrics is None:
            return common.EngineReport(prompt_tokens=self._prompt_tokens)
        return common.EngineReport(
            first_s=metrics.get_ttft().mean / MS_PER_S,
            per_token_s=metrics.get_tpot().mean / MS_PER_S,
            total_s=metrics.get_generate_duration().mean / MS_PER_S,
            prompt_tokens=self._prompt_tokens,
        )


PLUGIN = OpenVinoGenai()
