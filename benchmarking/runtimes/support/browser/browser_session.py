"""A session on a model in a page: the page makes and times the calls, and outputs are returned for checks.

The provider that ran each kernel of a call is read from the profile that ONNX Runtime Web writes to the console: a JSON
list of events as elsewhere, but with one event per line and other console lines in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmarking.core.contracts import Mark, Operation, Session, Stage
from benchmarking.core.errors import BenchhouseError, FormatError
from benchmarking.core.lazy_modules import np
from benchmarking.core.metrics import LATENCY_WALL, NS_PER_MS
from benchmarking.core.model_contracts import GraphRunner
from benchmarking.core.records import Cell, Json, Point, Readings
from benchmarking.core.temporary import temporary_folder
from benchmarking.graphs.bundle import Bundle, bundle_facts, check_weights, read_bundle
from benchmarking.graphs.exported_model import find_bundle, sizes_at
from benchmarking.graphs.operations import (
    Generation,
    GraphOperation,
    denoising_steps,
    operation_of,
    result_outputs,
    start_tokens_of,
)
from benchmarking.runtimes.support.browser.browser import BrowserMemory
from benchmarking.runtimes.support.browser.page import ModelPage
from benchmarking.runtimes.support.onnxruntime.kernel_profile import (
    INTEGER_TYPES,
    PRODUCTS,
    QUANTIZED_PRODUCTS,
    Kernel,
    placement,
    read_profile,
)
from benchmarking.runtimes.support.onnxruntime.ort_runtime import CPU
from benchmarking.workloads.support.generation import Generated
from benchmarking.workloads.support.processing import Processing

MODEL, PROMPT, LATENTS = "model", "prompt", "latents"


class PassThroughRunner(GraphRunner):
    """The runner of operations whose calls are made by the page: arrays stay as they are."""

    def place(self, array: np.ndarray) -> np.ndarray:
        return array

    def fetch(self, tensor: np.ndarray) -> np.ndarray:
        return tensor

    def call(self, graph: str, feeds: Mapping[str, Any]) -> NoReturn:
        raise BenchhouseError(f"graph {graph} is in the page, which makes its own calls")

    def begin(self, graph: str, batch_size: int, first: Mapping[str, Any]) -> NoReturn:
        self.call(graph, first)

    def step(self, graph: str, feeds: Mapping[str, Any], states: Any) -> NoReturn:
        self.call(graph, feeds)


class PageOperation(Operation):
    """A call made and timed by the page. Its output stays in the page until it is needed."""

    times_itself = True
    marks_itself = True

    def __init__(self, inner: GraphOperation, page: ModelPage, bundle: Bundle) -> None:
        """`inner` provides the counts, the array names and their checks; it makes no calls."""
        self.count_like(inner)
        self._inner = inner
        self._page = page
        self._bundle = bundle
        self._memory = BrowserMemory(page.browser)
        self._timed: Mapping[str, Any] = {}
        self._fetched: tuple[int, Any] | None = None

    def reset(self) -> None:
        """Nothing to do: the page releases the last call's output before it starts its clock."""

    def run(self, mark: Mark) -> int:
        """Make a call. Returns its number, which identifies its output."""
        self._timed = self._page.call()
        return int(self._timed["number"])

    def own_times_ns(self) -> Mapping[str, int]:
        """The time from the call until its outputs are on the host, or until the GPU's queue is empty, as measured by
        the page."""
        return {LATENCY_WALL: round(self._timed["wallMs"] * NS_PER_MS)}

    def own_marks_ns(self) -> Sequence[tuple[str, int]]:
        return [(name, round(at_ms * NS_PER_MS)) for name, at_ms in self._timed["marks"]]

    def problem(self, output: int) -> str | None:
        return self._inner.problem(self._on_host(output))

    def arrays(self, output: int) -> Mapping[str, np.ndarray]:
        return self._inner.arrays(self._on_host(output))

    def readings(self, output: int) -> Readings:
        return self._inner.readings(self._on_host(output)) | self._memory.readings()

    def verified(self) -> Mapping[str, Json]:
        return profile_of(self._page)

    def resident_bytes(self) -> int:
        return self._memory.resident_bytes()

    def process_ids(self) -> Sequence[int]:
        return self._memory.process_ids

    def _on_host(self, number: int) -> Any:
        """The output of a call in the form that runtimes in this process return."""
        if self._fetched is not None and self._fetched[0] == number:
            return self._fetched[1]
        output: Any
        if self._bundle.kind == "forward":
            wanted = tuple(dict.fromkeys(result_outputs(self._bundle.graphs[MODEL]).values()))
            output = self._page.output(number, wanted)[0]
        elif not isinstance(self._inner, Generation):
            output = self._page.output(number, (LATENTS,))[0][LATENTS]
        else:
            logits, steps = self._page.output(number, ("first", "last") if self.new_tokens != 1 else ("first",))
            output = Generated(
                tokens=tuple(zip(*(steps or ()), strict=True)),
                prefill_logits=logits["first"],
                last_logits=logits.get("last", logits["first"]),
            )
        self._fetched = number, output
        return output


