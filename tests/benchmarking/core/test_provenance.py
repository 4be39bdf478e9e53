"""Ids are UUIDs version 7, unique, and sort by creation time; versions are those of all packages that matter."""

from __future__ import annotations

import sys
import time
import uuid
from dataclasses import replace

import pytest

from benchmarking.core import plugins
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.plugins import distributions_of, version_of
from benchmarking.core.provenance import (
    ENGINES,
    PACKAGES,
    module_versions,
    require_running_clock,
    this_process,
    uuid7,
    version_differences,
    versions,
)
from benchmarking.graphs.exported_model import quantizer_packages


@pytest.mark.skipif(sys.platform != "linux", reason="only there is the start known by a clock that nobody sets")
def test_a_process_is_the_same_after_the_system_clock_was_set():
    """By which psutil computes its start in Unix time."""
    owner = this_process()
    assert replace(owner, created_s=owner.created_s - 3600.0).is_alive()
    assert not replace(owner, since_boot_s=owner.since_boot_s - 1.0).is_alive()  # another one of this id
    assert not replace(owner, pid=2**22 + 1).is_alive()


def test_ids_are_version_7_uuids_with_the_current_time():
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(uuid7())
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert before <= made.int >> 80 <= after


def test_the_version_of_a_distribution_that_is_described_by_one_file_is_known(tmp_path, monkeypatch):
    """As distutils installed them, and some packagers still do."""
    (tmp_path / "older-1.2.egg-info").write_text("Metadata-Version: 1.0\nName: older\nVersion: 1.2\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert version_of("older") == "1.2"


@pytest.fixture
def migraphx(tmp_path, monkeypatch):
    """An ONNX Runtime for AMD GPUs as pip installs it, and a plugin with a module of its own."""
    for name, module in (("onnxruntime_migraphx", "onnxruntime"), ("onnxruntime_plugin", "onnxruntime_plugin")):
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").touch()
        info = tmp_path / f"{name}-1.23.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.23.2\n")
        (info / "RECORD").write_text(
            f"{module}/LICENSE,,\n{module}/__init__.py,sha256=1,0\nother/onnxruntime/__init__.py,,\n"
        )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("migraphx")
def test_versions_have_every_distribution_of_onnx_runtime():
    assert distributions_of("onnxruntime") == ("onnxruntime-migraphx",)
    assert versions()["onnxruntime-migraphx"] == module_versions()["onnxruntime-migraphx"] == "1.23.2"
    assert "onnxruntime-plugin" not in versions()
    assert "onnxruntime-migraphx" in quantizer_packages()


def test_versions_have_the_packages_of_every_runtime():
    runtimes = [plugins.runtime(name) for name in plugins.names(plugins.RUNTIMES)]
    dynamic = {"onnxruntime-genai", "onnxruntime-genai-cuda"}  # found by their module
    assert {package for runtime in runtimes for package in runtime.packages} - dynamic <= {*PACKAGES, *ENGINES}


def test_a_version_that_earlier_runs_lack_is_no_difference():
    before, after = {"torch": "2.13.0", "openvino": "2026.4"}, {"torch": "2.14.0", "mlx": "0.32.4"}
    assert version_differences(before, after) == {"torch": ("2.13.0", "2.14.0"), "openvino": ("2026.4", None)}
    assert version_differences({"mlx": "0.32.2"}, {"mlx": "0.32.4"}) == {"mlx": ("0.32.2", "0.32.4")}


def test_ids_are_unique_and_sort_by_time():
    first = uuid7()
    time.sleep(0.002)
    many = [uuid7() for _ in range(1000)]
    assert first < min(many)
    assert len(set(many)) == 1000


def test_a_clock_that_stands_still_is_an_error():
    with pytest.raises(BenchhouseError, match="clock does not advance"):
        require_running_clock(lambda: 7)
    require_running_clock()
