"""Speech: transcriptions equal to the library's, waveform encoders, and accepted audio lengths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarking.core.records import Device, Point, Readings
from benchmarking.runtimes.eager import PLUGIN as EAGER
from benchmarking.workloads.speech import CLASSIFICATION, FEATURES, PLUGIN, RECOGNITION, TRANSCRIBING, prompt, window_s
from benchmarking.workloads.support import families, synthetic_inputs
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve

PUBLISHED = {
    "openai/whisper-tiny": 37_760_640,
    "openai/whisper-base": 72_593_920,
    "facebook/wav2vec2-base": 94_371_712,
    "facebook/hubert-base-ls960": 94_371_712,
    "tiny-whisper": 271_104,
}
CPU = Device(type="cpu", selector="cpu", found=True, precisions=("float32",))
WHISPER = {**families.catalog_entry("tiny-whisper").config, "num_mel_bins": 16}
ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "conv_dim": [16, 16],
    "conv_kernel": [10, 3],
    "conv_stride": [5, 2],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "conv_pos_kernel_size": 3,
    "classifier_proj_size": 8,
}
ENCODERS = sorted(PLUGIN.model_types - TRANSCRIBING)


def encoder(model_type, **config):
    return {"model_type": model_type, **ENCODER, **config}


def heard(seconds, batch_size=3, new_tokens=None):
    return Point(batch_size=batch_size, new_tokens=new_tokens, axes={"audio_seconds": seconds})


@pytest.fixture(scope="module")
def whisper(small_model):
    return small_model(PLUGIN, WHISPER, deviation=0.3)


def test_catalog_has_the_published_models_and_a_tiny_one():
    entries = [entry for entry in families.catalog_entries() if family_of(entry.config, entry.name) is PLUGIN]
    assert {entry.name: entry.parameter_count for entry in entries} == PUBLISHED


@pytest.mark.parametrize(
    ("name", "task", "axes"),
    [
        ("openai/whisper-tiny", RECOGNITION, {"audio_seconds": (30,), "new_tokens": (16,)}),
        ("facebook/wav2vec2-base", FEATURES, {"audio_seconds": (10,)}),
        ("facebook/hubert-base-ls960", FEATURES, {"audio_seconds": (10,)}),
        ("tiny-whisper", RECOGNITION, {"audio_seconds": (2,), "new_tokens": (16,)}),
    ],
)
def test_grid_is_seconds_of_audio_and_tokens_where_they_are_written(name, task, axes):
    workload = resolve(name, weights="random")
    assert (workload.task, PLUGIN.axes(workload)) == (task, axes)


def test_window_of_half_seconds_stays_a_fraction():
    assert window_s({"max_source_positions": 1500}) == 30
    assert window_s({"max_source_positions": 75}) == 1.5


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("seconds", [2, 0.7])
def test_transcriptions_equal_those_of_transformers_generate(whisper, cache, seconds):
    point, marks = heard(seconds, new_tokens=9), []
    operation = whisper.operation(point, cache=cache)
    output = whisper.run(operation, marks)
    expected = whisper.model.generate(
        **whisper.inputs(point),
        decoder_input_ids=torch.tensor([[1001, 1002, 1003, 1004]] * 3),
        do_sample=False,
        min_new_tokens=9,
        max_new_tokens=9,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        eos_token_id=1025,  # a token never generated: no stop, none suppressed
    )
    tokens = np.array(output.tokens)
    assert len(np.unique(tokens)) > 5, "a model that repeats itself proves nothing"
    assert tokens.tolist() == expected[:, -9:].tolist()
    assert marks == ["encode"] + ["token"] * 9
    assert operation.problem(output) is None


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_transcription_work_is_counted_and_calls_are_independent(whisper, cache):
    operation = whisper.operation(heard(1.5, new_tokens=5), cache=cache)
    first, second = whisper.run(operation), whisper.run(operation)
    torch.testing.assert_close(first.last_logits, second.last_logits, rtol=0, atol=0)
    assert (operation.items_per_call, operation.tokens_per_call, operation.new_tokens) == (3, 15, 5)
    assert operation.prompt_tokens_per_call is None
    assert operation.readings(first) == Readings(
        values={"audio_seconds_per_call": 4.5},
        missing={"prefill_tokens_per_sec": "not_applicable: the input is sound, not tokens"},
    )


def test_decoder_begins_with_what_the_configuration_forces():
    assert prompt(resolve("openai/whisper-tiny", weights="random").config) == (50258, 50259, 50359, 50363)
    assert prompt({"decoder_start_token_id": 7, "forced_decoder_ids": [[1, None], [2, 9]]}) == (7, 9)
    assert prompt({"decoder_start_token_id": 7}) == (7,)
    assert prompt({"decoder_start_token_id": 7, "forced_decoder_ids": None}) == (7,)


@pytest.mark.parametrize(
    ("name", "point", "why"),
    [
        ("openai/whisper-tiny", heard(30, new_tokens=444), None),
        ("openai/whisper-tiny", heard(60, new_tokens=4), "60 s of audio: openai/whisper-tiny takes at most 30 s"),
        ("openai/whisper-tiny", heard(0.004, new_tokens=4), "openai/whisper-tiny needs at least 0.01 s"),
        (
            "openai/whisper-tiny",
            heard(30, new_tokens=445),
            "445 new tokens: openai/whisper-tiny generates at most 444 after its prompt",
        ),
        ("openai/whisper-tiny", heard(30), "missing number of new tokens"),
        ("facebook/wav2vec2-base", heard(0.025), None),
        ("facebook/wav2vec2-base", heard(0.0249), "0.0249 s of audio: facebook/wav2vec2-base needs at least 0.025 s"),
        ("facebook/wav2vec2-base", heard(3600), None),
        ("facebook/wav2vec2-base", heard(10, new_tokens=4), "does not generate"),
        ("facebook/wav2vec2-base", Point(batch_size=1, sequence_length=8), "missing length of audio"),
    ],
)
def test_audio_lengths_accepted_by_published_models(name, point, why):
    found = PLUGIN.check(resolve(name, weights="random"), point)
    assert found is None if why is None else why in found


def test_receptive_field_is_summed_over_layers():
    # wav2vec 2.0: 1 + 9 + 2 * 5 + 2 * 10 + 2 * 20 + 2 * 40 + 1 * 80 + 1 * 160 = 400 samples, 25 ms
    assert synthetic_inputs.receptive_field((10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)) == 400
    assert synthetic_inputs.receptive_field((4,), (2,)) == 4
    assert synthetic_inputs.receptive_field((), ()) == 1


@pytest.mark.parametrize("model_type", ENCODERS)
@pytest.mark.parametrize("task", [FEATURES, RECOGNITION, CLASSIFICATION])
def test_every_encoder_runs_every_task_in_one_pass(small_model, model_type, task):
    small = small_model(PLUGIN, encoder(model_type), task)
    operation, marks = small.operation(heard(0.25)), []
    output = small.run(operation, marks)
    assert operation.problem(output) is None
    assert marks == []
    (array,) = operation.arrays(output).values()
    # 4000 samples: (4000 - 10) // 5 + 1 = 799 values, then (799 - 3) // 2 + 1 = 399
    frames = {FEATURES: (399, 32), RECOGNITION: (399, 32), CLASSIFICATION: (2,)}[task]
    assert array.shape == (3, *frames)
    assert (operation.items_per_call, operation.tokens_per_call, operation.new_tokens) == (3, None, None)
    assert operation.readings(output).values == {"audio_seconds_per_call": 0.75}


def test_refused_short_inputs_fail_in_the_library_too(small_model):
    small = small_model(PLUGIN, encoder("wav2vec2"))
    assert PLUGIN.check(small.workload, heard(20 / 16_000)) is None
    assert "needs at least 0.00125 s" in PLUGIN.check(small.workload, heard(19 / 16_000))
    with torch.inference_mode():
        assert small.model(torch.zeros(1, 20)).last_hidden_state.shape[1] == 1
        with pytest.raises(RuntimeError):
            small.model(torch.zeros(1, 19))


@pytest.mark.parametrize(
    ("architecture", "tasks", "model_class"),
    [
        ("Wav2Vec2ForPreTraining", (FEATURES, RECOGNITION, CLASSIFICATION), "Wav2Vec2Model"),
        ("Wav2Vec2ForCTC", (RECOGNITION, FEATURES, CLASSIFICATION), "Wav2Vec2ForCTC"),
        (
            "Wav2Vec2ForSequenceClassification",
            (CLASSIFICATION, FEATURES, RECOGNITION),
            "Wav2Vec2ForSequenceClassification",
        ),
    ],
)
def test_default_task_is_what_the_encoder_was_published_for(small_model, architecture, tasks, model_class):
    config = encoder("wav2vec2", architectures=[architecture])
    assert PLUGIN.tasks_of(config) == tasks
    assert type(small_model(PLUGIN, config).model).__name__ == model_class


def test_only_generation_has_a_cache():
    whisper, ctc = (
        resolve(name, weights="random", task=RECOGNITION) for name in ("tiny-whisper", "facebook/wav2vec2-base")
    )
    assert EAGER.mode(CPU, whisper, {"cache": "static"}) == {"attention": "sdpa", "cache": "static"}
    assert EAGER.mode(CPU, ctc, {}) == {"attention": "sdpa"}


def test_waveforms_have_mean_0_and_variance_1_and_swell_and_fade():
    waves = synthetic_inputs.waveforms(heard(2, batch_size=2), seed=5)
    assert (waves.shape, waves.dtype) == ((2, 32_000), np.float32)
    np.testing.assert_allclose(waves.mean(axis=1), 0, atol=1e-4)
    np.testing.assert_allclose(waves.std(axis=1), 1, rtol=1e-4)
    loudness = waves.reshape(2, 32, 1000).std(axis=2)  # 16 times a second
    assert (loudness.max(axis=1) > 3 * loudness.min(axis=1)).all()


def test_shorter_audio_is_filled_up_with_silence():
    values = synthetic_inputs.log_mel(heard(0.25), seed=5, bins=16, frames=200)
    assert (values.shape, values.dtype) == ((3, 16, 200), np.float32)
    assert (values[:, :, 25:] == np.float32(synthetic_inputs.SILENCE)).all()
    assert values[:, :, :25].std() > 0.3
    assert values.min() >= np.float32(synthetic_inputs.SILENCE)
    assert values.max() <= np.float32(synthetic_inputs.LOUDEST)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sound_follows_the_models_dtype(small_model, dtype):
    writer = small_model(PLUGIN, WHISPER, dtype=dtype)
    operation = writer.operation(heard(2, new_tokens=2))
    assert writer.run(operation).last_logits.dtype == getattr(torch, dtype)
    listener = small_model(PLUGIN, encoder("wav2vec2"), dtype=dtype, deviation=0.02)
    operation = listener.operation(heard(0.25))
    assert operation.problem(listener.run(operation)) is None


@pytest.mark.parametrize(
    ("audio_seconds", "new_tokens", "why"),
    [
        (30, 60, None),
        (30, 240, None),
        (30, 16, "16 new tokens cannot be a transcript of 30 s of speech: use --new-tokens 60 to 240"),
        (1, 9, "9 new tokens cannot be a transcript of 1 s of speech: use --new-tokens 2 to 8"),
    ],
)
def test_real_time_factor_needs_a_plausible_number_of_tokens(audio_seconds, new_tokens, why):
    workload, point = resolve("openai/whisper-tiny", weights="random"), heard(audio_seconds, new_tokens=new_tokens)
    missing = PLUGIN.graph_readings(workload, point, {}).missing
    assert missing.get("real_time_factor") == (why and f"not_applicable: {why}")
    encoder = resolve("facebook/wav2vec2-base", weights="random")
    assert "real_time_factor" not in PLUGIN.graph_readings(encoder, heard(audio_seconds), {}).missing
