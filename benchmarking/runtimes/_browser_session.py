"""A model in a page as a session: calls that the page makes and times, and outputs brought back to be checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from benchmarking.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.graphs.bundle import Bundle, read_bundle
from benchmarking.graphs.operations import Generation, GraphOperation, operation_of, results, start_of
from benchmarking.graphs.runner import GraphRunner
from benchmarking.graphs.session import find_bundle
from benchmarking.records import Cell, Json, Point, Readings
from benchmarking.runtimes import Mark, Operation, Session, Stage
from benchmarking.runtimes._browser_memory import BrowserMemory
from benchmarking.runtimes._browser_page import ModelPage
from benchmarking.runtimes._browser_profile import profile_of
from benchmarking.runtimes._ort_fixed import point_dimensions
from benchmarking.units import NS_PER_MS
from benchmarking.workloads._families import plugin_of
from benchmarking.workloads._processing import Processing

if TYPE_CHECKING:
    import numpy as np

MODEL, PROMPT, LATENTS = "model", "prompt", "latents"


class Shelf(GraphRunner):
    """What stands for a runner where the page makes the calls: arrays stay what they are."""

    def place(self, array: np.ndarray) -> np.ndarray:
        return array

    def fetch(self, tensor: np.ndarray) -> np.ndarray:
        return tensor

    def call(self, graph: str, feeds: Mapping[str, Any]) -> NoReturn:
        raise BenchhouseError(f"graph {graph} is in the page, which makes its calls")

    def begin(self, graph: str, batch_size: int, first: Mapping[str, Any]) -> NoReturn:
        self.call(graph, first)

    def step(self, graph: str, feeds: Mapping[str, Any], states: Any) -> NoReturn:
        self.call(graph, feeds)


class PageOperation(Operation):
    """A call that the page makes and times. Its output stays there until it is asked for."""

    times_itself = True
    marks_itself = True

    def __init__(self, inner: GraphOperation, page: ModelPage, bundle: Bundle) -> None:
        """`inner` knows the counts, the names of the arrays and what is wrong with them; it makes no call."""
        self.items_per_call = inner.items_per_call
        self.tokens_per_call = inner.tokens_per_call
        self.prompt_tokens_per_call = inner.prompt_tokens_per_call
        self.new_tokens = inner.new_tokens
        self._inner = inner
        self._page = page
        self._bundle = bundle
        self._memory = BrowserMemory(page.browser)
        self._told: Mapping[str, Any] = {}
        self._fetched: tuple[int, Any] | None = None

    def reset(self) -> None:
        """The page lets go of the last call's output before it starts its clock."""

    def run(self, mark: Mark) -> int:
        """The number of the call, by which its output is asked for."""
        self._told = self._page.call()
        return int(self._told["number"])

    def own_times_ns(self) -> Mapping[str, int]:
        """What the page measured: from the call to its outputs on the host, or with the GPU's queue empty."""
        return {"latency_wall": round(self._told["wallMs"] * NS_PER_MS)}

    def own_marks_ns(self) -> Sequence[tuple[str, int]]:
        return [(name, round(at_ms * NS_PER_MS)) for name, at_ms in self._told["marks"]]

    def problem(self, output: int) -> str | None:
        return self._inner.problem(self._on_host(output))

    def arrays(self, output: int) -> Mapping[str, np.ndarray]:
        return self._inner.arrays(self._on_host(output))

    def readings(self, output: int) -> Readings:
        return self._inner.readings(self._on_host(output)) | self._memory.readings()

    def count(self) -> Readings:
        return self._inner.count()

    def verified(self) -> Mapping[str, Json]:
        return profile_of(self._page)

    def resident_bytes(self) -> int:
        return self._memory.resident_bytes()

    def _on_host(self, number: int) -> Any:
        """The output of a call as the runtimes in this process give it."""
        if self._fetched is None or self._fetched[0] != number:
            self._fetched = number, self._brought(number)
        return self._fetched[1]

    def _brought(self, number: int) -> Any:
        from benchmarking.workloads._generation import Generated

        if self._bundle.kind == "forward":
            wanted = tuple(dict.fromkeys(results(self._bundle.graphs[MODEL]).values()))
            return self._page.output(number, wanted)[0]
        if not isinstance(self._inner, Generation):
            return self._page.output(number, (LATENTS,))[0][LATENTS]
        logits, steps = self._page.output(number, ("first", "last") if self.new_tokens != 1 else ("first",))
        return Generated(
            tokens=tuple(zip(*(steps or ()), strict=True)),
            prefill_logits=logits["first"][:, -1],
            last_logits=logits.get("last", logits["first"])[:, -1],
        )