class BrowserSession(Session):
    """A model in a page. The first point's bundle is loaded immediately, those of other points when needed."""

    def __init__(
        self, cell: Cell, points: Sequence[Point], page: ModelPage, processing: Processing, stage: Stage
    ) -> None:
        self.page = page
        self._cell = cell
        self._processing = processing
        self._loaded: tuple[Path, Mapping[str, int] | None] | None = None
        self.opened: Mapping[str, Any] = {}
        """What the page reports about the sessions: `threads`, `workers`, `adapter`."""
        bundle = self._load(points[0], stage)
        self.weights_bytes: int | None = bundle.weights_bytes
        self.parameter_count: int | None = bundle.parameter_count
        self.verified: Mapping[str, Json] = {
            "browser": page.browser.version,
            "user_agent": page.started["userAgent"],
            "onnxruntime_web": page.started["ortVersion"],
            "onnxruntime_web_script": page.settings.script,
            "providers": [page.settings.provider["name"]],
            "cross_origin_isolated": page.started["crossOriginIsolated"],
            "clock_step_ms": page.started["clockStepMs"],
            "num_threads": self.opened["threads"],
            "num_workers": self.opened["workers"],
            "io_mode": page.settings.io_mode,
            **bundle_facts(find_bundle(cell, points[0]), bundle),
            **processing.verified,
        }
        check_weights(bundle, cell.precision)

    def operation(self, point: Point) -> Operation:
        workload = self._cell.workload
        prepared = self._processing.checked_inputs(workload, point)
        bundle = self._load(point)
        inner = operation_of(bundle, PassThroughRunner(), workload, point, prepared.arrays, prepared.readings)
        inputs, more = page_inputs(bundle, point, prepared.arrays)
        self.page.prepare(bundle, point, inputs, more)
        return PageOperation(inner, self.page, bundle)

    def resident_bytes(self) -> int:
        """Resident memory of the browser's processes that hold the model."""
        return BrowserMemory(self.page.browser).resident_bytes()

    def close(self) -> None:
        self.page.close()

    def _load(self, point: Point, stage: Stage | None = None) -> Bundle:
        folder = find_bundle(self._cell, point)
        bundle = read_bundle(folder)
        dimensions = sizes_at(self._cell, point, bundle) if self.page.settings.is_fixed else None
        if (folder, dimensions) == self._loaded:
            return bundle
        self.page.browser.call("close")
        if stage is None:
            self.page.fetch(folder, bundle)
            self.opened = self.page.open(dimensions)
        else:
            with stage("weights_read"):
                self.page.fetch(folder, bundle)
            with stage("to_device"):
                self.opened = self.page.open(dimensions)
        self._loaded = folder, dimensions
        return bundle


