"""Runtimes: one file each, found by listing this folder. Here is the contract they keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from benchmarking.devices import DeviceHandle
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


class Operation(Protocol):
    """One call at one point, its inputs made and in place: what is timed, and nothing else."""

    items_per_call: int
    """Sequences, images, ...: what throughput_samples_per_sec counts."""
    tokens_per_call: int | None
    """What throughput_tokens_per_sec counts: batch x sequence in a forward pass, batch x new tokens in generation."""
    prompt_tokens_per_call: int | None
    """Batch x prompt length where there is a prefill, else None."""
    new_tokens: int | None
    """Tokens generated per sequence; a streaming call marks "token" exactly this many times. None: no generation."""

    def reset(self) -> None:
        """Bring back the state before a call (caches); outside the timed region."""

    def run(self, mark: Mark) -> Any:
        """The timed call. May return before the device is done unless it marks tokens."""

    def problem(self, output: Any) -> str | None:
        """What is wrong with an output (NaN, Inf, token count), or None. Asked outside the timed region."""

    def readings(self, output: Any) -> Readings:
        """What else there is to know of a call, as numbers: tokenize_ms, audio_seconds_per_call,
        active_parameter_count, expert_load_imbalance, ... Asked once, outside the timed region, with a call's output;
        may run parts of the model again."""

    def count(self) -> Readings:
        """`flops` and `bytes_accessed` of a call, counted while running it once more, slowly."""


@runtime_checkable
class SelfTimed(Protocol):
    """An operation that takes the time of its calls itself: its readings stand in for the clock's, as they are."""

    def own_times_ns(self) -> Mapping[str, int]:
        """Nanoseconds of the last call by raw metric: latency_wall always, time_to_first_token where it is taken."""


@runtime_checkable
class AlsoTimed(Protocol):
    """An operation whose runtime has a clock of its own: what it says is kept beside the clock's readings."""

    def also_ns(self) -> Mapping[str, int]:
        """Nanoseconds of the last call by raw metric (latency_request); asked outside the timed region, after each
        sample. Of a sample of several calls it is the last one's."""


@runtime_checkable
class MarksItself(Protocol):
    """A call that times itself, and knows when each of its parts ended: it marks nothing while it runs."""

    def own_marks_ns(self) -> Sequence[tuple[str, int]]:
        """The last call's marks in order, named as `Mark` says, in nanoseconds since the call began."""


@runtime_checkable
class RunsAtOnce(Protocol):
    """An operation whose calls may be several requests in flight at once; every other one's are one request."""

    requests_per_call: int
    """Requests that a call starts together. Its latency lasts until the last of them is done, and its counts (items,
    tokens) are those of all."""


@runtime_checkable
class RunsElsewhere(Protocol):
    """An operation or session whose model is in other processes than this one."""

    def resident_bytes(self) -> int:
        """Resident memory of those processes now. Asked from another thread while calls run."""


@runtime_checkable
class Comparable(Protocol):
    """An operation whose outputs can be compared with those of the reference, the eager float32 model."""

    def arrays(self, output: Any) -> Mapping[str, np.ndarray]:
        """The output on the host by name, as the family's torch operation names it: float32, tokens int64."""


@runtime_checkable
class Verifies(Protocol):
    """An operation that can tell, after it has been called, what its calls really ran on."""

    def verified(self) -> Mapping[str, Json]:
        """What was read back, asked once after the timed calls; may call again, with a profiler.

        What has these names goes to the columns of the same name: `graph_count`, `graph_break_count`,
        `recompile_count`, `nodes`, `nodes_on_cpu_unasked` (the most of any launch), `compile_cold_s`, `compile_warm_s`
        (medians); the rest (`nodes_by_provider`, ...) is kept beside the result. What the session's `verified` has of
        them stands for points whose own has not."""


@runtime_checkable
class Closable(Protocol):
    """An operation that holds something of its own, which is let go when its point is done, however that ended."""

    def close(self) -> None:
        """Let it go."""


