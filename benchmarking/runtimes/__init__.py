"""Runtimes: one file each, found by listing this folder. Here is the contract they keep, with the ordinary case as
the default of everything that most of them need not say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from benchmarking.devices import DeviceHandle
from benchmarking.errors import UsageError
from benchmarking.records import Cell, Device, Json, Point, Precision, Readings, Rebuild, Scalar, Workload

if TYPE_CHECKING:
    import numpy as np

    from benchmarking.builds.store import BuildStore

Mark = Callable[[str], None]
"""`mark(name)` notes the time inside a timed call: "token" for each token that has reached the host; any other name
ends the phase of that name ("encode", "retrieve", "step"), and waits for the device first."""

TOKEN = "token"

Stage = Callable[[str], AbstractContextManager[None]]
"""`with stage("weights_read"):` times one stage of the load, with the device synced at its end."""


class Operation(ABC):
    """One call at one point, its inputs made and in place: what is timed, and nothing else.

    The attributes are read before the timed calls, so that an operation pays in them for nothing that it does not use.
    """

    items_per_call: int
    """Sequences, images, ...: what throughput_samples_per_sec counts."""
    tokens_per_call: int | None = None
    """What throughput_tokens_per_sec counts: batch x sequence in a forward pass, batch x new tokens in generation."""
    prompt_tokens_per_call: int | None = None
    """Batch x prompt length where there is a prefill, else None."""
    new_tokens: int | None = None
    """Tokens generated per sequence; a streaming call marks "token" exactly this many times. None: no generation."""
    requests_per_call: int = 1
    """Requests that a call starts together. Its latency lasts until the last of them is done, and its counts (items,
    tokens) are those of all."""
    times_itself: bool = False
    """Whether a call takes its own time: `own_times_ns` stands in for the clock's readings."""
    marks_itself: bool = False
    """Whether a call that times itself also knows when its parts ended: it marks nothing, `own_marks_ns` has them."""
    has_runtime_clock: bool = False
    """Whether the runtime has a clock of its own: `runtime_times_ns` is kept next to the clock's readings."""

    def reset(self) -> None:  # noqa: B027 - most calls keep nothing
        """Bring back the state before a call (caches); outside the timed region. Nothing, where a call keeps none."""

    @abstractmethod
    def run(self, mark: Mark) -> Any:
        """The timed call. May return before the device is done unless it marks tokens."""

    @abstractmethod
    def problem(self, output: Any) -> str | None:
        """What is wrong with an output (NaN, Inf, token count), or None. Called outside the timed region."""

    def readings(self, output: Any) -> Readings:
        """Further numbers of a call: tokenize_ms, audio_seconds_per_call, active_parameter_count,
        expert_load_imbalance, ... Called once, outside the timed region, with a call's output; may run parts of the
        model again."""
        return Readings()

    @abstractmethod
    def count(self) -> Readings:
        """`flops` and `bytes_accessed` of a call, counted while running it once more, slowly; or why they are not."""

    def arrays(self, output: Any) -> Mapping[str, np.ndarray]:
        """The output on the host by name, as the family's torch operation names it: float32, tokens int64. Empty where
        the output cannot be compared with the reference's."""
        return {}

    def verified(self) -> Mapping[str, Json]:
        """What the calls really ran on, read back once after the timed calls; may call again, with a profiler.

        What has these names goes to the columns of the same name: `graph_count`, `graph_break_count`,
        `recompile_count`, `nodes`, `nodes_on_cpu_unasked` (the most of any launch), `compile_cold_s`, `compile_warm_s`
        (medians); the rest (`nodes_by_provider`, ...) is kept with the result. What the session's `verified` has of
        them holds for points whose own has not."""
        return {}

    def own_times_ns(self) -> Mapping[str, int]:
        """Nanoseconds of the last call by raw metric, where it `times_itself`: latency_wall always,
        time_to_first_token where it is taken."""
        return {}

    def own_marks_ns(self) -> Sequence[tuple[str, int]]:
        """The last call's marks in order, where it `marks_itself`: named as `Mark` says, in nanoseconds since the call
        began."""
        return ()

    def runtime_times_ns(self) -> Mapping[str, int]:
        """Nanoseconds of the last call by raw metric (latency_request), where it `has_runtime_clock`; called outside
        the timed region, after each sample. Of a sample of several calls it is the last one's."""
        return {}

    def resident_bytes(self) -> int | None:
        """Resident memory now of the other processes that the model is in; None where it is in this one. Called from
        another thread while calls run."""
        return None

    def close(self) -> None:  # noqa: B027 - most operations hold nothing of their own
        """Let go of what the operation holds of its own, when its point is done, however that ended."""


