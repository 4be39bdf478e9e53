"""Attention kernels: named, forced, and read back from what ran."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Device, Point, Readings
from benchmarking.runtimes.eager import PLUGIN
from benchmarking.runtimes.support.torch import torch_settings
from benchmarking.workloads.support.resolve import resolve

POINT = Point(batch_size=1, sequence_length=16)
GENERATE = Point(batch_size=1, sequence_length=16, new_tokens=3)


def device(kind):
    return Device(type=kind, selector=kind, found=True)


@pytest.mark.parametrize(
    ("kind", "attention", "capability", "message"),
    [
        ("rocm", "flash_attention_3", "", "attention flash_attention_3 runs on cuda, not on rocm"),
        ("cpu", "flash_attention_4", "", "attention flash_attention_4 runs on cuda, not on cpu"),
        ("cuda", "flash_attention_4", "8.9", "needs compute capability 9.0, but Test GPU has 8.9"),
        ("cuda", "flash_attention_2", "7.5", "needs compute capability 8.0, but Test GPU has 7.5"),
        ("cuda", "flash_attention_3", "9.0", "pip install flash-attn-3 --no-deps --index-url .*/whl/cu130"),
    ],
)
def test_versions_of_flash_attention_are_refused_where_they_do_not_run(kind, attention, capability, message):
    facts = Readings(values={"compute_capability": capability} if capability else {})
    gpu = Device(type=kind, selector=kind, found=True, name="Test GPU", facts=facts)
    with pytest.raises(UnsupportedError, match=message):
        PLUGIN.mode(gpu, resolve("tiny-gpt2"), {"attention": attention})


def test_flash_attention_is_refused_at_precisions_that_its_kernels_lack(monkeypatch):
    monkeypatch.setattr(torch_settings, "version_of", lambda name: "3.0")
    gpu = Device(type="cuda", selector="cuda:0", found=True)
    mode = PLUGIN.mode(gpu, resolve("tiny-gpt2"), {"attention": "flash_attention_3"})
    assert PLUGIN.mode_at("bfloat16", mode)["attention"] == "flash_attention_3"
    with pytest.raises(UnsupportedError, match="supports bfloat16 and float16, not float32: use --precision bf"):
        PLUGIN.mode_at("float32", mode)


def test_transformers_has_every_attention_by_its_name():
    from transformers.modeling_flash_attention_utils import FLASH_ATTENTION_COMPATIBILITY_MATRIX
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    names = {name.partition(":")[0] for name in torch_settings.ATTENTION.values}
    assert names <= {"eager", *ALL_ATTENTION_FUNCTIONS.valid_keys()}
    for package in torch_settings.FLASH_PACKAGES.values():
        least = FLASH_ATTENTION_COMPATIBILITY_MATRIX[package.version].get("cuda_min_major_version", 8)
        assert package.capability == (least, 0)


@pytest.mark.parametrize(
    ("kind", "attention", "message"),
    [
        ("cpu", "sdpa:efficient", "torch does not have this kernel on cpu; available: sdpa:math, sdpa:flash"),
        ("cpu", "sdpa:cudnn", "torch does not have this kernel on cpu"),
        ("rocm", "sdpa:cudnn", "available: sdpa:math, sdpa:flash, sdpa:efficient"),
        ("mps", "sdpa:flash", "available: sdpa:math"),
    ],
)
def test_unavailable_kernel_is_refused_in_the_plan(kind, attention, message):
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
def test_named_kernel_runs(open_eager, attention, kernels):
    """Two layers, so two calls of the kernel; torch's own choice on a CPU is flash; eager has none of sdpa's."""
    operation = open_eager("tiny-bert", attention=attention).operation(POINT)
    assert operation.verified() == {"attention_kernels": kernels}


@pytest.mark.parametrize(
    ("name", "attention", "kernels"),
    [
        ("tiny-bert", "sdpa", {"flash": 2}),
        ("tiny-bert", "sdpa:math", {"math": 2}),
        ("tiny-bert", "eager", {}),
        ("tiny-gpt2", "sdpa:math", {"math": 6}),
    ],
)
def test_counting_call_also_verifies_attention(open_eager, monkeypatch, tmp_path, name, attention, kernels):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path))
    session, point = open_eager(name, attention=attention), POINT if name == "tiny-bert" else GENERATE
    operation, cached = session.operation(point), session.operation(point)
    calls = []
    monkeypatch.setattr(operation.inner, "run", lambda mark, run=operation.inner.run: calls.append(0) or run(mark))
    found = operation.count()
    assert operation.verified() == {"attention_kernels": kernels}
    assert len(calls) == (1 if name == "tiny-bert" else 2)  # the next token of a generation depends on values
    assert cached.count() == found
    assert cached.verified() == {"attention_kernels": kernels}


def test_every_step_of_a_generation_is_watched(open_eager):
    """2 layers x (a prefill and 2 decode steps)."""
    operation = open_eager("tiny-gpt2", attention="sdpa:math").operation(GENERATE)
    assert operation.verified() == {"attention_kernels": {"math": 6}}


def test_switches_are_restored_after_the_session(open_eager):
    before = torch_settings.enabled_kernels()
    session = open_eager("tiny-bert", attention="sdpa:math")
    assert session.verified["attention"] == "sdpa:math"
    assert session.verified["attention_kernels_allowed"] == torch_settings.enabled_kernels() == ["math"]
    session.close()
    assert torch_settings.enabled_kernels() == before


def test_unsupported_kernel_raises_instead_of_falling_back(open_eager):
    """The flash kernel does not support a mask that requires gradients."""
    session = open_eager("tiny-bert", attention="sdpa:flash")
    query = torch.randn(1, 2, 4, 8)
    mask = torch.zeros(1, 1, 4, 4, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="Flash attention"),
        pytest.raises(RuntimeError, match=r"No (available kernel|viable backend)"),
    ):
        torch.nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=mask)
    session.close()


def ran(operators=(), on_gpu=(), gpu_events=0):
    return torch_settings.KernelCounts(operators=dict(operators), on_gpu=dict(on_gpu), gpu_events=gpu_events)


@pytest.mark.parametrize(
    ("attention", "operators", "is_compiled", "message"),
    [
        ("sdpa:flash", {"flash": 3}, False, None),
        ("sdpa", {"math": 3}, False, None),
        (None, {}, False, None),
        ("eager", {}, False, None),
        ("sdpa:math", {}, True, None),
        ("sdpa:math", {}, False, "requested attention sdpa:math, but no sdpa kernel ran"),
        ("sdpa:flash", {}, True, "requested attention sdpa:flash, but no sdpa kernel ran"),
        ("sdpa:flash", {"flash": 2, "math": 1}, False, "requested attention sdpa:flash, but flash 2 times, math 1 ti"),
        ("sdpa:math", {"flash": 1}, True, "requested attention sdpa:math, but flash 1 times ran"),
        ("flash_attention_3", {"flash_attention_2": 4}, False, "but flash_attention_2 4 times ran"),
    ],
)
def test_unrequested_kernel_is_reported(attention, operators, is_compiled, message):
    verdict = torch_settings.verdict(attention, ran(operators), is_compiled=is_compiled, is_replayed=False)
    assert list(verdict) == ([] if message is None else ["not_as_requested"])
    assert message is None or message in verdict["not_as_requested"]


# Names of kernels as torch's profiler wrote them on NVIDIA GPUs, in reports that others published.
ON_GPU = {
    "flash": "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false>>",
    "efficient": "fmha_cutlassF_f16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>)",
    "cudnn": "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x128_4x1x1_kernel0_0",
    "flash_attention_2": "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false>>",
    "flash_attention_3": "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Coll",
    "flash_attention_4": "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__te",
}
OTHERS = [
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>",
    "nvjet_tst_64x8_64x16_4x1_v_bz_TNT",
    "void pytorch_flash::flash_fwd_splitkv_combine_kernel<pytorch_flash::Flash_fwd_kernel_traits<128>>",
    "flash::FlashAttnFwdCombine",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x",
]


@pytest.mark.parametrize("kernel", ON_GPU)
def test_replayed_cuda_graph_is_verified_by_gpu_kernel_names(kernel):
    """torch dispatches nothing in a replay; the host shows only the launch of the graph."""
    found = torch_settings.kernel_counts(["cudaGraphLaunch", "aten::clone"], [ON_GPU[kernel], *OTHERS, ON_GPU[kernel]])
    assert (found.operators, found.counts) == ({}, {kernel: 2})
    named = kernel if kernel in torch_settings.FLASH_PACKAGES else f"sdpa:{kernel}"
    replayed = {"is_compiled": True, "is_replayed": True}
    assert torch_settings.verdict(named, found, **replayed) == {}
    other = "sdpa:cudnn" if kernel == "flash" else "sdpa:flash"
    assert torch_settings.verdict(other, found, **replayed)["not_as_requested"].endswith(f"{kernel} 2 times ran")


@pytest.mark.parametrize(
    ("attention", "gpu_events", "reason"),
    [
        ("sdpa:flash", 0, "the profile of a call has no GPU kernels"),
        ("sdpa:flash", 40, "the profile of a call has no attention kernel with a known name"),
        ("sdpa:math", 0, "the profile of a call has no GPU kernels"),
        ("sdpa:math", 40, None),
    ],
)
def test_replay_without_visible_attention_kernel_is_not_verified(attention, gpu_events, reason):
    """Except the math kernel, which a compiler turns into its own code: no other kernel ran."""
    found = torch_settings.verdict(attention, ran(gpu_events=gpu_events), is_compiled=True, is_replayed=True)
    assert list(found) == ([] if reason is None else ["not_verified"])
    assert reason is None or reason in found["not_verified"]


def test_kernel_seen_on_host_and_gpu_counts_once():
    operator = "aten::_scaled_dot_product_flash_attention"
    assert torch_settings.kernel_counts([operator] * 3, [ON_GPU["flash"]] * 3).counts == {"flash": 3}


def test_a_gpus_kernels_are_recorded_and_not_only_timed_by_events(monkeypatch):
    """What the installed torch's profiler decides to record on a machine with a GPU."""
    from torch.autograd import profiler
    from torch.profiler import ProfilerActivity

    both, made = {ProfilerActivity.CPU, ProfilerActivity.CUDA}, []

    class Profile(profiler.profile):
        def __enter__(self):
            made.append(self)
            return self

        def __exit__(self, *error):
            self.kineto_results = SimpleNamespace(events=list)

    monkeypatch.setattr(profiler, "profile", Profile)
    monkeypatch.setattr(profiler, "_supported_activities", lambda: both)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch_settings, "is_gpu_in_use", lambda: True)
    torch_settings.kernels_run(lambda: None)
    assert made[0].kineto_activities == both
