"""Sessions of the runtimes on torch on the CPU, without a supervisor around them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarking.core import plugins
from benchmarking.core.records import Cell, Device, Workload

if TYPE_CHECKING:
    import numpy as np

CPU = Device(
    type="cpu", selector="cpu", found=True, name="Test CPU", precisions=("float32", "bfloat16", "float16", "int8")
)


@pytest.fixture
def stages() -> list[str]:
    """The stages of the loads so far, in order."""
    return []


@pytest.fixture
def open_torch(stages: list[str]) -> Iterator[Callable[..., Any]]:
    """A function that opens a session of a runtime for a model by name; every session is closed at the end."""
    from benchmarking.workloads.support.resolve import resolve

    sessions = []

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        stages.append(name)
        yield

    def make(
        plugin: Any,
        model_id: str,
        *,
        task: str | None = None,
        torch_name: str | None = "cpu",
        precision: Any = "float32",
        num_threads: int | None = None,
        weights: Any = "auto",
        points: Any = (),
        **options: Any,
    ) -> Any:
        workload = resolve(model_id, task=task, weights=weights)
        cell = Cell(
            workload=workload,
            device=CPU,
            requested_device="cpu",
            runtime=plugin.name,
            runtime_mode=plugin.mode_at(precision, plugin.mode(CPU, workload, options)),
            precision=precision,
            num_threads=num_threads,
        )
        sessions.append(plugin.open(cell, SimpleNamespace(torch_name=torch_name), stage, points))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


@pytest.fixture
def open_eager(open_torch: Callable[..., Any]) -> Callable[..., Any]:
    """The same for the runtime eager only."""
    from benchmarking.runtimes.eager import PLUGIN

    return partial(open_torch, PLUGIN)


@pytest.fixture(scope="module")
def engine_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An empty build cache for the tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def llama() -> Workload:
    from benchmarking.workloads.support.resolve import resolve

    return resolve("tiny-llama", weights="random")


@pytest.fixture(scope="module")
def eager(llama: Workload) -> Callable[..., list[list[int]]]:
    """A function that returns the tokens that eager generates after some prompts."""
    from benchmarking.runtimes.support.torch.model_loading import load_model
    from tests.helpers.engines import POINT, tokens_of

    model = load_model(llama, "float32", None)[0]

    def generate(prompts: np.ndarray, count: int = POINT.new_tokens or 0) -> list[list[int]]:
        return tokens_of(model, prompts, count)

    return generate


def _why_no_page() -> str | None:
    """None, or what is missing here: Playwright, a browser, or ONNX Runtime Web in a named folder or the cache."""
    from benchmarking.builds.store import BuildStore
    from benchmarking.core.errors import BenchhouseError
    from benchmarking.runtimes.support.browser.browser import why_no_browser
    from benchmarking.runtimes.support.browser.page import find_library

    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    if (why_not := why_no_browser()) is not None:
        return why_not
    try:
        find_library(BuildStore())
    except BenchhouseError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def open_page() -> Callable[..., Any]:
    """A function that opens a page on the runtime wasm, webgpu or webnn (on the processor). Skips, with the reason,
    where there is no browser."""
    if (why_not := _why_no_page()) is not None:
        pytest.skip(why_not)
    from benchmarking.builds.store import BuildStore
    from benchmarking.runtimes.support.browser.browser import WEBNN_FLAGS, find_browser, webgpu_flags
    from benchmarking.runtimes.support.browser.browser_runtime import BrowserRuntime
    from benchmarking.runtimes.support.browser.page import ModelPage, PageSettings, find_library

    flags = {"webgpu": webgpu_flags(software=True), "webnn": WEBNN_FLAGS}

    def make(name: str, *, io_mode: str = "host", num_threads: int = 1) -> ModelPage:
        runtime: BrowserRuntime = plugins.load("benchmarking.runtimes", name)
        settings = PageSettings(
            script=runtime.script,
            provider={"name": name, **({"deviceType": "cpu"} if name == "webnn" else {})},
            profiled_as=runtime.profiled_as,
            num_threads=num_threads,
            flags=flags.get(name, ()),
            io_mode=io_mode,
        )
        executable = find_browser()
        assert executable is not None
        return ModelPage(executable, find_library(BuildStore()), settings)

    return make
