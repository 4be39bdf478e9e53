"""A point's minimum memory, computed by hand, and the handling of points that need too much."""

from __future__ import annotations

import dataclasses
import json
import struct

import pytest

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Cell, Device, Point, Readings
from benchmarking.workloads.support import footprint
from benchmarking.workloads.support.footprint import (
    Fit,
    activation_bytes,
    cache_values,
    pixels,
    sound_values,
    text_of,
    vision_of,
)
from benchmarking.workloads.support.resolve import resolve

CPU = Device(type="cpu", selector="cpu", found=True, precisions=("float32",))
DECODER = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "vocab_size": 100,
}
TEXT = text_of(DECODER, "decoder-only")
GENERATE = Point(batch_size=2, sequence_length=4, new_tokens=3)


def cell(config, family="decoder-only", task="text-generation", precision="float32", attention="sdpa", **fields):
    workload = dataclasses.replace(resolve("tiny-gpt2"), config=config, family=family, task=task, **fields)
    mode = {"attention": attention}
    return Cell(
        workload=workload, device=CPU, requested_device="cpu", runtime="eager", runtime_mode=mode, precision=precision
    )


@pytest.fixture
def free(monkeypatch):
    """A function that sets the free memory of the device and the host."""

    def set_bytes(device, host=10**15):
        answer = device if isinstance(device, Readings) else Readings(values={"free_memory_bytes": device})
        monkeypatch.setattr(footprint, "free_memory", lambda device: answer)
        monkeypatch.setattr(footprint, "free_host_bytes", lambda: host)

    return set_bytes


def test_grouped_queries_share_keys_and_values():
    assert (TEXT.heads, TEXT.key_value_heads, TEXT.head_size, TEXT.cached_layers) == (2, 1, 4, 2)


def test_cache_is_keys_and_values_of_every_layer_and_token():
    # 2 (keys, values) x 2 layers x 2 sequences x 1 head of 4 values = 32 a token
    assert cache_values(TEXT, 2, 4, 0) == 32 * 4
    assert cache_values(TEXT, 2, 4, 2) == 32 * 6


def test_attention_window_limits_the_cache():
    assert cache_values(dataclasses.replace(TEXT, window=5), 2, 4, 2) == 32 * 5


@pytest.mark.parametrize(
    ("vocabulary", "values"),
    [
        (100, 448),  # the prompt's last layer: 32 x 4 of cache + 2 x 4 x (8 + 32); the last step has 32 x 6 + 2 x 100
        (1000, 2192),  # the last step: 32 x 6 of cache + 2 x 1000 logits
    ],
)
def test_generation_memory_is_the_larger_of_prefill_and_last_step(vocabulary, values):
    config = {**DECODER, "vocab_size": vocabulary}
    assert activation_bytes(cell(config), GENERATE) == 4 * values
    assert activation_bytes(cell(config, precision="float16"), GENERATE) == 2 * values
    assert activation_bytes(cell(config, precision="int4"), GENERATE) == 2 * values


@pytest.mark.parametrize(
    ("mode", "cache_bytes"),
    [({}, 2), ({"kv_cache_type": "f32"}, 4), ({"kv_cache_type": "q8_0"}, 1), ({"kv_cache_type": "q4_0"}, 0.5)],
)
def test_an_engine_holds_one_token_at_a_time_and_a_cache_of_its_own_type(mode, cache_bytes):
    engine = dataclasses.replace(cell(DECODER), runtime="llamacpp", runtime_mode=mode)
    # 32 x 60_002 of cache; 2 x 100 logits
    long = Point(batch_size=2, sequence_length=60_000, new_tokens=3)
    assert activation_bytes(engine, long) == 32 * 60_002 * cache_bytes + 4 * 200


