"""MIG instances behind the real nvidia-ml-py: a library libnvidia-ml with the constants of its header, built by gcc."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarking.core.child_process import program, run_program
from benchmarking.core.records import Device, Readings
from benchmarking.devices.support.kinds import hardware, hashed_keys
from tests.helpers.paths import ROOT

LIBRARY = r"""
#include <string.h>
typedef int result; typedef void *handle;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned multiprocessors, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices;
                 unsigned long long memory_mb; } attributes;
static int gpu, first, second;
static int is_instance(handle h) { return h == &first || h == &second; }
result nvmlInitWithFlags(unsigned flags) { return 0; }
result nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(result code) { return "stub"; }
result nvmlSystemGetDriverVersion(char *text, unsigned size) { strcpy(text, "580.65.06"); return 0; }
result nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
result nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *h) { *h = &gpu; return 0; }
result nvmlDeviceGetMigMode(handle h, unsigned *now, unsigned *later) { *now = *later = 1; return 0; }
result nvmlDeviceGetMaxMigDeviceCount(handle h, unsigned *count) { *count = 7; return 0; }
result nvmlDeviceGetMigDeviceHandleByIndex(handle h, unsigned index, handle *mig) {
    if (index > 2 || index == 1) return 6;  /* NVML_ERROR_NOT_FOUND */
    *mig = index ? (handle)&second : (handle)&first; return 0; }
result nvmlDeviceGetName(handle h, char *text, unsigned size) {
    strcpy(text, h == &first ? "NVIDIA H100 80GB HBM3 MIG 1g.10gb" :
                 h == &second ? "NVIDIA H100 80GB HBM3 MIG 3g.40gb" : "NVIDIA H100 80GB HBM3"); return 0; }
result nvmlDeviceGetUUID(handle h, char *text, unsigned size) {
    strcpy(text, h == &first ? "MIG-11111111-1111-1111-1111-111111111111" :
                 h == &second ? "MIG-22222222-2222-2222-2222-222222222222" : "GPU-33333333-3333"); return 0; }
result nvmlDeviceGetMemoryInfo(handle h, memory *m) {
    m->total = h == &first ? 10200547328ULL : h == &second ? 42144366592ULL : 85520809984ULL;
    m->free = m->total; m->used = 0; return 0; }
result nvmlDeviceGetAttributes_v2(handle h, attributes *a) {
    memset(a, 0, sizeof *a); if (!is_instance(h)) return 3;
    a->multiprocessors = h == &first ? 16 : 60; a->compute_slices = h == &first ? 1 : 3; return 0; }
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


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvml")
    source, compiler = folder / "stub.c", program("gcc")
    assert compiler is not None, "gcc is needed"
    source.write_text(LIBRARY)
    done = run_program((compiler, "-shared", "-fPIC", "-w", "-o", str(folder / "libnvidia-ml.so.1"), str(source)))
    assert done.exit_code == 0, done.stderr
    return folder


def probed(library, **variables):
    """The devices that another process finds with this library."""
    import os

    env = {**os.environ, "LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT), **variables}
    done = run_program((sys.executable, "-P", "-c", PROBE), env=env)
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
