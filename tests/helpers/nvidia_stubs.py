"""Stand-ins for NVIDIA's libraries, so that ONNX Runtime's own provider libraries load on a machine without a GPU.

Every function that the providers link returns 0, and one GPU is counted. By default its first use ends the process with
a line on stdout: by then the provider has parsed its options. With `RUNNING` sessions open and run: the device's memory
is the host's, copies copy, kernels do nothing (all results are zeros), and what crosses to the host and what is
replayed is counted in the functions of `COUNTERS`, of libcudart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from benchmarking.core.child_process import program, run_program

PARSED = "the options were parsed"
NEEDED = re.compile(r"Shared library: \[(lib(?:cu|nv)[^\]]+)\]")
CUDNN, CUDNN_FUNCTION = "libcudnn.so", re.compile(rb"\0(cudnn[A-Z]\w+)(?=\0)")
"""Loaded by name when a kernel first needs it; its functions are found by name too."""
SPECIAL = {
    "cudaGetDeviceCount": "int cudaGetDeviceCount(int *count) { *count = 1; return 0; }",
    "cudaSetDevice": f'int cudaSetDevice(int device) {{ puts("{PARSED}"); fflush(stdout); _exit(0); }}',
    "getPluginRegistry": (
        "static long none(void) { return 0; } static long (*table[64])(void); static void *registry[1];\n"
        "void *getPluginRegistry(void) { for (int i = 0; i < 64; i++) table[i] = none;"
        " registry[0] = table; return registry; }"
    ),
}
"""The registry is an object whose methods all return 0."""

COUNTERS = ("bytes_to_host", "graphs_captured", "graphs_launched")
"""Functions without arguments that return what was counted so far."""
ALLOCATE = "{{ *pointer = calloc(1, size + 1); return 0; }}"
COPY = "{{ if (kind == 2) counted_bytes += size; memcpy(to, from, size); return 0; }}"
RUNNING = SPECIAL | {
    "cudaSetDevice": "int cudaSetDevice(int device) { return 0; }",
    "cudaMalloc": f"int cudaMalloc(void **pointer, size_t size) {ALLOCATE.format()}",
    "cudaHostAlloc": f"int cudaHostAlloc(void **pointer, size_t size, int flags) {ALLOCATE.format()}",
    "cudaMallocHost": f"int cudaMallocHost(void **pointer, size_t size) {ALLOCATE.format()}",
    "cudaMemGetInfo": "int cudaMemGetInfo(size_t *free, size_t *total) { *free = *total = 1UL << 34; return 0; }",
    "cudaMemcpy": f"int cudaMemcpy(void *to, const void *from, size_t size, int kind) {COPY.format()}",
    "cudaMemcpyAsync": (
        f"int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {COPY.format()}"
    ),
    "cudaStreamEndCapture": (
        "int cudaStreamEndCapture(void *stream, void **graph)"
        " { counted_captures++; *graph = &counted_captures; return 0; }"
    ),
    "cudaGraphInstantiate": (
        "int cudaGraphInstantiate(void **made, void *graph, long flags) { *made = graph; return 0; }"
    ),
    "cudaGraphLaunch": "int cudaGraphLaunch(void *graph, void *stream) { counted_launches++; return 0; }",
    "cudnnCreate": "long cudnnCreate(void **handle) { *handle = &counted_bytes; return 0; }",
    "cudaGetDeviceProperties": (
        "int cudaGetDeviceProperties(char *properties, int device)"
        " { *(int *)(properties + 308) = 32; *(int *)(properties + 320) = 1024; return 0; }\n"
        "long bytes_to_host(void) { return counted_bytes; }\n"
        "long graphs_captured(void) { return counted_captures; }\n"
        "long graphs_launched(void) { return counted_launches; }"
    ),
}
"""Of cudaDeviceProp (driver_types.h): warpSize at 308 bytes, maxThreadsPerBlock at 320."""
HEADER = (
    "#include <stdio.h>",
    "#include <stdlib.h>",
    "#include <string.h>",
    "#include <unistd.h>",
    "static long counted_bytes, counted_captures, counted_launches;",
)


def needed(library: Path) -> tuple[str, ...]:
    """NVIDIA's libraries that a library links, as readelf lists them."""
    return tuple(NEEDED.findall(_output("readelf", "-d", str(library))))


def build_stubs(folder: Path, libraries: tuple[Path, ...], special: Mapping[str, str] = SPECIAL) -> None:
    """Stand-ins in `folder` for everything that these provider libraries link or load; `special` has the functions that
    do something."""
    functions: dict[str, set[str]] = defaultdict(set)
    for library in libraries:
        names = needed(library)
        for name in names:
            functions[name]  # also those whose functions have no version of their own
        unversioned = next(name for name in names if name.startswith(("libnvinfer.", "libcuda.")))
        for symbol in _output("nm", "-D", "--undefined-only", str(library)).split():
            function, at, version = symbol.partition("@")
            if version in names or (not at and re.match(r"(create|get|cu)[A-Z]", function)):
                functions[version or unversioned].add(function)
        functions[CUDNN] |= {found.decode() for found in CUDNN_FUNCTION.findall(library.read_bytes())}
    for name, of in functions.items():
        _compile(folder, name, of, special)


def _compile(folder: Path, name: str, functions: set[str], special: Mapping[str, str]) -> None:
    source, versions = folder / f"{name}.c", folder / f"{name}.map"
    lines = [special.get(function, f"long {function}(void) {{ return 0; }}") for function in sorted(functions)]
    source.write_text("\n".join([*HEADER, *lines, ""]), encoding="utf-8")
    versions.write_text(f"{name} {{ global: *; }};\n", encoding="utf-8")
    flags = ("-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}")
    _output("gcc", *flags, "-o", str(folder / name), str(source))


def _output(name: str, *arguments: str) -> str:
    path = program(name)
    assert path is not None, f"{name} is needed: install binutils and gcc"
    done = run_program((path, *arguments))
    assert done.exit_code == 0, done.stderr
    return done.stdout
