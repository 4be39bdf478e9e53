"""What the runtimes in a browser share: requirements, builds, and opening a page with a model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING

from benchmarking.builds.store import BuildStore
from benchmarking.core.contracts import Runtime, Session, Stage
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import Cell, Json, Point, Rebuild
from benchmarking.graphs import session as graphs
from benchmarking.runtimes.support.browser.browser import find_browser, why_no_browser

if TYPE_CHECKING:
    from benchmarking.runtimes.support.browser.page import ModelPage, PageSettings
    from benchmarking.runtimes.support.browser.session import BrowserSession


class BrowserRuntime(Runtime):
    """A runtime that runs a model's exported graphs in a page, by ONNX Runtime Web."""

    script: str
    """The package's bundle that the page loads; its bundles compute differently. Tests load another one."""
    profiled_as: str
    """The provider's name in ONNX Runtime's profiles."""
    uses_gpu: bool = False
    """Whether outputs can stay on a GPU."""
    prepares = True
    needs_no_torch = True
    packages: tuple[str, ...] = ("playwright", "onnx")

    def __init__(self, script: str | None = None) -> None:
        self.script = script or self.script

    def missing(self) -> str | None:
        if importlib.util.find_spec("playwright") is None:
            return "not installed: playwright: pip install benchhouse[browser]"
        return why_no_browser() or graphs.missing()

    def import_libraries(self) -> None:
        import playwright.sync_api  # noqa: F401

    def prepare(self, cell: Cell, points: Sequence[Point], store: BuildStore, rebuild: Rebuild) -> Mapping[str, Json]:
        from benchmarking.runtimes.support.browser.library import ensure_library

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
        """The settings of a cell's pages; `provider` has options of ONNX Runtime Web's provider, which has the
        runtime's name."""
        from benchmarking.runtimes.support.browser.page import PageSettings
        from benchmarking.runtimes.support.onnxruntime.options import num_threads

        return PageSettings(
            script=self.script,
            provider={"name": self.name, **provider},
            profiled_as=self.profiled_as,
            num_threads=num_threads(cell),
            flags=flags,
            io_mode=io_mode,
            uses_gpu=self.uses_gpu,
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
    """A browser with ONNX Runtime Web and the first point's bundle. `check` gets the page before the bundle is loaded,
    and raises when it is not what was requested. Raises BenchhouseError, leaving nothing behind.

    Verifies what every runtime in a browser needs: threads, isolation, and the weights' precision."""
    from benchmarking.runtimes.support.browser.library import find_library
    from benchmarking.runtimes.support.browser.page import ModelPage
    from benchmarking.runtimes.support.browser.session import BrowserSession
    from benchmarking.workloads.support.processing import open_processing

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


def check_threads(wanted: int, verified: Mapping[str, Json]) -> None:
    """Raise when the page runs on fewer threads than requested, of which it only writes a line to its console."""
    if wanted > 1 and not verified["cross_origin_isolated"]:
        raise UnsupportedError("the browser does not isolate the page, so WebAssembly has no threads there")
    if verified["num_threads"] != wanted:
        raise BenchhouseError(f"asked for {wanted} threads, but ONNX Runtime Web uses {verified['num_threads']}")
