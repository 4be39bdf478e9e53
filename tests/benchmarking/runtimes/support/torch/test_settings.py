"""Settings of the runtimes on torch: when tokens reach the host, memory formats, and switches that are read back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Device, Point
from benchmarking.runtimes.compiled import PLUGIN as COMPILED
from benchmarking.runtimes.eager import PLUGIN
from benchmarking.runtimes.kernelized import PLUGIN as KERNELIZED
from benchmarking.runtimes.support.torch import torch_settings
from benchmarking.workloads.support.resolve import resolve

CPU = Device(type="cpu", selector="cpu", found=True)
IMAGE = Point(batch_size=2, axes={"image_size": 32})
RAG = Point(batch_size=1, sequence_length=8, new_tokens=4, axes={"documents": 20, "top_k": 2})


@pytest.mark.parametrize("plugin", [PLUGIN, COMPILED, KERNELIZED], ids=lambda plugin: plugin.name)
def test_naming_a_default_does_not_start_another_series(plugin):
    source = {"kernel_repo": "owner/name@1"} if plugin is KERNELIZED else {}
    plain = plugin.mode(CPU, resolve("tiny-gpt2"), source)
    assert "token_sync" not in plain
    assert plugin.mode(CPU, resolve("tiny-gpt2"), {**source, "token_sync": "each"}) == plain
    assert plugin.mode(CPU, resolve("tiny-gpt2"), {**source, "token_sync": "end"}) == {**plain, "token_sync": "end"}
    picture = plugin.mode(CPU, resolve("tiny-vit"), source)
    assert plugin.mode(CPU, resolve("tiny-vit"), {**source, "memory_format": "contiguous"}) == picture
    other = plugin.mode(CPU, resolve("tiny-vit"), {**source, "memory_format": "channels_last"})
    assert other == {**picture, "memory_format": "channels_last"}


@pytest.mark.parametrize(
    ("name", "options"), [("tiny-bert", {"token_sync": "end"}), ("tiny-gpt2", {"memory_format": "channels_last"})]
)
def test_models_without_tokens_or_images_have_no_such_option(name, options):
    with pytest.raises(UsageError, match=f"no option '{next(iter(options))}' at task"):
        PLUGIN.mode(CPU, resolve(name), options)


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("tiny-gpt2", Point(batch_size=2, sequence_length=16, new_tokens=5)),
        ("tiny-gpt2", Point(batch_size=2, sequence_length=16, new_tokens=1)),
        ("tiny-t5", Point(batch_size=2, sequence_length=16, new_tokens=4)),
        ("tiny-mamba", Point(batch_size=1, sequence_length=8, new_tokens=3)),
        ("tiny-rag", RAG),
        ("tiny-whisper", Point(batch_size=1, new_tokens=3, axes={"audio_seconds": 2.0})),
    ],
)
def test_tokens_at_the_end_equal_streamed_ones(open_eager, monkeypatch, name, point):
    """The host waits for the device when a tensor becomes a list: for the first token, then for all others together."""
    waits, tolist = [], torch.Tensor.tolist
    both = []
    for sync in ("each", "end"):
        operation = open_eager(name, token_sync=sync).operation(point)
        assert operation.streams is (sync == "each")
        operation.reset()
        marks = []
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "tolist", lambda tensor: waits.append(tensor.shape) or tolist(tensor))
            output = operation.run(marks.append)
        assert operation.problem(output) is None
        both.append((operation.arrays(output), marks.count("token"), len(waits)))
        waits.clear()
    (streamed, each, waited), (together, end, waited_end) = both
    np.testing.assert_array_equal(streamed["tokens"], together["tokens"])
    np.testing.assert_allclose(streamed["logits"], together["logits"], rtol=1e-4, atol=1e-5)
    assert (each, end) == (point.new_tokens, min(point.new_tokens, 2))
    assert (waited, waited_end) == (each, end)


@pytest.mark.parametrize("plugin", [PLUGIN, COMPILED], ids=lambda plugin: plugin.name)
def test_channels_last_lays_out_weights_and_images_and_gives_the_same_numbers(open_torch, plugin):
    session = open_torch(plugin, "tiny-vit", memory_format="channels_last")
    weights = [parameter for parameter in session.model.parameters() if parameter.dim() == 4]
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
    assert any(not weight.is_contiguous() for weight in weights)
    assert session.verified["memory_format"] == "channels_last"
    assert session.verified["channels_last_weights"] == len(weights) > 0
    if plugin is COMPILED:
        return  # the call is compiled the first time, which takes long, and from the same weights
    operation, plain = session.operation(IMAGE), open_torch(plugin, "tiny-vit").operation(IMAGE)
    (pixels,) = [value for value in operation.inner._inputs.values() if isinstance(value, torch.Tensor)]
    assert pixels.is_contiguous(memory_format=torch.channels_last)
    assert not pixels.is_contiguous()
    arrays, wanted = (each.arrays(each.run(lambda name: None)) for each in (operation, plain))
    np.testing.assert_allclose(arrays["logits"], wanted["logits"], rtol=1e-3, atol=1e-4)


def test_a_model_without_convolutions_has_no_memory_format():
    from benchmarking.runtimes.support.torch.model_loading import to_channels_last

    with pytest.raises(UnsupportedError, match="Linear has no convolutions over images"):
        to_channels_last(torch.nn.Linear(2, 2))


def test_arithmetic_switches_are_read_back():
    """A user's process may have set them, which explains a difference."""
    switches = torch.backends.cuda.matmul
    before = switches.allow_fp16_reduced_precision_reduction, torch.backends.cudnn.benchmark
    try:
        for value in (False, True):
            switches.allow_fp16_reduced_precision_reduction = torch.backends.cudnn.benchmark = value
            found = torch_settings.effective_arithmetic()
            assert (found["allow_fp16_reduced_precision_reduction"], found["cudnn_benchmark"]) == (value, value)
    finally:
        switches.allow_fp16_reduced_precision_reduction, torch.backends.cudnn.benchmark = before


@pytest.mark.parametrize(
    ("value", "precision", "message"),
    [
        ("1", "float32", "makes NVIDIA's libraries use TF32, which conflicts with float32: unset NVIDIA_TF32_OVERRIDE"),
        ("0", "tf32", "makes NVIDIA's libraries avoid TF32, which conflicts with tf32"),
        ("1", "tf32", None),
        ("0", "float32", None),
        ("1", "bfloat16", None),
        (None, "float32", None),
    ],
)
def test_environment_variable_conflicting_with_the_precision_is_refused(monkeypatch, value, precision, message):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    if value is not None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", value)
    if message is None:
        torch_settings.check_override(precision)
        return
    with pytest.raises(UnsupportedError, match=message):
        torch_settings.check_override(precision)
