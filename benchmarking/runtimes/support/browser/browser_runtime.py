"""Shared base of the browser runtimes: requirements, builds, a page with a model, and a check that its GPU is the
requested device.

A page cannot name a GPU: it requests the fast one and learns only the vendor. So a device is supported if it is the
only one of its model in the machine and the adapter is from its vendor; anything else is rejected rather than
guessed.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from benchmarking.builds.store import BuildStore
from benchmarking.core.child_process import run_module
from benchmarking.core.contracts import Runtime, Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import has, is_processor, kind_of, names_with, processor
from benchmarking.core.records import Cell, Device, Json, Point, Rebuild
from benchmarking.devices.support.host import is_software
from benchmarking.graphs import exported_model as graphs
from benchmarking.runtimes.support.browser.browser import WEBNN_FLAGS, Browser, Site, find_browser, why_no_browser
from benchmarking.runtimes.support.onnxruntime.ort_runtime import num_threads
from benchmarking.workloads.support.processing import open_processing

if TYPE_CHECKING:
    from benchmarking.runtimes.support.browser.browser_session import BrowserSession
    from benchmarking.runtimes.support.browser.page import ModelPage, PageSettings


class BrowserRuntime(Runtime):
    """A runtime that runs a model's exported graphs in a page, by ONNX Runtime Web."""

    script: str
    """The package's bundle that the page loads; the bundles compute differently. Tests load another one."""
    profiled_as: str
    """The provider's name in ONNX Runtime's profiles."""
    serves = False
    prepares = True
    needs_no_torch = True
    libraries: tuple[str, ...] = ("playwright.sync_api",)
    packages: tuple[str, ...] = ("playwright", "onnx")

    def __init__(self, script: str | None = None) -> None:
        self.script = script or self.script

    def missing(self) -> str | None:
        if importlib.util.find_spec("playwright") is None:
            return "not installed: playwright: pip install benchhouse[browser]"
        return why_no_browser() or graphs.missing()

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        from benchmarking.runtimes.support.browser.page import ensure_library

        library = ensure_library(store, "never" if rebuild == "never" else "if_needed")
        return {**graphs.ensure_bundle(cell, points, store, rebuild), "onnxruntime_web": dict(library)}

    def page_settings(
        self,
        cell: Cell,
        *,
        flags: tuple[str, ...] = (),
        io_mode: str = "host",
        is_fixed: bool = False,
        provider: Mapping[str, str] = MappingProxyType({}),
    ) -> PageSettings:
        """The settings of a cell's pages. `provider` holds options of ONNX Runtime Web's provider, which has the
        runtime's name."""
        from benchmarking.runtimes.support.browser.page import PageSettings

        return PageSettings(
            script=self.script,
            provider={"name": self.name, **provider},
            profiled_as=self.profiled_as,
            num_threads=num_threads(cell),
            flags=flags,
            io_mode=io_mode,
            is_fixed=is_fixed,
        )

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        return open_session(cell, stage, points, self.page_settings(cell))


def open_session(
    cell: Cell,
    stage: Stage,
    points: Sequence[Point],
    settings: PageSettings,
    check: Callable[[ModelPage], None] = lambda page: None,
) -> BrowserSession:
    """A browser with ONNX Runtime Web and the first point's bundle. `check` gets the page before the bundle is loaded
    and raises if the page is not as requested. Raises BenchhouseError, leaving nothing behind.

    Verifies what all browser runtimes need: threads, isolation, and the weights' precision."""
    from benchmarking.runtimes.support.browser.browser_session import BrowserSession
    from benchmarking.runtimes.support.browser.page import ModelPage, find_library

    executable = find_browser()
    if executable is None:
        raise BenchhouseError(why_no_browser() or "no browser")
    library = find_library(BuildStore())
    processing = open_processing(cell.workload, stage)
    with ExitStack() as opened:
        with stage("import"):
            page = ModelPage(executable, library, settings)
        opened.callback(page.close)
        check(page)
        session = BrowserSession(cell, points, page, processing, stage)
        session.verified = {**session.verified, "onnxruntime_web_source": library.source}
        check_threads(settings.num_threads, session.verified)
        opened.pop_all()
        return session


def check_threads(requested: int, verified: Mapping[str, Json]) -> None:
    """Raise if the page uses fewer threads than requested, which it only logs to its console."""
    if requested > 1 and not verified["cross_origin_isolated"]:
        raise UnsupportedError("the browser does not isolate the page, so WebAssembly has no threads")
    if verified["num_threads"] != requested:
        raise BenchhouseError(f"requested {requested} threads, but ONNX Runtime Web uses {verified['num_threads']}")


