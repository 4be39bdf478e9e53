"""transformers models: the base classes of their families, which make the empty model or load its weights."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from benchmarking.core.errors import BenchhouseError, UnsupportedError, first_line, is_out_of_memory
from benchmarking.core.lazy_modules import np, torch
from benchmarking.core.model_contracts import Modality, WorkloadFamily
from benchmarking.core.records import Json, Point, Workload
from benchmarking.workloads.support import synthetic_inputs
from benchmarking.workloads.support.configuration import FLOAT_TAG, library_path, without_code
from benchmarking.workloads.support.families import positions, too_long, wrong_axes
from benchmarking.workloads.support.generation import CACHES
from benchmarking.workloads.support.quantized_weights import quantization_of

DEFAULT_SEQUENCE_LENGTHS = (128, 512)
DEFAULT_NEW_TOKENS = (16,)

AUTO_CLASSES: Mapping[str, tuple[str, ...]] = {
    "feature-extraction": ("AutoModel",),
    "fill-mask": ("AutoModelForMaskedLM",),
    "text-classification": ("AutoModelForSequenceClassification",),
    "image-text-to-text": ("AutoModelForImageTextToText",),
    "text-generation": ("AutoModelForCausalLM",),
    "text2text-generation": ("AutoModelForSeq2SeqLM",),
    "image-classification": ("AutoModelForImageClassification",),
    "zero-shot-image-classification": ("AutoModelForZeroShotImageClassification",),
    "image-to-text": ("AutoModelForImageTextToText",),
    "automatic-speech-recognition": ("AutoModelForSpeechSeq2Seq", "AutoModelForCTC"),
    "audio-classification": ("AutoModelForAudioClassification",),
}
"""transformers' automatic classes by task. If there are several, a model has one of them: with or without a decoder."""

EAGER = "eager"
"""transformers' name for attention written in plain torch."""
IMPORT_NOTES: Mapping[str, str] = {"torchao": "Failed to load ", "torch.utils._pytree": " is an Enum subclass "}
"""Words by logger of what torchao, which transformers imports, writes to stderr: its kernels for other devices do not
load, and it registers types as older versions of torch needed it."""


