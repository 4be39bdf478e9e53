"""What a page loads: ONNX Runtime Web, and a model's bundle.

The npm package's files are fetched once and stored as a build. Its hash is pinned with its version: different bytes
from a registry, mirror or cache are rejected. Of the bundle, data is sent to the page before its calls, and the page
returns data.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from benchmarking.builds.store import Build, BuildKey, BuildStore
from benchmarking.core.child_process import program, run_program
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.records import Json, Point, Rebuild
from benchmarking.core.temporary import temporary_folder
from benchmarking.graphs.bundle import Bundle
from benchmarking.graphs.export.onnx_files import weight_files
from benchmarking.runtimes.support.browser.browser import MAX_BODY_BYTES, Browser, Site

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
INTEGRITY = "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""Hash of the package's tarball, as published by the npm registry (Subresource Integrity)."""

KIND = "ort-web"
FOLDER_VARIABLE = "BENCHHOUSE_ORT_WEB_DIR"
"""Environment variable with a folder that is or contains the package's dist/, used instead of the registry."""
REGISTRY = "https://registry.npmjs.org/"
REGISTRY_VARIABLES = ("npm_config_registry", "NPM_CONFIG_REGISTRY")
TIMEOUT_S = 300.0
MAX_TARBALL_BYTES = 256 << 20
"""Size limit of the tarball, which has about 30 MB."""
SUFFIXES = (".bundle.min.mjs", ".wasm", ".asyncify.mjs", ".jsep.mjs", ".jspi.mjs", "-threaded.mjs")
"""Suffixes of the files in dist/ that pages load: bundles, WebAssembly and its glue code. The rest is the same code in
other forms, and source maps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The files of ONNX Runtime Web, by name."""

    version: str
    folder: Path
    source: str
    """The npm package with its hash, or the folder given by the user."""

    def file(self, name: str) -> Path:
        """One of the files. Raises BenchhouseError if it is missing."""
        path = self.folder / name
        if not path.is_file():
            raise BenchhouseError(f"{self.folder} has no {name}: expected the dist/ of {PACKAGE} {VERSION}")
        return path

    def files(self) -> dict[str, Path]:
        """All files that a page may load, by name."""
        return {path.name: path for path in sorted(self.folder.iterdir()) if path.name.endswith(SUFFIXES)}


def library_key() -> BuildKey:
    """What the files depend on."""
    return BuildKey(kind=KIND, parts={"package": PACKAGE, "version": VERSION, "integrity": INTEGRITY})


