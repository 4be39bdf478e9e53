"""The contract of runtime plugins, and the operations that runtimes and families pass to the measuring loop.

A module in `benchmarking/runtimes/` has a `PLUGIN` of type `Runtime`; `model_contracts` has the contract of families.
A worker process uses them in this order:

    family.check(workload, point)                  before anything runs
    runtime.prepare(cell, points, store)           exports and engines, in a separate process
    runtime.open(cell, handle, ...)  -> Session    the model is loaded
    session.operation(point)         -> Operation  inputs are made and placed
    operation.run(mark)                            the timed call, many times

Default methods describe the ordinary case, so a plugin overrides only what differs. `supports`, `check`, `missing` and
`problem` return None if there is no problem, else the reason. `device_contracts` has the contract of devices,
`model_contracts` those of families and exported graphs.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import CustomMetric
from benchmarking.core.records import (
    NOT_SUPPORTED,
    Cell,
    Device,
    Json,
    Point,
    Precision,
    Readings,
    Rebuild,
    Scalar,
    Workload,
)
from benchmarking.core.text import flag_of

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from benchmarking.builds.store import BuildStore
    from benchmarking.core.device_contracts import DeviceHandle
    from benchmarking.core.profiles import CallProfiler

TOKEN = "token"  # noqa: S105 - the name of a mark

NOT_AS_REQUESTED, NOT_VERIFIED = "not_as_requested", "not_verified"
"""Keys of `Operation.verified`, with the reason in words: the calls were not what was requested (another kernel); or it
is not known whether they were. Both become doubts of the result."""
MADE_BUILD = "made_build"
"""Key of `Operation.verified`: kind and digest of a build that the calls themselves made ("inductor/0a1b...")."""

Mark = Callable[[str], None]
"""`mark(name)` records a time inside a timed call: `mark("token")` for each token that has reached the host; any other
name ends the phase of that name ("encode", "retrieve", "step") after waiting for the device."""
Stage = Callable[[str], AbstractContextManager[None]]
"""`with stage("weights_read"):` times one stage of the load; the device is synchronized at its end."""


def wrong_token_count(tokens: Sequence[Sequence[int]], rows: int, new_tokens: int | None) -> str | None:
    """None, or how the tokens that a call generated are not so many for each of its rows."""
    lengths = sorted({len(row) for row in tokens})
    if len(tokens) == rows and lengths == [new_tokens]:
        return None
    return f"token count: {len(tokens)} rows of {lengths}, expected {new_tokens} each"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A completed request: when it was submitted and completed, by the caller's clock."""

    submitted_ns: int
    completed_ns: int
    marks: tuple[tuple[str, int], ...] = ()
    """Its marks, as for `Mark`, with the clock's readings."""
    runtime_ns: int | None = None
    """Its latency by the runtime's own clock, if it has one."""


