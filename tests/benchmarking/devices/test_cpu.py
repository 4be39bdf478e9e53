"""The CPU as a device."""

import numpy
import pytest

from benchmarking.core.device_contracts import ENERGY_DOMAINS, IN_USE_NAMES, PEAK_NAMES, STATE_NAMES
from benchmarking.core.records import Readings
from benchmarking.devices.cpu import PLUGIN, CpuHandle, FlushThreads, describe, native_precisions
from benchmarking.devices.support.energy_counters import Rapl


def test_probe_finds_this_machines_processor():
    (device,) = PLUGIN.probe()
    assert device.found
    assert device.selector == "cpu"
    assert device.precisions == ("float32", "bfloat16", "float16", "int8", "int4")


def test_memory_is_limited_by_the_cgroup():
    host = Readings(values={"cpu_model": "X", "memory_bytes": 64, "cgroup_memory_limit_bytes": 8})
    assert describe(host).memory_bytes == 8


def test_a_processor_without_a_name_is_called_by_its_architecture():
    device = describe(Readings(values={"architecture": "riscv64"}, missing={"cpu_model": "not_supported"}))
    assert (device.name, device.vendor, device.memory_bytes) == ("riscv64 processor", "unknown", None)


def test_native_precisions_follow_the_capabilities():
    assert native_precisions(["avx2", "avx512_vnni"]) == ("float32", "int8")
    assert native_precisions(["amx_bf16", "amx_int8", "avx512_fp16"]) == ("float32", "bfloat16", "float16", "int8")
    assert native_precisions(["asimddp", "fphp", "bf16"]) == ("float32", "bfloat16", "float16", "int8")
    assert native_precisions(None) == ("float32",)


def test_linux_state_is_read_from_sys(plant, tmp_path):
    cpu = "devices/system/cpu"
    root = plant(
        {
            f"{cpu}/cpu0/cpufreq/scaling_cur_freq": 2_000_000,
            f"{cpu}/cpu1/cpufreq/scaling_cur_freq": 3_000_000,
            f"{cpu}/cpu0/cpufreq/base_frequency": 2_400_000,
            f"{cpu}/cpu0/thermal_throttle/package_throttle_total_time_ms": 7,
            f"{cpu}/cpu1/thermal_throttle/package_throttle_total_time_ms": 7,
            "class/hwmon/hwmon0/name": "coretemp",
            "class/hwmon/hwmon0/temp1_input": 61_000,
            "class/hwmon/hwmon0/temp2_input": 64_500,
            "class/hwmon/hwmon1/name": "nvme",
            "class/hwmon/hwmon1/temp1_input": 90_000,
        }
    )
    state = CpuHandle(Rapl(tmp_path), root, "Linux").state()
    assert state.values == {
        "clock_hz": 2_500_000_000,
        "clock_default_hz": 2_400_000_000,
        "temperature_c": 64.5,
        "violation_ns": 7_000_000,
    }
    assert state.missing["foreign_pids"] == "not_applicable: every process shares the CPU"
    assert set(state.values) | set(state.missing) == set(STATE_NAMES)


@pytest.mark.parametrize("bad", ["temp1_input", "name"])
def test_one_sensor_without_a_value_takes_no_other_with_it(plant, tmp_path, bad):
    names = ("class/hwmon/hwmon0", "class/hwmon/hwmon1")
    root = plant({f"{names[0]}/name": "coretemp", f"{names[0]}/temp1_input": 61_000, f"{names[1]}/name": "k10temp"})
    (root / names[1] / "temp1_input").mkdir()  # reading it fails, as with EIO
    if bad == "name":
        (root / names[1] / "name").unlink()
        (root / names[1] / "name").mkdir()
    assert CpuHandle(Rapl(tmp_path), root, "Linux").state().values["temperature_c"] == 61.0


def test_a_processor_without_a_clock_takes_no_other_with_it(plant, tmp_path):
    cpu = "devices/system/cpu"
    root = plant(
        {f"{cpu}/cpu0/cpufreq/scaling_cur_freq": 2_000_000, f"{cpu}/cpu1/cpufreq/scaling_cur_freq": "<unknown>"}
    )
    assert CpuHandle(Rapl(tmp_path), root, "Linux").state().values["clock_hz"] == 2_000_000_000


def test_the_only_sensor_without_a_value_is_the_reason(plant, tmp_path):
    root = plant({"class/hwmon/hwmon0/name": "coretemp", "class/hwmon/hwmon0/temp1_input": "off"})
    reason = CpuHandle(Rapl(tmp_path), root, "Linux").state().missing["temperature_c"]
    assert reason == f"failed: {root}/class/hwmon/hwmon0/temp1_input holds 'off', not a number"


def test_a_machine_without_sensors_has_a_reason_for_everything(tmp_path):
    handle = CpuHandle(Rapl(tmp_path), tmp_path, "Linux")
    assert set(handle.state().missing) == set(STATE_NAMES)
    assert handle.state().missing["temperature_c"] == f"not_supported: no CPU sensor in {tmp_path}/class/hwmon"
    assert set(handle.energy_j().missing) == {*ENERGY_DOMAINS, "method"}
    assert set(handle.peak_memory().missing) == set(PEAK_NAMES)
    assert set(handle.memory_in_use().missing) == set(IN_USE_NAMES)


def test_other_systems_have_the_reason_that_there_is_no_interface(tmp_path):
    state = CpuHandle(Rapl(tmp_path), tmp_path, "Windows").state()
    assert state.missing["clock_hz"] == "not_supported: no interface on Windows"
    assert state.missing["foreign_pids"].startswith("not_applicable")


def test_counters_make_the_method_counter(plant):
    root = plant(
        {
            "intel-rapl:0/name": "package-0",
            "intel-rapl:0/energy_uj": 5,
            "intel-rapl:0/max_energy_range_uj": 100,
        }
    )
    energy = CpuHandle(Rapl(root)).energy_j()
    assert energy.values == {"cpu_pkg": 0.0, "method": "counter"}
    assert set(energy.missing) == {"gpu", "soc", "dram"}


def test_cpu_has_no_events_and_no_queue(tmp_path):
    handle = CpuHandle(Rapl(tmp_path))
    assert handle.timer() is None
    handle.synchronize()
    handle.empty_cache()
    handle.reset_peak_memory()
    handle.close()
    assert handle.torch_name == "cpu"


def test_too_little_memory_for_a_cold_cache_is_an_error_and_no_wait(monkeypatch):
    def no_memory(*_, **__):
        raise MemoryError

    monkeypatch.setattr(numpy, "zeros", no_memory)
    with pytest.raises(MemoryError):
        FlushThreads([(8, None)])
