"""The ROCm device on a recorded kernel tree and recorded amdsmi answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import Device, Readings
from benchmarking.devices import rocm
from benchmarking.devices.support import amd, torch_gpu
from benchmarking.devices.support.amd import SysfsMonitor, gfx_target, nodes
from benchmarking.devices.support.system_values import UnreadableError
from benchmarking.devices.support.torch_gpu import TorchBuild
from benchmarking.measure.machine_state import summarise_states

ADDRESS = "0000:c1:00"


@pytest.fixture(autouse=True)
def linux_with_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocm.platform, "system", lambda: "Linux")
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: TorchBuild(version="2.13.0+rocm7.1", hip="7.1.1"))
    for name in (name for group in rocm.PLUGIN.visibility for name in group):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def without_amdsmi(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse():
        raise amd.AmdSmiError("package amdsmi is missing: pip install amdsmi in the version of the installed ROCm")

    monkeypatch.setattr(amd, "load_module", refuse)


def device_of(kfd, module=None):
    return rocm.RocmDevice(module=module, sys=kfd, dev=kfd.parent / "dev")


def test_gpu_is_found_with_amdsmis_facts(kfd, amdsmi):
    (device,) = device_of(kfd, amdsmi).probe()
    assert (device.selector, device.name, device.vendor) == ("rocm:0", "AMD Instinct MI300X", "AMD")
    assert (device.driver, device.count, device.memory_bytes) == ("6.12.12", 1, 206_141_652_992)
    assert device.precisions == ("float32", "float16", "bfloat16", "float8_e4m3", "int8")
    assert device.facts.values["gfx_target"] == "gfx942"
    assert device.facts.values["pci_address"] == ADDRESS
    assert device.facts.values["compute_units"] == 304
    assert device.facts.values["power_cap_w"] == 750.0
    assert device.facts.values["clock_max_hz"] == 2_100_000_000
    assert device.facts.values["compute_partition"] == "SPX"


def test_gpu_is_found_without_amdsmi_from_the_kernel_alone(kfd, without_amdsmi):
    (device,) = device_of(kfd).probe()
    assert device.name == "AMD Instinct MI300X OAM"
    assert device.memory_bytes == 206_141_652_992
    assert device.facts.values["compute_units"] == 304
    assert device.facts.values["gfx_target"] == "gfx942"
    assert device.driver.startswith("Linux ")


def test_a_chip_without_product_name_is_named_by_its_target(kfd, without_amdsmi):
    (kfd / "class/drm/renderD128/device/product_name").write_text("\n")
    (device,) = device_of(kfd).probe()
    assert device.name == "AMD ip discovery (gfx942)"


def test_partitions_of_a_gpu_share_its_address_and_are_told_apart_by_their_function(kfd, plant, recorded_text, amdsmi):
    """As the kernel and amdsmi list an MI300X in CPX: the partition is in bits 28 to 31 of the node's location_id, and
    the PCI function of amdsmi's address."""
    plain = recorded_text("kfd_mi300x_properties.txt")
    second = plain.replace("location_id 49408", f"location_id {49408 | 1 << 28}")
    nodes = "sys/class/kfd/kfd/topology/nodes"
    plant({f"{nodes}/2/properties": second.replace("simd_count 1216", "simd_count 152"), f"{nodes}/2/name": "x"})
    first, other = device_of(kfd, amdsmi).probe()
    assert [one.facts.values["pci_address"] for one in (first, other)] == [ADDRESS, ADDRESS]
    assert [one.facts.values["pci_function"] for one in (first, other)] == [0, 1]
    assert first.facts.values["power_cap_w"] == 750.0  # amdsmi lists only the first here
    assert "amdsmi" not in str(first.facts.missing.get("driver", ""))
    assert device_of(kfd, amdsmi).lock_name(first) == device_of(kfd, amdsmi).lock_name(other)
    monitor = device_of(kfd, amdsmi).monitor(other)  # by the kernel: the recording of amdsmi has no such address
    assert type(monitor).__name__ == "SysfsMonitor"
    assert type(device_of(kfd, amdsmi).monitor(first)).__name__ == "AmdSmiMonitor"