@runtime_checkable
class Compiles(Protocol):
    """A session that compiles while it is called."""

    def compiles(self) -> int:
        """Graphs or kernels compiled so far in this process."""


class Session(Protocol):
    """A model loaded by a runtime on a device."""

    weights_bytes: int | None
    """Exact sum over the unique storages of parameters and buffers; None where the runtime hides them."""
    parameter_count: int | None
    verified: Mapping[str, Json]
    """What really runs, read back: parameter_dtypes, parameter_devices, attention, num_threads, ...

    Known to the warehouse: `weight_dtypes` (or `parameters_by_dtype`: dtype -> how many values are of it),
    `model_size_bytes` (of the files that were loaded; without it the build's, else `weights_bytes`), `is_simulated`
    (True for an emulator or software adapter: its numbers are never ranked as the device's)."""

    def operation(self, point: Point) -> Operation:
        """Make the inputs of a point and place them. Raises BenchhouseError when the point cannot be."""

    def close(self) -> None:
        """Let the model and its memory go."""


class RuntimePlugin(Protocol):
    """A way to run models. Importing the module imports no torch and no vendor package."""

    name: str
    is_compared: bool
    """Whether there is an eager float32 reference that its outputs are compared with."""
    point_per_process: bool
    """Whether every point needs a process of its own, because one changes what is compiled for the next."""

    def missing(self) -> str | None:
        """None, or what must be installed and how."""

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        """None, or why this device, workload and precision do not go together here."""

    def options(self, workload: Workload) -> tuple[str, ...]:
        """The names of the options that `mode` takes for this workload."""

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """The complete settings that name the series (attention, cache, ...), defaults filled in. Raises UsageError for
        an option or value this runtime does not have."""

    def import_libraries(self) -> None:
        """Import what the runtime needs: the import stage of the load, before the device is opened."""

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        """Load the model: stages tokenizer, weights_read, to_device. `points` are those that will be asked for. Raises
        BenchhouseError subclasses for trouble with the model; verifies that what runs is what was asked for, and raises
        when it is not."""


@runtime_checkable
class Prepares(Protocol):
    """What a runtime has besides when it loads builds (exports, engines) that are made from the model beforehand."""

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        """See that `store` has what `open` will load for these points. Runs in a process of its own before the first
        launch, so that nothing of the making is in what is measured. Says what there is: `Preparation.build`.

        Raises BenchhouseError when the model cannot be built."""


@runtime_checkable
class SometimesPrepares(Protocol):
    """What a runtime that prepares has besides when only some of its cells have anything to make."""

    def has_build(self, cell: Cell) -> bool:
        """Whether this one has."""


@runtime_checkable
class HasReference(Protocol):
    """What a runtime has besides whose outputs are compared with another runtime's than eager's."""

    reference: str
    """That runtime's name; it is taken at float32."""


@runtime_checkable
class RunsOnSeveral(Protocol):
    """What a runtime has besides that takes several devices as one (`devices._several`)."""

    runs_on_several: bool


@runtime_checkable
class Concurrent(Protocol):
    """What a runtime has besides that can have several requests in flight."""

    def runs_at_once(self, mode: Mapping[str, Scalar]) -> bool:
        """Whether it does so with these settings. How many there are is then the point's `concurrency`."""


@runtime_checkable
class WithoutTorch(Protocol):
    """What a runtime has besides that drives devices itself, so that its process needs no torch."""

    needs_no_torch: bool
    """A GPU is then opened to be watched alone, by its vendor's library; the runtime waits for its calls."""


@runtime_checkable
class TellsPrecisions(Protocol):
    """What a runtime has besides when it has options that only some precisions have."""

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """The settings that `mode` gave, with those filled in that this precision has (quantization). Raises UsageError
        for one that it does not have."""


@runtime_checkable
class HasPackages(Protocol):
    """What a runtime has besides that runs on packages whose versions matter to what it does."""

    packages: tuple[str, ...]
    """Their names on the package index; `--list-runtimes` shows those that are installed."""
