"""MIG instances behind the real nvidia-ml-py: a library libnvidia-ml with the constants of its header, built by gcc."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarking.core.child_process import program, run_program
from benchmarking.core.records import Device, Readings
from benchmarking.devices.support.host import hardware, hashed_keys
from tests.helpers.paths import ROOT

LIBRARY = r"""
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
typedef int result; typedef void *handle;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned multiprocessors, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices;
                 unsigned long long memory_mb; } attributes;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process;
static int gpu, other, first, second, third;
static int is_instance(handle h) { return h == &first || h == &second || h == &third; }
static int number_in(const char *name, int otherwise) { const char *t = getenv(name); return t ? atoi(t) : otherwise; }
result nvmlInitWithFlags(unsigned flags) { return 0; }
result nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(result code) { return "stub"; }
result nvmlSystemGetDriverVersion(char *text, unsigned size) { strcpy(text, "580.65.06"); return 0; }
result nvmlDeviceGetCount_v2(unsigned *count) { *count = number_in("STUB_GPUS", 1); return 0; }
result nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *h) {
    if (number_in("STUB_LOST", -1) == (int)index) return 15;  /* NVML_ERROR_GPU_IS_LOST */
    *h = index ? (handle)&other : (handle)&gpu; return 0; }
result nvmlDeviceGetHandleByUUID(const char *uuid, handle *h) {
    *h = strstr(uuid, "GPU-3333") == uuid ? (handle)&gpu : strstr(uuid, "GPU-5555") == uuid ? (handle)&other :
         strstr(uuid, "MIG-1111") == uuid ? (handle)&first : strstr(uuid, "MIG-2222") == uuid ? (handle)&second :
         strstr(uuid, "MIG-4444") == uuid ? (handle)&third : 0; return *h ? 0 : 6; }
result nvmlDeviceGetPciInfo_v3(handle h, char *pci) {
    if (number_in("STUB_INTEGRATED", 0)) return 3;  /* NVML_ERROR_NOT_SUPPORTED, as on Jetson */
    memset(pci, 0, 68); *(unsigned *)(pci + 20) = h == &other ? 0x2a : 0x18; return 0; }
result nvmlDeviceGetMigMode(handle h, unsigned *now, unsigned *later) {
    *now = *later = !number_in("STUB_INTEGRATED", 0); return 0; }
result nvmlDeviceGetMaxMigDeviceCount(handle h, unsigned *count) { *count = 7; return 0; }
result nvmlDeviceGetMigDeviceHandleByIndex(handle h, unsigned index, handle *mig) {
    if (index > 2 || index == 1 || (h == &other && index)) return 6;  /* NVML_ERROR_NOT_FOUND */
    if (h == &other) { *mig = &third; return 0; }
    *mig = index ? (handle)&second : (handle)&first; return 0; }
result nvmlDeviceGetName(handle h, char *text, unsigned size) {
    strcpy(text, h == &first ? "NVIDIA H100 80GB HBM3 MIG 1g.10gb" :
                 h == &second ? "NVIDIA H100 80GB HBM3 MIG 3g.40gb" :
                 h == &third ? "NVIDIA H100 80GB HBM3 MIG 2g.20gb" :
                 number_in("STUB_INTEGRATED", 0) ? "Orin (nvgpu)" : "NVIDIA H100 80GB HBM3"); return 0; }
result nvmlDeviceGetUUID(handle h, char *text, unsigned size) {
    if (h == &first && number_in("STUB_DESTROYED", 0)) return 6;
    strcpy(text, h == &first ? "MIG-11111111-1111-1111-1111-111111111111" :
                 h == &second ? "MIG-22222222-2222-2222-2222-222222222222" :
                 h == &third ? "MIG-44444444-4444-4444-4444-444444444444" :
                 h == &other ? "GPU-55555555-5555" : "GPU-33333333-3333"); return 0; }
