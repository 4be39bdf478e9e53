"""The CUDA device on recorded NVML answers."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import Device, Readings
from benchmarking.devices import cuda
from benchmarking.devices.support import nvml as nvml_module
from benchmarking.devices.support import torch_gpu
from benchmarking.devices.support.torch_gpu import TorchBuild, TorchGpuHandle
from benchmarking.measure.doubt_rules import about_window
from benchmarking.measure.machine_state import summarise_states

FIRST_UUID = "GPU-5f1c7d0e-6b3a-4c8e-9d2f-1a2b3c4d5e6f"


@pytest.fixture(autouse=True)
def torch_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: TorchBuild(version="2.13.0+cu130", cuda="13.0"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_two_gpus_of_a_model_are_found_with_their_facts(nvml):
    first, second = cuda.CudaDevice(nvml()).probe()
    assert (first.selector, second.selector) == ("cuda:0", "cuda:1")
    assert (first.name, first.vendor, first.driver, first.count) == ("NVIDIA H100 80GB HBM3", "NVIDIA", "580.95.05", 2)
    assert first.memory_bytes == 85_520_809_984
    assert first.precisions == ("float32", "tf32", "bfloat16", "float16", "float8_e4m3", "int8", "int4")
    assert first.facts.values["compute_capability"] == "9.0"
    assert first.facts.values["pci_address"] == "0000:18:00"
    assert first.facts.values["power_cap_w"] == 650.0
    assert first.facts.values["power_cap_default_w"] == 700.0
    assert first.facts.values["clock_max_hz"] == 1_980_000_000
    assert first.facts.values["cuda_driver_version"] == "13.0"
    assert first.facts.values["is_ecc_enabled"] is True
    assert first.facts.values["is_mig_enabled"] is False
    assert second.facts.values["is_mig_enabled"] is True
    assert second.facts.values["pcie_width"] == 8
    assert "int4" not in first.facts.values["native_precisions"]
    assert first.facts.values["clock_application_hz"] == 1_980_000_000
    assert first.facts.values["ecc_uncorrected_errors"] == 0
    assert (first.facts.values["compute_mode"], first.facts.values["virtualization"]) == ("default", "none")
    assert first.facts.values["is_display_active"] is False


def test_facts_that_a_consumer_gpu_lacks_are_missing_with_the_reason(nvml, monkeypatch):
    build = TorchBuild(version="2.7.1+cu118", cuda="11.8")  # the recorded driver has CUDA 11.4
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: build)
    (device,) = cuda.CudaDevice(nvml("nvml_rtx_2080_ti.json")).probe()
    assert device.precisions == ("float32", "float16", "int8", "int4")
    assert device.facts.missing["clock_default_hz"].startswith("not_supported: nvmlDeviceGetDefaultApplicationsClock")
    assert device.facts.missing["is_mig_enabled"].startswith("not_supported")
    assert "is_mig_enabled" not in device.facts.values
    assert device.facts.missing["ecc_uncorrected_errors"].startswith("not_supported: nvmlDeviceGetTotalEccErrors")
    assert device.facts.values["temperature_slowdown_c"] == 94
    assert (device.facts.values["compute_mode"], device.facts.values["virtualization"]) == (
        "exclusive_process",
        "passthrough",
    )
    assert device.facts.values["is_display_active"] is True


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ("5.2", ("float32",)),
        ("5.3", ("float32", "float16")),
        ("7.5", ("float32", "float16", "int8", "int4")),
        ("8.0", ("float32", "tf32", "bfloat16", "float16", "int8", "int4")),
        ("8.6", ("float32", "tf32", "bfloat16", "float16", "int8", "int4")),
        ("8.9", ("float32", "tf32", "bfloat16", "float16", "float8_e4m3", "int8", "int4")),
        ("12.0", ("float32", "tf32", "bfloat16", "float16", "float8_e4m3", "int8", "int4")),
    ],
)
def test_precisions_follow_the_compute_capability(capability, expected):
    assert cuda.precisions(capability) == expected


def test_state_converts_units_and_names_the_throttle_reasons(nvml):
    state = nvml_module.NvmlMonitor(nvml_module.Nvml(nvml()), FIRST_UUID, own_pid=4242).state()
    assert state.values == {
        "clock_hz": 1_755_000_000,
        "clock_default_hz": 1_980_000_000,
        "clock_highest_hz": 1_755_000_000,
        "memory_clock_hz": 2_619_000_000,
        "temperature_c": 38,
        "power_w": 113.287,
        "throttle_reasons": ["hardware_thermal", "software_power_cap"],
        "throttle_counters": {
            "software_power_cap": 5_200_000_000,
            "sync_boost": 0,
            "software_thermal": 31_000_000,
            "hardware_thermal": 0,
            "power_brake": 0,
        },
        "violation_ns": 31_000_000,
        "power_violation_ns": 5_200_000_000,
        "pcie_generation": 5,
        "pcie_width": 16,
        "foreign_pids": [],
        "foreign_use": [],
    }
    assert state.missing == {}


def test_old_driver_uses_the_older_throttle_call(nvml):
    nvml_2080 = nvml_module.Nvml(nvml("nvml_rtx_2080_ti.json"))
    state = nvml_module.NvmlMonitor(nvml_2080, "GPU-0c1d2e3f-4a5b-6c7d-8e9f-a0b1c2d3e4f5", own_pid=1).state()
    assert state.values["throttle_reasons"] == ["software_power_cap"]
    assert state.missing["violation_ns"].startswith("no_permission: nvmlDeviceGetViolationStatus")
    assert state.missing["clock_default_hz"].startswith("not_supported")


def watched(module, uuid=FIRST_UUID, own_pid=1):
    return nvml_module.NvmlMonitor(nvml_module.Nvml(module), uuid, own_pid=own_pid)


def test_state_and_facts_need_none_of_the_calls_that_cuda_14_removes(nvml):
    """The names are those that the installed package marks so."""
    source = Path(pynvml.__file__).read_text()
    removed = set(re.findall(r"# DEPRECATED[^\n]*will be removed in CUDA 14\.0\ndef (\w+)", source))
    assert {"nvmlDeviceGetTemperature", "nvmlDeviceGetViolationStatus"} <= removed

    class Nvml14(type(nvml())):
        def __getattr__(self, name):
            if name in removed:
                raise AttributeError(name)
            return super().__getattr__(name)

    module = Nvml14(nvml().recording)
    (device, _), (before, _) = cuda.CudaDevice(module).probe(), cuda.CudaDevice(nvml()).probe()
    assert device.facts == before.facts
    assert watched(module).state() == watched(nvml()).state()


def test_a_value_is_read_by_the_type_that_nvml_names():
    kinds = ("DOUBLE", "UNSIGNED_INT", "UNSIGNED_LONG", "UNSIGNED_LONG_LONG", "SIGNED_LONG_LONG", "SIGNED_INT")
    names = dict(zip(kinds, nvml_module.VALUE_FIELDS, strict=False))
    fields = [name for name, _ in pynvml.c_nvmlValue_t._fields_]
    assert set(nvml_module.VALUE_FIELDS) <= set(fields)
    for kind, name in names.items():
        assert nvml_module.VALUE_FIELDS[getattr(pynvml, f"NVML_VALUE_TYPE_{kind}")] == name


def test_every_counter_of_the_clocks_reasons_is_known_to_the_package():
    listed = {name for name in vars(pynvml) if name.startswith("NVML_FI_DEV_CLOCKS_EVENT_REASON_")}
    assert {f"NVML_FI_DEV_CLOCKS_EVENT_REASON_{end}" for end in nvml_module.COUNTERS} == listed


def test_throttling_is_the_growth_of_the_counters(nvml):
    """The recorded bits are heat and the power cap; only the power cap's counter grows."""
    module = nvml()
    monitor = watched(module, own_pid=4242)
    before = monitor.state()
    module.recording["devices"][0]["nvmlDeviceGetFieldValues"]["74"] += 900_000_000
    window = summarise_states([before, monitor.state()]).values
    assert window["throttle_reasons"] == ["software_power_cap"]
    assert window["throttle_counters"]["software_power_cap"] == window["power_violation_ns"] == 900_000_000
    module.recording["devices"][0]["nvmlDeviceGetCurrentClocksEventReasons"] = 1
    module.recording["devices"][0]["nvmlDeviceGetFieldValues"]["270"] += 5_000_000
    assert summarise_states([before, monitor.state()]).values["throttle_reasons"] == [
        "hardware_thermal",
        "software_power_cap",
    ]