FLOAT16_FEATURE = "shader-f16"
ADAPTER_NAMES = ("vendor", "architecture", "device", "description")
"""Texts that identify a page's adapter; a browser may leave any of them empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A page's adapter, as seen by the page."""

    vendor: str
    architecture: str
    device: str
    description: str
    is_fallback: bool
    features: tuple[str, ...]

    @classmethod
    def from_page(cls, info: Mapping[str, Any]) -> Adapter:
        return cls(
            **{name: str(info.get(name) or "") for name in ADAPTER_NAMES},
            is_fallback=bool(info.get("isFallbackAdapter")),
            features=tuple(info.get("features") or ()),
        )

    @property
    def is_software(self) -> bool:
        """Whether it runs on the CPU."""
        return self.is_fallback or is_software(
            f"{self.architecture} {self.description}"
        )  # some browsers do not flag it

    @property
    def label(self) -> str:
        return " ".join(filter(None, (self.vendor, self.architecture, self.description))) or "unnamed adapter"

    def verified(self) -> dict[str, Json]:
        names = {name: getattr(self, name) for name in ADAPTER_NAMES}
        return {
            "adapter": {**names, "is_fallback_adapter": self.is_fallback},
            "adapter_features": list[Json](self.features),
            "is_simulated": self.is_software,
        }


def why_not_gpu(device: Device) -> str | None:
    """None, or why no page can use this device. On the CPU, pages use a software adapter."""
    if is_processor(device.type):
        return None
    gpus = names_with(lambda kind: kind.gpu_vendor is not None)
    if device.type not in gpus:
        software = f"on {processor().name} in software"
        return f"browsers run WebGPU on GPUs of {', '.join(gpus)}, or {software}, not on {device.type}"
    if not has(device.type, lambda kind: kind.is_gpu(device)):
        return f"browsers run WebGPU on the GPU of {device.type}, not on {device.selector}"
    if device.count > 1:
        return f"a page cannot choose among {device.count} x {device.name}: browsers offer it one unnamed adapter"
    return None


def check_adapter(adapter: Adapter | None, device: Device) -> Adapter:
    """The adapter, if it matches the device. Raises BenchhouseError if it does not, or if there is none."""
    if adapter is None:
        raise BenchhouseError(f"device {device.selector!r}: the browser offers the page no WebGPU adapter")
    kind = kind_of(device.type)
    if kind is not None and kind.is_processor:
        if not adapter.is_software:
            raise BenchhouseError(f"requested WebGPU on the CPU, but the browser's adapter is {adapter.label}")
        return adapter
    if adapter.is_software:
        raise BenchhouseError(
            f"device {device.selector!r} ({device.name}): the browser uses a software adapter ({adapter.label}) "
            "instead of the GPU: check chrome://gpu, and the Vulkan driver on Linux"
        )
    if kind is None or adapter.vendor.lower() != kind.gpu_vendor:
        raise BenchhouseError(
            f"device {device.selector!r} ({device.name}): the browser's adapter is from another vendor: {adapter.label}"
        )
    return adapter


TIMEOUT_S = 120.0
"""Time limit for starting and querying a browser, which takes two seconds on a slow machine."""


@cache
def query_browser(kind: str) -> Mapping[str, Any]:
    """What this machine's browser reports for WebNN on a kind of device: `accelerated`, or `whyNot`. Runs once, in a
    child process."""
    done = run_module("benchmarking.runtimes.support.browser.browser_runtime", kind, limit_s=TIMEOUT_S)
    if done.exit_code is None:
        return {"whyNot": f"the browser did not answer within {TIMEOUT_S:g} s"}
    if done.exit_code != 0:
        return {"whyNot": done.last_line or f"the browser query failed (exit code {done.exit_code})"}
    answer: Mapping[str, Any] = json.loads(done.stdout)
    return answer


def main() -> int:
    """Query the browser about the kind of device in the first argument and print the answer as JSON."""
    from benchmarking.runtimes.support.browser.page import PAGE, PAGE_FILES

    executable = find_browser()
    if executable is None:
        print(why_no_browser(), file=sys.stderr)
        return 1
    site = Site()
    for name in PAGE_FILES:
        site.put(name, PAGE / name)
    try:
        with Browser(executable, site.url + "page.html", WEBNN_FLAGS) as browser:
            print(json.dumps(browser.call("queryContext", sys.argv[1])))
    except BenchhouseError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        site.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
