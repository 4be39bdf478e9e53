"""The identity of a device in a machine, and its free memory."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarking.core.records import Device, Readings, canonical_hash
from benchmarking.devices.support import host
from benchmarking.devices.support.host import HASH_VERSION, free_memory, hardware, memory_class_bytes
from benchmarking.devices.support.select import probe_all

GIB = 1 << 30

HOST = Readings(
    values={
        "cpu_model": "AMD EPYC 9554",
        "cpu_cores": 64,
        "cpu_threads": 128,
        "numa_nodes": 2,
        "memory_bytes": 251 * GIB,
        "kernel": "6.8.0",
        "os_version": "Ubuntu 24.04",
        "cgroup_memory_limit_bytes": 64 * GIB,
    }
)
GPU = Device(
    type="cuda",
    selector="cuda:0",
    found=True,
    name="NVIDIA H100 80GB HBM3",
    vendor="NVIDIA",
    driver="580.95.05",
    count=2,
    memory_bytes=85_520_809_984,
    facts=Readings(values={"clock_max_hz": 1_980_000_000, "power_cap_w": 700.0, "uuid": "GPU-1"}),
    precisions=("float32",),
)


def test_hashed_keys_are_the_model_and_the_machine():
    found = hardware(GPU, HOST)
    assert found.hashed_keys == {
        "device_type": "cuda",
        "device_name": "NVIDIA H100 80GB HBM3",
        "device_count": 2,
        "device_memory_class_bytes": 80 * GIB,
        "cpu_model": "AMD EPYC 9554",
        "cpu_cores": 64,
        "cpu_threads": 128,
        "numa_nodes": 2,
        "memory_class_bytes": 256 * GIB,
    }
    assert found.hash_version == HASH_VERSION == 1
    assert found.hardware_id == canonical_hash(found.hashed_keys)[:16]


def test_the_id_is_the_same_in_every_release():
    """Changing it orphans every stored result: raise HASH_VERSION when this must change."""
    assert hardware(GPU, HOST).hardware_id == "ff051130afed3de0"


@pytest.mark.parametrize(
    "device",
    [
        dataclasses.replace(GPU, driver="590.11", selector="cuda:1"),
        dataclasses.replace(GPU, facts=Readings(values={"clock_max_hz": 1, "power_cap_w": 1.0, "uuid": "GPU-2"})),
        dataclasses.replace(GPU, memory_bytes=85_520_809_984 - 700_000_000),
        dataclasses.replace(GPU, precisions=("float32", "tf32")),
    ],
)
def test_volatile_facts_of_the_device_do_not_change_the_id(device):
    assert hardware(device, HOST).hardware_id == hardware(GPU, HOST).hardware_id


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_bytes", 251 * GIB - 300_000_000),
        ("kernel", "6.11.0"),
        ("os_version", "Debian 13"),
        ("cgroup_memory_limit_bytes", 8 * GIB),
    ],
)
def test_volatile_facts_of_the_host_do_not_change_the_id(name, value):
    host = Readings(values={**HOST.values, name: value})
    assert hardware(GPU, host).hardware_id == hardware(GPU, HOST).hardware_id


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_model", "AMD EPYC 9654"),
        ("cpu_cores", 96),
        ("cpu_threads", 64),
        ("numa_nodes", 8),
        ("memory_bytes", 503 * GIB),
    ],
)
def test_different_machine_has_a_different_id(name, value):
    host = Readings(values={**HOST.values, name: value})
    assert hardware(GPU, host).hardware_id != hardware(GPU, HOST).hardware_id


def test_different_device_has_a_different_id():
    ids = {
        hardware(device, HOST).hardware_id
        for device in (
            GPU,
            dataclasses.replace(GPU, count=8),
            dataclasses.replace(GPU, name="NVIDIA A100-SXM4-80GB"),
            dataclasses.replace(GPU, memory_bytes=100_000_000_000),
            dataclasses.replace(GPU, type="openvino"),
        )
    }
    assert len(ids) == 5


def test_cpu_and_host_memory_count_once():
    cpu = Device(type="cpu", selector="cpu", found=True, name="AMD EPYC 9554", memory_bytes=64 * GIB)
    assert hardware(cpu, HOST).hashed_keys["device_memory_class_bytes"] is None


def test_shared_memory_counts_once():
    npu = dataclasses.replace(GPU, type="openvino", selector="openvino:NPU")
    keys = hardware(npu, HOST).hashed_keys
    assert keys["device_memory_class_bytes"] is None
    assert keys["memory_class_bytes"] == 256 * GIB


def test_unknown_facts_are_hashed_as_unknown():
    keys = hardware(GPU, Readings(missing={"cpu_model": "not_supported"})).hashed_keys
    assert keys["cpu_model"] is None
    assert keys["memory_class_bytes"] is None


def test_device_fields_are_not_repeated_as_facts():
    found = hardware(GPU, HOST)
    assert (found.cpu_model, found.cpu_cores, found.cpu_threads) == ("AMD EPYC 9554", 64, 128)
    assert found.memory_bytes == 251 * GIB
    assert found.host.values["kernel"] == "6.8.0"
    assert "cpu_model" not in found.host.values


def test_hardware_id_is_reproducible():
    (device,) = probe_all(["cpu"])["cpu"]
    assert hardware(device).hardware_id == hardware(device).hardware_id


@pytest.mark.parametrize(
    ("memory_bytes", "class_bytes"),
    [
        (int(23.5 * GIB), 24 * GIB),
        (16 * GIB, 16 * GIB),
        (16 * GIB - 1, 16 * GIB),
        (16 * GIB + 1, 20 * GIB),
        (int(79.65 * GIB), 80 * GIB),
        (int(10.75 * GIB), 12 * GIB),
        (int(140.4 * GIB), 160 * GIB),
        (4, 4),
        (1, 1),
        (0, 0),
    ],
)
def test_memory_class_is_the_nominal_size(memory_bytes, class_bytes):
    assert memory_class_bytes(memory_bytes) == class_bytes


GB = 1_000_000_000


def device(kind, memory_bytes=None, **facts):
    return Device(type=kind, selector=kind, found=True, memory_bytes=memory_bytes, facts=Readings(values=facts))


@pytest.mark.parametrize("kind", ["cpu", "mps"])
def test_free_memory_of_a_device_in_host_memory_is_the_hosts(monkeypatch, kind):
    monkeypatch.setattr(host, "free_host_bytes", lambda: 7 * GB)
    assert free_memory(device(kind, 16 * GB)).values == {"free_memory_bytes": 7 * GB}


def test_free_memory_of_a_gpu_is_its_probed_fact():
    assert free_memory(device("cuda", 80 * GB, free_memory_bytes=60 * GB)).values == {"free_memory_bytes": 60 * GB}


@pytest.mark.parametrize("kind", ["cuda", "rocm"])
def test_free_memory_of_a_gpu_without_that_fact_is_bounded_by_its_total(kind):
    readings = free_memory(device(kind, 80 * GB))
    assert readings.values == {"device_memory_bytes": 80 * GB}
    assert readings.missing == {"free_memory_bytes": f"not_supported: {kind} does not report it"}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (device("cuda"), "not_supported: cuda does not report it"),
        (device("null", 16 * GB), "not_applicable: it is unknown which memory null uses"),
        (device("openvino", 16 * GB), "not_applicable: it is unknown which memory openvino uses"),
    ],
)
def test_unknown_free_memory_has_a_reason(found, reason):
    assert free_memory(found).missing == {"free_memory_bytes": reason}
