"""Apple's GPU on recorded sysctl and system_profiler output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from benchmarking.core.device_contracts import IN_USE_NAMES, PEAK_NAMES, STATE_NAMES
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import Device
from benchmarking.devices import mps
from benchmarking.devices.support.system_values import UnreadableError


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch, recorded_text: Callable[[str], str]) -> Callable[[Sequence[str]], str]:
    """The commands of an M2 Max, on a platform that reports to be one."""
    monkeypatch.setattr(mps.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(mps.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(mps.platform, "mac_ver", lambda: ("15.6.1", ("", "", ""), "arm64"))
    names = {"/usr/sbin/sysctl": "macos_m2_max_sysctl.txt", "/usr/sbin/system_profiler": "macos_m2_max_displays.json"}
    return lambda command: recorded_text(names[command[0]])


def test_gpu_is_found_with_its_facts(mac):
    (device,) = mps.MpsDevice(mac).probe()
    assert (device.found, device.selector, device.name, device.vendor) == (True, "mps", "Apple M2 Max", "Apple")
    assert (device.driver, device.memory_bytes) == ("macOS 15.6.1", 34_359_738_368)
    assert device.facts.values["gpu_cores"] == 38
    assert device.facts.values["metal_family"] == "metal3"
    assert device.facts.values["model"] == "Mac14,6"
    assert device.precisions == ("float32", "bfloat16", "float16", "int8")


def test_failed_system_profiler_loses_only_its_facts(mac):
    def run(command):
        if "profiler" in command[0]:
            raise UnreadableError("failed: system_profiler took more than 10 s")
        return mac(command)

    (device,) = mps.MpsDevice(run).probe()
    assert device.name == "Apple M2 Max"
    assert device.facts.missing["gpu_cores"] == "failed: system_profiler took more than 10 s"


def test_invalid_system_profiler_output_loses_only_its_facts(mac):
    (device,) = mps.MpsDevice(lambda command: "?" if "profiler" in command[0] else mac(command)).probe()
    assert device.facts.missing["gpu_cores"].startswith("failed: invalid JSON from /usr/sbin/system_profiler: ")


def test_a_mac_without_sysctl_is_not_found_with_the_reason(mac):
    def refuse(command):
        raise UnreadableError("not_supported: no command /usr/sbin/sysctl")

    (device,) = mps.MpsDevice(refuse).probe()
    assert not device.found
    assert "no command /usr/sbin/sysctl" in device.why_not


@pytest.mark.parametrize(
    ("system", "machine", "macos", "words"),
    [
        ("Linux", "x86_64", "", "needs macOS on Apple silicon; this is Linux on x86_64"),
        ("Darwin", "x86_64", "15.1", "with an arm64 Python"),
        ("Darwin", "arm64", "13.6.9", "macOS 13.6.9 is too old"),
    ],
)
def test_each_cause_of_no_gpu_has_its_reason(monkeypatch, system, machine, macos, words):
    pretend(monkeypatch, system, machine, macos)
    (device,) = mps.MpsDevice().probe()
    assert words in device.why_not


def test_missing_torch_is_the_reason(monkeypatch):
    pretend(monkeypatch, "Darwin", "arm64", "15.1")
    monkeypatch.setattr(mps, "torch_build", lambda: None)
    (device,) = mps.MpsDevice().probe()
    assert device.why_not == "torch is not installed: pip install torch"


def pretend(monkeypatch, system, machine, macos):
    monkeypatch.setattr(mps.platform, "system", lambda: system)
    monkeypatch.setattr(mps.platform, "machine", lambda: machine)
    monkeypatch.setattr(mps.platform, "mac_ver", lambda: (macos, ("", "", ""), machine))


def test_the_handle_reads_metals_values(tmp_path):
    calls = []
    metal = SimpleNamespace(
        synchronize=lambda: calls.append("synchronize"),
        empty_cache=lambda: calls.append("empty_cache"),
        driver_allocated_memory=lambda: 12_345,
    )
    handle = mps.MpsHandle(SimpleNamespace(mps=metal))
    handle.synchronize()
    handle.empty_cache()
    assert calls == ["synchronize", "empty_cache"]
    assert handle.torch_name == "mps"
    assert handle.memory_in_use().values == {IN_USE_NAMES[0]: 12_345}
    assert handle.memory_in_use().missing == {IN_USE_NAMES[1]: "not_supported: unified memory"}
    assert set(handle.peak_memory().missing) == set(PEAK_NAMES)
    assert set(handle.state().missing) == set(STATE_NAMES)
    assert handle.energy_j().values == {}


def test_falling_back_to_the_cpu_is_refused(monkeypatch, mac):
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    with pytest.raises(UnsupportedError, match="unset PYTORCH_ENABLE_MPS_FALLBACK"):
        mps.PLUGIN.open(Device(type="mps", selector="mps", found=True))


def test_device_time_is_left_out_since_torchs_events_are_host_clocks_of_callbacks():
    """And recording one commits the command buffer inside the timed call, so nothing is recorded there."""
    handle = mps.MpsHandle(SimpleNamespace(mps=SimpleNamespace()))
    assert handle.timer() is None
    assert "host clocks of completion callbacks" in handle.why_no_timer


def test_opening_where_torch_has_no_mps_is_an_error(monkeypatch, mac):
    backend = SimpleNamespace(is_available=lambda: False, is_built=lambda: False)
    torch = SimpleNamespace(__version__="2.13.0", backends=SimpleNamespace(mps=backend))
    (device,) = mps.MpsDevice(mac).probe()
    monkeypatch.setattr(mps.importlib, "import_module", lambda name: torch)
    with pytest.raises(BenchhouseError, match=r"'mps' was found, but torch 2\.13\.0 is built without MPS"):
        mps.PLUGIN.open(device)
