"""Energy counters of the powercap tree."""

import pytest

from benchmarking.devices.support import energy as energy_module
from benchmarking.devices.support.energy import Rapl
from benchmarking.devices.support.reading import UnreadableError


def zone(number, name, energy_uj, range_uj=262_143_328_850):
    return {
        f"{number}/name": name,
        f"{number}/energy_uj": energy_uj,
        f"{number}/max_energy_range_uj": range_uj,
    }


@pytest.fixture
def two_sockets(plant):
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


def test_wrapped_counter_goes_on_growing(plant):
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


def test_counter_that_goes_away_is_missing_not_zero(two_sockets):
    rapl = Rapl(two_sockets)
    (two_sockets / "intel-rapl:1/energy_uj").unlink()
    energy = rapl.energy_j()
    assert energy.missing == {"cpu_pkg": f"not_supported: no {two_sockets}/intel-rapl:1/energy_uj"}
    assert energy.values == {"dram": 0.0}
