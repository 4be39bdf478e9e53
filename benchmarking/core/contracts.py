"""Runtimes: one file each, found by listing this folder. Here is the contract they keep, with the ordinary case as
the default of everything that most of them need not say.

Devices: one file each, found by listing this folder. Here is the contract they keep, with the ordinary case as the
default; `_probing` looks for all of them.

What a runtime on graphs gives: a bundle's graphs, loaded and ready to be called.

Workloads: one file an architecture family, found by listing this folder. Here is the contract they keep, with
the ordinary case as the default of what most of them need not say.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.errors import UsageError
from benchmarking.core.records import (
    NOT_APPLICABLE,
    NOT_SUPPORTED,
    Cell,
    Device,
    Family,
    Json,
    Point,
    Precision,
    Readings,
    Rebuild,
    Scalar,
    Workload,
)

if TYPE_CHECKING:
    import numpy as np

    from benchmarking.builds.store import BuildStore
    from benchmarking.devices.support.ort_providers import OrtProvider


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


PEAK_NAMES = ("device_allocated_peak_bytes", "device_reserved_peak_bytes")

IN_USE_NAMES = ("device_process_bytes", "device_used_bytes")

STATE_NAMES = (
    "clock_hz",
    "clock_default_hz",
    "memory_clock_hz",
    "temperature_c",
    "power_w",
    "throttle_reasons",
    "violation_ns",
    "foreign_pids",
)

ENERGY_DOMAINS = ("gpu", "cpu_pkg", "dram", "soc")

"""Names of what a device reads, and of the domains that it counts energy in."""


Memory = Literal["own", "host", "unknown"]

"""Where a device computes: in memory of its own, in the machine's, or where it does not say."""


NO_MEMORY = f"{NOT_APPLICABLE}: no device memory of its own"


class DeviceTimer(ABC):
    """A pair of events on the device's own clock around one call."""

    @abstractmethod
    def start(self) -> None:
        """Mark the beginning in the device's queue."""

    @abstractmethod
    def stop(self) -> None:
        """Mark the end in the device's queue."""

    @abstractmethod
    def elapsed_ns(self) -> int:
        """Nanoseconds between the two marks; call it after `synchronize`."""


class DeviceHandle:
    """An open device inside the measuring process. By default one without a queue, events or memory of its own, of
    which nothing can be read."""

    torch_name: str | None = None
    """What torch calls it ("cpu", "cuda:0"); None when torch cannot use it."""
    has_scripted_clock: bool = False
    """Whether a script moves the clock, which the host's noise then does not touch."""

    def now_ns(self) -> int:
        """The wall clock for timing."""
        return time.perf_counter_ns()

    def sleep(self, duration_s: float) -> None:
        """Wait, by the same clock."""
        time.sleep(duration_s)

    def timer(self) -> DeviceTimer | None:
        """A new event pair, or None where the device has no events."""
        return None

    def synchronize(self) -> None:
        """Wait until everything in the device's queue is done."""

    def empty_cache(self) -> None:
        """Give cached memory back to the device."""

    def reset_peak_memory(self) -> None:
        """Start a new peak-memory period."""

    def peak_memory(self) -> Readings:
        """`PEAK_NAMES` since the last reset."""
        return Readings(missing=dict.fromkeys(PEAK_NAMES, NO_MEMORY))

    def memory_in_use(self) -> Readings:
        """`IN_USE_NAMES` (of this process, of all processes) now. Cheap enough for every 20 ms."""
        return Readings(missing=dict.fromkeys(IN_USE_NAMES, NO_MEMORY))

    def state(self) -> Readings:
        """What changes while running: `STATE_NAMES`, of which `throttle_reasons` is a list of str and `foreign_pids`
        one of int."""
        return Readings(missing=dict.fromkeys(STATE_NAMES, NOT_SUPPORTED))

    def energy_j(self) -> Readings:
        """Counters in joules by domain (`ENERGY_DOMAINS`), ever growing; plus `method` (counter, ...)."""
        return Readings(missing=dict.fromkeys((*ENERGY_DOMAINS, "method"), NOT_SUPPORTED))

    def close(self) -> None:
        """Let the device go."""