def test_an_engines_refusal_names_the_type_of_its_cache(free):
    free(10**6)
    engine = dataclasses.replace(cell(DECODER, parameter_count=1), runtime="llamacpp", runtime_mode={})
    assert "use a lower precision, a smaller --kv-cache-type, a smaller model" in Fit.of(engine).why_not(
        Point(batch_size=2, sequence_length=60_000, new_tokens=3)
    )


def test_last_new_token_is_not_processed():
    point = dataclasses.replace(GENERATE, new_tokens=1)
    assert activation_bytes(cell({**DECODER, "vocab_size": 1000}), point) == 4 * (32 * 4 + 2 * 1000)


def test_eager_attention_holds_scores_twice():
    point = Point(batch_size=2, sequence_length=64)
    encoder = {**DECODER, "model_type": "bert"}
    plain = cell(encoder, "encoder-only", "feature-extraction")
    scored = cell(encoder, "encoder-only", "feature-extraction", attention="eager")
    assert activation_bytes(plain, point) == 4 * 2 * 64 * (8 + 32)
    assert activation_bytes(scored, point) == 4 * 2 * (64 * 8 + 2 * 2 * 64**2)


def test_filling_masks_has_logits_for_every_token():
    point = Point(batch_size=2, sequence_length=64)
    assert activation_bytes(cell(DECODER, "encoder-only", "fill-mask"), point) == 4 * 2 * 64 * 100


def test_encoder_decoder_caches_the_prompt_in_its_decoder_only():
    config = {**DECODER, "is_encoder_decoder": True, "decoder_layers": 3, "vocab_size": 1000}
    # 2 x 3 layers x 2 sequences x 1 head of 4 = 48 a token: 4 of the prompt, 3 of the decoder's own
    assert activation_bytes(cell(config, "encoder-decoder"), GENERATE) == 4 * (48 * 7 + 2 * 1000)


def test_experts_share_the_tokens():
    config = {**DECODER, "num_local_experts": 4}
    assert activation_bytes(cell(config, "mixture-of-experts"), GENERATE) == 4 * (32 * 6 + 2 * 100)


def test_a_state_does_not_grow_with_the_text():
    text = text_of({**DECODER, "num_heads": 24, "head_dim": 64}, "state-space")
    assert cache_values(text, 2, 4, 2) == 0


def test_image_memory_is_inputs_plus_patches():
    config = {"hidden_size": 8, "intermediate_size": 32, "patch_size": 16, "num_channels": 3}
    point = Point(batch_size=2, axes={"image_size": 64})
    assert activation_bytes(cell(config, "vision", "image-classification"), point) == (
        4 * 2 * (3 * 64**2 + 4**2 * (8 + 32))
    )


def test_text_and_pictures_are_not_in_memory_at_the_same_time():
    vision = {"hidden_size": 8, "intermediate_size": 32, "patch_size": 16}
    config = {"text_config": DECODER, "vision_config": vision}
    point = Point(batch_size=2, sequence_length=4, axes={"image_size": 64})
    assert activation_bytes(cell(config, "vision-text", "feature-extraction"), point) == (
        4 * 2 * (3 * 64**2 + 4**2 * (8 + 32))
    )


def test_latents_are_an_eighth_of_the_image_per_side():
    assert pixels({"_class_name": "UNet2DConditionModel", "in_channels": 4}, 512) == 4 * 64**2
    assert pixels({}, 32) == 3 * 32**2


def test_audio_memory_is_input_plus_first_convolution():
    assert sound_values({"conv_dim": [512, 512], "conv_stride": [5, 2]}, 1.0) == 16_000 + 512 * 3_200
    assert sound_values({}, 0.5) == 8_000
    assert activation_bytes(cell({}, "speech", "x"), Point(batch_size=2, axes={"audio_seconds": 0.5})) == 4 * 16_000