def test_rocms_own_ids_tell_partitions_apart_also_for_torch(kfd, plant, recorded_text, amdsmi, monkeypatch):
    """The kernel's compute driver gives partitions ids that are not their board's (amdgpu_xcp.c, as seen on an MI350
    with driver 6.16.13), ROCm knows a GPU by these alone, and HIP's UUID is their ASCII text."""
    plain = recorded_text("kfd_mi300x_properties.txt")
    second = plain.replace("location_id 49408", f"location_id {49408 | 1 << 28}")
    second = second.replace("unique_id 3786109843278331230", "unique_id 171")
    plant({"sys/class/kfd/kfd/topology/nodes/2/properties": second})
    devices = device_of(kfd, amdsmi).probe()
    assert [one.facts.values["unique_id"] for one in devices] == ["348af6d7c136fd5e", "00000000000000ab"]
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "")
    rocm.PLUGIN.hide_others(devices[1:])
    assert rocm.os.environ["ROCR_VISIBLE_DEVICES"] == "GPU-00000000000000ab"
    seen = [
        SimpleNamespace(name="", pci_domain_id=0, pci_bus_id=0xC1, pci_device_id=0, uuid=uid.encode().hex())
        for uid in ("00000000000000ab", "348af6d7c136fd5e")
    ]
    cuda = SimpleNamespace(device_count=lambda: 2, get_device_properties=seen.__getitem__)
    assert [torch_gpu.torch_index(SimpleNamespace(cuda=cuda), one) for one in devices] == [1, 0]


@pytest.mark.parametrize(
    ("version", "target"), [(90402, "gfx942"), (90010, "gfx90a"), (110000, "gfx1100"), (100302, "gfx1032")]
)
def test_gfx_target_is_spelled_as_the_compiler_does(version, target):
    assert gfx_target(version) == target


def test_old_targets_lack_bfloat16_and_int8():
    assert rocm.precisions("gfx900") == ("float32", "float16")
    assert rocm.precisions("gfx1030") == ("float32", "float16", "int8")
    assert rocm.precisions("gfx950") == ("float32", "float16", "bfloat16", "float8_e4m3", "int8")
    assert rocm.precisions("gfx90a") == ("float32", "float16", "bfloat16", "int8")


def test_a_library_that_does_not_know_the_target_leaves_the_kernels(kfd, amdsmi):
    """As the package writes a structure of ones, and one of zeros."""
    for version, units in (("gfxffffffffffffffff", 0xFFFF_FFFF), ("gfx0", 0)):
        amdsmi.recording["amdsmi_get_gpu_asic_info"] |= {"target_graphics_version": version, "num_compute_units": units}
        (device,) = device_of(kfd, amdsmi).probe()
        assert (device.facts.values["gfx_target"], device.facts.values["compute_units"]) == ("gfx942", 304)
        assert "float8_e4m3" in device.precisions


def test_amdsmi_state_has_one_vocabulary_with_nvidias(amdsmi):
    monitor = amd.AmdSmiMonitor(amd.AmdSmi(amdsmi), ADDRESS, own_pid=4242)
    state = monitor.state()
    assert state.values == {
        "clock_hz": 2_104_000_000,
        "memory_clock_hz": 1_300_000_000,
        "temperature_c": 47,
        "power_w": 213.0,
        "throttle_counters": {"hardware_thermal": 3, "power_brake": 0, "software_power_cap": 12},
        "foreign_pids": [9001],
        "foreign_use": [{"pid": 9001, "busy_percent": None, "memory_bytes": 39_845_888}],
    }
    assert set(state.missing) == {"clock_default_hz", "violation_ns", "throttle_reasons"}
    assert "counts throttling" in state.missing["throttle_reasons"]


