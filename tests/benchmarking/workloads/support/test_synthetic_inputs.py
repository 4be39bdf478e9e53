"""Synthetic inputs, and points that are refused before anything runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarking.core.errors import UsageError
from benchmarking.core.records import Point
from benchmarking.workloads.support import synthetic_inputs
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve
from benchmarking.workloads.support.synthetic_inputs import placeholder_ids, special_ids, token_ids, vocabulary_size


def workload_of(name, **options):
    return resolve(name, weights="random", **options)


def check(name, task=None, **point):
    workload = workload_of(name, task=task)
    return family_of(workload.config, name).check(workload, Point(**point))


def test_ids_are_seeded_and_of_the_requested_length():
    workload, point = workload_of("gpt2"), Point(batch_size=3, sequence_length=17)
    ids = token_ids(workload, point, seed=5)
    assert ids.shape == (3, 17)
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(ids, token_ids(workload, point, seed=5))
    assert (ids != token_ids(workload, point, seed=6)).any()


def test_ids_avoid_special_ids_and_the_ends_of_the_vocabulary():
    workload = replace(workload_of("tiny-bert"), vocab_size=40, config={"pad_token_id": 7, "eos_token_id": [8, 9]})
    ids = token_ids(workload, Point(batch_size=10, sequence_length=500), seed=0)
    assert set(np.unique(ids)) == set(range(2, 38)) - {7, 8, 9}


def test_special_ids_are_read_from_every_key_that_names_one():
    config = {"pad_token_id": 1, "eos_token_id": [2, 3], "bos_token_id": None, "n_token_ids": 5, "use_token_id": True}
    assert special_ids(replace(workload_of("tiny-bert"), config=config)) == [1, 2, 3]


def test_a_model_without_vocabulary_or_a_point_without_length_is_refused():
    workload = workload_of("tiny-bert")
    with pytest.raises(UsageError, match="no vocab_size"):
        token_ids(replace(workload, vocab_size=None), Point(batch_size=1, sequence_length=4), 0)
    with pytest.raises(UsageError, match="needs a sequence length"):
        token_ids(workload, Point(batch_size=1), 0)


@pytest.mark.parametrize(
    ("name", "length"), [("bert-base-uncased", 512), ("roberta-base", 512), ("facebook/bart-base", 1024)]
)
def test_the_longest_sequence_fits_and_one_more_does_not(name, length):
    new = {"new_tokens": 4} if name == "facebook/bart-base" else {}
    assert check(name, batch_size=1, sequence_length=length, **new) is None
    reason = check(name, batch_size=1, sequence_length=length + 1, **new)
    assert reason == f"sequence length {length + 1}: {name} takes at most {length}"


def test_new_tokens_share_a_decoders_positions():
    assert check("gpt2", batch_size=1, sequence_length=1000, new_tokens=24) is None
    reason = check("gpt2", batch_size=1, sequence_length=1000, new_tokens=25)
    assert reason == "sequence length 1000 and 25 new tokens are 1025 tokens: gpt2 takes at most 1024"


def test_new_tokens_have_their_own_positions_in_an_encoder_decoder():
    assert check("facebook/bart-base", batch_size=1, sequence_length=1024, new_tokens=1024) is None
    reason = check("facebook/bart-base", batch_size=1, sequence_length=8, new_tokens=1025)
    assert reason == "1025 new tokens: facebook/bart-base generates at most 1024"
    assert check("t5-small", batch_size=1, sequence_length=100_000, new_tokens=5000) is None


def test_a_decoder_for_features_has_the_whole_length():
    assert check("gpt2", task="feature-extraction", batch_size=1, sequence_length=1024) is None


def test_foreign_axes_are_refused():
    assert "does not generate" in check("tiny-bert", batch_size=1, sequence_length=8, new_tokens=4)
    assert "missing number of new tokens" in check("tiny-gpt2", batch_size=1, sequence_length=8)
    assert "missing sequence length" in check("tiny-bert", batch_size=1)
    foreign = check("tiny-bert", batch_size=1, sequence_length=8, axes={"image_size": 224})
    assert foreign.endswith("has no image size; its grid is batch size, sequence length")


def test_placeholders_are_the_ids_of_pictures_video_and_sound():
    config = {"image_token_index": 5, "video_token_id": 6, "vision_start_token_id": 7, "audio_token_id": 8}
    config |= {"pad_token_id": 1, "eos_token_id": [2, 3], "image_size": 9, "image_token_id": None}
    assert placeholder_ids(replace(workload_of("tiny-bert"), config=config)) == [5, 6, 7, 8]


def test_the_vocabulary_may_be_that_of_a_text_model_inside():
    nested = replace(workload_of("tiny-bert"), vocab_size=None, config={"text_config": {"vocab_size": 77}})
    assert vocabulary_size(workload_of("tiny-bert")) == 1024
    assert vocabulary_size(nested) == 77
    assert vocabulary_size(replace(nested, config={})) is None


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


def test_sound_has_the_requested_length_and_stays_in_range():
    waves = synthetic_inputs.sounds(2, seconds=0.5, rate_hz=16_000, seed=0)
    assert [(w.shape, w.dtype) for w in waves] == [((8_000,), np.float32)] * 2
    assert all(0.1 < np.abs(w).max() <= 1 for w in waves)
    assert (waves[0] != waves[1]).any()
    assert (waves[0] == synthetic_inputs.sounds(2, seconds=0.5, rate_hz=16_000, seed=0)[0]).all()
    assert (waves[0] != synthetic_inputs.sounds(2, seconds=0.5, rate_hz=16_000, seed=7)[0]).any()


def test_sound_is_speech_at_any_rate_and_goes_round():
    (wave,) = synthetic_inputs.sounds(1, seconds=60.0, rate_hz=16_000, seed=0)
    power = np.abs(np.fft.rfft(wave)) ** 2  # a minute long: 60 bins a hertz
    assert power[60 * 80 : 60 * 3_000].sum() > 0.9 * power.sum()
    loudness = np.abs(wave).reshape(-1, 1_600).mean(axis=1)  # of tenths of a second: words and pauses between them
    assert (loudness < 0.2 * loudness.max()).mean() > 0.1
    assert loudness[-50:].max() > 0.5 * loudness.max()  # after the recording's 33 seconds it begins again
    (coarse,) = synthetic_inputs.sounds(1, seconds=60.0, rate_hz=8_000, seed=0)
    assert np.abs(wave[::2] - coarse).max() < 1e-3