class DeviceKind(ABC):
    """A kind of device: how to find it, how to open it. Importing the module imports no vendor package."""

    name: str
    """What `--device` takes; the file's name."""
    implied_runtime: str | None = None
    """The runtime picked when none is named; None for the default one."""
    probes_in_process: bool = False
    """True when `probe` is quick and imports nothing heavy; else it runs in a process of its own, with a time limit, so
    that a driver that hangs or crashes costs one line."""

    is_hardware: bool = True
    """Whether it is looked for when devices are listed; else it is there by name only."""
    is_processor: bool = False
    """Whether it is the machine's processor, which every machine has."""
    auto_ranks: tuple[tuple[int, str], ...] = ()
    """When `--device auto` tries it: ranks among all kinds, lowest first, each with the beginning of the part of the
    selector that is meant ("GPU"; "" is any). Empty: never."""
    memory: Memory = "unknown"
    """Where it computes."""
    can_be_several: bool = False
    """Whether several devices of the kind can be taken as one."""
    runs_torch: bool = False
    """Whether torch runs on it."""
    has_tf32: bool = False
    """Whether torch's float32 products can be those of tensor cores there."""
    has_cuda_graphs: bool = False
    """Whether torch records graphs of kernels there: CUDA's, or HIP's under the same name."""
    has_flash_attention: bool = False
    """Whether the package flash-attn runs there."""
    sdpa_kernels: tuple[str, ...] = ()
    """The kernels of scaled-dot-product attention that torch has there, by `--attention`'s words (sdpa:WORD)."""
    gpu_vendor: str | None = None
    """The vendor that a web page's GPU adapter shows (GPUAdapterInfo.vendor); None for what is no GPU."""
    pci_vendor_id: int | None = None
    """PCI's number of that vendor, for GPUs that Windows drives with DirectX 12."""

    @abstractmethod
    def probe(self) -> tuple[Device, ...]:
        """Every device of this kind, or exactly one with `found=False` and the precise reason. Never empty, never
        raises for a missing driver or package."""

    @abstractmethod
    def open(self, device: Device) -> DeviceHandle:
        """Take hold of a found device. Raises BenchhouseError when it is gone."""

    def watch(self, device: Device) -> DeviceHandle:
        """Take hold of a found device for something else than torch to drive, which waits for its own calls: as `open`
        does, where that needs no torch.

        Otherwise makes it the only one of its kind that this process sees, number 0. Call it before the device's driver
        starts. Raises BenchhouseError when it is gone."""
        return self.open(device)

    def lock_name(self, device: Device) -> str | None:
        """Devices with the same lock name are never measured at once on a machine; None needs no lock."""
        return device.selector

    def ort_providers(self, device: Device) -> tuple[OrtProvider, ...]:
        """ONNX Runtime's execution providers that drive it, the wanted one first; none where ONNX Runtime cannot."""
        return ()


Placed = Any

"""A tensor where the runtime wants it: an OrtValue on the device, an openvino.Tensor, a numpy array."""


States = Any

"""What a graph hands from one call to the next; a runtime may keep it to itself (OpenVINO's stateful models)."""


class GraphRunner(ABC):
    """The graphs of one bundle in one runtime. Calls of it are in the timed region: they do no more than they must."""

    @abstractmethod
    def place(self, array: np.ndarray) -> Placed:
        """An array put where the graphs take it from; outside the timed region, but for the tokens of a generation and
        the latents of a denoising step. What was placed stays as it is until the operation is done with."""

    @abstractmethod
    def fetch(self, tensor: Placed) -> np.ndarray:
        """A tensor on the host; waits for the device. It may be the runner's own buffer, which holds until the graph is
        called again."""

    @abstractmethod
    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        """Run a graph without states: its outputs by name."""

    @abstractmethod
    def begin(self, graph: str, batch_size: int, first: Mapping[str, Placed]) -> States:
        """Fresh states of a graph: `first` has those that come from another graph's outputs, by the state's input name;
        the others are zeros, or empty."""

    @abstractmethod
    def step(self, graph: str, feeds: Mapping[str, Placed], states: States) -> tuple[Mapping[str, Placed], States]:
        """Run a graph with states: its outputs that are no states, and the states after it."""

    def verified(self) -> Mapping[str, Json]:
        """What the calls really ran on, read back after them; empty where the runtime does not say."""
        return {}


Modality = Literal["text", "image", "audio"]

"""A kind of input that a tokenizer or processor makes."""