def test_throttling_is_the_growth_of_amdsmis_counters_and_no_reading_waits(amdsmi):
    """The violation status, of which each reading waits 100 ms, has no more than these counters."""
    calls = []

    class Counted:
        def __getattr__(self, name):
            calls.append(name)
            return getattr(amdsmi, name)

    monitor = amd.AmdSmiMonitor(amd.AmdSmi(Counted()), ADDRESS, own_pid=4242)
    before = monitor.state()
    amdsmi.recording["amdsmi_get_gpu_metrics_info"] |= {"prochot_residency_acc": 4, "ppt_residency_acc": 19}
    window = summarise_states([before, monitor.state()]).values
    assert window["throttle_reasons"] == ["power_brake", "software_power_cap"]
    assert window["throttle_counters"] == {"power_brake": 4, "software_power_cap": 7, "hardware_thermal": 0}
    assert "amdsmi_get_violation_status" not in calls
    amdsmi.recording["amdsmi_get_gpu_metrics_info"] = dict.fromkeys(amd.RESIDENCIES, "N/A")  # before MI300
    state = monitor.state()
    assert {"throttle_reasons", "throttle_counters"} <= state.missing.keys()
    assert state.missing["throttle_reasons"] == "not_supported: amdsmi does not count throttling of this GPU"


def test_set_clocks_are_facts_by_amdsmi_and_by_the_kernel(kfd, amdsmi, plant):
    (device,) = device_of(kfd, amdsmi).probe()
    assert (device.facts.values["performance_level"], device.facts.values["is_clock_locked"]) == ("auto", False)
    amdsmi.recording["amdsmi_get_gpu_perf_level"] = "AMDSMI_DEV_PERF_LEVEL_DETERMINISM"
    assert device_of(kfd, amdsmi).probe()[0].facts.values["performance_level"] == "determinism"
    amdsmi.recording["amdsmi_get_gpu_perf_level"] = "AMDSMI_DEV_PERF_LEVEL_UNKNOWN"
    assert "performance_level" in device_of(kfd, amdsmi).probe()[0].facts.missing
    plant({"sys/class/drm/renderD128/device/power_dpm_force_performance_level": "manual"})
    assert device_of(kfd, amdsmi).probe()[0].facts.values["performance_level"] == "manual"


def test_hips_setting_wins_over_cudas_once_as_in_torch(kfd, amdsmi, monkeypatch):
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert device_of(kfd, amdsmi).probe()[0].found
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert device_of(kfd, amdsmi).probe()[0].why_not.startswith("HIP_VISIBLE_DEVICES=-1 hides all GPUs")


def test_amdsmi_memory_is_the_processs_own_and_the_total(amdsmi):
    monitor = amd.AmdSmiMonitor(amd.AmdSmi(amdsmi), ADDRESS, own_pid=4242)
    assert monitor.memory_in_use().values == {
        "device_used_bytes": 1_297_219_584,
        "device_process_bytes": 713_031_680,
    }


def test_amdsmi_energy_is_count_times_resolution(amdsmi):
    """2e9 counts of 15.25 uJ are 30500 J."""
    monitor = amd.AmdSmiMonitor(amd.AmdSmi(amdsmi), ADDRESS, own_pid=1)
    assert monitor.energy_j().values == {"gpu": 30_500.0}


def test_energy_and_power_of_a_whole_gpu_are_not_those_of_its_partition(amdsmi, kfd):
    amdsmi.recording["amdsmi_get_gpu_compute_partition"] = "CPX"
    monitor = amd.AmdSmiMonitor(amd.AmdSmi(amdsmi), ADDRESS, own_pid=1)
    assert monitor.energy_j().missing == {"gpu": "not_supported: the counter covers all partitions of the GPU"}
    by_kernel = SysfsMonitor(nodes(kfd)[0])
    assert (monitor.momentary_power_w(), by_kernel.momentary_power_w()) == (None, 213.0)
    (kfd / "class/drm/renderD128/device/current_compute_partition").write_text("DPX\n")
    assert by_kernel.momentary_power_w() is None