def ensure_library(store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
    """Fetch the files if they are missing. Raises BenchhouseError if that fails."""
    if _configured_folder() is not None:
        library = find_library(store)
        return {"version": library.version, "source": library.source}

    def fetch(folder: Path) -> Mapping[str, Json]:
        npm = program("npm")
        tarball = _pack_with_npm(npm) if npm is not None else _download()
        return {"files": list[Json](unpack(tarball, folder))}

    build, is_new = store.get(library_key(), fetch, rebuild)
    return {"version": VERSION, "source": _source(), "is_new": is_new, "size_bytes": build.size_bytes}


def find_library(store: BuildStore) -> Library:
    """The files in the user's folder or in the store. Raises BenchhouseError if there are none."""
    configured = _configured_folder()
    if configured is not None:
        dist = configured / "dist" if (configured / "dist").is_dir() else configured
        if not dist.is_dir():
            raise BenchhouseError(f"{FOLDER_VARIABLE} names {configured}, which is not a folder")
        try:
            package = json.loads((dist.parent / "package.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            package = None
        version = str(package.get("version", "unknown")) if isinstance(package, dict) else "unknown"
        return Library(version=version, folder=dist, source=str(dist))
    build: Build | None = store.find(library_key())
    if build is None:
        raise BenchhouseError(f"{PACKAGE} {VERSION} is not in {store.root}: run once on wasm or webgpu to fetch it")
    return Library(version=VERSION, folder=store.folder(library_key()), source=_source())


def unpack(tarball: bytes, folder: Path) -> list[str]:
    """Unpack the files that pages load into a folder and return their names. Raises BenchhouseError for a checksum
    mismatch."""
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    if integrity != INTEGRITY:
        raise BenchhouseError(f"checksum mismatch for {PACKAGE} {VERSION}: expected {INTEGRITY}, got {integrity}")
    names: list[str] = []
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if str(path.parent) != "package/dist" or not path.name.endswith(SUFFIXES) or not member.isfile():
                continue
            content = archive.extractfile(member)
            assert content is not None
            (folder / path.name).write_bytes(content.read())
            names.append(path.name)
    return sorted(names)


def _pack_with_npm(npm: str) -> bytes:
    """The tarball from the registry, mirror or cache that the user's npm is configured for."""
    with temporary_folder("benchhouse-npm") as folder:
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", str(folder), "--ignore-scripts"]
        done = run_program(command, limit_s=TIMEOUT_S, folder=folder)
        if done.exit_code is None:
            raise _fetch_error(f"npm pack took more than {TIMEOUT_S:g} s")
        packed = list(folder.glob("*.tgz"))
        if done.exit_code != 0 or len(packed) != 1:
            errors = [
                line for line in done.stderr.splitlines() if "error" in line.lower() and "log" not in line.lower()
            ]
            raise _fetch_error(f"npm pack: {errors[0].strip() if errors else f'exit code {done.exit_code}'}")
        return packed[0].read_bytes()


def _download() -> bytes:
    registry = next((os.environ[name] for name in REGISTRY_VARIABLES if os.environ.get(name)), REGISTRY)
    url = f"{registry.rstrip('/')}/{PACKAGE}/-/{PACKAGE}-{VERSION}.tgz"
    if not url.startswith(("https://", "http://")):
        raise _fetch_error(f"the registry {registry} is not an HTTP address")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:  # noqa: S310 - a web address, see above
            content: bytes = response.read(MAX_TARBALL_BYTES + 1)
    except (OSError, HTTPException) as error:
        raise _fetch_error(f"{url}: {getattr(error, 'reason', error)}") from error
    if len(content) > MAX_TARBALL_BYTES:
        raise _fetch_error(f"{url} is larger than {MAX_TARBALL_BYTES >> 20} MiB")
    return content


def _fetch_error(why: str) -> BenchhouseError:
    return BenchhouseError(
        f"cannot fetch {PACKAGE} {VERSION} ({why}): set {FOLDER_VARIABLE} to a folder with its dist/, "
        "or run once where the npm registry is reachable"
    )


def _source() -> str:
    return f"npm:{PACKAGE}@{VERSION} {INTEGRITY}"


def _configured_folder() -> Path | None:
    path = os.environ.get(FOLDER_VARIABLE)
    return Path(os.path.expanduser(path)) if path else None


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
    is_fixed: bool = False
    """Whether graphs are opened separately for each point, at its sizes."""


class ModelPage:
    """A page with ONNX Runtime Web, and a bundle loaded in it."""

    def __init__(self, executable: Path, library: Library, settings: PageSettings) -> None:
        """Start the server, the browser and the library. Raises BenchhouseError."""
        self.settings = settings
        self._is_on_device = settings.io_mode == "device"
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
        self._graphs = graphs_description(bundle, on_device=self._is_on_device)
        files = {}
        for name, group in paths.items():
            urls = [f"build/{quote(path.name)}" for path in group]  # a user's file may be named "my model #1.onnx"
            for url, path in zip(urls, group, strict=True):
                self._site.put(url, path)
            external = [{"path": path.name, "url": url} for url, path in zip(urls[1:], group[1:], strict=True)]
            files[name] = {"url": urls[0], "external": external, "onDevice": self._graphs[name]["on_device"]}
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
            "onDevice": self._is_on_device,
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