class BrowserSession(Session):
    """A model in a page. The first point's bundle comes with the load, another point's when it needs another."""

    def __init__(
        self, cell: Cell, points: Sequence[Point], page: ModelPage, processing: Processing, stage: Stage
    ) -> None:
        self.page = page
        self._cell = cell
        self._processing = processing
        self._loaded: tuple[Path, Mapping[str, int] | None] | None = None
        self._opened: Mapping[str, Any] = {}
        bundle = self._load(points[0], stage)
        self.weights_bytes: int | None = bundle.weights_bytes
        self.parameter_count: int | None = bundle.parameter_count
        self.verified: Mapping[str, Json] = {
            **_describe(bundle, page, self._opened),
            "model_size_bytes": _size_bytes(find_bundle(cell, points[0])),
            **processing.verified,
        }

    @property
    def opened(self) -> Mapping[str, Any]:
        """What the page read back of the sessions: `threads`, `workers`, `adapter`."""
        return self._opened

    def operation(self, point: Point) -> Operation:
        workload = self._cell.workload
        family = plugin_of(workload)
        if (problem := family.check(workload, point)) is not None:
            raise UsageError(problem)
        bundle = self._load(point)
        prepared = self._processing.inputs(family, workload, point)
        inner = operation_of(bundle, Shelf(), workload, point, prepared.arrays, prepared.readings)
        inputs, more = page_inputs(bundle, point, prepared.arrays)
        self.page.prepare(bundle, point, inputs, more)
        return PageOperation(inner, self.page, bundle)

    def resident_bytes(self) -> int:
        """Of the browser's processes that hold the model."""
        return BrowserMemory(self.page.browser).resident_bytes()

    def close(self) -> None:
        self.page.close()

    def _load(self, point: Point, stage: Stage | None = None) -> Bundle:
        folder = find_bundle(self._cell, point)
        bundle = read_bundle(folder)
        dimensions = point_dimensions(self._cell, point, bundle) if self.page.settings.is_fixed else None
        if (folder, dimensions) == self._loaded:
            return bundle
        self.page.browser.call("close")
        if stage is None:
            self.page.fetch(folder, bundle)
            self._opened = self.page.open(dimensions)
        else:
            with stage("weights_read"):
                self.page.fetch(folder, bundle)
            with stage("to_device"):
                self._opened = self.page.open(dimensions)
        self._loaded = folder, dimensions
        return bundle


def page_inputs(
    bundle: Bundle, point: Point, arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, Json]]:
    """What a point's call takes in, as the page wants it: `<graph>.<input>` for the family's inputs, `prompt`,
    `latents` and `timestep.<step>` for the rest; and the steps of a denoising loop."""
    import numpy as np

    found: dict[str, np.ndarray] = {}
    for name, graph in bundle.graphs.items():
        for tensor, source in graph.feeds.items():
            if source.startswith("inputs."):
                found[f"{name}.{tensor}"] = arrays[source.removeprefix("inputs.")].astype(graph.input(tensor).dtype)
    if bundle.kind in ("decoder", "encoder-decoder"):
        found[PROMPT] = _prompt(bundle, point, arrays)
    if bundle.kind != "denoiser":
        return found, {}
    from benchmarking.graphs.schedule import steps_of

    steps = steps_of(bundle, point)
    graph = bundle.graphs[MODEL]
    by_source = {source: graph.input(tensor).dtype for tensor, source in graph.feeds.items()}
    found[LATENTS] = arrays[str(bundle.facts[LATENTS])].astype(by_source[LATENTS])
    for index, step in enumerate(steps):
        found[f"timestep.{index}"] = np.full(point.batch_size, step.timestep, dtype=by_source["timestep"])
    return found, {"steps": [{"keep": step.keep, "add": step.add} for step in steps]}


def _prompt(bundle: Bundle, point: Point, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """What a decoder takes in first, in its type."""
    first = bundle.graphs.get("prefill", bundle.graphs["decode"])
    dtype = next(first.input(tensor).dtype for tensor, source in first.feeds.items() if source == "tokens")
    if bundle.kind == "decoder":
        return arrays[bundle.prompt_input or "input_ids"].astype(dtype)
    return start_of(bundle, arrays, point.batch_size).astype(dtype)


def check_weights(cell: Cell, bundle_dtypes: Mapping[str, int]) -> None:
    """Raise UnsupportedError for graphs whose weights are not of the precision that was asked for."""
    held = {name for name, count in bundle_dtypes.items() if count}
    wanted = {"int8": {"int8", "uint8"}, "int4": {"int4", "uint4", "uint8"}}.get(cell.precision, {cell.precision})
    if not held & wanted:
        raise UnsupportedError(f"asked for {cell.precision}, but the graphs' weights are {', '.join(sorted(held))}")


def _describe(bundle: Bundle, page: ModelPage, opened: Mapping[str, Any]) -> dict[str, Json]:
    """What really runs: browser, library, threads, and what the files hold."""
    return {
        "browser": page.browser.version,
        "user_agent": page.started["userAgent"],
        "onnxruntime_web": page.started["ortVersion"],
        "onnxruntime_web_script": page.settings.script,
        "providers": [page.settings.provider["name"]],
        "cross_origin_isolated": page.started["crossOriginIsolated"],
        "clock_step_ms": page.started["clockStepMs"],
        "num_threads": opened["threads"],
        "num_workers": opened["workers"],
        "io_mode": page.settings.io_mode,
        "graphs": list[Json](bundle.graphs),
        "exporter": bundle.exporter,
        "parameter_dtypes": list[Json](sorted(bundle.weight_dtypes)),
        "parameters_by_dtype": dict(sorted(bundle.weight_dtypes.items())),
    }


def _size_bytes(folder: Path) -> int:
    """Of the graphs' files."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file() and file.suffix != ".json")