def test_empty_configuration_has_no_footprint():
    assert activation_bytes(cell({}), GENERATE) == 0
    assert (text_of({}, None), vision_of({})) == (None, None)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("bert-base-uncased", (768, 3072, 12, 12, 64, 12, 30522, None, False)),
        ("distilbert-base-uncased", (768, 3072, 12, 12, 64, 6, 30522, None, False)),
        ("gpt2", (768, 0, 12, 12, 64, 12, 50257, None, False)),  # its 4 x 768 are not in the configuration
        ("facebook/opt-125m", (768, 3072, 12, 12, 64, 12, 50272, None, False)),
        ("Qwen/Qwen2.5-0.5B", (896, 4864, 14, 2, 64, 24, 151936, None, False)),
        ("meta-llama/Llama-3.2-1B", (2048, 8192, 32, 8, 64, 16, 128256, None, False)),
        ("t5-small", (512, 2048, 8, 8, 64, 6, 32128, None, True)),
        ("facebook/mbart-large-50", (1024, 4096, 16, 16, 64, 12, 250054, None, True)),
    ],
)
def test_dimensions_are_read_under_any_key(name, wanted):
    workload = resolve(name, weights="random")
    assert dataclasses.astuple(text_of(workload.config, workload.family)) == wanted


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"multi_query": True}, "key_value_heads", 1),
        ({"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 8}, "key_value_heads", 1),
        ({"sliding_window": 16}, "window", 16),
        ({"sliding_window": 16, "use_sliding_window": False}, "window", None),
        ({"num_experts": 8}, "intermediate", 0),
        ({"head_dim": 5}, "head_size", 5),
    ],
)
def test_dimensions_of_special_models(config, field, value):
    assert getattr(text_of({**DECODER, **config}, "decoder-only"), field) == value


def test_stages_of_several_widths_have_no_patch_sequence():
    assert vision_of({"hidden_size": 768, "depths": [2, 2], "patch_size": 4, "image_size": 224}).patch == 0


@pytest.mark.parametrize(
    ("precision", "weights_bytes"), [("float32", 400), ("bfloat16", 200), ("int8", 100), ("int4", 50)]
)
def test_weights_are_counted_at_the_precision(free, precision, weights_bytes):
    free(10**9)
    assert Fit.of(cell(DECODER, precision=precision, parameter_count=100)).weights_bytes == weights_bytes


def test_a_point_fits_up_to_the_last_byte(free):
    needed = 400 + 4 * 448
    free(needed)
    assert Fit.of(cell(DECODER, parameter_count=100)).why_not(GENERATE) is None
    free(needed - 1)
    assert Fit.of(cell(DECODER, parameter_count=100)).why_not(GENERATE) is not None


def test_a_refusal_gives_the_figures_and_what_to_do(free):
    free(22_100_000_000)
    # 4 bytes x (2 x 32 layers x 8 heads of 128 x 16384 tokens of cache + 16384 x (4096 + 0)) = 4.6 GB at the prompt
    mixtral = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "vocab_size": 32000,
    }
    fit = Fit.of(cell(mixtral, "mixture-of-experts", parameter_count=46_702_792_704, model_id="mixtral"))
    assert fit.why_not(Point(batch_size=1, sequence_length=16_384, new_tokens=16)) == (
        "mixtral needs 186.8 GB for weights + 4.6 GB for b1 s16384 n16 at float32, 22.1 GB free on cpu: use a lower "
        "precision, a smaller model"
    )


def test_small_points_fit_where_big_ones_do_not(free):
    free(400 + 4 * 448)
    points = [GENERATE, dataclasses.replace(GENERATE, batch_size=4)]
    fit = Fit.of(cell(DECODER, parameter_count=100))
    assert list(fit.unfit_points(points, may_skip=True)) == ["b4 s4 n3"]
    with pytest.raises(UnsupportedError, match=r"for weights \+ 0\.0 MB for b4 s4 n3"):
        fit.unfit_points(points, may_skip=False)