def test_edge_temperature_is_used_without_a_hot_spot(amdsmi):
    amdsmi.recording["amdsmi_get_temp_metric"] = {"0": 33, "1": {"error": 2}}
    monitor = amd.AmdSmiMonitor(amd.AmdSmi(amdsmi), ADDRESS, own_pid=1)
    assert monitor.state().values["temperature_c"] == 33


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (
            "amdsmi_get_gpu_process_list",
            UnicodeDecodeError("utf-8", b"worker-\xe6\xa8", 7, 9, "unexpected end of data"),
        ),
        ("amdsmi_get_power_info", KeyError(9)),
    ],
)
def test_what_the_package_itself_cannot_read_is_missing(amdsmi, function, error):
    """It decodes each process's name, which the kernel cuts after 15 bytes (amdsmi_interface.py), and has tables."""

    class Failing:
        def __getattr__(self, name):
            def fail(*arguments):
                raise error

            return fail if name == function else getattr(amdsmi, name)

    monitor = amd.AmdSmiMonitor(amd.AmdSmi(Failing()), ADDRESS, own_pid=4242)
    state, power_w = monitor.state(), monitor.momentary_power_w()
    name = {"amdsmi_get_gpu_process_list": "foreign_pids", "amdsmi_get_power_info": "power_w"}[function]
    assert state.missing[name].startswith(f"failed: {function}: {type(error).__name__}: ")
    assert (state.values["temperature_c"], power_w is None) == (47, name == "power_w")


@pytest.mark.parametrize("placeholder", [0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF])
def test_amdsmis_largest_numbers_are_no_readings(amdsmi, placeholder):
    """What its structures hold where a GPU has no such value; versions of the package differ in what they pass on."""
    amdsmi.recording["amdsmi_get_power_info"] = {"current_socket_power": placeholder, "average_socket_power": 187}
    amdsmi.recording["amdsmi_get_gpu_activity"] = {"gfx_activity": placeholder}
    amdsmi.recording["amdsmi_get_clock_info"] = {"0": {"clk": placeholder}, "4": {"clk": 1300}}
    monitor = amd.AmdSmiMonitor(amd.AmdSmi(amdsmi), ADDRESS, own_pid=1)
    state = monitor.state()
    assert (state.values["power_w"], monitor.momentary_power_w()) == (187.0, 187.0)
    assert state.missing["clock_hz"] == "not_supported: amdsmi does not report amdsmi_get_clock_info clk"
    assert state.values["memory_clock_hz"] == 1_300_000_000
    with pytest.raises(UnreadableError, match="amdsmi does not report amdsmi_get_gpu_activity gfx_activity"):
        monitor.utilization_percent()
    amdsmi.recording["amdsmi_get_power_info"]["average_socket_power"] = placeholder
    assert monitor.momentary_power_w() is None
    amdsmi.recording["amdsmi_get_power_info"]["socket_power"] = 190  # of ROCm 7, which chooses among both
    assert monitor.momentary_power_w() == 190.0


def test_amdsmis_not_available_is_missing(amdsmi):
    amdsmi.recording["amdsmi_get_power_info"] = {"current_socket_power": "N/A", "average_socket_power": "N/A"}
    amdsmi.recording["amdsmi_get_clock_info"] = {"0": {"clk": "N/A"}, "4": {"error": 10}}
    del amdsmi.recording["amdsmi_get_gpu_metrics_info"]
    state = amd.AmdSmiMonitor(amd.AmdSmi(amdsmi), ADDRESS, own_pid=1).state()
    assert state.missing["power_w"] == "not_supported: amdsmi does not report socket power"
    assert state.missing["clock_hz"] == "not_supported: amdsmi does not report amdsmi_get_clock_info clk"
    assert state.missing["memory_clock_hz"].startswith("no_permission: amdsmi_get_clock_info")
    assert state.missing["throttle_reasons"] == "not_supported: the installed amdsmi has no amdsmi_get_gpu_metrics_info"


def test_sysfs_state_has_the_values_of_hwmon_and_a_reason_for_each_other(kfd):
    monitor = SysfsMonitor(nodes(kfd)[0])
    state = monitor.state()
    assert state.values == {
        "clock_hz": 2_104_000_000,
        "memory_clock_hz": 1_300_000_000,
        "temperature_c": 47.0,
        "power_w": 213.0,
    }
    assert state.missing["foreign_pids"] == amd.NEEDS_AMDSMI
    assert monitor.memory_in_use().values == {"device_used_bytes": 297_807_872}
    assert monitor.energy_j().missing == {"gpu": amd.NEEDS_AMDSMI}


def test_an_unloaded_driver_is_the_reason(tmp_path):
    (device,) = rocm.RocmDevice(sys=tmp_path).probe()
    assert not device.found
    assert device.why_not.startswith("the amdgpu driver is not loaded (no ")


