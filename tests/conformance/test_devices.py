"""One suite for all device plugins found in the folder."""

import subprocess
import sys
import time

import pytest

from benchmarking.core import plugins
from benchmarking.core.records import (
    COUNTER_STALE,
    FAILED,
    NO_PERMISSION,
    NOT_APPLICABLE,
    NOT_RUN,
    NOT_SUPPORTED,
    PRECISIONS,
    Device,
    Readings,
    from_json,
    to_json,
)
from benchmarking.devices.support.select import Probes

PACKAGE = "benchmarking.devices"
KINDS = plugins.names(PACKAGE)
HEAVY = ("torch", "openvino", "pynvml", "onnxruntime", "onnxruntime_qnn", "amdsmi", "numpy", "transformers")
REASONS = (NOT_SUPPORTED, NO_PERMISSION, NOT_APPLICABLE, NOT_RUN, FAILED, COUNTER_STALE)

READINGS = {
    "peak_memory": {"device_allocated_peak_bytes", "device_reserved_peak_bytes"},
    "memory_in_use": {"device_process_bytes", "device_used_bytes"},
    "state": {"clock_hz", "temperature_c", "power_w", "throttle_reasons", "violation_ns", "foreign_pids"},
    "energy_j": {"gpu", "cpu_pkg", "dram", "soc"},
}
"""Each method's names, of which every one must have a value or a reason."""


@pytest.fixture(scope="module")
def probed():
    """The devices of every kind, probed once."""
    with Probes(KINDS) as probes:
        return {kind: probes.devices(kind) for kind in KINDS}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def plugin(kind):
    return plugins.load(PACKAGE, kind)


@pytest.fixture
def found(kind, probed):
    devices = [device for device in probed[kind] if device.found]
    if not devices:
        pytest.skip(f"{kind} is not here: {probed[kind][0].why_not}")
    return devices


def test_every_kind_of_hardware_has_a_plugin():
    assert {"cpu", "cuda", "rocm", "mps", "openvino", "qnn"} <= set(KINDS)


def test_the_plugin_name_equals_the_file_name(kind, plugin):
    assert plugin.name == kind


def test_implied_runtime_is_a_name_or_none(plugin):
    assert plugin.implied_runtime is None or plugin.implied_runtime.isidentifier()


def test_importing_the_module_imports_nothing_heavy(kind):
    code = f"import sys, {PACKAGE}.{kind}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_probe_returns_devices_or_exactly_one_reason(kind, probed):
    devices = probed[kind]
    assert devices
    assert all(isinstance(device, Device) and device.type == kind for device in devices)
    assert len(devices) == 1 or all(device.found for device in devices)


def test_probe_does_not_raise_in_this_process(plugin, probed, kind):
    assert [device.found for device in plugin.probe()] == [device.found for device in probed[kind]]


def test_a_found_device_is_described(found, kind):
    for device in found:
        assert device.name
        assert device.vendor
        assert device.selector.partition(":")[0] == kind
        assert device.precisions
        assert set(device.precisions) <= set(PRECISIONS)
        assert device.why_not is None
        assert device.count >= 1
    assert len({device.selector for device in found}) == len(found)


def test_an_absent_device_has_advice(kind, probed):
    for device in probed[kind]:
        if not device.found:
            assert device.why_not
            assert len(device.why_not) > 20
            assert "\n" not in device.why_not
            assert any(
                word in device.why_not for word in ("install", "needs", "reboot", "check", "unset", "permission")
            )


def test_facts_have_a_value_or_a_reason(kind, probed):
    for device in probed[kind]:
        check(device.facts)


def test_devices_survive_json(kind, probed):
    for device in probed[kind]:
        assert from_json(Device, to_json(device)) == device


def test_lock_name_fits_a_file_name(plugin, found):
    for device in found:
        name = plugin.lock_name(device)
        assert name is None or not set(name) & set('/\\:*?"<>| ')


def test_an_open_device_keeps_the_contract(plugin, found):
    for device in found:
        handle = plugin.open(device)
        before = handle.now_ns()
        time.sleep(0.001)
        after = handle.now_ns()
        assert isinstance(before, int)
        assert after >= before + (0 if device.simulated else 500_000)
        handle.empty_cache()
        handle.reset_peak_memory()
        handle.synchronize()
        for method, names in READINGS.items():
            readings = getattr(handle, method)()
            check(readings)
            assert names <= set(readings.values) | set(readings.missing), method
        timer = handle.timer()
        if timer is not None:
            timer.start()
            timer.stop()
            handle.synchronize()
            assert timer.elapsed_ns() >= 0
        handle.close()


def check(readings):
    assert isinstance(readings, Readings)
    assert not set(readings.values) & set(readings.missing)
    assert all(value is not None and value == value for value in readings.values.values())
    assert all(why.partition(":")[0] in REASONS for why in readings.missing.values())
