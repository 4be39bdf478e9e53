"""The host's energy counters: Apple's library, Windows' meters (byte by byte after emi.h), Linux's powercap tree."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarking.core.device_contracts import ENERGY_DOMAINS
from benchmarking.devices import mps
from benchmarking.devices.support import energy_counters as apple_energy
from benchmarking.devices.support import energy_counters as emi
from benchmarking.devices.support import energy_counters as energy_module
from benchmarking.devices.support import energy_counters as host_energy
from benchmarking.devices.support.energy_counters import (
    AppleEnergy,
    EnergyMeters,
    Rapl,
    WindowsMeters,
    channels_v1,
    channels_v2,
)
from benchmarking.devices.support.system_values import UnreadableError

FIELDS = ("cpu_total_mj", "dram_mj", "gpu_mj", "gpu_sram_mj", "ane_mj")


def apple(error=None, **fields):
    """The module: a monitor whose metrics are the given ones, all others None, as on a chip without them."""

    def monitor():
        if error == "start":
            raise RuntimeError("Failed to create IOReport subscription.")
        return SimpleNamespace(get_cumulative_energy=read)

    def read():
        if error == "read":
            raise RuntimeError("Unsupported or invalid energy unit provided: eV")
        return SimpleNamespace(**{**dict.fromkeys(FIELDS), **fields})

    return SimpleNamespace(AppleEnergyMonitor=monitor)


@pytest.mark.parametrize(
    ("system", "kind"), [("Darwin", AppleEnergy), ("Windows", EnergyMeters), ("Linux", Rapl), ("FreeBSD", Rapl)]
)
def test_each_platform_has_its_own_counters(system, kind):
    assert isinstance(host_energy.host_energy(system), kind)


def test_millijoules_of_the_chips_parts_become_joules():
    energy = AppleEnergy(apple(cpu_total_mj=81_250, dram_mj=4_000, gpu_mj=2_500, gpu_sram_mj=250), "arm64").energy_j()
    assert energy.values == {"cpu_pkg": 81.25, "dram": 4.0, "gpu": 2.75}
    assert energy.missing == {"soc": "not_supported: Apple counts parts of the chip only"}


def test_a_part_the_chip_does_not_count_has_its_reason():
    energy = AppleEnergy(apple(cpu_total_mj=1_000, gpu_sram_mj=5), "arm64").energy_j()
    assert energy.values == {"cpu_pkg": 1.0}
    assert energy.missing["dram"] == "not_supported: this chip does not count dram"
    assert energy.missing["gpu"] == "not_supported: this chip does not count gpu"


@pytest.mark.parametrize(
    ("module", "machine", "words"),
    [
        (apple(), "x86_64", "on macOS for x86_64 only root can read energy"),
        (apple("start"), "arm64", "IOReport reports no energy: Failed to create IOReport subscription"),
        (apple("read"), "arm64", "IOReport: Unsupported or invalid energy unit"),
    ],
)
def test_every_domain_has_the_reason_why_nothing_is_read(module, machine, words):
    energy = AppleEnergy(module, machine).energy_j()
    assert energy.values == {}
    assert set(energy.missing) == set(ENERGY_DOMAINS)
    assert all(words in why for why in energy.missing.values())


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch):
    def refuse(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(apple_energy.importlib, "import_module", refuse)
    why = AppleEnergy(machine="arm64").energy_j().missing["gpu"]
    assert why == "not_supported: needs zeus-apple-silicon: pip install zeus-apple-silicon"


def test_apples_gpu_is_counted_in_addition_to_the_processor():
    energy = mps.MpsHandle(None, AppleEnergy(apple(cpu_total_mj=2_000, gpu_mj=3_000), "arm64")).energy_j()
    assert (energy.values["gpu"], energy.values["cpu_pkg"], energy.values["method"]) == (3.0, 2.0, "counter")


INTEL = ("RAPL_Package0_PKG", "RAPL_Package0_PP0", "RAPL_Package0_PP1", "RAPL_Package0_DRAM")


def wide(text, size=None):
    data = text.encode("utf-16-le") + b"\0\0"
    return data if size is None else data.ljust(size, b"\0")


def metadata_v2(*channels, unit=0):
    head = wide("OEM", 32) + wide("Model", 32) + struct.pack("<HH", 1, len(channels))
    return head + b"".join(struct.pack("<IH", unit, len(wide(name))) + wide(name) for name in channels)


def metadata_v1(channel, unit=0):
    name = wide(channel)
    return struct.pack("<I", unit) + wide("OEM", 32) + wide("Model", 32) + struct.pack("<HH", 1, len(name)) + name


class Meters:
    """Meters by path: version, metadata, and the channels' picowatt-hours, which a test may change."""

    def __init__(self, **meters):
        self.meters = meters
        self.open_handles = []
        self.fails_at = None

    def paths(self):
        return list(self.meters)

    def open(self, path):
        self.open_handles.append(path)
        return path

    def close(self, handle):
        self.open_handles.remove(handle)

    def control(self, handle, code, size):
        if code == self.fails_at:
            raise UnreadableError(f"failed: DeviceIoControl 0x{code:x} of an energy meter: error 31")
        version, metadata, energies = self.meters[handle]
        answers = {
            0x224000: struct.pack("<H", version),
            0x224004: struct.pack("<I", len(metadata)),
            0x224008: metadata,
            0x22400C: b"".join(struct.pack("<QQ", energy, 123) for energy in energies),
        }
        return answers[code][:size]


