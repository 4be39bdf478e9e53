"""Gauges on real processes, vendors' recorded answers, and files of Linux's drivers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pynvml
import pytest

from benchmarking.core.device_contracts import CONDITION_NAMES, USE_NAMES, Gauge
from benchmarking.core.records import Readings
from benchmarking.devices import cuda, mps, rocm
from benchmarking.devices.support import amd, gauges, torch_gpu
from benchmarking.devices.support.nvml import Nvml, NvmlMonitor
from benchmarking.devices.support.system_values import UnreadableError
from benchmarking.devices.support.torch_gpu import TorchBuild

BUSY = "import sys; print(flush=True)\nwhile True: pass"
IDLE = "import sys, time; print(flush=True); time.sleep(60)"


@pytest.fixture
def started():
    """Starts Python programs, which end with the test."""
    children: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> int:
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child.pid

    yield start
    for child in children:
        child.kill()
        child.communicate()


def test_the_processors_of_an_idle_process_are_idle_and_those_of_a_busy_one_are_not(started):
    idle, busy = (gauges.ProcessorGauge([started(program)]) for program in (IDLE, BUSY))
    idle.read()
    busy.read()
    time.sleep(0.6)
    one_of_them = 100 / gauges.usable_processors(busy._process_ids[0])
    rest = idle.read().values["utilization_percent"]
    assert rest < 2
    share = busy.read().values["utilization_percent"]  # on a machine with other programs less than a whole processor
    assert rest < share <= one_of_them + 1, "one thread cannot keep more than one processor busy"


def test_cpu_time_is_what_the_kernel_counts_for_the_process():
    before, own = gauges.cpu_time_ns(os.getpid()), time.process_time_ns()
    assert before == pytest.approx(own, abs=5_000_000)


def test_ended_process_keeps_its_cpu_time(started):
    pid = started(BUSY)
    gauge = gauges.ProcessorGauge([os.getpid(), pid])
    time.sleep(0.1)
    spent = gauge._cpu_time_ns()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert gauges.cpu_time_ns(pid) is None
    assert gauge._cpu_time_ns() >= spent


def test_the_first_reading_has_no_share_of_time_but_a_reason():
    readings = gauges.ProcessorGauge([os.getpid()]).read()
    assert readings.missing["utilization_percent"] == "not_supported: a share of time needs two readings"
    assert readings.missing["device_used_bytes"].startswith("not_applicable")
    assert readings.values["resident_bytes"] > 1_000_000


def test_the_memory_of_processes_that_have_ended_is_missing_and_not_0(started):
    pid = started(BUSY)
    gauge = gauges.ProcessorGauge([pid])
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    readings = gauge.read()
    assert "resident_bytes" not in readings.values
    assert readings.missing["resident_bytes"] == "not_supported: the processes have ended"


def test_busy_share_is_at_most_100_percent():
    clock, busy = iter([0, 100, 200, 300]), iter([0, 50, 400, 300])
    share = gauges.BusyShare(lambda: next(busy), capacity=2, now_ns=lambda: next(clock))
    with pytest.raises(UnreadableError):
        share.percent()
    assert [share.percent(), share.percent(), share.percent()] == [25.0, 100.0, 0.0]


def test_nvidia_utilization_is_nvmls(nvml):
    assert [name for name, _ in pynvml.c_nvmlUtilization_t._fields_] == ["gpu", "memory"]
    module = nvml()
    monitor = NvmlMonitor(Nvml(module), module.nvmlDeviceGetHandleByIndex(0)["nvmlDeviceGetUUID"])
    assert gauges.MonitorGauge(monitor).read() == Readings(
        values={"utilization_percent": 37, "device_used_bytes": 633843712, "power_w": 113.287}
    )


def test_mig_instance_has_reasons_instead_of_the_gpus_readings(nvml):
    module = nvml()
    monitor = NvmlMonitor(Nvml(module), module.nvmlDeviceGetHandleByIndex(1)["nvmlDeviceGetUUID"])
    readings = gauges.MonitorGauge(monitor).read()
    assert readings.missing["utilization_percent"].startswith("not_supported: nvmlDeviceGetUtilizationRates")
    assert readings.missing["power_w"].startswith("not_supported")


def test_several_gpus_are_combined_by_mean_and_sum(nvml, monkeypatch):
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: TorchBuild(version="2.13.0+cu130", cuda="13.0"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    first, _ = cuda.CudaDevice(nvml()).probe()
    one = cuda.CudaDevice(nvml()).gauge(first, [1])

    class Other(Gauge):
        def read(self):
            return Readings(
                values={"utilization_percent": 63, "device_used_bytes": 7}, missing={"power_w": "failed: x"}
            )

    readings = gauges.SeveralGauge([one, Other()]).read()
    assert readings.values == {"utilization_percent": 50.0, "device_used_bytes": 633843719}
    assert readings.missing == {"power_w": "failed: x"}


def test_amd_utilization_is_amdsmis(amdsmi):
    readings = gauges.MonitorGauge(amd.AmdSmiMonitor(amd.AmdSmi(amdsmi), "0000:c1:00")).read()
    assert readings.values == {"utilization_percent": 64, "device_used_bytes": 1297219584, "power_w": 213.0}


def test_amd_utilization_is_the_kernels_without_amdsmi(kfd):
    monitor = rocm.SysfsMonitor(amd.nodes(kfd)[0])
    gauge = gauges.MonitorGauge(monitor)
    assert gauge.read().missing["utilization_percent"].startswith("not_supported: no ")
    (kfd / "class/drm/renderD128/device/gpu_busy_percent").write_text("81\n")
    assert gauge.read().values["utilization_percent"] == 81


def test_conditions_are_clocks_and_temperature_as_the_vendor_gives_them(nvml, amdsmi, kfd):
    module = nvml()
    of_nvidia = NvmlMonitor(Nvml(module), module.nvmlDeviceGetHandleByIndex(0)["nvmlDeviceGetUUID"])
    for monitor in (
        of_nvidia,
        amd.AmdSmiMonitor(amd.AmdSmi(amdsmi), "0000:c1:00"),
        rocm.SysfsMonitor(amd.nodes(kfd)[0]),
    ):
        conditions, state = gauges.MonitorGauge(monitor).conditions(), monitor.state()
        assert set(conditions.values) | set(conditions.missing) == set(CONDITION_NAMES)
        assert conditions.values
        assert {name: state.values.get(name) for name in conditions.values} == conditions.values


def test_several_gpus_report_the_slowest_clock_and_highest_temperature():
    class One(Gauge):
        def __init__(self, **values):
            self.values = values

        def conditions(self):
            return Readings(values=self.values, missing={"memory_clock_hz": "failed: x"})

    both = gauges.SeveralGauge([One(clock_hz=5, temperature_c=60), One(clock_hz=3, temperature_c=70)])
    assert both.conditions() == Readings(
        values={"clock_hz": 3, "temperature_c": 70}, missing={"memory_clock_hz": "failed: x"}
    )


def test_a_processors_conditions_are_its_sensors_and_the_power_of_its_energy(plant):
    root = plant(
        {
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": 2_000_000,
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": 3_000_000,
            "sys/class/hwmon/hwmon0/name": "coretemp",
            "sys/class/hwmon/hwmon0/temp1_input": 61_000,
        }
    )

    class Energy:
        joules = 0.0

        def energy_j(self):
            self.joules += 1e-3
            return Readings(values={"cpu_pkg": self.joules})

    gauge = gauges.ProcessorGauge([os.getpid()], Energy(), root / "sys")
    before = time.monotonic()
    first = gauge.conditions()
    after = time.monotonic()
    assert first.missing["power_w"] == "not_supported: power needs two readings of the energy"
    time.sleep(0.05)
    shortest_s = time.monotonic() - after
    second = gauge.conditions()
    assert 1e-3 / (time.monotonic() - before) <= second.values["power_w"] <= 1e-3 / shortest_s
    assert second.values["clock_hz"] == 2.5e9
    assert second.values["temperature_c"] == 61
    assert second.values["machine_used_bytes"] > 1e6
    assert 0 <= second.values["machine_percent"] <= 100


def test_process_tree_is_read_again_each_time(started):
    tree = gauges.ProcessTree(os.getpid())
    before = set(tree)
    pid = started(IDLE)
    assert set(tree) - before == {pid}
    assert tree[0] == os.getpid()


def test_apple_utilization_is_read_from_the_io_registry(recorded_text):
    gauge = mps.IoregGauge(lambda command: recorded_text("macos_ioreg_accelerator.txt"))
    assert gauge.read().values == {"utilization_percent": 73, "device_used_bytes": 2365587456}
    assert gauge.read().missing["power_w"].startswith("not_supported: on macOS only root can read it")


def fdinfo(root, fields, pid=7, fd=5):
    path = root / str(pid) / "fdinfo" / str(fd)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = {"pos": 0, "drm-client-id": 3, "drm-pdev": "0000:03:00.0", **fields}
    path.write_text("".join(f"{key}:\t{value}\n" for key, value in lines.items()))


def test_intels_older_driver_counts_nanoseconds_of_each_engine(tmp_path):
    clock = iter([1_000_000_000, 2_000_000_000])
    gauge = gauges.DrmGauge([7], tmp_path, now_ns=lambda: next(clock))
    memory = {"drm-resident-local0": "512 MiB", "drm-resident-system0": "6044 KiB"}
    for render, compute in ((346249, 0), (10_346_249, 640_000_000)):
        busy = {"drm-engine-render": f"{render} ns", "drm-engine-compute": f"{compute} ns"}
        fdinfo(tmp_path, {"drm-driver": "i915", **busy, "drm-engine-capacity-video": 2, **memory})
        fdinfo(tmp_path, {"drm-driver": "i915", **busy, **memory}, fd=6)  # the same client, opened twice
        readings = gauge.read()
    assert readings.values == {"utilization_percent": 64.0, "device_used_bytes": 512 * 1024**2}
    assert readings.missing["power_w"].startswith("not_supported")


def test_intels_newer_driver_counts_cycles_of_each_engine(tmp_path):
    gauge = gauges.DrmGauge([7], tmp_path)
    for busy, total in ((0, 7_655_183_225), (300_000, 7_656_183_225)):
        engines = {"drm-cycles-ccs": busy, "drm-total-cycles-ccs": total, "drm-cycles-bcs": 0}
        rest = {"drm-total-cycles-bcs": total, "drm-resident-vram0": "23992 KiB", "drm-engine-capacity-vcs": 2}
        fdinfo(tmp_path, {"drm-driver": "xe", **engines, **rest})
        readings = gauge.read()
    assert readings.values == {"utilization_percent": 30.0, "device_used_bytes": 23992 * 1024}


def test_a_process_without_a_file_of_intels_drivers_has_the_reason(tmp_path):
    fdinfo(tmp_path, {"drm-driver": "amdgpu", "drm-engine-gfx": "5 ns"})
    readings = gauges.DrmGauge([7, 8], tmp_path).read()
    assert set(readings.missing) == set(USE_NAMES)
    assert "i915, xe" in readings.missing["utilization_percent"]


def test_intels_npu_is_busy_for_the_time_that_its_driver_counts(plant):
    clock = iter([0, 1_000_000_000])
    folder = "sys/class/accel/accel0/device"
    root = plant({f"{folder}/npu_busy_time_us": 5_000, f"{folder}/npu_memory_utilization": 77_000_000})
    gauge = gauges.NpuGauge(root / "sys", now_ns=lambda: next(clock))
    gauge.read()
    plant({f"{folder}/npu_busy_time_us": 255_000})
    assert gauge.read().values == {"utilization_percent": 25.0, "device_used_bytes": 77_000_000}
    assert gauges.NpuGauge(root / "none").read().missing["utilization_percent"].startswith("not_supported: no ")
