"""Pictures and sound that processors are fed with."""

from __future__ import annotations

import numpy as np

from benchmarking.workloads.support import synthetic_inputs


def test_pictures_are_seeded_and_no_two_are_alike():
    first, again = synthetic_inputs.photos(2, seed=3), synthetic_inputs.photos(2, seed=3)
    assert [(p.shape, p.dtype) for p in first] == [((480, 640, 3), np.uint8)] * 2
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[0] != first[1]).any()
    assert (first[0] != synthetic_inputs.photos(2, seed=4)[0]).any()


def test_pictures_are_smooth_but_not_flat():
    (picture,) = synthetic_inputs.photos(1, seed=0)
    values = picture.astype(float)
    assert values.std() > 30
    assert np.abs(np.diff(values, axis=1)).mean() < 20  # neighbours differ by the grain, not by the patches


def test_sound_has_the_asked_length_and_stays_in_range():
    waves = synthetic_inputs.sounds(2, seconds=0.5, rate_hz=16_000, seed=0)
    assert [(w.shape, w.dtype) for w in waves] == [((8_000,), np.float32)] * 2
    assert all(np.abs(w).max() == np.float32(synthetic_inputs.LOUDNESS) for w in waves)
    assert (waves[0] != waves[1]).any()
    assert (waves[0] == synthetic_inputs.sounds(2, seconds=0.5, rate_hz=16_000, seed=0)[0]).all()


def test_sound_has_its_power_where_voices_have():
    (wave,) = synthetic_inputs.sounds(1, seconds=1.0, rate_hz=16_000, seed=0)
    power = np.abs(np.fft.rfft(wave)) ** 2
    assert power[80:2_500].sum() > 0.9 * power.sum()  # a second long: one hertz a bin