class Session(ABC):
    """A model loaded by a runtime on a device."""

    weights_bytes: int | None = None
    """Exact sum over the unique storages of parameters and buffers; None where the runtime hides them."""
    parameter_count: int | None = None
    verified: Mapping[str, Json]
    """What really runs, read back: parameter_dtypes, parameter_devices, attention, num_threads, ...

    Known to the warehouse: `weight_dtypes` (or `parameters_by_dtype`: dtype -> how many values are of it),
    `model_size_bytes` (of the files that were loaded; without it the build's, else `weights_bytes`), `is_simulated`
    (True for an emulator or software adapter: its numbers are never ranked as the device's)."""

    @abstractmethod
    def operation(self, point: Point) -> Operation:
        """Make the inputs of a point and place them. Raises BenchhouseError when the point cannot be."""

    def compiles(self) -> int | None:
        """Graphs or kernels compiled so far in this process; None for a session that compiles nothing when called."""
        return None

    def resident_bytes(self) -> int | None:
        """Resident memory now of the other processes that the model is in; None where it is in this one."""
        return None

    def close(self) -> None:  # noqa: B027 - some sessions hold nothing between points
        """Let the model and its memory go."""


class Runtime(ABC):
    """A way to run models. Importing the module imports no torch and no vendor package."""

    name: str
    is_default: bool = False
    """Whether it is taken when none is named, and what others are compared with. One runtime is."""
    runs_models: bool = True
    """Whether it runs models, not people's own benchmarks or a script; those that do are listed."""
    reference: str | None = None
    """The runtime whose float32 outputs this one's are compared with; None for the default runtime's."""
    point_per_process: bool = False
    """Whether every point needs a process of its own, because one changes what is compiled for the next."""
    prepares: bool = False
    """Whether it loads builds (exports, engines) that `prepare` makes from the model beforehand."""
    runs_on_several: bool = False
    """Whether it takes several devices as one (`devices._several`)."""
    concurrency_flag: str | None = None
    """The flag with which it has several requests in flight ("--hint throughput"); None where it never has."""
    needs_no_torch: bool = False
    """Whether it drives devices itself, so that its process needs no torch. A GPU is then opened to be watched alone,
    by its vendor's library; the runtime waits for its calls."""
    packages: tuple[str, ...] = ()
    """Packages whose versions matter to what it does, by their names on the package index; `--list-runtimes` shows
    those that are installed."""

    @property
    def is_compared(self) -> bool:
        """Whether there is a float32 reference that its outputs are compared with."""
        return True

    def missing(self) -> str | None:
        """None, or what must be installed and how."""
        return None

    @abstractmethod
    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        """None, or why this device, workload and precision do not go together here."""

    def options(self, workload: Workload) -> tuple[str, ...]:
        """The names of the options that `mode` takes for this workload."""
        return ()

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """The complete settings that name the series (attention, cache, ...), defaults filled in. Raises UsageError for
        an option or value this runtime does not have."""
        if options:
            raise UsageError(f"runtime {self.name} has no option {sorted(options)[0]!r}; it has none")
        return {}

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """The settings that `mode` gave, with those filled in that only this precision has (quantization). Raises
        UsageError for one that it does not have."""
        return mode

    def runs_at_once(self, mode: Mapping[str, Scalar]) -> bool:
        """Whether several requests are in flight with these settings. How many is then the point's `concurrency`."""
        return False

    def has_build(self, cell: Cell) -> bool:
        """Whether there is something to `prepare` for this cell."""
        return self.prepares

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        """See that `store` has what `open` will load for these points, and say what it has: `Preparation.build`. Called
        where the cell `has_build`, in a process of its own before the first launch, so that nothing of the making is in
        what is measured.

        Raises BenchhouseError when the model cannot be built."""
        return {}

    def import_libraries(self) -> None:  # noqa: B027 - a runtime may need none
        """Import what the runtime needs: the import stage of the load, before the device is opened."""

    @abstractmethod
    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        """Load the model: stages tokenizer, weights_read, to_device. `points` are those that will be asked for. Raises
        BenchhouseError subclasses for trouble with the model; verifies that what runs is what was asked for, and raises
        when it is not."""
