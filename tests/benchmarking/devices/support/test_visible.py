"""What CUDA_VISIBLE_DEVICES leaves."""

import pytest

from benchmarking.core.records import Device, Readings
from benchmarking.devices.support.torch_gpu import visible


def gpus(*names):
    return [
        Device(
            type="cuda",
            selector=f"cuda:{index}",
            found=True,
            name=name,
            facts=Readings(values={"uuid": f"GPU-{index}abc-def", "is_mig_enabled": index == 1}),
        )
        for index, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("setting", "left"),
    [
        (None, ["cuda:0", "cuda:1", "cuda:2"]),
        ("", []),
        ("-1", []),
        ("1", ["cuda:1"]),
        ("2,0", ["cuda:0", "cuda:2"]),
        ("0,7,1", ["cuda:0"]),
        ("GPU-2ab", ["cuda:2"]),
        ("gpu-0ABC-def, GPU-1", ["cuda:0", "cuda:1"]),
        ("MIG-3f1c", ["cuda:1"]),
        ("nonsense,0", []),
    ],
)
def test_setting_leaves_what_the_runtime_would_see(setting, left):
    assert [device.selector for device in visible(gpus("A", "A", "A"), setting)] == left


def test_numbers_say_nothing_among_unlike_models():
    """CUDA counts the fastest first, NVML by PCI address: which one 0 is shows only when it is opened."""
    assert len(visible(gpus("A", "B"), "0")) == 2
    assert visible(gpus("A", "B"), "-1") == ()
    assert [device.selector for device in visible(gpus("A", "B"), "GPU-1")] == ["cuda:1"]
