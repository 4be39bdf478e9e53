"""The GPU that a page received, and whether it is the requested device."""

import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Device
from benchmarking.runtimes.support.browser.browser_runtime import Adapter, check_adapter, why_not_gpu

SWIFTSHADER = Adapter.from_page(
    {
        "vendor": "google",
        "architecture": "swiftshader",
        "device": "0xc0de",
        "description": "SwiftShader Device (Subzero)",
        "isFallbackAdapter": True,
        "features": ["subgroups", "timestamp-query"],
    }
)
"""As Chromium 156 reports it."""
NVIDIA = Adapter.from_page({"vendor": "nvidia", "architecture": "hopper", "features": ["shader-f16"]})


def device(kind, selector=None, **fields):
    return Device(type=kind, selector=selector or kind, found=True, name=f"a {kind}", **fields)


def test_the_facts_of_the_pages_adapter_are_kept():
    assert SWIFTSHADER.verified() == {
        "adapter": {
            "vendor": "google",
            "architecture": "swiftshader",
            "device": "0xc0de",
            "description": "SwiftShader Device (Subzero)",
            "is_fallback_adapter": True,
        },
        "adapter_features": ["subgroups", "timestamp-query"],
        "is_simulated": True,
    }


def test_withheld_adapter_facts_are_empty_and_not_software():
    silent = Adapter.from_page({})
    assert silent.label == "unnamed adapter"
    assert not silent.is_software


@pytest.mark.parametrize(
    "info",
    [
        {"isFallbackAdapter": True},
        {"architecture": "swiftshader"},
        {"description": "llvmpipe (LLVM 17.0.6, 256 bits)"},
        {"vendor": "microsoft", "description": "Microsoft Basic Render Driver"},
    ],
)
def test_renderers_on_the_processor_are_simulators(info):
    assert Adapter.from_page(info).verified()["is_simulated"] is True


@pytest.mark.parametrize(("kind", "vendor"), [("cuda", "nvidia"), ("rocm", "amd"), ("mps", "apple")])
def test_the_vendors_adapter_is_the_device(kind, vendor):
    adapter = Adapter.from_page({"vendor": vendor})
    assert check_adapter(adapter, device(kind, f"{kind}:0")) is adapter
    assert adapter.verified()["is_simulated"] is False
    assert why_not_gpu(device(kind)) is None


def test_an_intel_gpu_is_openvinos_device():
    assert why_not_gpu(device("openvino", "openvino:GPU")) is None
    assert check_adapter(Adapter.from_page({"vendor": "intel"}), device("openvino", "openvino:GPU"))
    assert why_not_gpu(device("openvino", "openvino:NPU")) == (
        "browsers run WebGPU on the GPU of openvino, not on openvino:NPU"
    )


def test_another_vendors_adapter_is_refused():
    with pytest.raises(BenchhouseError, match=r"'cuda:0' .*from another vendor: intel gen-12lp"):
        check_adapter(Adapter.from_page({"vendor": "intel", "architecture": "gen-12lp"}), device("cuda", "cuda:0"))


def test_software_adapter_is_not_accepted_as_gpu():
    with pytest.raises(BenchhouseError, match=r"'cuda:0' \(a cuda\): the browser uses a software adapter"):
        check_adapter(SWIFTSHADER, device("cuda", "cuda:0"))


def test_on_the_processor_only_software_adapters_are_used():
    assert check_adapter(SWIFTSHADER, device("cpu")) is SWIFTSHADER
    with pytest.raises(BenchhouseError, match="requested WebGPU on the CPU, but the browser's adapter is nvidia"):
        check_adapter(NVIDIA, device("cpu"))


def test_no_adapter_is_a_reason():
    with pytest.raises(BenchhouseError, match="offers the page no WebGPU adapter"):
        check_adapter(None, device("cpu"))


def test_one_of_several_gpus_cannot_be_chosen():
    assert why_not_gpu(device("cuda", "cuda:1", count=2)) == (
        "a page cannot choose among 2 x a cuda: browsers offer it one unnamed adapter"
    )


def test_devices_without_webgpu_are_refused():
    assert "not on qnn" in str(why_not_gpu(device("qnn")))
