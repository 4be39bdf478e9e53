"""Vendors' libraries replayed from files, and machines made of files (see tests/fixtures/devices/README.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import FIXTURES
from tests.helpers.vendors import FakeTorch, RecordedAmdSmi, RecordedNvml

DEVICES = FIXTURES / "devices"


@pytest.fixture
def recorded_text() -> Callable[[str], str]:
    """The text of a recording by file name."""
    return lambda name: (DEVICES / name).read_text()


@pytest.fixture
def plant(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """Writes files (path -> content) under a root and returns it."""

    def write(files: dict[str, Any]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")
        return tmp_path

    return write


@pytest.fixture
def nvml() -> Callable[..., RecordedNvml]:
    """A recorded pynvml by file name."""
    return lambda name="nvml_2x_h100.json", **options: RecordedNvml(json.loads((DEVICES / name).read_text()), **options)


@pytest.fixture
def amdsmi() -> RecordedAmdSmi:
    return RecordedAmdSmi(json.loads((DEVICES / "amdsmi_mi300x.json").read_text()))


@pytest.fixture
def kfd(plant: Callable[[dict[str, Any]], Path], recorded_text: Callable[[str], str]) -> Path:
    """The /sys of a machine with one MI300X, as the kernel's amdgpu driver shows it."""
    gpu = "sys/class/drm/renderD128/device"
    nodes = "sys/class/kfd/kfd/topology/nodes"
    root = plant(
        {
            f"{nodes}/0/properties": recorded_text("kfd_cpu_properties.txt"),
            f"{nodes}/0/name": "",
            f"{nodes}/1/properties": recorded_text("kfd_mi300x_properties.txt"),
            f"{nodes}/1/name": "ip discovery",
            f"{gpu}/product_name": "AMD Instinct MI300X OAM",
            f"{gpu}/unique_id": "348af6d7c136fd5e",
            f"{gpu}/mem_info_vram_total": 206141652992,
            f"{gpu}/mem_info_vram_used": 297807872,
            f"{gpu}/current_compute_partition": "SPX",
            f"{gpu}/current_link_width": 16,
            f"{gpu}/max_link_width": 16,
            f"{gpu}/hwmon/hwmon3/name": "amdgpu",
            f"{gpu}/hwmon/hwmon3/freq1_input": 2104000000,
            f"{gpu}/hwmon/hwmon3/freq2_input": 1300000000,
            f"{gpu}/hwmon/hwmon3/temp2_input": 47000,
            f"{gpu}/hwmon/hwmon3/power1_input": 213000000,
            f"{gpu}/hwmon/hwmon3/power1_cap": 750000000,
            f"{gpu}/hwmon/hwmon3/power1_cap_default": 750000000,
            "dev/kfd": "",
        }
    )
    return root / "sys"


@pytest.fixture
def fake_torch() -> Callable[[list[Any]], FakeTorch]:
    return FakeTorch