def test_random_weights_are_made_on_the_host_first(free):
    free(10**12, host=300)
    assert "which are filled in host memory, at float32, 0.0 MB free on the host" in (
        Fit.of(cell(DECODER, parameter_count=100)).why_not(GENERATE)
    )
    pretrained = cell(DECODER, parameter_count=100, weights="pretrained")
    assert Fit.of(pretrained).why_not(GENERATE) is None


def test_total_memory_is_the_limit_if_free_memory_is_unknown(free):
    free(Readings(values={"device_memory_bytes": 1000}, missing={"free_memory_bytes": "not_supported: x"}))
    why_not = Fit.of(cell(DECODER, parameter_count=1_000_000_000)).why_not(GENERATE)
    assert "4.0 GB for weights + 0.0 MB for b2 s4 n3 at float32, 0.0 MB in all on cpu: use" in why_not


def test_unknown_facts_are_not_checked_and_their_reason_is_kept(free):
    free(1)
    unknown = Fit.of(cell(DECODER, parameter_count=None))
    assert unknown.why_not(GENERATE) is None
    assert unknown.readings.values == {"free_memory_bytes": 1}
    assert unknown.readings.missing["weights_needed_bytes"].startswith(
        "not_supported: the number of parameters of tiny-gpt2"
    )
    free(Readings(missing={"free_memory_bytes": "not_supported: it does not tell"}))
    fit = Fit.of(cell(DECODER, parameter_count=100))
    assert fit.why_not(GENERATE) is None
    assert fit.readings.values == {"weights_needed_bytes": 400}
    assert fit.readings.missing == {"free_memory_bytes": "not_supported: it does not tell"}


def test_pretrained_weights_are_counted_from_their_headers(free, tmp_path, save_tiny):
    free(10**12)
    workload = resolve(str(save_tiny(tmp_path / "m")))
    assert workload.parameter_count is None
    one = Cell(workload=workload, device=CPU, requested_device="cpu", runtime="eager")
    assert Fit.of(one).weights_bytes == 4 * 202_688
    random = dataclasses.replace(one, workload=dataclasses.replace(workload, weights="random"))
    assert Fit.of(random).weights_bytes is None


def test_weights_in_other_files_are_unknown_and_not_zero(free, tmp_path):
    """An exported folder has its weights in its graphs."""
    free(10**12)
    exported = cell(DECODER, weights="pretrained", path=str(tmp_path), parameter_count=None)
    assert Fit.of(exported).weights_bytes is None


def test_quantized_weights_are_counted_as_stored(free, tmp_path):
    """Eight int4 weights share one I32, so the number of stored values says nothing about the memory."""
    free(10**12)
    config = {"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    header = {
        "q.qweight": {"dtype": "I32", "shape": [32, 8], "data_offsets": [0, 1024]},
        "q.scales": {"dtype": "F16", "shape": [2, 8], "data_offsets": [1024, 1056]},
        "embed.weight": {"dtype": "F32", "shape": [10, 8], "data_offsets": [1056, 1376]},
    }
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(1376))
    quantized = cell(config, precision="int4", weights="pretrained", path=str(tmp_path), parameter_count=None)
    assert Fit.of(quantized).readings.values["weights_needed_bytes"] == 4 * 32 * 8 + 2 * 2 * 8 + 2 * 10 * 8


def test_every_model_of_the_catalog_has_a_footprint(free):
    from benchmarking.workloads.support import families
    from benchmarking.workloads.support.families import plugin_of

    free(10**15)
    for entry in families.catalog_entries():
        workload = resolve(entry.name, weights="random")
        axes = {name: min(values) for name, values in plugin_of(workload).axes(workload).items()}
        own = {name: axes.pop(name) for name in ("sequence_length", "new_tokens") if name in axes}
        one = Cell(workload=workload, device=CPU, requested_device="cpu", runtime="eager")
        fit = Fit.of(one)
        assert fit.weights_bytes == 4 * entry.parameter_count
        assert fit.why_not(Point(batch_size=1, **own, axes=axes)) is None