def test_reasons_that_the_driver_does_not_count_are_those_of_the_mask(nvml):
    """Power brake has a counter in this recording and no growth; hardware slowdown (0x8) never has a counter."""
    module = nvml()
    monitor = watched(module, own_pid=4242)
    before = monitor.state()
    module.recording["devices"][0]["nvmlDeviceGetCurrentClocksEventReasons"] = 0x8 | 0x80
    window = summarise_states([before, monitor.state()]).values
    assert window["throttle_reasons"] == ["hardware_slowdown"]
    assert about_window(window, is_accelerator=True)[0].kind == "throttle_reason"


def test_a_board_without_a_default_clock_is_compared_with_its_highest_clock(nvml):
    module = nvml("nvml_rtx_2080_ti.json")
    monitor = watched(module, "GPU-0c1d2e3f-4a5b-6c7d-8e9f-a0b1c2d3e4f5")
    clocks = module.recording["devices"][0]["nvmlDeviceGetClockInfo"]
    module.recording["devices"][0]["nvmlDeviceGetCurrentClocksEventReasons"] = 0
    module.recording["devices"][0]["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0
    states = []
    for megahertz in (1900, 1200, 1200, 1200):
        clocks[str(pynvml.NVML_CLOCK_SM)] = megahertz
        states.append(monitor.state())
    window = summarise_states(states).values
    assert "clock_default_hz" not in window
    (low,) = [one for one in about_window(window, is_accelerator=True) if one.kind == "low_clock"]
    assert (low.evidence["clock_hz"], low.evidence["default_hz"]) == (1.2e9, 1.9e9)


@pytest.mark.parametrize(
    ("name", "megahertz", "bits", "expected"),
    [
        ("nvml_2x_h100.json", 1590, 0, ["clock_below_maximum"]),
        ("nvml_2x_h100.json", 1965, 0, []),  # a few steps below the highest of 1980 MHz
        ("nvml_2x_h100.json", 1590, 0x1, ["gpu_idle"]),
        ("nvml_2x_h100.json", 1590, 0x4, ["software_power_cap"]),
        ("nvml_rtx_2080_ti.json", 1350, 0, []),  # consumer boards stay below for reasons without a bit
    ],
)
def test_locked_clocks_are_seen_by_a_clock_that_nothing_explains(nvml, name, megahertz, bits, expected):
    """`nvidia-smi -lgc` cannot be read: a busy GPU stays below its highest clock, and the mask says that nothing limits
    it."""
    module = nvml(name)
    gpu = module.recording["devices"][0]
    gpu["nvmlDeviceGetClockInfo"][str(pynvml.NVML_CLOCK_SM)] = megahertz
    gpu |= dict.fromkeys(("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"), bits)
    monitor = watched(module, gpu["nvmlDeviceGetUUID"], own_pid=4242)
    states = [monitor.state(), monitor.state()]
    assert states[0].values["throttle_reasons"] == expected
    raised = [one.kind for one in about_window(summarise_states(states).values, is_accelerator=True)]
    assert ("application_clock" in raised) == (expected == ["clock_below_maximum"])


def test_the_library_has_no_call_that_reads_locked_clocks():
    """Where this fails, nvidia-ml-py has one, and the lock need not be inferred any more."""
    about = {name for name in dir(pynvml) if name.startswith("nvmlDevice") and "LockedClocks" in name}
    assert about == {f"nvmlDevice{verb}{what}LockedClocks" for verb in ("Set", "Reset") for what in ("Gpu", "Memory")}


def test_a_process_that_is_listed_for_utilization_only_is_not_foreign(nvml):
    own = (4242, 1, WHOLE)
    monitor = watched(clients(nvml(), compute=[own], busy=[(4242, 99, LATER), (31_337, 80, LATER)]), own_pid=4242)
    assert monitor.state().values["foreign_use"] == []


def test_driver_without_throttle_counters_keeps_the_current_states(nvml):
    monitor = watched(nvml("nvml_rtx_2080_ti.json"), "GPU-0c1d2e3f-4a5b-6c7d-8e9f-a0b1c2d3e4f5")
    states = [monitor.state(), monitor.state()]
    assert states[0].missing["throttle_counters"].startswith("no_permission: NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER")
    assert summarise_states(states).values["throttle_reasons"] == ["software_power_cap"]


def clients(module, *, compute=(), graphics=(), busy=()):
    """Put processes on the first GPU: (pid, bytes, instance), pids, and samples (pid, percent, time)."""
    module.recording["devices"][0] |= {
        "nvmlDeviceGetComputeRunningProcesses": [
            {"pid": pid, "usedGpuMemory": used, "gpuInstanceId": instance} for pid, used, instance in compute
        ],
        "nvmlDeviceGetGraphicsRunningProcesses": [{"pid": pid, "usedGpuMemory": None} for pid in graphics],
        "nvmlDeviceGetProcessUtilization": busy
        if isinstance(busy, dict)
        else [{"pid": pid, "smUtil": percent, "timeStamp": at} for pid, percent, at in busy],
    }
    return module


LATER = 4_102_444_800_000_000
"""Of the next century, in microseconds."""
WHOLE = 0xFFFF_FFFF


def test_foreign_use_is_utilization_since_the_last_reading(nvml):
    own, idle, busy = (4242, 1, WHOLE), (77, 5, WHOLE), (78, 5, WHOLE)
    module = clients(nvml(), compute=[own, idle, busy], busy=[(4242, 99, LATER), (78, 61, LATER), (77, 4_000, LATER)])
    monitor = watched(module, own_pid=4242)
    assert monitor.state().values["foreign_use"] == [{"pid": 78, "busy_percent": 61, "memory_bytes": 5}]
    assert monitor.state().values["foreign_pids"] == []  # the sample is no newer than the one that was read
    clients(module, compute=[own, idle, busy], busy={"error": pynvml.NVML_ERROR_NOT_FOUND})
    assert monitor.state().values["foreign_pids"] == []  # how NVML says that nobody computed


def test_drawn_windows_are_not_foreign(nvml):
    """As Windows lists a desktop: every client in both lists, without memory or utilization."""
    desktop = [(pid, None, WHOLE) for pid in (500, 501)]
    module = clients(nvml(), compute=[(4242, None, WHOLE), *desktop], graphics=[500, 501], busy={"error": 3})
    assert watched(module, own_pid=4242).state().values["foreign_pids"] == []


def test_process_in_another_mig_instance_is_not_foreign_but_in_our_own_is(nvml):
    ours, neighbour, housemate = (4242, 9, 3), (90, 9, 4), (91, 9, 3)
    module = clients(nvml(), compute=[ours, neighbour, housemate], busy={"error": 3})
    assert watched(module, own_pid=4242).state().values["foreign_pids"] == [91]


def test_the_momentary_power_is_preferred_to_the_mean_of_a_second(nvml):
    module = nvml()
    assert watched(module).momentary_power_w() == 113.287
    module.recording["devices"][0]["nvmlDeviceGetFieldValues"][str(pynvml.NVML_FI_DEV_POWER_INSTANT)] = 421_500
    assert watched(module).momentary_power_w() == 421.5
    assert (
        watched(module, "GPU-a0b1c2d3-e4f5-4061-8273-94a5b6c7d8e9").momentary_power_w() is None
    )  # MIG: all instances'


def test_energy_is_converted_from_millijoules(nvml):
    energy = nvml_module.NvmlMonitor(nvml_module.Nvml(nvml()), FIRST_UUID, own_pid=1).energy_j()
    assert energy.values == {"gpu": 987_654.321}


def test_energy_of_a_gpu_without_counter_is_missing(nvml):
    monitor = nvml_module.NvmlMonitor(
        nvml_module.Nvml(nvml("nvml_rtx_2080_ti.json")), "GPU-0c1d2e3f-4a5b-6c7d-8e9f-a0b1c2d3e4f5", own_pid=1
    )
    assert monitor.energy_j().missing["gpu"].startswith("not_supported: nvmlDeviceGetTotalEnergyConsumption")


def test_mig_instance_has_no_energy_counter(nvml):
    monitor = nvml_module.NvmlMonitor(nvml_module.Nvml(nvml()), "GPU-a0b1c2d3-e4f5-4061-8273-94a5b6c7d8e9", own_pid=1)
    assert monitor.energy_j().missing == {"gpu": "not_supported: under MIG the counter covers the whole GPU"}


def test_process_memory_is_that_of_the_own_pid(nvml):
    memory = nvml_module.NvmlMonitor(nvml_module.Nvml(nvml()), FIRST_UUID, own_pid=4242).memory_in_use()
    assert memory.values == {"device_used_bytes": 633_843_712, "device_process_bytes": 540_016_640}


def test_earlier_process_is_foreign(nvml):
    monitor = nvml_module.NvmlMonitor(nvml_module.Nvml(nvml()), FIRST_UUID, own_pid=1)
    assert monitor.state().values["foreign_pids"] == [4242]
    assert monitor.memory_in_use().missing["device_process_bytes"].startswith("not_supported: the driver does not list")


def test_already_listed_process_is_ours_in_a_container(nvml):
    monitor = nvml_module.NvmlMonitor(nvml_module.Nvml(nvml()), FIRST_UUID, own_pid=1, is_in_use=True)
    assert monitor.state().values["foreign_pids"] == []
    assert monitor.memory_in_use().values["device_process_bytes"] == 540_016_640


def test_memory_that_a_driver_does_not_report_by_process_is_missing_not_zero(nvml):
    monitor = nvml_module.NvmlMonitor(
        nvml_module.Nvml(nvml("nvml_rtx_2080_ti.json")), "GPU-0c1d2e3f-4a5b-6c7d-8e9f-a0b1c2d3e4f5", own_pid=77
    )
    assert monitor.memory_in_use().missing["device_process_bytes"].startswith("not_supported")


@pytest.mark.parametrize(
    ("code", "words"),
    [(12, "driver is not installed"), (9, "not loaded: modprobe nvidia"), (18, "reboot"), (4, "no permission")],
)
def test_a_driver_that_does_not_start_has_a_reason_and_advice(nvml, code, words):
    (device,) = cuda.CudaDevice(nvml(init_error=code)).probe()
    assert not device.found
    assert words in device.why_not


def test_without_nvml_a_gpu_is_measured_through_torch_and_its_sensors_are_missing(nvml, fake_torch, monkeypatch):
    """As in a container that has the compute capability only, on Jetson and WSL2."""
    gpu = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3",
        major=9,
        minor=0,
        multi_processor_count=132,
        total_memory=85_520_809_984,
        uuid="11111111-2222-3333-4444-555555555555",
        L2_cache_size=52_428_800,
    )
    monkeypatch.setitem(sys.modules, "torch", fake_torch([gpu]))
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: TorchBuild(version="2.13.0+cu130", cuda="13.0"))
    kind = cuda.CudaDevice(nvml(init_error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    (device,) = kind.probe()
    assert (device.found, device.name, device.memory_bytes) == (True, gpu.name, 85_520_809_984)
    assert "bfloat16" in device.precisions
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in device.facts.missing["sensors"]
    handle = kind.open(device)
    assert handle.torch_name == "cuda:0"
    assert handle.timer() is not None
    assert all("NVIDIA_DRIVER_CAPABILITIES" in why for why in handle.state().missing.values())
    assert "device_allocated_peak_bytes" in handle.peak_memory().values
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # torch lists the visible ones only
    assert kind.probe() == (device,)
    kind.hide_others([device])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    monkeypatch.setitem(sys.modules, "torch", fake_torch([]))
    assert not kind.probe()[0].found


def test_devices_that_torch_lists_stay_visible_when_each_of_them_hides_the_others(monkeypatch):
    facts = Readings(missing={"sensors": "no NVML"})
    listed = [Device(type="cuda", selector=f"cuda:{n}", found=True, name="H100", facts=facts) for n in (2, 1)]
    kind = cuda.CudaDevice()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4,5")
    for _ in listed:
        kind.hide_others(listed)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,4"


def test_without_the_package_for_nvml_that_package_is_what_to_add(fake_torch, monkeypatch):
    gpu = SimpleNamespace(name="H100", major=9, minor=0, multi_processor_count=132, total_memory=85_520_809_984)

    def refuse(name):
        if name == "pynvml":
            raise ImportError(name)
        return fake_torch([gpu])

    monkeypatch.setattr(nvml_module.importlib, "import_module", refuse)
    (device,) = cuda.CudaDevice().probe()
    assert device.facts.missing["sensors"] == 'package nvidia-ml-py is missing: pip install "benchhouse[measure]"'


def test_a_clock_is_never_the_current_one_where_its_setting_has_no_number(nvml, monkeypatch):
    """Number 0 of NVML's clocks is the current one."""
    module = nvml()
    monkeypatch.delattr(pynvml, "NVML_CLOCK_ID_APP_CLOCK_DEFAULT")
    gpu = module.recording["devices"][0]
    gpu["nvmlDeviceGetClock"]["1"]["0"] = 345
    gpu["nvmlDeviceGetDefaultApplicationsClock"] = {"1": 1980}
    assert nvml_module.default_clock_hz(nvml_module.Nvml(module), gpu) == 1_980_000_000


def test_memory_in_use_is_without_what_the_driver_reserves(nvml):
    module = nvml()
    module.recording["devices"][0]["nvmlDeviceGetMemoryInfo_v2"] = {"used": 33_843_712}
    assert watched(module, own_pid=4242).memory_in_use().values["device_used_bytes"] == 33_843_712


def test_a_driver_without_a_gpu_is_not_found(nvml):
    module = nvml()
    module.recording["devices"] = []
    (device,) = cuda.CudaDevice(module).probe()
    assert device.why_not == "NVIDIA driver 580.95.05 lists no GPU: check lspci"
    assert module.is_shut_down


def test_torch_built_without_cuda_is_named_with_its_version(nvml, monkeypatch):
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: TorchBuild(version="2.13.0+cpu"))
    (device,) = cuda.CudaDevice(nvml()).probe()
    found = "NVIDIA H100 80GB HBM3 was found, but torch 2.13.0+cpu"
    assert device.why_not.startswith(f"{found} is built for the CPU only, not CUDA: ")
    # Without --upgrade nothing would change.
    assert device.why_not.endswith(
        "pip install --upgrade torch==2.13.0 --index-url https://download.pytorch.org/whl/cu130"
    )


@pytest.mark.parametrize(
    ("capability", "driver", "index"),
    [
        ((9, 0), 13000, "cu130"),
        ((9, 0), 12040, "cu126"),
        ((12, 0), 12080, "cu129"),
        ((12, 0), 13000, "cu130"),
        ((7, 0), 13000, "cu126"),
        ((6, 1), 12040, "cu126"),
    ],
)
def test_a_build_of_torch_is_advised_that_has_kernels_for_the_gpu_and_runs_with_the_driver(
    nvml, monkeypatch, capability, driver, index
):
    import torch

    monkeypatch.setattr(torch_gpu, "torch_build", lambda: TorchBuild(version="2.13.0+cpu"))
    module = nvml()
    module.recording["system"]["nvmlSystemGetCudaDriverVersion"] = driver
    module.recording["devices"][0]["nvmlDeviceGetCudaComputeCapability"] = list(capability)
    assert cuda.CudaDevice(module).probe()[0].why_not.endswith(f"whl/{index}")
    codes = getattr(torch.cuda, "PYTORCH_RELEASES_CODE_CC", None)
    if codes is None:
        pytest.skip("this torch has no table of the GPUs that its builds support")
    kernels = [f"sm_{code}" for code in codes[f"{index[2:4]}.{index[4:]}"]["x86_64"]]
    assert cuda.has_kernels(".".join(map(str, capability)), kernels)


def test_a_driver_older_than_torchs_cuda_is_named_with_both_versions(nvml, monkeypatch):
    build = torch_gpu.TorchBuild(version="2.13.0+cu130", cuda="13.0")
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: build)
    module = nvml()
    assert cuda.CudaDevice(module).probe()[0].found
    module.recording["system"]["nvmlSystemGetCudaDriverVersion"] = 12040
    (device,) = cuda.CudaDevice(module).probe()
    assert not device.found
    assert "was found, but torch 2.13.0+cu130 needs CUDA 13.0, but the NVIDIA driver " in device.why_not
    assert " supports CUDA 12.4: update the driver, or install a torch build for CUDA 12 " in device.why_not


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ("9.0", ["sm_80", "sm_90"], True),
        ("8.9", ["sm_75", "sm_80", "sm_90"], True),
        ("7.0", ["sm_75", "sm_80", "sm_90"], False),
        ("12.1", ["sm_90", "sm_100", "sm_120"], True),
        ("12.0", ["sm_90", "compute_90"], True),
        ("10.0", ["sm_90", "sm_90a", "compute_90a"], False),
        ("10.3", ["sm_100f"], True),
        ("6.1", [], True),
        ("", ["sm_90"], True),
    ],
)
def test_torchs_architectures_are_compared_with_the_compute_capability(capability, built, runs):
    assert cuda.has_kernels(capability, built) == runs