class TransformersFamily(WorkloadFamily):
    without_attention: frozenset[str] = frozenset()
    """Model types without attention, or without a choice of implementation."""
    without_sdpa: frozenset[str] = frozenset()
    """Model types with only their own attention code ("eager") in transformers."""
    sdpa_since: Mapping[str, tuple[int, int]] = {}
    """The transformers version that added scaled-dot-product attention to a model type."""

    def default_attention(self, config: Mapping[str, Json]) -> str | None:
        model_type = str(config.get("model_type"))
        if model_type in self.without_attention:
            return None
        since = self.sdpa_since.get(model_type)
        if model_type in self.without_sdpa or (since is not None and _transformers_version() < since):
            return EAGER
        return "sdpa"

    def model_class(self, workload: Workload) -> Any:
        """The class of the task's model, with its module imported. Raises UnsupportedError if the model has none."""
        return _classes(workload)[1]

    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        """The model from its configuration only, in eval mode; the caller fills the weights."""
        config = configuration(workload)
        with _attention_errors(workload, attention):
            model = _classes(workload)[0].from_config(
                config, dtype=dtype, trust_remote_code=False, **_attention(attention)
            )
        # transformers 5 ties T5's embeddings regardless of the configuration, unless the loaded weights differ; T5 1.1
        # (Flan) models were published untied.
        output = model.get_output_embeddings()
        if workload.config.get("tie_word_embeddings") is False and output is not None:
            tied = model.get_input_embeddings().weight
            if output.weight is tied:
                output.weight = torch.nn.Parameter(torch.empty_like(tied), requires_grad=tied.requires_grad)
        for name, parameter in model.named_parameters():
            if stays_float32(model, name, dtype):
                parameter.data = parameter.data.float()
        return model.eval()

    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        return TransformersFamily.load_quantized(self, workload, dtype=dtype, attention=attention, device=None)

    def load_quantized(
        self, workload: Workload, *, dtype: Any, attention: str | None, device: str | None
    ) -> tuple[Any, tuple[str, ...]]:
        """The model with the safetensors weights in `workload.path`, in eval mode, and the names of missing parameters.
        It is in host memory; quantized weights, whose layout depends on it, are on `device` if that is given.

        Encoders are often saved without the head of a task or without the pooler; the caller fills those parameters.
        Raises BenchhouseError for any other mismatch of weights and model.
        """
        config = configuration(workload)
        stored = quantization_of(workload)
        place = {} if device is None or stored is None else {"device_map": {"": device}}
        try:
            with quiet("transformers"), _attention_errors(workload, attention):
                model, report = _classes(workload)[0].from_pretrained(
                    library_path(str(workload.path)),
                    config=config,
                    dtype=dtype,
                    use_safetensors=True,
                    local_files_only=True,
                    trust_remote_code=False,
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,  # reported below with names, which the library's error lacks
                    **_attention(attention),
                    **place,
                )
        except (OSError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            raise BenchhouseError(f"cannot load the weights in {workload.path}: {first_line(error)}") from error
        missing = tuple(sorted(report["missing_keys"]))
        mismatched = sorted((name, tuple(shape), tuple(wanted)) for name, shape, wanted in report["mismatched_keys"])
        if mismatched:
            name, shape, wanted = mismatched[0]
            raise BenchhouseError(
                f"the weights in {workload.path} do not match its configuration: {len(mismatched)} tensors have other "
                f"shapes, such as {name} with {shape}, expected {wanted}"
            )
        prefix, is_base = f"{model.base_model_prefix}.", model.base_model is model
        body = [name for name in missing if (is_base or name.startswith(prefix)) and "pooler" not in name.split(".")]
        if body:
            raise BenchhouseError(
                f"the weights in {workload.path} lack {len(body)} tensors of {type(model).__name__}, such as {body[0]}"
            )
        if hasattr(model, "ct_decompress_hook"):  # would convert all weights in the first call
            model.hf_quantizer.compressor.decompress_model(model)
        return model.eval(), missing


class TextFamily(TransformersFamily):
    """A family whose models take token ids."""

    modalities: tuple[Modality, ...] = ("text",)
    caches: tuple[str, ...] = CACHES

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        tokens = {"new_tokens": DEFAULT_NEW_TOKENS} if workload.task in self.generative_tasks else {}
        return {"sequence_length": DEFAULT_SEQUENCE_LENGTHS, **tokens}

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        return positions(config)

    def shares_positions(self, config: Mapping[str, Json]) -> bool:
        """Whether new tokens continue the prompt's positions, as in decoders."""
        return True

    def check(self, workload: Workload, point: Point) -> str | None:
        names = ("sequence_length", "new_tokens") if workload.task in self.generative_tasks else ("sequence_length",)
        length, new_tokens = point.sequence_length or 0, point.new_tokens or 0
        return wrong_axes(workload, point, names) or too_long(
            workload, length, new_tokens, shared_positions=self.shares_positions(workload.config)
        )

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        return {"input_ids": synthetic_inputs.token_ids(workload, point, seed)}


def configuration(workload: Workload) -> Any:
    """transformers' configuration object. Raises BenchhouseError if its values are inconsistent."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type = str(workload.config.get("model_type"))
    try:
        kind = CONFIG_MAPPING[model_type]
    except KeyError as error:
        raise UnsupportedError(
            f"the installed transformers does not know model_type {model_type}: upgrade it"
        ) from error
    try:
        config = kind.from_dict(untagged(without_code(workload.config)))
    except (KeyError, TypeError, ValueError, StrictDataclassError) as error:
        raise BenchhouseError(
            f"the configuration of {workload.model_id} is not a valid {model_type}: {' '.join(str(error).split())}"
        ) from error
    config.architectures = config.architectures or []  # the automatic classes iterate over them unchecked
    return config


def untagged(value: Any) -> Any:
    """A configuration's value with tagged infinities (Mamba-2's longest time step) as floats."""
    if isinstance(value, dict):
        tag = value.get(FLOAT_TAG)
        return float(tag) if tag is not None else {name: untagged(each) for name, each in value.items()}
    return [untagged(each) for each in value] if isinstance(value, list) else value


def stays_float32(model: Any, name: str, dtype: Any) -> bool:
    """Whether the model's authors keep this parameter in float32 if the rest is `dtype` (T5's `wo`)."""
    kept = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        kept |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    return dtype in (torch.float16, torch.bfloat16) and not kept.isdisjoint(name.split("."))


def _classes(workload: Workload) -> tuple[Any, Any]:
    """The automatic class and the model class of the task's model."""
    _drop_import_notes()
    from transformers.models.auto import modeling_auto

    config = configuration(workload)
    for name in AUTO_CLASSES[workload.task]:
        automatic: Any = getattr(modeling_auto, name)
        if type(config) in (mapping := automatic._model_mapping):
            listed = mapping[type(config)]
            several = listed if isinstance(listed, tuple) else (listed,)
            # Of several, the one named in the configuration, as transformers chooses.
            own = (kind for kind in several if kind.__name__ in config.architectures)
            return automatic, next(own, several[0])
    model_type = workload.config.get("model_type")
    raise UnsupportedError(f"{workload.model_id} ({model_type}) has no model for task {workload.task}")


@cache
def _drop_import_notes() -> None:
    """Keep `IMPORT_NOTES` from stderr, once per process."""
    for name in IMPORT_NOTES:
        logging.getLogger(name).addFilter(
            lambda record: not any(words in record.getMessage() for words in IMPORT_NOTES.values())
        )


def _attention(attention: str | None) -> dict[str, str]:
    return {} if attention is None else {"attn_implementation": attention}


@contextmanager
def _attention_errors(workload: Workload, attention: str | None) -> Iterator[None]:
    """Translates transformers' ValueError or ImportError for an unavailable attention implementation."""
    try:
        yield
    except (ImportError, ValueError) as error:
        if attention is None:
            raise BenchhouseError(f"cannot build {workload.model_id}: {first_line(error)}") from error
        raise UnsupportedError(f"attention {attention} for {workload.model_id}: {first_line(error)}") from error


@contextmanager
def quiet(library: str) -> Iterator[None]:
    """Suppress progress bars, loading reports and notes of transformers or diffusers: anything relevant is raised or
    stored."""
    library_logging = importlib.import_module(f"{library}.utils.logging")
    verbosity, bars = library_logging.get_verbosity(), library_logging.is_progress_bar_enabled()
    library_logging.set_verbosity(logging.ERROR)
    library_logging.disable_progress_bar()
    try:
        yield
    finally:
        library_logging.set_verbosity(verbosity)
        if bars:
            library_logging.enable_progress_bar()


def _transformers_version() -> tuple[int, int]:
    """Major and minor version of the installed transformers, without importing it."""
    from importlib.metadata import version

    major, minor = version("transformers").split(".")[:2]
    return int(major), int(minor)
