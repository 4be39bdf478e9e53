"""The host's energy counters on each platform; Apple's as zeus-apple-silicon hands them out."""

from types import SimpleNamespace

import pytest

from benchmarking.core.device_contracts import ENERGY_DOMAINS
from benchmarking.devices import mps
from benchmarking.devices.support import energy as apple_energy
from benchmarking.devices.support import energy as host_energy
from benchmarking.devices.support.energy import AppleEnergy, EnergyMeters, Rapl

FIELDS = ("cpu_total_mj", "dram_mj", "gpu_mj", "gpu_sram_mj", "ane_mj")


def apple(error=None, **told):
    """The module: a monitor whose metrics are the given ones, all others None, as on a chip without them."""

    def monitor():
        if error == "start":
            raise RuntimeError("Failed to create IOReport subscription.")
        return SimpleNamespace(get_cumulative_energy=read)

    def read():
        if error == "read":
            raise RuntimeError("Unsupported or invalid energy unit provided: eV")
        return SimpleNamespace(**{**dict.fromkeys(FIELDS), **told})

    return SimpleNamespace(AppleEnergyMonitor=monitor)


@pytest.mark.parametrize(
    ("system", "kind"), [("Darwin", AppleEnergy), ("Windows", EnergyMeters), ("Linux", Rapl), ("FreeBSD", Rapl)]
)
def test_each_platform_has_its_own_counters(system, kind):
    assert isinstance(host_energy.host_energy(system), kind)


def test_millijoules_of_the_chips_parts_become_joules():
    energy = AppleEnergy(apple(cpu_total_mj=81_250, dram_mj=4_000, gpu_mj=2_500, gpu_sram_mj=250), "arm64").energy_j()
    assert energy.values == {"cpu_pkg": 81.25, "dram": 4.0, "gpu": 2.75}
    assert energy.missing == {"soc": "not_supported: Apple counts parts of the chip, not the whole"}


def test_a_part_the_chip_does_not_count_has_its_reason():
    energy = AppleEnergy(apple(cpu_total_mj=1_000, gpu_sram_mj=5), "arm64").energy_j()
    assert energy.values == {"cpu_pkg": 1.0}
    assert energy.missing["dram"] == "not_supported: this chip does not count dram"
    assert energy.missing["gpu"] == "not_supported: this chip does not count gpu"


@pytest.mark.parametrize(
    ("module", "machine", "words"),
    [
        (apple(), "x86_64", "macOS on x86_64 tells energy to root alone"),
        (apple("start"), "arm64", "IOReport gives no energy: Failed to create IOReport subscription"),
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


def test_apples_gpu_counts_itself_beside_the_processor():
    energy = mps.MpsHandle(None, AppleEnergy(apple(cpu_total_mj=2_000, gpu_mj=3_000), "arm64")).energy_j()
    assert (energy.values["gpu"], energy.values["cpu_pkg"], energy.values["method"]) == (3.0, 2.0, "counter")
