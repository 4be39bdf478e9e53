"""Speech models: Whisper, which transcribes, and waveform encoders (wav2vec 2.0 and relatives)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.core.contracts import FamilyOperation
from benchmarking.core.lazy_modules import np
from benchmarking.core.model_contracts import Modality, QualityKind, Recipe
from benchmarking.core.records import NOT_APPLICABLE, Family, Json, Point, Readings, Scalar, Workload
from benchmarking.workloads.support import synthetic_inputs
from benchmarking.workloads.support.configuration import integer, integers
from benchmarking.workloads.support.families import architectures, wrong_axes
from benchmarking.workloads.support.generation import (
    CACHES,
    EncoderDecoderGeneration,
    ForwardPass,
    Generated,
    floats_as,
)
from benchmarking.workloads.support.transformers_models import TransformersFamily

RECOGNITION, FEATURES, CLASSIFICATION = "automatic-speech-recognition", "feature-extraction", "audio-classification"
TRANSCRIBING = frozenset({"whisper"})
"""Model types with a decoder. The others recognize speech (CTC) in one pass over the waveform."""

DEFAULT_AUDIO_SECONDS = 10
DEFAULT_NEW_TOKENS = 16
DEFAULT_KERNELS = (10, 3, 3, 3, 3, 2, 2)
DEFAULT_STRIDES = (5, 2, 2, 2, 2, 2, 2)
"""Kernels and strides of wav2vec 2.0's convolutions, which its successors kept."""
FRAMES_PER_POSITION = 2
"""Whisper's encoder halves the spectrogram's frames."""
SPOKEN_TOKENS_PER_S = (2, 8)
"""Minimum and maximum tokens per second of speech: slow English has 100 words per minute and 1.2 tokens per word; fast
speech has 250 words per minute, and languages less covered by Whisper's vocabulary need about 2 tokens per word."""
NO_PROMPT = Readings(missing={"prefill_tokens_per_sec": f"{NOT_APPLICABLE}: the input is sound, not tokens"})


class Speech(TransformersFamily):
    """Whisper; wav2vec 2.0, HuBERT, WavLM, data2vec, UniSpeech, SEW."""

    name: Family = "speech"
    rank = 5
    modalities: tuple[Modality, ...] = ("audio",)
    without_sdpa = frozenset({"wavlm"})
    model_types = (
        TRANSCRIBING | without_sdpa | {"data2vec-audio", "hubert", "sew", "unispeech", "unispeech-sat", "wav2vec2"}
    )
    caches: tuple[str, ...] = CACHES
    quality: Mapping[str, QualityKind] = {RECOGNITION: "tokens", FEATURES: "embeddings", CLASSIFICATION: "labels"}

    def quality_kind(self, workload: Workload) -> QualityKind | None:
        """A waveform encoder transcribes by a label for each frame."""
        kind = super().quality_kind(workload)
        return "labels" if kind == "tokens" and not _transcribes(workload.config) else kind

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        """For a waveform encoder, features come first, unless it was published with another head."""
        if _transcribes(config):
            return (RECOGNITION,)
        heads = {"ForCTC": RECOGNITION, "ForSequenceClassification": CLASSIFICATION}
        head_tasks = (task for end, task in heads.items() if any(name.endswith(end) for name in architectures(config)))
        first = next(head_tasks, FEATURES)
        return (first, *(task for task in (FEATURES, RECOGNITION, CLASSIFICATION) if task != first))

    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        if _transcribes(workload.config):
            return {synthetic_inputs.AUDIO_AXIS: (window_s(workload.config),), "new_tokens": (DEFAULT_NEW_TOKENS,)}
        return {synthetic_inputs.AUDIO_AXIS: (DEFAULT_AUDIO_SECONDS,)}

    def check(self, workload: Workload, point: Point) -> str | None:
        if (problem := wrong_axes(workload, point, tuple(self.axes(workload)))) is not None:
            return problem
        seconds, config = point.axes[synthetic_inputs.AUDIO_AXIS], workload.config
        if not _transcribes(config):
            kernels = integers(config, "conv_kernel", DEFAULT_KERNELS)
            strides = integers(config, "conv_stride", DEFAULT_STRIDES)
            if len(kernels) != len(strides):
                return f"{workload.model_id} has {len(kernels)} conv_kernel and {len(strides)} conv_stride"
            minimum = synthetic_inputs.receptive_field(kernels, strides)
            if synthetic_inputs.sample_count(point) >= minimum:
                return None
            minimum_s = minimum / synthetic_inputs.SAMPLES_PER_S
            return f"{seconds} s of audio: {workload.model_id} needs at least {minimum_s} s"
        # Shorter audio is padded with silence, as Whisper does itself.
        if seconds > (window := window_s(config)):
            return f"{seconds} s of audio: {workload.model_id} takes at most {window} s per call"
        if synthetic_inputs.frame_count(point) < 1:
            return f"{seconds} s of audio: {workload.model_id} needs at least {1 / synthetic_inputs.FRAMES_PER_S} s"
        before, positions = len(prompt(config)), integer(config, "max_target_positions", 448)
        if before + (point.new_tokens or 0) > positions:
            return (
                f"{point.new_tokens} new tokens: {workload.model_id} generates at most {positions - before} "
                f"after its prompt of {before} tokens"
            )
        return None

    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        if not _transcribes(workload.config):
            return {"input_values": synthetic_inputs.waveforms(point, seed)}
        bins, frames = integer(workload.config, "num_mel_bins", 80), _frames(workload.config)
        return {"input_features": synthetic_inputs.log_mel(point, seed, bins=bins, frames=frames)}

    def recipe(self, workload: Workload) -> Recipe | str:
        if not _transcribes(workload.config):
            return Recipe(plan="forward")
        return Recipe(plan="sequence-to-sequence", start_tokens=prompt(workload.config))

    def graph_readings(self, workload: Workload, point: Point, facts: Mapping[str, Json]) -> Readings:
        audio = synthetic_inputs.audio_per_call(point)
        return audio | NO_PROMPT | _transcript_readings(point) if _transcribes(workload.config) else audio

    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        if not _transcribes(workload.config):
            return WaveformPass(model, point, floats_as(model, inputs))
        return Transcription(model, workload, point, floats_as(model, inputs), cache=str(mode.get("cache", CACHES[0])))


