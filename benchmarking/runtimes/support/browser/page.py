"""A model's bundle in a page: what is told to the page before its calls, and what comes back from them.

The little web server a page is measured on: loopback only, and nothing but what was put up is served.

Every address begins with a secret, so that no other page or user of the machine reads a model. Addresses are looked up
in a table and never joined to a folder: there is no path to climb out of.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import Json, Point
from benchmarking.graphs.bundle import Bundle, Graph
from benchmarking.runtimes.support.browser.browser import Browser
from benchmarking.runtimes.support.browser.library import Library

if TYPE_CHECKING:
    import numpy as np


PAGE = Path(__file__).resolve().parent / "assets"

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
    """The execution provider's name and options in ONNX Runtime Web."""
    profiled_as: str
    """That provider's name in profiles ("WebGpuExecutionProvider")."""
    num_threads: int
    flags: tuple[str, ...]
    """Of the browser."""
    io_mode: str
    """host, or device: inputs and outputs, and what graphs hand to each other, stay on the GPU."""
    uses_gpu: bool = False
    """Whether outputs can stay on a GPU."""
    is_fixed: bool = False
    """Whether graphs are opened for each point by itself, at its own sizes."""


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
        self._graphs = graphs_description(bundle, on_device=self.settings.io_mode == "device")
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


def graphs_description(bundle: Bundle, *, on_device: bool) -> dict[str, Any]:
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


LOOPBACK = "127.0.0.1"

CONTENT_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".wasm": "application/wasm",
    ".json": "application/json",
}

"""A module or WebAssembly of another type is refused by browsers; what is not named here is bytes."""

BYTES = "application/octet-stream"


ISOLATION: Mapping[str, str] = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}

"""The first two make the page cross-origin isolated: without it there is no shared memory, and so no threads of
WebAssembly, and the page's clock is rounded to 100 us instead of 5."""


class Site:
    """What is served, until it is closed: files and arrays to fetch, and places where the page may post an array."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._content: dict[str, Path | bytes] = {}
        self._posted: dict[str, bytes | None] = {}
        self._secret = secrets.token_urlsafe(16)
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        """Address and port."""
        return f"{LOOPBACK}:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """What every address of the site begins with; ends in a slash."""
        return f"http://{self.host}/{self._secret}/"

    def put(self, name: str, content: Path | bytes) -> None:
        """Serve a file (read when it is asked for) or bytes under a name such as "ort/ort.wasm"."""
        with self._lock:
            self._content[name] = content

    def remove(self, name: str) -> None:
        """Serve it no more."""
        with self._lock:
            self._content.pop(name, None)

    def expect(self, name: str) -> None:
        """Take what is posted to a name; anything else that is posted is refused."""
        with self._lock:
            self._posted[name] = None

    def take(self, name: str) -> bytes:
        """What was posted, which is forgotten then. Raises BenchhouseError when nothing was."""
        with self._lock:
            posted = self._posted.pop(name, None)
        if posted is None:
            raise BenchhouseError(f"the page did not send {name}")
        return posted

    def close(self) -> None:
        """Serve nothing any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _found(self, path: str) -> tuple[str, Path | bytes] | None:
        name = self._name(path)
        with self._lock:
            content = self._content.get(name) if name else None
        return None if name is None or content is None else (name, content)

    def _received(self, path: str, body: bytes) -> bool:
        name = self._name(path)
        with self._lock:
            if name is None or name not in self._posted:
                return False
            self._posted[name] = body
        return True

    def _name(self, path: str) -> str | None:
        secret, _, name = path.partition("?")[0].removeprefix("/").partition("/")
        is_ours = secrets.compare_digest(secret.encode(), self._secret.encode())
        return name if is_ours and name else None


def content_type(name: str) -> str:
    """The media type of a name, by its ending."""
    return CONTENT_TYPES.get(PurePosixPath(name).suffix, BYTES)


def _handler_of(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One request. Names of methods are the standard library's."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = site._found(self.path) if self._is_for_us() else None
            if found is None:
                return self._answer(HTTPStatus.NOT_FOUND)
            name, content = found
            if isinstance(content, bytes):
                self._answer(HTTPStatus.OK, content_type(name), len(content))
                self.wfile.write(content)
                return None
            with content.open("rb") as file:
                self._answer(HTTPStatus.OK, content_type(name), content.stat().st_size)
                shutil.copyfileobj(file, self.wfile, 1 << 20)
            return None

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not self._is_for_us() or not length.isdecimal():
                self.close_connection = True
                return self._answer(HTTPStatus.NOT_FOUND)
            is_kept = site._received(self.path, self.rfile.read(int(length)))
            return self._answer(HTTPStatus.NO_CONTENT if is_kept else HTTPStatus.NOT_FOUND)

        def log_message(self, format: str, *values: Any) -> None:
            """Nothing is printed: stderr is for trouble."""

        def _is_for_us(self) -> bool:
            """Against pages elsewhere that let their own name point to this address."""
            return self.headers.get("Host") == site.host

        def _answer(self, status: HTTPStatus, kind: str = BYTES, length: int = 0) -> None:
            self.send_response(status)
            for name, value in {**ISOLATION, "Content-Type": kind}.items():
                self.send_header(name, value)
            if status is not HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(length))
            self.end_headers()

    return Handler
