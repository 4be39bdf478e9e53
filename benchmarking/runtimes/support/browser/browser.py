"""A Chromium that runs one page for as long as a model is measured on it.

It is driven through a pair of pipes. When this process ends, however it ends, the pipes break, and the driver and the
browser end with it.

Finds a browser of the Chromium family on this machine. Nothing is ever downloaded.

What a model takes in a browser: the processes that hold it, and the page's own figures.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarking.core.errors import BenchhouseError, OutOfMemoryError
from benchmarking.core.records import NOT_SUPPORTED, Json, Readings

START_TIMEOUT_MS = 60_000.0

"""To start the browser, and to open the page: either takes a second on a slow machine."""

CONSOLE_LINES = 20_000

"""Of the console that are kept: a model's nodes with their providers are some thousand lines."""

MODEL_PROCESSES = ("renderer", "GPU")

"""The browser's processes that hold models: the page's own, and the one that talks to the GPU."""


SOFTWARE_FLAGS = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")

"""WebGPU on the processor, which browsers offer only when they are told to."""

HARDWARE_FLAGS: Mapping[str, tuple[str, ...]] = {
    "linux": ("--enable-unsafe-webgpu", "--enable-features=Vulkan"),
}

"""Where WebGPU has to be switched on, by platform."""

INFORMATION_FLAGS = ("--enable-webgpu-developer-features",)

"""The adapter then tells its model's name."""

WEBNN_FLAGS = ("--enable-features=WebMachineLearningNeuralNetwork",)

"""WebNN, which browsers offer only when they are told to."""

ISOLATION_FLAGS = ("--disable-extensions", "--disable-background-networking")


COLOURS = re.compile(r"\x1b\[[0-9;]*m")

WARNING = "[W:onnxruntime"

"""ONNX Runtime's warnings come as errors of the console."""

GONE_WORDS = ("crash", "closed")

MEMORY_WORDS = ("out of memory", "bad_alloc", "array buffer allocation failed", "could not allocate memory")


class Browser:
    """A browser with one open page. A context manager; `close` may be called twice."""

    def __init__(self, executable: Path, url: str, flags: Sequence[str] = ()) -> None:
        """Raises BenchhouseError when the browser does not start or does not open the page."""
        from playwright.sync_api import Error, sync_playwright

        self._error = Error
        self._cleanup = ExitStack()
        self.console: deque[str] = deque(maxlen=CONSOLE_LINES)
        """What the page wrote, the newest last."""
        self._complaints: deque[str] = deque(maxlen=20)
        driver: Any = sync_playwright().start()
        self._cleanup.callback(driver.stop)
        try:
            self._browser: Any = driver.chromium.launch(
                executable_path=executable,
                headless=True,
                # Chromium's sandbox does not start as root; anywhere else it stays on.
                chromium_sandbox=not _is_root(),
                args=[*ISOLATION_FLAGS, *flags],
                timeout=START_TIMEOUT_MS,
            )
            self._cleanup.callback(self._end)
            self.version: str = self._browser.version
            self._page = self._opened(url)
        except Error as error:
            self.close()
            raise BenchhouseError(f"{executable} does not start: {self._why(error)}") from error

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of the page's `benchhouse` gives. Raises OutOfMemoryError and BenchhouseError, with the
        console's last complaint when the page is gone."""
        try:
            return self._page.evaluate(
                "([method, values]) => globalThis.benchhouse[method](...values)", [method, list(arguments)]
            )
        except self._error as error:
            why = self._why(error)
            if any(word in why.lower() for word in MEMORY_WORDS):
                raise OutOfMemoryError(f"the page ran out of memory: {why}") from error
            raise BenchhouseError(f"the page at {method}: {why}") from error

    def process_ids(self) -> tuple[int, ...]:
        """The browser's processes that hold models."""
        session = self._browser.new_browser_cdp_session()
        told: Any = session.send("SystemInfo.getProcessInfo")
        session.detach()
        return tuple(int(one["id"]) for one in told["processInfo"] if one["type"] in MODEL_PROCESSES)

    def close(self) -> None:
        """End the browser and what drives it."""
        self._cleanup.close()

    def _end(self) -> None:
        with suppress(self._error):  # it is gone already
            self._browser.close()

    def _opened(self, url: str) -> Any:
        page: Any = self._browser.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self._complaints.append(first_line(str(error))))
        page.goto(url, timeout=START_TIMEOUT_MS)
        page.wait_for_function("globalThis.benchhouse !== undefined", timeout=START_TIMEOUT_MS)
        return page

    def _heard(self, message: Any) -> None:
        text = COLOURS.sub("", message.text)
        self.console.append(text)
        if message.type == "error" and WARNING not in text:
            self._complaints.append(first_line(text))

    def _why(self, error: Exception) -> str:
        """What was wrong. A page that is gone cannot say it: then with the last that was heard of it."""
        said = first_line(str(error).partition("Error: ")[2] or str(error))
        is_gone = any(word in said.lower() for word in GONE_WORDS)
        last = self._complaints[-1] if is_gone and self._complaints else None
        return said if last is None or last in said else f"{said} (the console's last error: {last})"