def test_channels_are_contiguous():
    assert channels_v2(metadata_v2(*INTEL)) == INTEL
    assert channels_v2(metadata_v2()) == ()
    assert channels_v1(metadata_v1("Meter of the board")) == ("Meter of the board",)


@pytest.mark.parametrize("cut", [10, 67, 70, 80])
def test_metadata_that_is_cut_short_is_a_reason(cut):
    with pytest.raises(UnreadableError, match=r"failed: the energy meter returned \d+ bytes, expected \d+"):
        channels_v2(metadata_v2(*INTEL)[:cut])


@pytest.mark.parametrize(("channels", "metadata"), [(channels_v1, metadata_v1), (channels_v2, metadata_v2)])
def test_unknown_unit_is_refused(channels, metadata):
    with pytest.raises(UnreadableError, match="counts in unit 7 instead of picowatt-hours"):
        channels(metadata("PKG", unit=7))


def test_package_energy_is_summed_without_counting_cores_twice():
    """10^12 pWh are 1 Wh, so 3600 J; two packages with 2 and 1 of them."""
    one, other = (
        (2, metadata_v2(*(name.replace("0", str(number)) for name in INTEL)), energies)
        for number, energies in enumerate(([2 * 10**12, 9, 9, 5 * 10**11], [10**12, 9, 9, 0]))
    )
    energy = EnergyMeters(Meters(one=one, other=other)).energy_j()
    assert energy.values["cpu_pkg"] == pytest.approx(10_800.0)
    assert energy.values["dram"] == pytest.approx(1_800.0)
    assert set(energy.missing) == {"gpu", "soc"}


def test_a_meter_without_memory_lists_its_channels():
    """AMD's names: the socket is the package."""
    channels = ("VDDCR_VDD Power", "VDDCR_SOC Power", "Current Socket Power", "Apu Power")
    meters = Meters(smu=(2, metadata_v2(*channels), [7, 7, 10**12, 7]))
    energy = EnergyMeters(meters).energy_j()
    assert energy.values == {"cpu_pkg": pytest.approx(3600.0)}
    assert energy.missing["dram"].endswith(
        "channels: VDDCR_VDD Power, VDDCR_SOC Power, Current Socket Power, Apu Power"
    )


def test_counters_are_read_again_each_time():
    meters = Meters(old=(1, metadata_v1("PKG"), [10**12]))
    energy = EnergyMeters(meters)
    assert energy.energy_j().values["cpu_pkg"] == pytest.approx(3600.0)
    meters.meters["old"][2][0] = 2 * 10**12
    assert energy.energy_j().values["cpu_pkg"] == pytest.approx(7200.0)
    meters.fails_at = 0x22400C
    assert energy.energy_j().missing["cpu_pkg"].endswith("0x22400c of an energy meter: error 31")


@pytest.mark.parametrize(
    ("meters", "words"),
    [
        (Meters(), "lists no energy meter"),
        (Meters(new=(3, b"", [])), "unknown version 3 of the energy meter"),
    ],
)
def test_every_domain_has_the_reason_why_there_is_no_meter(meters, words):
    energy = EnergyMeters(meters).energy_j()
    assert energy.values == {}
    assert set(energy.missing) == {"cpu_pkg", "dram", "gpu", "soc"}
    assert all(words in why for why in energy.missing.values())
    assert meters.open_handles == []


def test_other_systems_have_no_energy_meters(monkeypatch):
    monkeypatch.delattr(ctypes, "WinDLL", raising=False)
    assert EnergyMeters().energy_j().missing["cpu_pkg"] == "not_supported: energy meters need Windows"


class Function:
    """A function of a Windows library, whose `restype` can be set."""

    def __init__(self, call):
        self.call = call

    def __call__(self, *arguments):
        return self.call(*arguments)


