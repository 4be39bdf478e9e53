"""Sound as speech models take it: seeded waveforms and spectrograms, and how much of it a model can be given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarking.records import Point, Readings

if TYPE_CHECKING:
    import numpy as np

AXIS = "audio_seconds"
SAMPLES_PER_S = 16_000
"""The rate every speech model here was trained at."""
FRAMES_PER_S = 100
"""Columns of a log-mel spectrogram: a window moves on by 10 ms."""

SYLLABLES_PER_S = 4.0
LOUDEST, SILENCE = 1.4, -0.6
"""Bounds of log-mel values as Whisper scales them: (log10 of the power + 4) / 4, cut 8 decades below the loudest."""


def waveforms(point: Point, seed: int) -> np.ndarray:
    """Noise that swells and fades in syllables, float32 of shape (batch size, samples), each row of mean 0 and variance
    1 as processors make it. The same seed and point give the same."""
    import numpy as np

    samples = sample_count(point)
    generator = np.random.default_rng([seed, point.batch_size, samples])
    waves = generator.standard_normal((point.batch_size, samples), dtype=np.float32)
    phases = 2 * np.pi * generator.random((point.batch_size, 1))
    waves *= 1.1 + np.sin(phases + 2 * np.pi * SYLLABLES_PER_S / SAMPLES_PER_S * np.arange(samples))
    waves -= waves.mean(axis=1, keepdims=True)
    waves /= waves.std(axis=1, keepdims=True)
    return waves


def log_mel(point: Point, seed: int, *, bins: int, frames: int) -> np.ndarray:
    """Spectrograms on Whisper's scale, float32 of shape (batch size, bins, frames), silent after the point's audio: a
    shorter recording is filled up with silence. The same seed and point give the same."""
    import numpy as np

    heard = frame_count(point)
    generator = np.random.default_rng([seed, point.batch_size, heard])
    values = np.full((point.batch_size, bins, frames), SILENCE, dtype=np.float32)
    values[:, :, :heard] = generator.normal(0.0, 0.4, (point.batch_size, bins, heard)).clip(SILENCE, LOUDEST)
    return values


def sample_count(point: Point) -> int:
    """Samples of each row's audio."""
    return round(point.axes[AXIS] * SAMPLES_PER_S)


def frame_count(point: Point) -> int:
    """Spectrogram columns of each row's audio."""
    return round(point.axes[AXIS] * FRAMES_PER_S)


def receptive_field(kernels: Sequence[int], strides: Sequence[int]) -> int:
    """Samples that a stack of convolutions without padding needs for one value: 1 + sum of (kernel - 1) times the
    strides before it."""
    field, jump = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        field += (kernel - 1) * jump
        jump *= stride
    return field


def audio_per_call(point: Point) -> Readings:
    """Seconds of audio in a call, all rows together: what the real-time factor is computed from."""
    return Readings(values={"audio_seconds_per_call": point.batch_size * point.axes[AXIS]})