class FamilyOperation(ABC):
    """What a family makes of a torch model and a point: what `runtimes.Operation` (see there) times, and no more."""

    items_per_call: int
    tokens_per_call: int | None = None
    prompt_tokens_per_call: int | None = None
    new_tokens: int | None = None

    def reset(self) -> None:  # noqa: B027 - most calls keep nothing
        """Bring back the state before a call; nothing, where a call keeps none."""

    @abstractmethod
    def run(self, mark: Mark) -> Any:
        """The timed call."""

    @abstractmethod
    def problem(self, output: Any) -> str | None:
        """What is wrong with an output, or None."""

    def readings(self, output: Any) -> Readings:
        """Further numbers of a call; by default it has none besides its times."""
        return Readings()

    @abstractmethod
    def arrays(self, output: Any) -> dict[str, Any]:
        """What of the output is compared with other runtimes', as numpy arrays by name."""


class WorkloadFamily(ABC):
    """An architecture family. Importing the module imports no torch and no transformers."""

    name: Family
    model_types: frozenset[str]
    """The `model_type`s of transformers' configurations that belong to the family."""
    tasks: tuple[str, ...]
    """Hugging Face task names that can be run, the default first."""
    generative_tasks: frozenset[str] = frozenset()
    """Those of them that generate tokens, and so have the new-tokens axis."""
    caches: tuple[str, ...] = ()
    """Kinds of cache of the tasks that generate, the default first ("dynamic", "static"). They make different cells."""

    modalities: tuple[Modality, ...] = ()
    """What goes into the models, and so the processors they may have; none where nothing is processed (latents)."""
    has_attention_cache: bool = True
    """Whether its heads are attention heads, whose keys and values grow with the text."""
    unit: str = "samples"
    """What `items_per_call` counts, in words."""

    @abstractmethod
    def axes(self, workload: Workload) -> Mapping[str, tuple[float, ...]]:
        """The axes beside the batch size that every point of this workload has, with the values taken when none are
        asked for. Names: sequence_length, new_tokens, and those of `Point.axes`."""

    def max_sequence_length(self, config: Mapping[str, Json]) -> int | None:
        """Longest input in tokens, with new tokens counted where they share its positions; None without a limit."""
        return None

    def default_attention(self, config: Mapping[str, Json]) -> str | None:
        """The attention implementation (transformers' name) the model is run with when none is named; None for a model
        that gives no choice of one."""
        return None

    @abstractmethod
    def check(self, workload: Workload, point: Point) -> str | None:
        """None, or why this point cannot be on this model (too long, ...). Called before anything runs."""

    @abstractmethod
    def inputs(self, workload: Workload, point: Point, seed: int) -> dict[str, np.ndarray]:
        """The inputs of a call, by the model's argument names, seeded and realistic (no all-zero ids, no padding)."""

    @abstractmethod
    def model_class(self, workload: Workload) -> Any:
        """The torch class of the task's model, its module imported. Raises UnsupportedError when there is none."""

    @abstractmethod
    def build(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> Any:
        """The task's torch model, made from the configuration in eval mode, its weights for the caller to fill.

        It is made where the caller's `torch.device` context says: on "meta" it costs nothing and has only shapes."""

    @abstractmethod
    def load(self, workload: Workload, *, dtype: Any, attention: str | None = None) -> tuple[Any, tuple[str, ...]]:
        """The task's torch model in eval mode with the weights in `workload.path`, in host memory, and the names of
        parameters that the weights lack (a head), left for the caller to fill. Raises BenchhouseError for weights that
        are not this model's."""

    @abstractmethod
    def torch_operation(
        self, model: Any, workload: Workload, point: Point, inputs: Mapping[str, Any], mode: Mapping[str, Scalar]
    ) -> FamilyOperation:
        """The call at a point on a loaded torch model (or a compiled wrapper of one), its inputs in place.

        `mode` is the cell's runtime mode: the kind of cache is in it."""

    def tasks_of(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        """Those of the family's tasks that a model of this configuration has, the default first."""
        return self.tasks

    def why_not_architecture(self, config: Mapping[str, Json], architectures: Sequence[str]) -> str | None:
        """None, or why a model type of the family is used against it: what follows the model's name in a sentence."""
        return None

    def verified(self, model: Any) -> Mapping[str, Json]:
        """Which code a loaded torch model runs in (kernels or slow reference code, ...), read back from it, where
        models of the family choose it themselves, which changes their speed."""
        return {}
