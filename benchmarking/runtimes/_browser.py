"""A Chromium that runs one page for as long as a model is measured on it.

It is driven through a pair of pipes. When this process ends, however it ends, the pipes break, and the driver and the
browser end with it.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarking.errors import BenchhouseError, OutOfMemoryError
from benchmarking.records import Json

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