def webgpu_flags(*, software: bool, platform: str = sys.platform) -> tuple[str, ...]:
    """The flags that give the page a WebGPU adapter: the processor's, or the GPU's."""
    chosen = SOFTWARE_FLAGS if software else HARDWARE_FLAGS.get(platform, ())
    return (*chosen, *INFORMATION_FLAGS)


def first_line(text: str) -> str:
    """The first line that says something; what follows is the stack."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


def driver_facts() -> dict[str, Json]:
    """What drives the browser."""
    from importlib.metadata import version

    return {"playwright": version("playwright")}


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


NAMED_BY = "BENCHHOUSE_BROWSER"

"""Environment variable with the path of the browser to take."""


NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
    "microsoft-edge-stable",
    "microsoft-edge",
    "msedge",
)

"""What packages call the program, in the order they are looked for on PATH."""


MACOS = ("Google Chrome", "Chromium", "Microsoft Edge")

"""Applications, in /Applications or the user's own."""

WINDOWS = (
    ("Google", "Chrome", "Application", "chrome.exe"),
    ("Chromium", "Application", "chrome.exe"),
    ("Microsoft", "Edge", "Application", "msedge.exe"),
)

"""Under one of the folders for programs."""

WINDOWS_FOLDERS = ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")


INSTALL: Mapping[str, str] = {
    "linux": "install Chromium (apt-get install chromium) or Google Chrome",
    "darwin": "install Google Chrome (brew install --cask google-chrome)",
    "win32": "install Google Chrome or Microsoft Edge",
}


def find_browser(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path | None:
    """The browser that `$BENCHHOUSE_BROWSER` names, else the first that is found; None when there is none."""
    environment = os.environ if environment is None else environment
    named = environment.get(NAMED_BY)
    if named:
        path = Path(named).expanduser()
        return path if path.is_file() else None
    return next((path for path in _candidates(environment, platform) if path.is_file()), None)


def why_no_browser(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> str | None:
    """None, or what to do about there being none."""
    environment = os.environ if environment is None else environment
    if find_browser(environment, platform) is not None:
        return None
    if environment.get(NAMED_BY):
        return f"{NAMED_BY} names {environment[NAMED_BY]}, which is no file"
    return f"no Chromium, Chrome or Edge found: {INSTALL.get(platform, INSTALL['linux'])}, or name it in {NAMED_BY}"


def _candidates(environment: Mapping[str, str], platform: str) -> Iterator[Path]:
    for name in NAMES:
        found = shutil.which(name, path=environment.get("PATH"))
        if found is not None:
            yield Path(found)
    if platform == "darwin":
        for application in MACOS:
            for folder in (Path("/Applications"), Path("~/Applications").expanduser()):
                yield folder / f"{application}.app" / "Contents" / "MacOS" / application
    if platform == "win32":
        for variable in WINDOWS_FOLDERS:
            if environment.get(variable):
                yield from (Path(environment[variable], *parts) for parts in WINDOWS)


class BrowserMemory:
    """Memory of one browser's page."""

    def __init__(self, browser: Browser) -> None:
        import psutil

        self._browser = browser
        self._gone = psutil.NoSuchProcess
        self._processes: list[Any] = []
        for process_id in browser.process_ids():
            with suppress(psutil.NoSuchProcess):  # it ended between being listed and being looked at
                self._processes.append(psutil.Process(process_id))

    def resident_bytes(self) -> int:
        """Resident memory of the page's process and the GPU's, now; pages that both map count in each."""
        total = 0
        for process in self._processes:
            with suppress(self._gone):
                total += int(process.memory_info().rss)
        return total

    def readings(self) -> Readings:
        """`wasm_memory_bytes` (of all WebAssembly memories together, which only ever grow) and `js_heap_bytes`."""
        told = self._browser.call("memory")
        sizes = told["wasmBytes"]
        named: dict[str, Json] = {
            "wasm_memory_bytes": sum(sizes) if sizes else None,
            "js_heap_bytes": told["heapBytes"],
        }
        why = f"{NOT_SUPPORTED}: this browser's pages are not told"
        return Readings(
            values={name: value for name, value in named.items() if value is not None},
            missing={name: why for name, value in named.items() if value is None},
        )
