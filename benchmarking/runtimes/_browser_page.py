"""A model's bundle in a page: what is told to the page before its calls, and what comes back from them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.errors import UnsupportedError
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.records import Json, Point
from benchmarking.runtimes._browser import Browser
from benchmarking.runtimes._browser_library import Library
from benchmarking.runtimes._browser_server import Site

if TYPE_CHECKING:
    import numpy as np

PAGE = Path(__file__).resolve().parents[1] / "browser"
PAGE_FILES = ("page.html", "page.js", "calls.js", "tensors.js")
MAX_BUNDLE_BYTES = 4 << 30
"""What WebAssembly can address; ONNX Runtime is WebAssembly for the GPU too, and reads the weights there."""

ByName = Mapping[str, "np.ndarray"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """How ONNX Runtime Web is set up in a page."""

    script: str
    """The package's bundle that is loaded: its parts compute differently."""
    provider: Mapping[str, str]
    """The execution provider's name and options."""
    num_threads: int
    flags: tuple[str, ...]
    """Of the browser."""
    io_mode: str
    """host, or device: inputs and outputs, and what graphs hand to each other, stay on the GPU."""
    is_fixed: bool = False
    """Whether graphs are opened for each point by itself, at its own sizes."""

    @property
    def uses_gpu(self) -> bool:
        """Whether outputs can stay on a GPU."""
        return self.provider["name"] == "webgpu"


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
        """Bring a bundle's files into the page. Raises UnsupportedError for more than WebAssembly can hold."""
        paths = {
            name: [folder / file for file in files_of(folder / graph.file)] for name, graph in bundle.graphs.items()
        }
        size = sum(path.stat().st_size for group in paths.values() for path in group)
        if size >= MAX_BUNDLE_BYTES:
            raise UnsupportedError(f"the graphs have {size} bytes; WebAssembly addresses {MAX_BUNDLE_BYTES}")
        self._graphs = graphs_told(bundle, on_device=self.settings.io_mode == "device")
        told = {}
        for name, (model, *beside) in paths.items():
            for path in (model, *beside):
                self._site.put(f"build/{path.name}", path)
            external = [{"path": path.name, "url": f"build/{path.name}"} for path in beside]
            on_device = self._graphs[name]["on_device"] if self.settings.uses_gpu else []
            told[name] = {"url": f"build/{model.name}", "external": external, "onDevice": on_device}
        self.browser.call("fetch", told)

    def open(self, dimensions: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        """Make the sessions, their free dimensions fixed at these sizes; what the page reads back of them."""
        opened: Mapping[str, Any] = self.browser.call("open", None if dimensions is None else dict(dimensions))
        return opened

    def prepare(self, bundle: Bundle, point: Point, inputs: ByName, more: Mapping[str, Json]) -> None:
        """Put a point's inputs in place; `more` is what its kind of call needs besides."""
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
            **more,
        }
        self.browser.call("prepare", plan)
        for number in range(len(inputs)):
            self._site.remove(f"in/{number}")

    def call(self) -> Mapping[str, Any]:
        """One timed call: `number`, `wallMs` and `marks`."""
        told: Mapping[str, Any] = self.browser.call("call")
        return told

    def output(self, number: int, names: tuple[str, ...]) -> tuple[dict[str, np.ndarray], list[list[int]] | None]:
        """Arrays of a call's output by name, those of the names that it has, and its tokens."""
        import numpy as np

        urls = {name: f"out/{index}" for index, name in enumerate(names)}
        for url in urls.values():
            self._site.expect(url)
        told = self.browser.call("send", number, urls)
        arrays = {
            name: np.frombuffer(self._site.take(urls[name]), dtype=_numpy_name(one["dtype"])).reshape(one["shape"])
            for name, one in told["arrays"].items()
        }
        return arrays, told["tokens"]

    def close(self) -> None:
        """End the browser and the server."""
        self._cleanup.close()


def files_of(path: Path) -> tuple[str, ...]:
    """The names of an ONNX file and of the files beside it that have its weights."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    beside = {
        entry.value
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    if foreign := [name for name in beside if Path(name).name != name]:
        raise UnsupportedError(f"{path.name} has its weights in {foreign[0]}, outside its folder")
    return (path.name, *sorted(beside))


def graphs_told(bundle: Bundle, *, on_device: bool) -> dict[str, Any]:
    """What the page needs to know of the graphs, with the outputs that are fetched, and those that stay on a device."""
    told = {}
    for name, graph in bundle.graphs.items():
        handed_on = _handed_on(bundle, name, graph)
        about = [*([graph.result] if graph.result else []), *graph.more_results.values()]
        # A generation's logits and a step's noise are for the host, whatever the mode.
        staying = [*handed_on, *(about if bundle.kind == "forward" else [])] if on_device else []
        told[name] = {
            **{key: value for key, value in asdict(graph).items() if key in ("inputs", "feeds", "states", "result")},
            "fetched": list(dict.fromkeys([*about, *handed_on])),
            "on_device": staying,
        }
    return told


def _handed_on(bundle: Bundle, name: str, graph: Graph) -> list[str]:
    """The outputs of a graph that another one, or its own next step, takes in."""
    sources = [source for other in bundle.graphs.values() for source in other.feeds.values()]
    fed = [source.removeprefix(f"{name}.") for source in sources if source.startswith(f"{name}.")]
    states = [state.output for state in graph.states]
    first = [state.first_from for other in bundle.graphs.values() for state in other.states if state.first_from]
    return [*fed, *states, *(first if name == "prefill" else [])]


def _numpy_name(dtype: str) -> str:
    return {"bool": "bool_"}.get(dtype, dtype)