def test_machine_with_only_cpu_nodes_has_no_gpu(kfd):
    (kfd / "class/kfd/kfd/topology/nodes/1/properties").unlink()
    (device,) = device_of(kfd).probe()
    assert "lists no compute GPU" in device.why_not


def test_a_forbidden_device_file_is_the_reason(kfd, amdsmi):
    (device,) = rocm.RocmDevice(module=amdsmi, sys=kfd, dev=kfd.parent / "nowhere").probe()
    assert "no permission for" in device.why_not
    assert "groups render and video" in device.why_not


def test_torch_without_rocm_is_named(kfd, amdsmi, monkeypatch):
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: TorchBuild(version="2.13.0+cu130", cuda="13.0"))
    (device,) = device_of(kfd, amdsmi).probe()
    assert "AMD Instinct MI300X was found, but torch 2.13.0+cu130 is built for CUDA 13.0, not ROCm: " in device.why_not


def test_other_systems_than_linux_are_refused(monkeypatch):
    monkeypatch.setattr(rocm.platform, "system", lambda: "Windows")
    (device,) = rocm.RocmDevice().probe()
    assert "Linux only; this is Windows" in device.why_not


def test_hidden_gpus_name_the_variables(kfd, amdsmi, monkeypatch):
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    (device,) = device_of(kfd, amdsmi).probe()
    assert device.why_not == "HIP_VISIBLE_DEVICES=-1 hides all GPUs (1 x AMD Instinct MI300X): unset it"


def test_opening_without_amdsmi_uses_the_kernels_sensors(kfd, without_amdsmi, fake_torch, monkeypatch):
    from types import SimpleNamespace

    plugin = device_of(kfd)
    (device,) = plugin.probe()
    text = b"348af6d7c136fd5e".hex()
    seen = SimpleNamespace(name="AMD Instinct MI300X", uuid=f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:]}")
    monkeypatch.setattr(
        torch_gpu, "import_torch", lambda device: fake_torch([SimpleNamespace(name="x", uuid=""), seen])
    )
    handle = plugin.open(device)
    assert handle.torch_name == "cuda:1"
    assert handle.state().values["temperature_c"] == 47.0
    assert plugin.lock_name(device) == "rocm-0000-c1-00"


def test_opening_a_gpu_that_is_gone_is_an_error(kfd, without_amdsmi, fake_torch, monkeypatch):
    from types import SimpleNamespace

    plugin = device_of(kfd)
    (device,) = plugin.probe()
    (kfd / "class/kfd/kfd/topology/nodes/1/properties").unlink()
    monkeypatch.setattr(torch_gpu, "import_torch", lambda device: fake_torch([SimpleNamespace(name=device.name)]))
    with pytest.raises(BenchhouseError, match="is no longer available: no AMD GPU at 0000:c1:00"):
        plugin.open(device)


@pytest.mark.parametrize(
    ("built", "override", "is_refused"),
    [
        (["gfx90a", "gfx942:sramecc+:xnack-"], None, False),
        (["gfx90a", "gfx1100"], None, True),
        (["gfx90a", "gfx1100"], "11.0.0", False),
        (["gfx9-4-generic"], None, False),
        ([], None, False),
    ],
)
def test_gpu_without_torch_kernels_is_refused(monkeypatch, built, override, is_refused):
    monkeypatch.delenv("HSA_OVERRIDE_GFX_VERSION", raising=False)
    if override:
        monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", override)
    torch = SimpleNamespace(__version__="2.13.0+rocm7.1", cuda=SimpleNamespace(get_arch_list=lambda: built))
    facts = Readings(values={"gfx_target": "gfx942"})
    gpu = Device(type="rocm", selector="rocm:0", found=True, name="AMD Instinct MI300X", facts=facts)
    if not is_refused:
        rocm.PLUGIN.check_build(torch, gpu)
        return
    with pytest.raises(
        UnsupportedError, match=r"^AMD Instinct MI300X is target gfx942; torch .* has kernels for gfx1100, gfx90a only"
    ):
        rocm.PLUGIN.check_build(torch, gpu)
