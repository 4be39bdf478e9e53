"""Pictures and sound that look and sound like some: what processors turn into inputs. Seeded, not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

PHOTO_SIZE = (640, 480)
"""Width and height in pixels: a photo of the sets that vision models are trained on (COCO's median)."""
PHOTO_SOURCE = f"seeded photo-like pictures of {PHOTO_SIZE[0]} x {PHOTO_SIZE[1]} pixels"
SOUND_SOURCE = "seeded speech-like sound"

PATCH_PIXELS = 32
GRAIN = 8.0
VOICE_HZ = 120.0
HARMONICS = 12
SYLLABLES_PER_S = 4.0
LOUDNESS = 0.3


def photos(count: int, seed: int) -> list[np.ndarray]:
    """Pictures as uint8 arrays of height x width x 3: soft patches of colour under fine grain, no two alike."""
    import numpy as np

    generator = np.random.default_rng([seed, count])
    width, height = PHOTO_SIZE
    pictures = []
    for _ in range(count):
        coarse = generator.uniform(0, 255, (height // PATCH_PIXELS + 1, width // PATCH_PIXELS + 1, 3))
        grain = generator.normal(0, GRAIN, (height, width, 3))
        pictures.append(np.clip(_smooth(coarse, height, width) + grain, 0, 255).astype(np.uint8))
    return pictures


def sounds(count: int, seconds: float, rate_hz: int, seed: int) -> list[np.ndarray]:
    """Mono sound as float32 arrays between -1 and 1: a voice's harmonics in syllables, with some noise."""
    import numpy as np

    generator = np.random.default_rng([seed, count])
    time_s = np.arange(round(seconds * rate_hz)) / rate_hz
    waves = []
    for _ in range(count):
        pitch_hz = VOICE_HZ * generator.uniform(0.8, 1.6)
        voice = sum(
            np.sin(2 * np.pi * pitch_hz * n * time_s + generator.uniform(0, 6)) / n for n in range(1, HARMONICS)
        )
        syllables = 0.5 * (1 + np.sin(2 * np.pi * SYLLABLES_PER_S * time_s + generator.uniform(0, 6)))
        wave = voice * syllables + generator.normal(0, 0.05, len(time_s))
        waves.append((LOUDNESS * wave / np.abs(wave).max()).astype(np.float32))
    return waves


def _smooth(coarse: np.ndarray, height: int, width: int) -> np.ndarray:
    """The coarse picture stretched over the full size, colours running into each other (bilinear)."""
    import numpy as np

    rows = np.linspace(0, coarse.shape[0] - 1.001, height)
    columns = np.linspace(0, coarse.shape[1] - 1.001, width)
    top, left = rows.astype(int), columns.astype(int)
    down, right = (rows - top)[:, None, None], (columns - left)[None, :, None]
    upper = coarse[top][:, left] * (1 - right) + coarse[top][:, left + 1] * right
    lower = coarse[top + 1][:, left] * (1 - right) + coarse[top + 1][:, left + 1] * right
    blended: np.ndarray = upper * (1 - down) + lower * down
    return blended
