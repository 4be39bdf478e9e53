"""Ids, timestamps, owners of files, the commit and versions of a run, and the fields needed to repeat it."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarking import __version__
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import psutil
from benchmarking.core.plugins import distributions_of, versions_of
from benchmarking.core.records import Json, Point, Precision, Provenance, Scalar, WeightsKind
from benchmarking.core.untrusted.repository import repository_state

PACKAGES = (
    *("torch", "transformers", "diffusers", "tokenizers", "safetensors"),
    *("numpy", "onnxruntime", "onnxruntime-gpu", "openvino", "nvidia-ml-py"),
)
"""Packages whose version may change a number; those that are not installed are left out."""
ENGINES = (
    *("onnx", "onnxruntime-qnn", "nncf", "torchao", "kernels", "flash-attn", "flash-attn-3", "flash-attn-4"),
    *("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "openvino-genai", "openvino-tokenizers", "ctranslate2"),
    *("mlx", "mlx-cpu", "mlx-lm", "xllamacpp", "llama-cpp-python", "gguf", "playwright"),
)
"""Packages of single runtimes, whose versions runs of benchhouse 0.2 lack."""
CLOCK_READINGS = 1_000_000
"""Readings of a clock before it counts as standing still: tens of milliseconds, longer than the step of any clock."""


def uuid7() -> str:
    """A UUID version 7 (RFC 9562), which sorts by creation time: 48 bits of Unix milliseconds, then 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | 0x7 << 76  # version
    value = value & ~(0x3 << 62) | 0x2 << 62  # variant
    return str(uuid.UUID(int=value))


def utc_now() -> str:
    """The time in UTC, ISO 8601, to the millisecond: "2026-01-02T03:04:05.678Z". Not a clock for durations."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def naive_now() -> datetime:
    """The time in UTC without its zone, as the warehouse stores times."""
    return datetime.now(UTC).replace(tzinfo=None)


def naive_utc(time: datetime) -> datetime:
    """The time in UTC without its zone. Raises OverflowError before year 1 and after year 9999."""
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def require_running_clock(now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
    """Raise BenchhouseError if the clock of durations stands still: what waits for a time would wait forever."""
    start_ns = now_ns()
    if all(now_ns() == start_ns for _ in range(CLOCK_READINGS)):
        raise BenchhouseError("this machine's clock does not advance: nothing can be timed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that writes or wrote a file."""

    host: str
    """First 16 hex digits of the SHA-256 of the machine's name."""
    pid: int
    created_s: float
    """Start of the process in Unix seconds: process ids are reused. As psutil computes it, it moves with the system
    clock."""
    since_boot_s: float | None = None
    """Its start in seconds since boot, which does not; None in older files, and on systems other than Linux."""

    def is_here(self) -> bool:
        """Whether it runs or ran on this machine."""
        return self.host in (_host(), platform.node())  # older files contain the plain name

    def is_alive(self) -> bool:
        """Whether the process is running on this machine."""
        if not self.is_here():
            return False
        try:
            process = psutil.Process(self.pid)
            is_same = process.create_time() == self.created_s
            if self.since_boot_s is not None:
                is_same = _since_boot_s(self.pid) == self.since_boot_s
            # A killed process is listed until its parent has waited for it.
            return is_same and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError, ValueError, OverflowError):  # the last two: a file may hold any number
            return False


def this_process() -> Owner:
    pid, created_s = os.getpid(), psutil.Process().create_time()
    return Owner(host=_host(), pid=pid, created_s=created_s, since_boot_s=_since_boot_s(pid))


def _since_boot_s(pid: int) -> float | None:
    """When a process started, by the kernel's clock (proc_pid_stat(5), field 22); None if this is not Linux. Raises
    OSError for a process that is gone."""
    if sys.platform != "linux":
        return None
    stat = Path(f"/proc/{pid}/stat").read_bytes()  # the name of the program, in parentheses, may be anything
    return int(stat.rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def _host() -> str:
    """An identifier of this machine that does not reveal its name."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:16]


def provenance(command: Sequence[str], tags: Mapping[str, str], description: str | None) -> Provenance:
    """The provenance of a run that starts now in the working folder."""
    found = repository_state(Path.cwd())
    return Provenance(
        tool_version=__version__,
        command=tuple(command),
        host=platform.node(),
        git_commit=found.commit,
        git_branch=found.branch,
        git_dirty=found.is_dirty,
        git_commit_time=found.commit_time,
        versions=versions(),
        tags=dict(tags),
        description=description,
    )


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that may change a number, read without importing them."""
    return {**module_versions(), **versions_of((*ENGINES, *distributions_of("onnxruntime_genai")))}


def module_versions() -> dict[str, str]:
    """Of `versions`, those for a module of a script, whose states depend on them."""
    return {"python": platform.python_version(), **versions_of((*PACKAGES, *distributions_of("onnxruntime")))}


def version_differences(
    before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    """Name -> both versions where they differ; None where a package was not installed. One of `PACKAGES` is stored
    wherever it is installed. Another that only one side states is unknown on the other, and no difference."""
    return {
        name: (before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and (name in PACKAGES or (name in before and name in after))
    }


NOT_REPEATABLE = {
    "module": "it is a torch module of a script or was passed in Python: run benchhouse script or benchmark_model",
    "bench": "it is a user-written benchmark: run its file again",
    "import": "another tool measured it: run that tool again",
    "inputs": "its inputs were read from a file: give the command with --inputs",
}
"""Source of the model, or of its inputs -> why no command can repeat the measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """The fields of a stored run that are needed to request the same measurement.

    The stored command line is not part of it; it is never executed.
    """

    run_id: str
    model_id: str
    model_source: str
    task: str
    weights: WeightsKind
    device: str
    """The device that was used, also if "auto" was requested."""
    runtime: str
    runtime_mode: Mapping[str, Scalar]
    """The runtime's options by name."""
    precision: Precision
    num_threads: int | None
    cpu_list: str | None
    settings: Mapping[str, Json]
    tags: Mapping[str, str]
    origin_format: str | None
    """The format that it was imported from; None for our own runs."""
    hashed_keys: Mapping[str, Json]
    """The values from which its hardware id is computed."""
    points: tuple[Point, ...]
    has_skipped_points: bool
    model_revision: str | None = None
    config_hash: str | None = None
    dims: Any = field(default_factory=dict)
    """Of a graph file: the requested sizes of free dimensions by name, or "batch". Not checked: it is a stranger's
    JSON, and neither are the next."""
    input_values: Any = field(default_factory=dict)
    """Of a graph file: the requested values of inputs."""
    has_inputs_file: bool = False
    """Whether a graph file's inputs were read from a file."""
    has_quality: bool = False
    """Whether any measure of its quality has a value."""

    @property
    def is_own_benchmark(self) -> bool:
        """Whether code of the user's own was measured, in place of a model."""
        return self.model_source == "bench"

    @property
    def why_not_repeatable(self) -> str | None:
        """Why no command can repeat it; None if one can."""
        what = "inputs" if self.has_inputs_file else self.model_source
        return NOT_REPEATABLE.get("import" if self.origin_format is not None else what)