/* A user without rights reads an instance's memory and processes, and not those of all of the GPU. */
result nvmlDeviceGetMemoryInfo(handle h, memory *m) {
    if (!is_instance(h) || number_in("STUB_DENIED", 0)) return 4;  /* NVML_ERROR_NO_PERMISSION */
    m->total = h == &first ? 10200547328ULL : h == &second ? 42144366592ULL : 21000000000ULL;
    m->used = 900000000ULL; m->free = m->total - m->used; return 0; }
result nvmlDeviceGetMemoryInfo_v2(handle h, memory_v2 *m) {
    if (m->version != 0x02000028) return 25;  /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    if (!is_instance(h)) return 4;
    m->total = 42144366592ULL; m->reserved = 300000000ULL; m->used = 600000000ULL; m->free = 1; return 0; }
result nvmlDeviceGetComputeRunningProcesses_v3(handle h, unsigned *count, process *listed) {
    if (!is_instance(h)) return 4;
    *count = 2; if (!listed) return 7;  /* NVML_ERROR_INSUFFICIENT_SIZE */
    listed[0].pid = getpid(); listed[1].pid = 4000000; listed[0].used = 500000000ULL; listed[1].used = 1;
    listed[0].instance = listed[1].instance = 3; return 0; }
result nvmlDeviceGetGraphicsRunningProcesses_v3(handle h, unsigned *count, process *listed) { *count = 0; return 0; }
result nvmlDeviceGetAttributes_v2(handle h, attributes *a) {
    memset(a, 0, sizeof *a); if (!is_instance(h)) return 3;
    a->multiprocessors = h == &first ? 16 : 60; a->compute_slices = h == &first ? 1 : 3; return 0; }