class WaveformPass(ForwardPass):
    """`model(input_values)`: all rows have the requested length, so there is no mask."""

    def __init__(self, model: Any, point: Point, inputs: Mapping[str, Any]) -> None:
        super().__init__(model, point, inputs)
        self._audio = synthetic_inputs.audio_per_call(point)

    def readings(self, output: Any) -> Readings:
        return self._audio


class Transcription(EncoderDecoderGeneration):
    """Whisper's transcription: the encoder over its whole window, then greedy tokens after the prompt (language, task).
    No token is suppressed, and no token ends a call."""

    def __init__(self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], cache: str) -> None:
        positions = _frames(workload.config) // FRAMES_PER_POSITION
        super().__init__(model, point, inputs, cache, prompt=prompt(workload.config), encoded_length=positions)
        self._readings = synthetic_inputs.audio_per_call(point) | NO_PROMPT | _transcript_readings(point)

    def readings(self, output: Generated) -> Readings:
        return self._readings


def prompt(config: Mapping[str, Json]) -> tuple[int, ...]:
    """The decoder's first tokens: the start token, then those forced by the configuration (language, task, no
    timestamps)."""
    forced = config.get("forced_decoder_ids")
    pairs = [pair for pair in forced if isinstance(pair, list) and len(pair) == 2] if isinstance(forced, list) else []
    ids = (number for _, number in pairs if isinstance(number, int))
    return (integer(config, "decoder_start_token_id", 50257), *ids)


def window_s(config: Mapping[str, Json]) -> float:
    """The exact seconds of audio that Whisper's encoder takes: 30 in every published model."""
    seconds = _frames(config) / synthetic_inputs.FRAMES_PER_S
    return int(seconds) if seconds == int(seconds) else seconds


def _transcript_readings(point: Point) -> Readings:
    """Why there is no real-time factor, if a call generates fewer or more tokens than speech of that length has."""
    seconds, tokens = point.axes[synthetic_inputs.AUDIO_AXIS], point.new_tokens or 0
    least, most = (max(1, round(seconds * rate)) for rate in SPOKEN_TOKENS_PER_S)
    if least <= tokens <= most:
        return Readings()
    why = f"{tokens} new tokens cannot be a transcript of {seconds:g} s of speech: use --new-tokens {least} to {most}"
    return Readings(missing={"real_time_factor": f"{NOT_APPLICABLE}: {why}"})


def _transcribes(config: Mapping[str, Json]) -> bool:
    return config.get("model_type") in TRANSCRIBING


def _frames(config: Mapping[str, Json]) -> int:
    return FRAMES_PER_POSITION * integer(config, "max_source_positions", 1500)


PLUGIN = Speech()