def page_inputs(
    bundle: Bundle, point: Point, arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, Json]]:
    """The inputs of a point's call in the page: `<graph>.<input>` for the family's inputs, `prompt`, `latents` and
    `timestep.<step>` for the rest; and the steps of a denoising loop."""
    inputs: dict[str, np.ndarray] = {}
    for name, graph in bundle.graphs.items():
        for tensor, source in graph.feeds.items():
            if source.startswith("inputs."):
                inputs[f"{name}.{tensor}"] = arrays[source.removeprefix("inputs.")].astype(graph.input(tensor).dtype)
    if bundle.generates:
        first = bundle.graphs.get("prefill", bundle.graphs["decode"])
        dtype = next(first.input(tensor).dtype for tensor, source in first.feeds.items() if source == "tokens")
        if bundle.kind == "decoder":
            prompt = arrays[bundle.prompt_input or "input_ids"]
        else:
            prompt = start_tokens_of(bundle, arrays, point.batch_size)
        inputs[PROMPT] = prompt.astype(dtype)
    if bundle.kind != "denoiser":
        return inputs, {}
    steps = denoising_steps(bundle, point)
    graph = bundle.graphs[MODEL]
    by_source = {source: graph.input(tensor).dtype for tensor, source in graph.feeds.items()}
    inputs[LATENTS] = arrays[str(bundle.facts[LATENTS])].astype(by_source[LATENTS])
    for index, step in enumerate(steps):
        inputs[f"timestep.{index}"] = np.full(point.batch_size, step.timestep, dtype=by_source["timestep"])
    return inputs, {"steps": [{"keep": step.keep, "add": step.add} for step in steps]}


PROFILE_PREFIX = "profile of "
"""Start of the line before each graph's profile, followed by the graph's name."""

EVENT_PREFIX = '{"cat" :'


def profile_of(page: ModelPage) -> Mapping[str, Json]:
    """Where the kernels of one additional call in profiled sessions ran. Raises FormatError without a profile."""
    page.browser.console.clear()
    page.browser.call("profile")
    kernels = read_kernels(page.browser.console)
    page.browser.console.clear()
    return page_placement(kernels, page.settings.profiled_as)


def page_placement(kernels: Sequence[Kernel], requested: str) -> dict[str, Json]:
    """The facts of `placement`, with a separate count `nodes_of_whole_numbers_on_cpu` of nodes for ids, positions and
    masks.

    WebGPU's shaders have no 64-bit integers, so its provider leaves such nodes to the CPU on purpose, like nodes that
    compute shapes. Integer matrix products are not included in that count."""
    distinct = {kernel.name: kernel for kernel in kernels}.values()
    on_cpu = [kernel for kernel in distinct if kernel.provider == CPU != requested and not kernel.is_about_shapes]
    products = (*PRODUCTS, *QUANTIZED_PRODUCTS)
    unasked = [
        kernel
        for kernel in on_cpu
        if kernel.operator in products or not all(kind in INTEGER_TYPES for kind, _ in kernel.outputs)
    ]
    return {
        **placement(kernels, requested),
        "nodes_on_cpu_unasked": len(unasked),
        "nodes_of_whole_numbers_on_cpu": len(on_cpu) - len(unasked),
        "operators_on_cpu_unasked": dict(sorted(Counter(kernel.operator for kernel in unasked).items())),
    }


def read_kernels(console: Iterable[str]) -> tuple[Kernel, ...]:
    """The kernels in all profiles on a console. Raises FormatError if there is no profile."""
    events: dict[str, list[str]] = {}
    graph: str | None = None
    for line in (line for message in console for line in message.splitlines()):
        if line.startswith(PROFILE_PREFIX):
            graph = line.removeprefix(PROFILE_PREFIX)
            events[graph] = []
        elif graph is not None and line.startswith(EVENT_PREFIX):
            events[graph].append(line.rstrip().rstrip(","))
    kernels: list[Kernel] = []
    with temporary_folder("benchhouse-profile") as folder:
        for graph, lines in events.items():
            path = folder / f"{graph}.json"
            path.write_text(f"[{','.join(lines)}]", encoding="utf-8")
            kernels += read_profile(path, graph)
    if not kernels:
        raise FormatError("the page's console has no profile of ONNX Runtime Web")
    return tuple(kernels)