class FamilyOperation(ABC):
    """One call of a model at one point, with its inputs made and in place.

    Families make these for torch models (`WorkloadFamily.torch_operation`); `Operation` adds what a runtime knows.
    """

    items_per_call: int
    """Sequences, images, ...: what throughput_samples_per_sec counts."""
    tokens_per_call: int | None = None
    """What throughput_tokens_per_sec counts: batch x sequence length in a forward pass, batch x new tokens in
    generation; None without tokens."""
    prompt_tokens_per_call: int | None = None
    """Batch x prompt length; None without a prefill."""
    new_tokens: int | None = None
    """Tokens generated per sequence. None: no generation."""
    streams: bool = True
    """Whether a call that generates brings each token to the host as soon as it exists, and marks "token" for it;
    otherwise it does so for the first one, and for all others together at the end: two marks."""

    keeps_state: bool = False
    """Whether a call changes what the next one starts with, unless `reset` comes between: such calls are timed one by
    one, however short they are."""

    def count_like(self, inner: FamilyOperation) -> None:
        """Take what a call counts, and whether it streams and keeps state, from the operation that makes the call."""
        self.items_per_call = inner.items_per_call
        self.tokens_per_call = inner.tokens_per_call
        self.prompt_tokens_per_call = inner.prompt_tokens_per_call
        self.new_tokens = inner.new_tokens
        self.streams = inner.streams
        self.keeps_state = inner.keeps_state

    def reset(self) -> None:  # noqa: B027 - most calls keep no state
        """Restore the state (caches) from before a call. Called outside the timed region."""

    @abstractmethod
    def run(self, mark: Mark) -> Any:
        """The timed call: only the work itself. May return before the device is done, unless it marks tokens."""

    @abstractmethod
    def problem(self, output: Any) -> str | None:
        """The problem of an output (NaN, Inf, token count), or None. Called outside the timed region."""

    def readings(self, output: Any) -> Readings:
        """Values of a call other than its times: audio_seconds_per_call, active_parameter_count, expert_load_imbalance,
        ...; a list is the raw samples in ms of the metric of that name (tokenize). Called once, outside the timed
        region; may run parts of the model again."""
        return Readings()

    def metrics(self) -> Sequence[CustomMetric]:
        """Custom metrics with unit and direction: one value each per launch, read once after the timed calls and
        outside any timed region."""
        return ()

    def next_token_logits(self, text: np.ndarray) -> np.ndarray:
        """Logits of the tokens of a text, for its quality; called outside the timed region, at a batch size of 1.

        `text` holds as many ids (int64) as the point has in its sequence and new tokens. Its beginning is processed as
        the prompt, and then its own tokens instead of the most likely ones. The result (new tokens x vocabulary,
        float32) has the logits by which each new token would be chosen. Raises UnsupportedError with the reason if the
        call returns tokens only.
        """
        raise UnsupportedError("the runtime returns tokens, not the probabilities of all of them")

    @abstractmethod
    def arrays(self, output: Any) -> Mapping[str, np.ndarray]:
        """The output on the host as numpy arrays (float32; tokens int64), under the same names in every runtime, for
        the comparison with the reference. Empty when the output cannot be compared."""


class Operation(FamilyOperation):
    """The timed call at one point, as made by a runtime.

    The flags are read before the timed calls, so an operation pays nothing for what it does not use.
    """

    requests_in_flight: int = 1
    """Requests that run at the same time while they are measured (`keep_in_flight`). A call (`run`) is always one, and
    items, tokens and FLOPs are those of one."""
    times_itself: bool = False
    """Whether a call measures its own time; `own_times_ns` then replaces the clock's readings."""
    marks_itself: bool = False
    """Whether a call that times itself also records when its parts ended: `own_marks_ns` then replaces `mark`."""
    has_runtime_clock: bool = False
    """Whether the runtime has its own clock: `runtime_times_ns` is stored in addition to the wall time."""
    is_replayed: bool = False
    """Whether calls replay CUDA graphs, which run kernels without dispatching operators or allocating memory."""

    def arrays(self, output: Any) -> Mapping[str, np.ndarray]:
        return {}

    def count(self) -> Readings:
        """`flops` and `bytes_accessed` of a call, counted during one extra, slow run; or why they are unknown."""
        why = f"{NOT_SUPPORTED}: operators are counted in torch models only"
        return Readings(missing=dict.fromkeys(("flops", "bytes_accessed"), why))

    def verified(self) -> Mapping[str, Json]:
        """What the calls really ran on, read back once after the timed calls; may call again under a profiler.

        `graph_count`, `graph_break_count`, `recompile_count`, `nodes`, `nodes_on_cpu_unasked`, `compile_cold_s` and
        `compile_warm_s` go to the columns of those names, other keys (`nodes_by_provider`, ...) to the result's
        details. Where a key is absent, the session's `verified` applies. What is wrong with the calls is a fact too
        (`NOT_AS_REQUESTED`), as is what cannot be read (`NOT_VERIFIED`): the point has been measured by then.
        """
        return {}

    def keep_in_flight(
        self, count: int, now_ns: Callable[[], int], until_ns: float = float("inf"), least: int = 0
    ) -> Sequence[Completion]:
        """Run `count` requests with `requests_in_flight` of them at any time: one is submitted when one ends, and its
        time begins then, however long it waits for a processor. After the first `least`, none starts once the clock has
        reached `until_ns`. The completions in their order, once the last request has ended. Only for operations with
        several requests in flight."""
        raise NotImplementedError(f"{type(self).__name__} runs one request at a time")

    def own_times_ns(self) -> Mapping[str, int]:
        """Nanoseconds of the last call by raw metric, if it `times_itself`: always latency_wall, time_to_first_token
        where it is measured."""
        return {}

    def claimed_ms(self) -> Mapping[str, Sequence[tuple[float, float]]]:
        """Method -> for each call so far its time as the code that was measured reports it, and its wall time, both in
        milliseconds; where both are times of the same call and that code is not ours."""
        return {}

    def own_marks_ns(self) -> Sequence[tuple[str, int]]:
        """The last call's marks in order, if it `marks_itself`: names as for `Mark`, nanoseconds since the call
        began."""
        return ()

    def runtime_times_ns(self) -> Mapping[str, int]:
        """Nanoseconds of the last call by raw metric (latency_request), if it `has_runtime_clock`. Called outside the
        timed region after each sample; for a sample of several calls it is the last call's."""
        return {}

    def resident_bytes(self) -> int | None:
        """Resident memory, now, of the other processes that hold the model; None when it is in this process. Called
        from another thread while calls run."""
        return None

    def process_ids(self) -> Sequence[int]:
        """The other processes that do the work. Their waits for a CPU and page faults count towards the call."""
        return ()

    def profiler(self, folder: Path, synchronize: Callable[[], None]) -> CallProfiler | None:
        """What profiles single calls of it: times by module and operator. Its files go to `folder`, the last trace
        under the name `TRACE_FILE`; `synchronize` waits for the device. None if no profiler sees inside the calls."""
        return None

    def close(self) -> None:
        """Release what the operation holds. Always called when its point is done, also after a failure."""


