"""A model's bundle in a page: data sent to the page before its calls, and data that it returns."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json, Point
from benchmarking.graphs.bundle import Bundle
from benchmarking.graphs.export.onnx_files import weight_files
from benchmarking.runtimes.support.browser.browser import Browser
from benchmarking.runtimes.support.browser.browser_server import MAX_BODY_BYTES, Site
from benchmarking.runtimes.support.browser.library import Library

if TYPE_CHECKING:
    import numpy as np


PAGE = Path(__file__).resolve().parent / "assets"

PAGE_FILES = ("page.html", "page.js", "calls.js", "tensors.js")

MAX_BUNDLE_BYTES = MAX_BODY_BYTES
"""Size limit: ONNX Runtime reads the weights into WebAssembly's memory, for the GPU too."""

ByName = Mapping[str, "np.ndarray"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """Settings of ONNX Runtime Web in a page."""

    script: str
    """The package's bundle to load; the bundles compute differently."""
    provider: Mapping[str, str]
    """The execution provider's name and options in ONNX Runtime Web."""
    profiled_as: str
    """The provider's name in profiles ("WebGpuExecutionProvider")."""
    num_threads: int
    flags: tuple[str, ...]
    """The browser's flags."""
    io_mode: str
    """host or device. With device, inputs, outputs and tensors passed between graphs stay on the GPU."""
    uses_gpu: bool = False
    """Whether outputs can stay on a GPU."""
    is_fixed: bool = False
    """Whether graphs are opened separately for each point, at its sizes."""


class ModelPage:
    """A page with ONNX Runtime Web, and a bundle loaded in it."""

    def __init__(self, executable: Path, library: Library, settings: PageSettings) -> None:
        """Start the server, the browser and the library. Raises BenchhouseError."""
        self.settings = settings
        self._graphs: Mapping[str, Any] = {}
        with ExitStack() as started:
            self._site = Site()
            started.callback(self._site.close)
            for name in PAGE_FILES:
                self._site.put(name, PAGE / name)
            library.file(settings.script)
            for name, path in library.files().items():
                self._site.put(f"ort/{name}", path)
            self.browser = Browser(executable, self._site.url + "page.html", settings.flags)
            started.callback(self.browser.close)
            self.started: Mapping[str, Any] = self.browser.call(
                "start",
                {"script": settings.script, "threads": settings.num_threads, "provider": dict(settings.provider)},
            )
            self._cleanup = started.pop_all()

    def fetch(self, folder: Path, bundle: Bundle) -> None:
        """Load a bundle's files into the page. Raises UnsupportedError if they exceed WebAssembly's memory."""
        paths = {
            name: (folder / graph.file, *weight_files(folder / graph.file)) for name, graph in bundle.graphs.items()
        }
        size = sum(path.stat().st_size for group in paths.values() for path in group)
        if size >= MAX_BUNDLE_BYTES:
            raise UnsupportedError(f"the graphs have {size} bytes, but WebAssembly can address {MAX_BUNDLE_BYTES} only")
        self._graphs = graphs_description(bundle, on_device=self.settings.io_mode == "device")
        files = {}
        for name, (model, *weights) in paths.items():
            for path in (model, *weights):
                self._site.put(f"build/{path.name}", path)
            external = [{"path": path.name, "url": f"build/{path.name}"} for path in weights]
            on_device = self._graphs[name]["on_device"] if self.settings.uses_gpu else []
            files[name] = {"url": f"build/{model.name}", "external": external, "onDevice": on_device}
        self.browser.call("fetch", files)

    def open(self, dimensions: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        """Open the sessions with free dimensions fixed at these sizes. Returns what the page reports about them."""
        opened: Mapping[str, Any] = self.browser.call("open", None if dimensions is None else dict(dimensions))
        return opened

    def prepare(self, bundle: Bundle, point: Point, inputs: ByName, call_data: Mapping[str, Json]) -> None:
        """Place a point's inputs; `call_data` is the other data that its kind of call needs."""
        arrays = {}
        for number, (name, array) in enumerate(inputs.items()):
            url = f"in/{number}"
            self._site.put(url, array.tobytes())
            arrays[name] = {"url": url, "dtype": array.dtype.name, "shape": list(array.shape)}
        plan: dict[str, Any] = {
            "kind": bundle.kind,
            "graphs": self._graphs,
            "inputs": arrays,
            "onDevice": self.settings.uses_gpu and self.settings.io_mode == "device",
            "batchSize": point.batch_size,
            "newTokens": point.new_tokens,
            "encodePhase": bundle.encode_phase,
            **call_data,
        }
        self.browser.call("prepare", plan)
        for number in range(len(inputs)):
            self._site.remove(f"in/{number}")

    def call(self) -> Mapping[str, Any]:
        """One timed call: `number`, `wallMs` and `marks`."""
        timed: Mapping[str, Any] = self.browser.call("call")
        return timed

    def output(self, number: int, names: tuple[str, ...]) -> tuple[dict[str, np.ndarray], list[list[int]] | None]:
        """The named arrays of a call's output, and its tokens."""
        import numpy as np

        urls = {name: f"out/{index}" for index, name in enumerate(names)}
        for url in urls.values():
            self._site.expect(url)
        sent = self.browser.call("send", number, urls)
        arrays = {}
        for name, info in sent["arrays"].items():
            dtype = "bool_" if info["dtype"] == "bool" else info["dtype"]
            arrays[name] = np.frombuffer(self._site.take(urls[name]), dtype=dtype).reshape(info["shape"])
        return arrays, sent["tokens"]

    def close(self) -> None:
        """End the browser and the server."""
        self._cleanup.close()


def graphs_description(bundle: Bundle, *, on_device: bool) -> dict[str, Any]:
    """The graphs as described to the page, with the outputs to fetch and those that stay on a device."""
    graphs = bundle.graphs.values()
    sources = [source for graph in graphs for source in graph.feeds.values()]
    first_states = [state.first_from for graph in graphs for state in graph.states if state.first_from]
    descriptions = {}
    for name, graph in bundle.graphs.items():
        # Outputs that are inputs of another graph or of the graph's own next step.
        passed_on = [source.removeprefix(f"{name}.") for source in sources if source.startswith(f"{name}.")]
        passed_on += [state.output for state in graph.states]
        passed_on += first_states if name == "prefill" else []
        results = [*([graph.result] if graph.result else []), *graph.more_results.values()]
        # The host needs a generation's logits and a step's noise in every mode.
        on_device_outputs = [*passed_on, *(results if bundle.kind == "forward" else [])] if on_device else []
        descriptions[name] = {
            **{key: value for key, value in asdict(graph).items() if key in ("inputs", "feeds", "states", "result")},
            "fetched": list(dict.fromkeys([*results, *passed_on])),
            "on_device": on_device_outputs,
        }
    return descriptions
