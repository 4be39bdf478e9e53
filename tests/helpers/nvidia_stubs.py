"""Stand-ins for NVIDIA's libraries, so that ONNX Runtime's own provider libraries load on a machine without a GPU.

Every function that the providers link returns 0, one GPU is counted, and the first use of it ends the process with a
line on stdout: by then the provider has parsed its options.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from benchmarking.core.child_process import program, run_program

PARSED = "the options were parsed"
NEEDED = re.compile(r"Shared library: \[(lib(?:cu|nv)[^\]]+)\]")
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


def needed(library: Path) -> tuple[str, ...]:
    """NVIDIA's libraries that a library links, as readelf lists them."""
    return tuple(NEEDED.findall(_output("readelf", "-d", str(library))))


def build_stubs(folder: Path, libraries: tuple[Path, ...]) -> None:
    """Stand-ins in `folder` for everything that these provider libraries link."""
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
    for name, of in functions.items():
        _compile(folder, name, of)


def _compile(folder: Path, name: str, functions: set[str]) -> None:
    source, versions = folder / f"{name}.c", folder / f"{name}.map"
    lines = [SPECIAL.get(function, f"long {function}(void) {{ return 0; }}") for function in sorted(functions)]
    source.write_text("\n".join(["#include <stdio.h>", "#include <unistd.h>", *lines, ""]), encoding="utf-8")
    versions.write_text(f"{name} {{ global: *; }};\n", encoding="utf-8")
    flags = ("-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}")
    _output("gcc", *flags, "-o", str(folder / name), str(source))


def _output(name: str, *arguments: str) -> str:
    path = program(name)
    assert path is not None, f"{name} is needed: install binutils and gcc"
    done = run_program((path, *arguments))
    assert done.exit_code == 0, done.stderr
    return done.stdout