def test_gpu_without_torch_kernels_is_refused_when_opened(nvml, fake_torch, monkeypatch):
    plugin = cuda.CudaDevice(nvml())
    device = plugin.probe()[0]
    torch = fake_torch([])
    torch.cuda.get_arch_list = lambda: ["sm_100", "sm_120"]
    with pytest.raises(
        UnsupportedError, match=r"^NV.* has compute capability 9\.0; torch .* has kernels for sm_100, sm_120 only"
    ):
        plugin.check_build(torch, device)


@pytest.mark.parametrize(
    ("capability", "driver_cuda", "advice"),
    [
        ("6.1", "", "pip install --upgrade torch=={release} --index-url https://download.pytorch.org/whl/cu126"),
        ("12.0", "", "pip install --upgrade torch=={release} --index-url https://download.pytorch.org/whl/cu132"),
        ("12.0", "12.8", "pip install --upgrade torch=={release} --index-url https://download.pytorch.org/whl/cu129"),
        ("3.5", "", "no known build of torch {release} supports it: see https://pytorch.org/get-started/locally"),
        ("8.0", "11.4", "no known build of torch {release} supports it with a driver for CUDA 11.4: see https://py"),
    ],
)
def test_the_build_that_has_kernels_is_named_from_torchs_own_table(monkeypatch, capability, driver_cuda, advice):
    """The table of the installed torch: a new release may drop GPUs and then has another table."""
    import torch

    monkeypatch.setattr(cuda.platform, "machine", lambda: "x86_64")
    release = torch.__version__.partition("+")[0]
    assert cuda.how_to_get_kernels(torch, capability, driver_cuda).startswith(advice.format(release=release))


