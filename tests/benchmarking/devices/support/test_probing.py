"""Which device a request means."""

import pytest

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Device
from benchmarking.devices.support import select as probing
from benchmarking.devices.support.select import probe_all, select


def device(selector, **fields):
    defaults = {"type": selector.partition(":")[0], "selector": selector, "found": True, "name": f"a {selector}"}
    return Device(**{**defaults, **fields})


def absent(kind):
    return device(kind, found=False, why_not=f"no {kind} driver: install it")


NOTHING = {kind: (absent(kind),) for kind in ("cuda", "rocm", "mps", "openvino", "qnn")}
EVERYTHING = {
    "cuda": (device("cuda:0"), device("cuda:1")),
    "rocm": (device("rocm:0"),),
    "mps": (device("mps"),),
    "openvino": tuple(device(f"openvino:{name}") for name in ("GPU.0", "GPU.1", "NPU", "CPU", "AUTO")),
    "qnn": (device("qnn"),),
    "cpu": (device("cpu"),),
    "null": (device("null", simulated=True),),
}


@pytest.fixture
def machine(monkeypatch):
    """Makes a machine that has the devices given, and remembers which kinds were waited for."""
    waited = []

    def make(found):
        class Recorded:
            def __init__(self, names, time_limit_s=0.0):
                self.names = names

            def __enter__(self):
                return self

            def __exit__(self, *_):
                return None

            def answer(self, name):
                waited.append(name)
                return {**EVERYTHING, **found}[name]

        monkeypatch.setattr(probing, "Probes", Recorded)
        return waited

    return make


def anything(device):
    return None


def test_auto_takes_the_first_of_the_preference(machine):
    machine({})
    assert select("auto", anything).selector == "cuda:0"


@pytest.mark.parametrize(
    ("refused", "chosen"),
    [
        (("cuda",), "rocm:0"),
        (("cuda", "rocm"), "mps"),
        (("cuda", "rocm", "mps"), "openvino:GPU.0"),
        (("cuda", "rocm", "mps", "openvino:GPU"), "openvino:NPU"),
        (("cuda", "rocm", "mps", "openvino:GPU", "openvino:NPU"), "qnn"),
        (("cuda", "rocm", "mps", "openvino:GPU", "openvino:NPU", "qnn"), "openvino:CPU"),
        (("cuda", "rocm", "mps", "openvino", "qnn"), "cpu"),
    ],
)
def test_auto_goes_on_to_what_supports_the_request(machine, refused, chosen):
    machine({})
    assert select("auto", lambda d: "no" if d.selector.startswith(refused) else None).selector == chosen


def test_auto_takes_the_second_gpu_when_only_that_supports_the_request(machine):
    machine({})
    assert select("auto", lambda d: "no" if d.selector == "cuda:0" else None).selector == "cuda:1"


def test_auto_waits_for_no_one_behind_the_chosen(machine):
    waited = machine({})
    select("auto", anything)
    assert waited == ["cuda"]


def test_auto_passes_over_what_is_absent_or_emulated(machine):
    machine({**NOTHING, "qnn": (device("qnn", simulated=True),)})
    assert select("auto", anything).selector == "cpu"


def test_auto_never_takes_the_null_device_nor_openvinos_auto(machine):
    machine({})
    asked = []
    with pytest.raises(UnsupportedError):
        select("auto", lambda d: asked.append(d.selector) or "no")
    assert "null" not in asked
    assert "openvino:AUTO" not in asked


def test_auto_that_finds_nothing_gives_every_reason(machine):
    machine(NOTHING)
    with pytest.raises(UnsupportedError, match=r"auto found no device for this request. cpu: needs bfloat16"):
        select("auto", lambda d: "needs bfloat16")


@pytest.mark.parametrize(
    ("request_", "selector"),
    [
        ("cpu", "cpu"),
        ("cuda", "cuda:0"),
        ("cuda:1", "cuda:1"),
        ("rocm:0", "rocm:0"),
        ("openvino", "openvino:GPU.0"),
        ("openvino:GPU", "openvino:GPU.0"),
        ("openvino:gpu.1", "openvino:GPU.1"),
        ("openvino:CPU", "openvino:CPU"),
        ("openvino:AUTO", "openvino:AUTO"),
        ("null", "null"),
    ],
)
def test_request_names_a_device(machine, request_, selector):
    machine({})
    assert select(request_, anything).selector == selector


def test_absent_device_is_an_error_with_its_reason_never_a_fallback(machine):
    machine(NOTHING)
    with pytest.raises(UsageError, match=r"^device 'cuda' is not available: no cuda driver: install it$"):
        select("cuda", anything)
    with pytest.raises(UsageError, match=r"^device 'cuda:3' is not available: no cuda driver"):
        select("cuda:3", anything)


def test_index_out_of_range_says_what_was_found(machine):
    machine({})
    with pytest.raises(UsageError, match=r"no device 'cuda:2'\. Found: cuda:0 \(a cuda:0\), cuda:1 \(a cuda:1\)"):
        select("cuda:2", anything)


@pytest.mark.parametrize("request_", ["cuda:", "cuda:x", "cuda:-1", "cpu:0", "mps:0", "openvino:FPGA"])
def test_what_a_kind_does_not_have_is_an_error(machine, request_):
    machine({})
    with pytest.raises(UsageError, match=f"there is no device '{request_}'. Found: "):
        select(request_, anything)


def test_unknown_device_names_the_near_ones_and_all():
    with pytest.raises(UsageError, match=r"unknown device 'cud'\. Did you mean cuda or cpu\? Devices: auto, cpu, cuda"):
        select("cud", anything)


def test_device_like_nothing_lists_all():
    with pytest.raises(UsageError, match=r"^unknown device 'tpu9000'\. .*Devices: auto, cpu, cuda, .*rocm"):
        select("tpu9000", anything)


def test_explicit_device_that_cannot_run_the_request_is_unsupported(machine):
    machine({})
    with pytest.raises(UnsupportedError, match=r"device 'cuda:0' \(a cuda:0\) cannot run this: no int4"):
        select("cuda", lambda d: "no int4")


def test_probe_all_asks_all_hardware_and_not_the_null_device(machine):
    machine({})
    assert set(probe_all()) >= {"cpu", "cuda", "rocm", "mps", "openvino", "qnn"}
    assert "null" not in probe_all()
    assert set(probe_all(["null"])) == {"null"}
