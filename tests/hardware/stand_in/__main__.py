"""Runs a command on a CUDA build of torch without a GPU, behind stand-ins for NVIDIA's libraries:

    PYTHON_WITH_CUDA tests/hardware/stand_in -m benchmarking.run_hardware_benchmark --model-id tiny-bert --device cuda:0

Kernels do nothing, so outputs are wrong, and marked so; everything else is real. It shows that the calls of torch, of
Triton and of NVML are right, from the probe to the run file. It needs gcc, binutils, nvidia-ml-py, and a torch for CUDA
13 on Linux; STAND_IN_GPUS=2 shows two GPUs. cuDNN and CUPTI are not replaced: half precisions need `--attention eager`,
and kernels are not traced.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[3]
LINKED = re.compile(r" U ((?:__)?(?:cuda|cublas)\w+)@libcu(?:dart|blas)")
DRIVER = re.compile(r"CUDAAPI (cu\w+)\(|#define cu\w+ +(cu\w+_v\d)\b")
TORCH_LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so", "libtorch_python.so", "libtorch_cuda_linalg.so")


def output(*command: str) -> str:
    """A program's stdout; its errors go to stderr."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def zeros(source: Path, names: set[str]) -> str:
    """Functions that return 0 for the names that a source does not define."""
    defined = set(re.findall(r"\b(\w+)\(", source.read_text()))
    return "\n".join(f"long {name}(void) {{ return 0; }}" for name in sorted(names - defined))


def build(folder: Path) -> None:
    """The libraries in `folder`: what the installed torch links of CUDA's runtime and cuBLAS, and what cuda.h declares
    of the driver."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None, "torch is not installed"
    assert spec.origin is not None
    torch = Path(spec.origin).parent
    headers = [torch.parent / "nvidia/cu13/include", torch.parent / "triton/backends/nvidia/include"]
    symbols = "".join(output("nm", "-D", str(torch / "lib" / name)) for name in TORCH_LIBRARIES)
    driver = {name for pair in DRIVER.findall((headers[0] / "cuda.h").read_text()) for name in pair if name}
    sources: dict[str, tuple[str, set[str]]] = {
        "stand_in.so": ("cuda_runtime.c", set(LINKED.findall(symbols))),
        "libcuda.so.1": ("driver.c", driver),
        "libnvidia-ml.so.1": ("nvml.c", set()),
    }
    for library, (source, names) in sources.items():
        rest = folder / f"zeros_{source}"
        rest.write_text(zeros(HERE / source, names))
        flags = ("-O1", "-shared", "-fPIC", "-w", *(f"-I{header}" for header in headers))
        output("gcc", *flags, "-o", str(folder / library), str(HERE / source), str(rest), "-ldl")
    (folder / "libcuda.so").symlink_to("libcuda.so.1")


def main() -> int:
    """The exit code of Python with this command line, behind the stand-ins."""
    with tempfile.TemporaryDirectory(prefix="benchhouse-stand-in-") as name:
        build(Path(name))
        environment = {
            **os.environ,
            "LD_PRELOAD": f"{name}/stand_in.so",
            "LD_LIBRARY_PATH": name,
            "TRITON_LIBCUDA_PATH": name,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        return subprocess.run([sys.executable, *sys.argv[1:]], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