class Session(ABC):
    """A model that a runtime has loaded on a device."""

    batches_calls: bool = False
    """Whether calls of several operations may run at the same time in several threads, with the model combining their
    work (continuous batching)."""
    weights_bytes: int | None = None
    """Exact sum over the unique storages of parameters and buffers; None when the runtime does not expose them."""
    parameter_count: int | None = None
    verified: Mapping[str, Json]
    """What really runs, read back: parameter_dtypes, parameter_devices, attention, num_threads, ...

    Stored in columns: `weight_dtypes` (or `parameters_by_dtype`: number of values by dtype), `model_size_bytes` (size
    of the loaded files; without it the build's size, else `weights_bytes`) and `is_simulated` (True for an emulator or
    software adapter, whose numbers are never ranked as the device's)."""

    @abstractmethod
    def operation(self, point: Point) -> Operation:
        """Make and place the inputs of a point. Raises BenchhouseError when the model cannot run it."""

    def compiles(self) -> int | None:
        """Graphs or kernels compiled so far in this process; None when calls never compile."""
        return None

    def resident_bytes(self) -> int | None:
        """Resident memory, now, of the other processes that hold the model; None when it is in this process."""
        return None

    def close(self) -> None:  # noqa: B027 - some sessions hold nothing between points
        """Release the model and its memory."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option that a runtime declares; flags, YAML keys, help and tables derive from it.

    Its value is one of the settings that distinguish a series (`Runtime.mode`).
    """

    name: str
    """The key in the settings of a run and in a YAML list; the flag with `-` for `_`."""
    help: str
    """A noun phrase for what the option chooses; equal in all runtimes that share the option."""
    _: KW_ONLY
    values: tuple[str, ...] = ()
    """The accepted values, the default first; empty for any value."""
    default: str | None = None
    """The default in words, if it is not the first of `values`."""
    is_filled_in: bool = True
    """Whether the default is written to the settings; otherwise the runtime completes them."""
    has_flag: bool = True
    """Whether it has a flag and a YAML key; False when only a file of the runtime sets it."""
    tried: tuple[str, ...] = ()
    """Values besides the default that a search for the best configuration tries; empty for the default only."""
    changes_work: bool = False
    """Whether a call with it has other floating-point operations than the model's own at the point."""

    @property
    def flag(self) -> str:
        """The flag: "--compile-mode"."""
        return flag_of(self.name)

    def chosen(self, runtime: str, value: Scalar | None) -> Scalar:
        """The given value, or the default. Raises UsageError for a value that the runtime does not accept."""
        if value is None:
            return self.values[0]
        if self.values and value not in self.values:
            raise UsageError(f"{self.name} {value!r}: runtime {runtime} has {', '.join(self.values)}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignCode:
    """Code outside the installed packages that a cell executes."""

    path: str
    """Its file or folder, absolute."""
    flag: str
    """The flag by which a command names it, or a folder that holds it."""

    @property
    def key(self) -> str:
        """The key of the flag among the arguments of a command."""
        return self.flag.removeprefix("--").replace("-", "_")


def chosen_settings(
    runtime: str, offered: Sequence[Option], given: Mapping[str, Scalar], where: str
) -> dict[str, Scalar]:
    """A runtime's settings from the options it offers and the given values, with defaults filled in.

    Raises UsageError for an option that is not offered; `where` ends that sentence (" at task fill-mask on cpu").
    """
    names = [option.name for option in offered]
    if unknown := sorted(set(given) - set(names)):
        from benchmarking.core import plugins  # which loads the modules of all runtimes

        others = [
            one.name
            for one in plugins.runtimes()
            if one.name != runtime and any(unknown[0] == option.name for option in one.declared_options)
        ]
        elsewhere = f"; --runtime {' or '.join(others)} has {unknown[0]}" if others else ""
        it_has = ", ".join(names) or "none"
        raise UsageError(f"runtime {runtime} has no option {unknown[0]!r}{where}; it has {it_has}{elsewhere}")
    return {
        option.name: option.chosen(runtime, given.get(option.name))
        for option in offered
        if option.name in given or (option.is_filled_in and option.values)
    }


EXAMPLE_TEXT = "An example of your text."
"""What the lines of `Runtime.deployment` tokenize."""


def build_path_lines(path: Path) -> list[str]:
    """The lines of a deployment that name a file or folder of a build as `path`."""
    return ["# in the build cache: copy it to where you deploy", f"path = {str(path)!r}"]


class Runtime(ABC):
    """A way to run models. Importing the module imports neither torch nor a vendor package."""

    name: str
    aliases: tuple[str, ...] = ()
    """Aliases, such as its names in other tools."""
    other_words: tuple[str, ...] = ()
    """Words that are not accepted as its name, but that are probably meant for it; lower case."""
    device_aliases: tuple[str, ...] = ()
    """Aliases of devices that stand for this runtime too, where another tool has one runtime per device (`benchit`)."""
    is_default: bool = False
    """Whether it is the default and the baseline of comparisons. True for exactly one runtime."""
    runs_models: bool = True
    """Whether it runs models; False for user-written benchmarks and scripts, which `--list-runtimes` omits."""
    about: str | None = None
    """What a runtime is that `--list-runtimes` omits, for readers of `--help-options`."""
    reference: str | None = None
    """The runtime whose float32 outputs are the reference for this one's; None for the default runtime."""
    point_per_process: bool = False
    """Whether each point needs a fresh process, because one point changes what is compiled for the next."""
    compiles: bool = False
    """Whether it compiles a model's code. True for at least one runtime."""
    serves: bool = True
    """Whether a model can be served with it on this machine; False for browsers, where users' machines run it."""
    opens_for_points: bool = False
    """Whether a model is loaded for the points that it will run (with memory for the longest), so that other points
    need a session of their own."""
    prefills_in_parts: bool = False
    """Whether it may compute a prompt some tokens at a time, and has a cache of its own type (`kv_cache_type`)."""
    builds_only: bool = False
    """Whether it makes builds that it cannot run, so that it is refused unless only builds are requested."""
    prepares: bool = False
    """Whether it loads builds (exports, engines) that `prepare` makes from the model."""
    export_format: str | None = None
    """The format of exported files that it is the usual runtime of ("onnx"); None for none."""
    runs_on_several: bool = False
    """Whether it can use several devices together (`devices.support.handles`)."""
    concurrency_flag: str | None = None
    """The flag that enables several requests in flight ("--hint throughput"), whose number is then required; "" if no
    flag is needed; None if it never has more than one."""
    needs_no_torch: bool = False
    """Whether it drives devices itself, so that its process needs no torch. GPUs are then opened with
    `DeviceKind.watch`, and its calls wait for the device themselves."""
    loads_quantized: bool = False
    """Whether it loads checkpoints whose weights are quantized, as they are (`quantized_weights`)."""
    libraries: tuple[str, ...] = ()
    """Modules that `import_libraries` imports."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions affect its results; `--list-runtimes` shows the installed ones."""
    declared_options: tuple[Option, ...] = ()
    """All its options, for any workload and device."""
    profiler: str | None = None
    """The profiler that sees inside its calls (`Operation.profiler`); None for none."""
    profiler_traces: bool = True
    """Whether that profiler writes a trace of a call."""

    @property
    def is_compared(self) -> bool:
        """Whether its outputs are compared with a float32 reference."""
        return True

    def missing(self) -> str | None:
        """None, or which package must be installed and how."""
        return None

    def unusable(self) -> str | None:
        """None, or why it cannot be used with its default options, which may need more packages than `missing` checks;
        `--list-runtimes` then shows it as not found."""
        return self.missing()

    def why_not_on(self, device: Device) -> str | None:
        """None, or why it never runs on a device of this kind, whatever is installed; reported before `missing`."""
        return None

    def emulated_on(self, device: Device) -> str | None:
        """None, or what emulates its hardware on this device. Its times then say nothing of the real hardware, so it is
        measured where it is named, and left out of `--runtimes all`."""
        return None

    @abstractmethod
    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        """None, or why it cannot run this workload on this device at this precision."""

    def options(self, workload: Workload, device: Device | None = None) -> tuple[Option, ...]:
        """The options that apply to this workload on a device (None: on any), with the values accepted there, the
        default first."""
        return self.declared_options

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """The complete settings that distinguish a series (attention, cache, ...), with defaults filled in.

        Raises UsageError for an unknown option or an invalid value.
        """
        declared = {option.name for option in self.declared_options}
        where = f" at task {workload.task} on {device.selector}" if set(options) <= declared else ""
        return chosen_settings(self.name, self.options(workload, device), options, where)

    def foreign_code(self, mode: Mapping[str, Scalar], model_path: str | None = None) -> ForeignCode | None:
        """The code outside the installed packages that a cell with these settings executes, its model at `model_path`;
        None for none."""
        return None

    def mode_at(self, precision: Precision, mode: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """The settings from `mode`, plus those that only this precision has (quantization).

        Raises UsageError for a setting that this precision does not have.
        """
        return mode

    def runs_at_once(self, mode: Mapping[str, Scalar]) -> bool:
        """Whether several requests can be in flight with these settings; the point's `concurrency` is their number."""
        return False

    def has_build(self, cell: Cell) -> bool:
        """Whether there is something to `prepare` for this cell."""
        return self.prepares

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        """Build what `open` will load for these points unless `store` has it, and describe it (`Preparation.build`).

        Called for cells with a build, in a separate process before the first launch, so that building costs the
        measurement neither time nor memory. Raises BenchhouseError when the model cannot be built.
        """
        return {}

    def deployment(self, cell: Cell, point: Point) -> str | None:
        """The lines of Python that run the cell at this point in this runtime without benchhouse; None if a few lines
        cannot. Names and paths are literals (`repr`), since a model's name may be a stranger's. Raises BenchhouseError
        if its build is not in the cache any more."""
        return None

    def import_libraries(self) -> None:
        """Import what the runtime needs: the import stage of the load, before the device is opened."""
        for name in self.libraries:
            importlib.import_module(name)

    @abstractmethod
    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        """Load the model for these points, timing the stages tokenizer, weights_read and to_device.

        Reads back what runs and raises BenchhouseError when it is not what was requested, or cannot be loaded.
        """