class Windows:
    """cfgmgr32 and kernel32 with one meter."""

    PATHS = "\\\\?\\ACPI#INTC1#{45bd8344-7ed6-49cf-a440-c276c933b053}\0\0"

    def __init__(self, *, error=0):
        self.error = error
        self.guid = None
        self.closed = []
        self.CM_Get_Device_Interface_List_SizeW = self.size
        self.CM_Get_Device_Interface_ListW = self.list
        self.CreateFileW = Function(self.create)
        self.DeviceIoControl = self.control
        self.CloseHandle = lambda handle: self.closed.append(handle.value)

    def size(self, length, guid, device, flags):
        length._obj.value = len(self.PATHS)
        self.guid = bytes(guid)
        return 0

    def list(self, guid, device, buffer, length, flags):
        assert length.value == len(self.PATHS)
        ctypes.memmove(buffer, self.PATHS.encode("utf-16-le"), 2 * length.value)
        return 0

    def create(self, path, access, share, security, disposition, flags, template):
        assert (access, share, disposition) == (0x80000000, 3, 3)
        return ctypes.c_void_p(-1).value if self.error else 4711

    def control(self, handle, code, given, given_size, buffer, size, returned, overlapped):
        if self.error or handle.value != 4711:
            return 0
        ctypes.memmove(buffer, b"\2\0", 2)
        returned._obj.value = 2
        return 1


def test_the_calls_are_made_as_windows_documents_them():
    windows = Windows()
    meters = WindowsMeters(windows, windows, lambda: 0)
    (path,) = meters.paths()
    assert path == Windows.PATHS.rstrip("\0")
    assert windows.guid.hex() == "4483bd45d67ecf49a440c276c933b053"
    handle = meters.open(path)
    assert meters.control(handle, emi.GET_VERSION, 8) == b"\2\0"
    meters.close(handle)
    assert windows.closed == [4711]


@pytest.mark.parametrize(("error", "reason"), [(5, "no_permission: CreateFileW"), (31, "failed: CreateFileW")])
def test_windows_error_has_its_number(error, reason):
    windows = Windows(error=error)
    meters = WindowsMeters(windows, windows, lambda: error)
    with pytest.raises(UnreadableError, match=rf"{reason} of an energy meter: error {error}"):
        meters.open("path")
    with pytest.raises(UnreadableError, match=rf"0x224000 of an energy meter: error {error}"):
        meters.control(4711, emi.GET_VERSION, 2)


def zone(number, name, energy_uj, range_uj=262_143_328_850):
    return {
        f"{number}/name": name,
        f"{number}/energy_uj": energy_uj,
        f"{number}/max_energy_range_uj": range_uj,
    }


@pytest.fixture
def two_sockets(plant: Callable[[dict[str, Any]], Path]) -> Path:
    return plant(
        {
            **zone("intel-rapl:0", "package-0", 1_000_000),
            **zone("intel-rapl:0:0", "core", 500_000),
            **zone("intel-rapl:0:1", "dram", 250_000, 65_712_999_613),
            **zone("intel-rapl:1", "package-1", 2_000_000),
            **zone("intel-rapl-mmio:0", "package-0", 1_000_000),
            **zone("intel-rapl:2", "psys", 9_000_000),
        }
    )


def test_packages_are_summed_and_counted_from_the_opening(two_sockets, plant):
    rapl = Rapl(two_sockets)
    assert rapl.energy_j().values == {"cpu_pkg": 0.0, "dram": 0.0}
    plant({"intel-rapl:0/energy_uj": 3_500_000, "intel-rapl:1/energy_uj": 2_250_000})
    plant({"intel-rapl:0:1/energy_uj": 350_000, "intel-rapl-mmio:0/energy_uj": 3_500_000})
    assert rapl.energy_j().values == {"cpu_pkg": 2.75, "dram": 0.1}


def test_a_wrapped_counter_keeps_growing(plant):
    """From 9 999 000 to the range 10 000 000 are 1000 uJ, then 4000 more."""
    root = plant(zone("intel-rapl:0", "package-0", 9_999_000, 10_000_000))
    rapl = Rapl(root)
    plant({"intel-rapl:0/energy_uj": 4_000})
    assert rapl.energy_j().values["cpu_pkg"] == 0.005
    plant({"intel-rapl:0/energy_uj": 1_004_000})
    assert rapl.energy_j().values["cpu_pkg"] == 1.005


def test_machine_without_the_tree_has_reasons(tmp_path):
    energy = Rapl(tmp_path).energy_j()
    assert energy.values == {}
    assert energy.missing == {
        "cpu_pkg": f"not_supported: no package counter in {tmp_path}",
        "dram": f"not_supported: no dram counter in {tmp_path}",
    }


def test_counter_only_root_may_read_is_no_permission(two_sockets, monkeypatch):
    real = energy_module.read_int

    def refuse(path):
        if path.name == "energy_uj":
            raise UnreadableError(f"no_permission: {path}")
        return real(path)

    monkeypatch.setattr(energy_module, "read_int", refuse)
    assert Rapl(two_sockets).energy_j().missing["cpu_pkg"] == f"no_permission: {two_sockets}/intel-rapl:0/energy_uj"


def test_vanished_counter_is_missing_instead_of_zero(two_sockets):
    rapl = Rapl(two_sockets)
    (two_sockets / "intel-rapl:1/energy_uj").unlink()
    energy = rapl.energy_j()
    assert energy.missing == {"cpu_pkg": f"not_supported: no {two_sockets}/intel-rapl:1/energy_uj"}
    assert energy.values == {"dram": 0.0}