result nvmlDeviceGetGpuInstanceId(handle h, unsigned *n) { *n = h == &second ? 5 : 1; return 0; }
result nvmlDeviceGetComputeInstanceId(handle h, unsigned *n) { *n = 0; return 0; }
result nvmlDeviceGetCudaComputeCapability(handle h, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
result nvmlDeviceGetPowerManagementLimit(handle h, unsigned *mw) { *mw = 500000; return 0; }
result nvmlDeviceGetPowerManagementDefaultLimit(handle h, unsigned *mw) { *mw = 700000; return 0; }
"""
PROBE = """
import json
from benchmarking.core.codec import to_json
from benchmarking.devices import cuda
cuda.why_not_torch = lambda backend, index: None
print(json.dumps([to_json(one) for one in cuda.PLUGIN.probe()]))
"""


MONITOR = """
import json, os
from benchmarking.devices import cuda
cuda.why_not_torch = lambda backend, index: None
(device,) = cuda.PLUGIN.probe()
monitor = cuda.PLUGIN.monitor(device)
cuda.PLUGIN.hide_others([device])
in_use, state = monitor.memory_in_use(), monitor.state()
print(json.dumps([in_use.values, in_use.missing, state.values.get("foreign_pids"), os.environ["CUDA_VISIBLE_DEVICES"]]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvml")
    source, compiler = folder / "stub.c", program("gcc")
    assert compiler is not None, "gcc is needed"
    source.write_text(LIBRARY)
    done = run_program((compiler, "-shared", "-fPIC", "-w", "-o", str(folder / "libnvidia-ml.so.1"), str(source)))
    assert done.exit_code == 0, done.stderr
    return folder


def probed(library, code=PROBE, **variables):
    """The devices that another process finds with this library, or what else it prints."""
    import os

    env = {**os.environ, "LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT), **variables}
    done = run_program((sys.executable, "-P", "-c", code), env=env)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_an_instance_is_its_own_hardware_with_its_profile_memory_and_multiprocessors(library):
    (device,) = probed(library, CUDA_VISIBLE_DEVICES="MIG-22222222-2222-2222-2222-222222222222")
    assert (device["name"], device["memory_bytes"]) == ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", 42_144_366_592)
    facts = device["facts"]["values"]
    assert (facts["mig_profile"], facts["multiprocessors"], facts["mig_compute_slices"]) == ("3g.40gb", 60, 3)
    assert (facts["power_cap_w"], facts["power_cap_default_w"]) == (500.0, 700.0)
    (first,) = probed(library)  # CUDA uses the first one where none is named
    assert first["facts"]["values"]["mig_profile"] == "1g.10gb"
    records = [Device(**{**one, "facts": Readings(**one["facts"])}) for one in (device, first)]
    assert len({hardware(one, Readings()).hardware_id for one in records}) == 2


def test_the_instance_of_another_gpu_than_the_first_is_found_on_that_gpu(library):
    (device,) = probed(library, STUB_GPUS="2", CUDA_VISIBLE_DEVICES="MIG-44444444-4444-4444-4444-444444444444")
    assert (device["selector"], device["facts"]["values"]["mig_profile"]) == ("cuda:1", "2g.20gb")


@pytest.mark.parametrize(
    ("name", "found"),
    [("MIG-GPU-33333333-3333/5/0", ("cuda:0", "3g.40gb")), ("MIG-GPU-55555555-5555/1/0", ("cuda:1", "2g.20gb"))],
)
def test_an_instance_may_have_its_older_name(library, name, found):
    (device,) = probed(library, STUB_GPUS="2", CUDA_VISIBLE_DEVICES=name)
    assert (device["selector"], device["facts"]["values"]["mig_profile"]) == found


def test_memory_and_processes_are_those_of_the_instance_which_engines_are_given(library):
    """Another process in the instance is foreign, and what the driver reserves is not in use."""
    instance = "MIG-22222222-2222-2222-2222-222222222222"
    in_use, missing, foreign, visible = probed(library, MONITOR, CUDA_VISIBLE_DEVICES=instance)
    assert in_use == {"device_used_bytes": 600_000_000, "device_process_bytes": 500_000_000}
    assert (missing, foreign, visible) == ({}, [4_000_000], instance)
    *_, visible = probed(library, MONITOR)
    assert visible.startswith("MIG-1111")


def test_an_instance_that_cannot_be_read_takes_no_other_with_it(library):
    (denied,) = probed(library, STUB_DENIED="1")
    assert (denied["found"], denied["memory_bytes"], denied["facts"]["values"]["mig_profile"]) == (
        True,
        None,
        "1g.10gb",
    )
    (second,) = probed(library, STUB_DESTROYED="1")
    assert second["facts"]["values"]["mig_profile"] == "3g.40gb"


def test_a_lost_gpu_takes_no_other_with_it(library):
    (device,) = probed(library, STUB_GPUS="2", STUB_LOST="0")
    assert (device["selector"], device["facts"]["values"]["uuid"]) == ("cuda:1", "GPU-55555555-5555")
    (device,) = probed(library, STUB_LOST="0")
    assert device["why_not"].startswith("the NVIDIA driver cannot list its GPUs (failed: nvmlDeviceGetHandleByIndex")


def test_an_integrated_gpu_without_an_address_is_torchs_only_one(library, fake_torch, monkeypatch):
    """Jetson's name and UUID are others in CUDA than in NVML."""
    from types import SimpleNamespace

    from benchmarking.devices import cuda
    from benchmarking.devices.support.torch_gpu import torch_index

    (found,) = probed(library, STUB_INTEGRATED="1")
    device = Device(**{**found, "facts": Readings(**found["facts"])})
    assert device.name == "Orin (nvgpu)"
    assert device.memory_bytes is None
    torch = fake_torch([SimpleNamespace(name="Orin", uuid="11111111-2222-3333-4444-555555555555")])
    assert torch_index(torch, device) == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cuda.PLUGIN.hide_others([device])
    import os

    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


def test_hashes_of_whole_gpus_are_those_from_before_parts_were_told_apart():
    facts = {"compute_partition": "SPX", "memory_partition": "NPS1", "compute_units": 304, "is_mig_enabled": False}
    gpu = Device(type="rocm", selector="rocm:0", found=True, name="MI300X", facts=Readings(values=facts))
    assert "partition" not in hashed_keys(gpu, Readings())
    part = Device(
        type="rocm",
        selector="rocm:0",
        found=True,
        name="MI300X",
        facts=Readings(values={**facts, "compute_partition": "CPX", "memory_partition": "NPS4"}),
    )
    assert hashed_keys(part, Readings())["partition"] == ["CPX", "NPS4", 304]
