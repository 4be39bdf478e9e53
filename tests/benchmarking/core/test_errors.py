"""Errors during cleanup, and out-of-memory errors of every library."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarking.core import errors
from benchmarking.core.command_line import run_command
from benchmarking.core.errors import (
    BenchhouseError,
    OutOfMemoryError,
    always_after,
    is_device_lost,
    is_out_of_memory,
    memory_errors,
)


def test_cleanup_runs_after_the_body():
    events = []
    with always_after(lambda: events.append("closed")):
        events.append("body")
    assert events == ["body", "closed"]


def test_cleanup_runs_after_an_error_which_is_raised():
    events = []
    with pytest.raises(ValueError, match="first"), always_after(lambda: events.append("closed")):
        raise ValueError("first")
    assert events == ["closed"]


def test_a_cleanup_error_becomes_a_note_of_the_first_error():
    def close():
        raise KeyError("second")

    with pytest.raises(ValueError, match="first") as caught, always_after(close):
        raise ValueError("first")
    assert caught.value.__notes__ == ["during cleanup: KeyError: 'second'"]


def test_a_cleanup_error_alone_is_raised():
    def close():
        raise KeyError("second")

    with pytest.raises(KeyError), always_after(close):
        pass


@pytest.mark.parametrize(
    "text",
    [
        "std::bad_alloc",
        "DefaultCPUAllocator: can't allocate memory: you tried",
        "CUDA out of memory. Tried to allocate 20.00 GiB",
        "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer",
        "clCreateBuffer: CL_MEM_OBJECT_ALLOCATION_FAILURE",
        "[GPU] Exceeded max size of memory object allocation",
        "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        "RangeError: Array buffer allocation failed",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "Invalid buffer size: 37.25 GiB",
        "[metal::malloc] Attempting to allocate 20401094656 bytes which is greater than the maximum",
        "IExecutionContext::enqueueV3: Error Code 2: OutOfMemory (Requested size was 17179869184 bytes.)",
        "clEnqueueNDRangeKernel, error code: -5 CL_OUT_OF_RESOURCES",
        "clCreateBuffer, error code: -61 CL_INVALID_BUFFER_SIZE",
        "HIP error: hipErrorOutOfMemory",
        "level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
        "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 17179869184",
        "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
        "miopenStatusAllocFailed",
        "rocblas_status_memory_error",
        "Requested amount of GPU memory (17179869184 bytes) could not be allocated.",
        "[METAL] Command buffer execution failed: Insufficient Memory (kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    ],
)
def test_out_of_memory_is_recognized_in_messages_of_every_library(text):
    assert is_out_of_memory(text)
    with pytest.raises(OutOfMemoryError, match=r"^out of memory while loading: "), memory_errors("loading"):
        raise RuntimeError(text)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in https://docs.nvidia.com",
        "[ONNXRuntimeError] : 1 : FAIL : CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; "
        "hostname=h ; expr=cudaStreamSynchronize(stream)",
        "CUDA error: unspecified launch failure",
        "CUDA error: misaligned address",
        "HIP error: an illegal memory access was encountered",
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: uncorrectable NVLink error detected during the execution",
        "level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
        "887A0005: DXGI_ERROR_DEVICE_REMOVED",
        "CUDA error: an illegal memory access was encountered\nCUDA out of memory. Tried to allocate 2.00 GiB",
        "[METAL] Command buffer execution failed: Caused GPU Hang Error (kIOGPUCommandBufferCallbackErrorHang)",
    ],
)
def test_lost_devices_are_recognized_in_messages_of_every_library(text):
    assert is_device_lost(text)
    assert is_device_lost(RuntimeError(text))


def test_a_lost_device_is_recognized_in_the_cause_of_an_error():
    raised = BenchhouseError("running b1 s32: failed")
    raised.__cause__ = RuntimeError("CUDA error: device-side assert triggered")
    assert is_device_lost(raised)
    noted = ValueError("shapes")
    noted.add_note("during cleanup: RuntimeError: CUDA error: an illegal memory access was encountered")
    assert is_device_lost(noted)


def test_torch_gpu_errors_are_classified_by_message():
    """AcceleratorError is raised for every failed call of CUDA or HIP: also for those that leave the GPU usable."""
    import torch

    assert is_device_lost(torch.AcceleratorError("CUDA error: an illegal memory access was encountered"))
    assert not is_device_lost(torch.AcceleratorError("CUDA error: invalid configuration argument"))


def test_other_device_errors_are_not_a_lost_device():
    metal = "[METAL] Command buffer execution failed: Insufficient Memory (kIOGPUCommandBufferCallbackErrorOutOfMemory)"
    for text in ("CUDA out of memory. Tried to allocate 20.00 GiB", "CUDA error: invalid argument", "shapes", metal):
        assert not is_device_lost(RuntimeError(text))
    error = RuntimeError(metal)
    error.add_note("during cleanup: RuntimeError: CUDA error: an illegal memory access was encountered")
    assert is_device_lost(error)


def test_other_errors_are_not_out_of_memory():
    assert not is_out_of_memory("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RuntimeError, match="shapes") as caught, memory_errors("loading"):
        raise RuntimeError("shapes differ")
    assert not isinstance(caught.value, BenchhouseError)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_unwritable_paths_are_one_line_errors(capsys, number):
    def write(argv):
        raise OSError(number, os.strerror(number), "/media/file")

    assert run_command("house", write, []) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"house: error: /media/file: {os.strerror(number)}: ")
    assert line.endswith("choose another path") or "choose another path, or" in line


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps the folder")
def test_a_deleted_working_folder_is_a_one_line_error(capsys, monkeypatch, tmp_path):
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run_command("house", lambda argv: print(Path.cwd()), []) == 1
    monkeypatch.chdir(tmp_path)
    assert capsys.readouterr().err == "house: error: the working folder was deleted: change to another folder\n"


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_link_loops_are_one_line_errors(capsys, tmp_path):
    (tmp_path / "loop").symlink_to("loop")

    def resolve(argv):
        (tmp_path / "loop").resolve(strict=True)

    assert run_command("house", resolve, []) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "ymlink loop" in line or "symbolic links" in line
    assert line.endswith("choose another path")


def test_other_os_errors_keep_their_traceback():
    def fail(argv):
        raise OSError(errno.EBADF, "Bad file descriptor")

    with pytest.raises(OSError, match="Bad file descriptor"):
        run_command("house", fail, [])


LONG = ("x" * 5000, "a b" * 1700, "\x1b" * 400, "--tag=" + "y" * 700)


@pytest.mark.parametrize("value", LONG)
def test_long_values_are_cut_in_errors(capsys, value):
    def command(arguments):
        raise BenchhouseError(f"unknown name {arguments[0]!r}: known are {', '.join(['a-name'] * 200)}")

    assert run_command("command", command, [value]) == 1
    printed = capsys.readouterr().err
    cut = printed.partition(": known")[0]
    assert len(cut) < 290
    assert " characters]" in cut
    assert printed.count("a-name") == 200  # a long list is no long value


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("libtorch.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_a_lack_of_memory_is_one_line(capsys, error):
    def command(_):
        raise error

    assert run_command("command", command, []) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("command: error: out of memory: ")
    assert printed.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the address space")
@pytest.mark.parametrize("limit", [160_000_000, 999_000_000])
def test_commands_below_a_limit_of_the_address_space_end_with_one_line(tmp_path, limit):
    """Before they import packages, which may wait for memory forever."""
    import resource

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    code = "import sys; from benchmarking.console_scripts import run; sys.exit(run('benchhouse', 'benchmarking.cli'))"
    done = subprocess.run(
        [sys.executable, "-c", code, "show", "--db-path", str(tmp_path / "new.duckdb")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"benchhouse show: error: this process may use {limit // 10**6} MB of address space (ulimit -v), and needs at "
        "least 1000 MB: raise the limit\n"
    )


def test_below_a_low_limit_of_the_address_space_openblas_starts_no_threads(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "")  # so that the test's own setting is undone
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    for limit, threads in ((None, None), (9 * 10**9, None), (2 * 10**9, "1")):
        monkeypatch.setattr(errors, "_address_space_limit", lambda limit=limit: limit)
        errors.require_address_space()
        assert os.environ.get("OPENBLAS_NUM_THREADS") == threads
