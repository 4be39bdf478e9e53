"""Attention kernels: named, forced, and read back from what ran."""

from __future__ import annotations

import pytest
import torch

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Device, Point
from benchmarking.runtimes.eager import PLUGIN
from benchmarking.runtimes.support.torch import attention_kernels
from benchmarking.workloads.support.resolve import resolve

POINT = Point(batch_size=1, sequence_length=16)
GENERATE = Point(batch_size=1, sequence_length=16, new_tokens=3)


def device(kind):
    return Device(type=kind, selector=kind, found=True)


@pytest.mark.parametrize(
    ("kind", "attention", "message"),
    [
        ("cpu", "sdpa:efficient", "torch has no such kernel on cpu; it has sdpa:math, sdpa:flash"),
        ("cpu", "sdpa:cudnn", "no such kernel on cpu"),
        ("rocm", "sdpa:cudnn", "it has sdpa:math, sdpa:flash, sdpa:efficient"),
        ("mps", "sdpa:flash", "it has sdpa:math"),
    ],
)
def test_a_kernel_that_a_device_does_not_have_is_refused_before_anything_runs(kind, attention, message):
    with pytest.raises(UnsupportedError, match=message):
        PLUGIN.mode(device(kind), resolve("tiny-bert"), {"attention": attention})


def test_a_kernel_is_part_of_the_mode():
    mode = PLUGIN.mode(device("cuda"), resolve("tiny-gpt2"), {"attention": "sdpa:efficient"})
    assert mode == {"attention": "sdpa:efficient", "cache": "dynamic"}
    with pytest.raises(UsageError, match="attention 'sdpa:magic'"):
        PLUGIN.mode(device("cuda"), resolve("tiny-gpt2"), {"attention": "sdpa:magic"})


@pytest.mark.parametrize(
    ("attention", "kernels"),
    [("sdpa:math", {"math": 2}), ("sdpa:flash", {"flash": 2}), ("sdpa", {"flash": 2}), ("eager", {})],
)
def test_the_kernel_that_ran_is_the_one_that_was_named(open_eager, attention, kernels):
    """Two layers, so two calls of the kernel; torch's own choice on a CPU is flash; eager has none of sdpa's."""
    operation = open_eager("tiny-bert", attention=attention).operation(POINT)
    assert operation.verified() == {"attention_kernels": kernels}


def test_every_step_of_a_generation_is_watched(open_eager):
    """2 layers x (a prefill and 2 decode steps)."""
    operation = open_eager("tiny-gpt2", attention="sdpa:math").operation(GENERATE)
    assert operation.verified() == {"attention_kernels": {"math": 6}}


def test_switches_hold_for_a_session_and_are_put_back(open_eager):
    before = attention_kernels.allowed()
    session = open_eager("tiny-bert", attention="sdpa:math")
    assert session.verified["attention"] == "sdpa:math"
    assert session.verified["attention_kernels_allowed"] == attention_kernels.allowed() == ["math"]
    session.close()
    assert attention_kernels.allowed() == before


def test_a_kernel_that_cannot_run_raises_and_no_other_one_takes_its_place(open_eager):
    """A mask that wants gradients is beyond the flash kernel."""
    session = open_eager("tiny-bert", attention="sdpa:flash")
    query = torch.randn(1, 2, 4, 8)
    mask = torch.zeros(1, 1, 4, 4, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="Flash attention"),
        pytest.raises(RuntimeError, match=r"No (available kernel|viable backend)"),
    ):
        torch.nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=mask)
    session.close()


@pytest.mark.parametrize(
    ("attention", "ran", "is_compiled", "message"),
    [
        ("sdpa:flash", {"flash": 3}, False, None),
        ("sdpa", {"math": 3}, False, None),
        (None, {}, False, None),
        ("sdpa:math", {}, True, None),
        ("sdpa:math", {}, False, "asked for attention sdpa:math, but no kernel of sdpa ran"),
        ("sdpa:flash", {}, True, "but no kernel of sdpa ran"),
        ("sdpa:flash", {"flash": 2, "math": 1}, False, "but flash 2 times, math 1 times ran"),
        ("sdpa:math", {"flash": 1}, True, "but flash 1 times ran"),
    ],
)
def test_another_kernel_than_the_one_named_is_an_error(attention, ran, is_compiled, message):
    if message is None:
        attention_kernels.check_run(attention, ran, is_compiled=is_compiled)
        return
    with pytest.raises(UnsupportedError, match=message):
        attention_kernels.check_run(attention, ran, is_compiled=is_compiled)