def test_unreadable_gpu_memory_is_not_replaced_by_the_hosts(nvml):
    """As of a GPU in instances (MIG) without rights: NVML_ERROR_NO_PERMISSION, or no number for the whole."""
    for code, is_split in ((pynvml.NVML_ERROR_NO_PERMISSION, 0), (pynvml.NVML_ERROR_NOT_SUPPORTED, 1)):
        module = nvml()
        first = module.recording["devices"][0]
        first["nvmlDeviceGetMemoryInfo"] = {"error": code}
        first["nvmlDeviceGetMigMode"] = [is_split, is_split]
        assert cuda.CudaDevice(module).probe()[0].memory_bytes is None


def test_rocm_build_of_torch_is_refused_for_cuda(nvml, monkeypatch):
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: TorchBuild(version="2.13.0+rocm7.1", hip="7.1.1"))
    (device,) = cuda.CudaDevice(nvml()).probe()
    assert "torch 2.13.0+rocm7.1 is built for ROCm 7.1.1, not CUDA: " in device.why_not


def test_missing_torch_is_the_reason(nvml, monkeypatch):
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: None)
    (device,) = cuda.CudaDevice(nvml()).probe()
    assert "torch is not installed: pip install torch" in device.why_not


def test_a_missing_binding_is_the_reason_with_its_install_command(monkeypatch):
    def refuse(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(nvml_module.importlib, "import_module", refuse)
    (device,) = cuda.CudaDevice().probe()
    assert device.why_not == 'package nvidia-ml-py is missing: pip install "benchhouse[measure]"'


def test_hidden_gpus_are_not_found_and_the_variable_is_named(nvml, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (device,) = cuda.CudaDevice(nvml()).probe()
    assert device.why_not == "CUDA_VISIBLE_DEVICES= hides all GPUs (2 x NVIDIA H100 80GB HBM3): unset it"


def test_a_gpu_keeps_its_number_when_others_are_hidden(nvml, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (device,) = cuda.CudaDevice(nvml()).probe()
    assert (device.selector, device.count) == ("cuda:1", 2)


def test_opening_maps_the_gpu_to_torchs_number_by_pci_address(nvml, fake_torch, monkeypatch):
    _, second = cuda.CudaDevice(nvml()).probe()
    seen = [SimpleNamespace(name="x", pci_domain_id=0, pci_bus_id=bus, pci_device_id=0) for bus in (0x18, 0x2A)]
    torch = fake_torch(list(reversed(seen)))
    monkeypatch.setattr(torch_gpu, "import_torch", lambda device: torch)
    handle = cuda.CudaDevice(nvml()).open(second)
    assert isinstance(handle, TorchGpuHandle)
    assert handle.torch_name == "cuda:0"
    handle.synchronize()
    assert torch.calls == [("device", "cuda:0"), ("synchronize", (0,))]
    first, _ = cuda.CudaDevice(nvml()).probe()
    other = cuda.CudaDevice(nvml()).open(first)
    assert other.energy_j().values["gpu"] == 987_654.321
    assert other.energy_j().values["method"] == "counter"


def test_opening_a_gpu_that_vanished_from_the_driver_is_an_error(nvml, fake_torch, monkeypatch):
    first, _ = cuda.CudaDevice(nvml()).probe()
    module = nvml()
    module.recording["devices"] = module.recording["devices"][1:]
    seen = SimpleNamespace(name="x", pci_domain_id=0, pci_bus_id=0x18, pci_device_id=0)
    monkeypatch.setattr(torch_gpu, "import_torch", lambda device: fake_torch([seen]))
    with pytest.raises(BenchhouseError, match=r"cannot monitor device 'cuda:0': .*nvmlDeviceGetHandleByUUID"):
        cuda.CudaDevice(module).open(first)


def test_gpus_are_locked_one_by_one(nvml):
    first, second = cuda.CudaDevice(nvml()).probe()
    assert cuda.PLUGIN.lock_name(first) == f"cuda-{FIRST_UUID}"
    assert cuda.PLUGIN.lock_name(first) != cuda.PLUGIN.lock_name(second)


def test_gpu_with_shared_memory_has_the_machines_size(nvml, monkeypatch):
    module = nvml()
    module.recording["devices"][0]["nvmlDeviceGetMemoryInfo"] = {"error": 3}
    monkeypatch.setattr(cuda, "usable_memory_bytes", lambda facts: 128_000_000_000)
    assert cuda.CudaDevice(module).probe()[0].memory_bytes == 128_000_000_000


def test_a_recording_is_not_changed_by_probing(nvml):
    module = nvml()
    assert [dataclasses.asdict(d) for d in cuda.CudaDevice(module).probe()] == [
        dataclasses.asdict(d) for d in cuda.CudaDevice(module).probe()
    ]
