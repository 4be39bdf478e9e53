"""A browser of the Chromium family with one page, and the web server of that page: finding a browser on this machine,
driving it, reading its memory, and serving the page's files.

The browser is driven through a pair of pipes. When this process ends, for any reason, they break, and the driver and
the browser end too. Browsers are never downloaded.

The web server listens on loopback only and serves only the entries of its table. Every path begins with a secret, so no
other page or user of the machine can read a model, and no request body is read without it. Paths are looked up in the
table and never joined to a folder, so none can escape it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarking.core.child_process import program
from benchmarking.core.errors import BenchhouseError, OutOfMemoryError, first_line, is_out_of_memory
from benchmarking.core.lazy_modules import psutil
from benchmarking.core.records import NOT_SUPPORTED, Readings

START_TIMEOUT_MS = 60_000.0
"""Time limit for starting the browser and for opening the page; each takes a second on a slow machine."""

CONSOLE_LINES = 20_000
"""Console lines that are kept; a model's nodes with their providers take a few thousand."""

MODEL_PROCESSES = ("renderer", "GPU")
"""Types of browser processes that hold models: the page's and the GPU's."""

SOFTWARE_FLAGS = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
"""Flags that enable WebGPU on the CPU."""

HARDWARE_FLAGS: Mapping[str, tuple[str, ...]] = {
    "linux": (
        "--enable-unsafe-webgpu",
        "--enable-features=Vulkan",
        "--use-angle=vulkan",
        "--disable-vulkan-surface",  # without a display there is no surface to draw on
    ),
}
"""Flags, by platform, that enable WebGPU on the GPU for a page without a window where it is off by default. Windows has
it through Direct3D 12, macOS through Metal.

2026-11-22: from developer.chrome.com/blog/supercharge-web-ai-testing, which lists them for a Linux server with an
NVIDIA GPU. Chromium accepts them (tests/benchmarking/runtimes/support/browser/test_flags.py); no machine with a GPU was
available."""

HEADLESS = "--headless=new"
"""The full browser without a window, with a GPU process. Before Chrome 132, --headless alone was another program."""

SOFTWARE_FALLBACK = "--enable-unsafe-swiftshader"
"""A flag that Playwright adds, which gives a page without a GPU an adapter on the CPU."""

FEATURES = "--enable-features="
"""Chromium reads only the last of several such flags."""

INFORMATION_FLAGS = ("--enable-webgpu-developer-features",)
"""Flags that let the page read the adapter's model name."""

WEBNN_FLAGS = ("--enable-features=WebMachineLearningNeuralNetwork",)
"""Flags that enable WebNN."""

ISOLATION_FLAGS = ("--disable-extensions", "--disable-background-networking")

COLOURS = re.compile(r"\x1b\[[0-9;]*m")

WARNING = "[W:onnxruntime"
"""ONNX Runtime's warnings, which appear as console errors."""

GONE_WORDS = ("crash", "closed")


class Browser:
    """A browser with one open page, as a context manager. `close` may be called twice."""

    def __init__(self, executable: Path, url: str, flags: Sequence[str] = ()) -> None:
        """Raises BenchhouseError if the browser fails to start or to open the page."""
        from playwright.sync_api import Error, sync_playwright

        self._error = Error
        self._cleanup = ExitStack()
        self.console: deque[str] = deque(maxlen=CONSOLE_LINES)
        """The page's output, the newest line last."""
        self._errors: deque[str] = deque(maxlen=20)
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0

        def close_browser() -> None:
            with suppress(Error):  # it has already ended
                self._browser.close()

        def keep_message(message: Any) -> None:
            text = COLOURS.sub("", message.text)
            self.console.append(text)
            if message.type == "error" and WARNING not in text:
                self._errors.append(first_line(text))

        driver: Any = sync_playwright().start()
        self._cleanup.callback(driver.stop)
        try:
            self._browser: Any = driver.chromium.launch(
                executable_path=executable,
                headless=True,
                # Chromium's sandbox cannot start as root; otherwise it stays on.
                chromium_sandbox=not is_root,
                args=[HEADLESS, *ISOLATION_FLAGS, *with_one_feature_list(flags)],
                ignore_default_args=None if set(SOFTWARE_FLAGS) <= set(flags) else [SOFTWARE_FALLBACK],
                timeout=START_TIMEOUT_MS,
            )
            self._cleanup.callback(close_browser)
            self.version: str = self._browser.version
            self._page: Any = self._browser.new_page()
            self._page.on("console", keep_message)
            self._page.on("pageerror", lambda error: self._errors.append(first_line(error)))
            self._page.goto(url, timeout=START_TIMEOUT_MS)
            self._page.wait_for_function("globalThis.benchhouse !== undefined", timeout=START_TIMEOUT_MS)
        except Error as error:
            self.close()
            raise BenchhouseError(f"cannot start {executable}: {self._reason(error)}") from error

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, *arguments: Any) -> Any:
        """The result of a method of the page's `benchhouse` object. Raises OutOfMemoryError and BenchhouseError, with
        the console's last error if the page has crashed or closed."""
        try:
            return self._page.evaluate(
                "([method, values]) => globalThis.benchhouse[method](...values)", [method, list(arguments)]
            )
        except self._error as error:
            why = self._reason(error)
            if is_out_of_memory(why):
                raise OutOfMemoryError(f"the page ran out of memory: {why}") from error
            raise BenchhouseError(f"the page failed at {method}: {why}") from error

    def process_ids(self) -> tuple[int, ...]:
        """The browser processes that hold models."""
        session = self._browser.new_browser_cdp_session()
        answer: Any = session.send("SystemInfo.getProcessInfo")
        session.detach()
        return tuple(int(process["id"]) for process in answer["processInfo"] if process["type"] in MODEL_PROCESSES)

    def close(self) -> None:
        self._cleanup.close()

    def _reason(self, error: Exception) -> str:
        """The reason of an error; with the console's last error for a page that has crashed or closed."""
        reason = first_line(str(error).partition("Error: ")[2] or error) or "no reason given"
        is_gone = any(word in reason.lower() for word in GONE_WORDS)
        last = self._errors[-1] if is_gone and self._errors else None
        return reason if last is None or last in reason else f"{reason} (the console's last error: {last})"


def webgpu_flags(*, software: bool, platform: str = sys.platform) -> tuple[str, ...]:
    """The flags that give the page a WebGPU adapter, in software or on the GPU."""
    flags = SOFTWARE_FLAGS if software else HARDWARE_FLAGS.get(platform, ())
    return (*flags, *INFORMATION_FLAGS)


def with_one_feature_list(flags: Sequence[str]) -> list[str]:
    """The flags, with all features that they enable merged into one flag."""
    features = [flag.removeprefix(FEATURES) for flag in flags if flag.startswith(FEATURES)]
    others = [flag for flag in flags if not flag.startswith(FEATURES)]
    return [*others, FEATURES + ",".join(features)] if features else others


BROWSER_VARIABLE = "BENCHHOUSE_BROWSER"
"""Environment variable with the path of the browser."""

NAMES = (
    *("chromium", "chromium-browser", "google-chrome-stable", "google-chrome"),
    *("chrome", "microsoft-edge-stable", "microsoft-edge", "msedge"),
)
"""Program names, in the order of the search on PATH."""

MACOS = ("Google Chrome", "Chromium", "Microsoft Edge")
"""Applications in /Applications and ~/Applications."""

WINDOWS = (
    ("Google", "Chrome", "Application", "chrome.exe"),
    ("Chromium", "Application", "chrome.exe"),
    ("Microsoft", "Edge", "Application", "msedge.exe"),
)
"""Paths below the program folders."""

WINDOWS_FOLDERS = ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")

INSTALL: Mapping[str, str] = {
    "linux": "install Chromium (apt-get install chromium) or Google Chrome",
    "darwin": "install Google Chrome (brew install --cask google-chrome)",
    "win32": "install Google Chrome or Microsoft Edge",
}


def find_browser(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path | None:
    """The browser in `$BENCHHOUSE_BROWSER`, else the first one found; None if there is none."""
    environment = os.environ if environment is None else environment
    configured = environment.get(BROWSER_VARIABLE)
    if configured:
        path = Path(os.path.expanduser(configured))
        return path if path.is_file() else None
    return next((path for path in _candidates(environment, platform) if path.is_file()), None)


def why_no_browser(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> str | None:
    """None, or why no browser was found and what to install."""
    environment = os.environ if environment is None else environment
    if find_browser(environment, platform) is not None:
        return None
    if environment.get(BROWSER_VARIABLE):
        return f"{BROWSER_VARIABLE} names {environment[BROWSER_VARIABLE]}, which is not a file"
    install = INSTALL.get(platform, INSTALL["linux"])
    return f"no Chromium, Chrome or Edge found: {install}, or name it in {BROWSER_VARIABLE}"


def _candidates(environment: Mapping[str, str], platform: str) -> Iterator[Path]:
    for name in NAMES:
        path = program(name, environment.get("PATH"))
        if path is not None:
            yield Path(path)
    if platform == "darwin":
        for application in MACOS:
            for folder in (Path("/Applications"), Path(os.path.expanduser("~/Applications"))):
                yield folder / f"{application}.app" / "Contents" / "MacOS" / application
    if platform == "win32":
        for variable in WINDOWS_FOLDERS:
            if environment.get(variable):
                yield from (Path(environment[variable], *parts) for parts in WINDOWS)


class BrowserMemory:
    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._processes: list[Any] = []
        for process_id in browser.process_ids():
            with suppress(psutil.NoSuchProcess):  # it ended after the listing
                self._processes.append(psutil.Process(process_id))

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The page's process and the GPU process."""
        return tuple(process.pid for process in self._processes)

    def resident_bytes(self) -> int:
        """Current resident memory of the page's process and the GPU process; shared pages count in both."""
        total = 0
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                total += int(process.memory_info().rss)
        return total

    def readings(self) -> Readings:
        """`wasm_memory_bytes` (total of all WebAssembly memories, which only grow) and `js_heap_bytes`."""
        answer = self._browser.call("memory")
        sizes = answer["wasmBytes"]
        return Readings.known(
            {"wasm_memory_bytes": sum(sizes) if sizes else None, "js_heap_bytes": answer["heapBytes"]},
            f"{NOT_SUPPORTED}: pages cannot read it in this browser",
        )


LOOPBACK = "127.0.0.1"

MAX_CONNECTIONS = 64
"""Limit of connections; browsers open six per host."""

MAX_BODY_BYTES = 4 << 30
"""Limit of a body: the memory that WebAssembly can address."""

MAX_HEADER_BYTES = 16 << 10
"""Limit of a request's headers; a browser's have about 500 bytes."""

MAX_LENGTH_DIGITS = 20

REQUEST_LIMIT_S = 10.0
"""Time limit for a request's first line and headers, from the start of the connection."""

SILENCE_LIMIT_S = 60.0
"""Time limit for the next bytes of a body to be sent or received; a busy page needs seconds."""

CONTENT_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".wasm": "application/wasm",
    ".json": "application/json",
}
"""Media types by suffix: browsers reject modules and WebAssembly with another type. Other suffixes are served as
bytes."""

BYTES = "application/octet-stream"

ISOLATION: Mapping[str, str] = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
"""The first two make the page cross-origin isolated. Without isolation there is no shared memory, hence no threads in
WebAssembly, and the page's clock is rounded to 100 us instead of 5."""


class Site:
    """The web server: files and arrays to fetch, and names to which the page may post an array."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._content: dict[str, Path | bytes] = {}
        self._posted: dict[str, bytes | None] = {}
        self._secret = secrets.token_urlsafe(16)
        self._server = _Server((LOOPBACK, 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        return f"{LOOPBACK}:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The common prefix of all addresses of the site, with a trailing slash."""
        return f"http://{self.host}/{self._secret}/"

    def put(self, name: str, content: Path | bytes) -> None:
        """Serve a file (read at each request) or bytes under a name such as "ort/ort.wasm"."""
        with self._lock:
            self._content[name] = content

    def remove(self, name: str) -> None:
        with self._lock:
            self._content.pop(name, None)

    def expect(self, name: str) -> None:
        """Accept a post to a name; posts to other names are rejected."""
        with self._lock:
            self._posted[name] = None

    def take(self, name: str) -> bytes:
        """Remove and return the posted body. Raises BenchhouseError if there is none."""
        with self._lock:
            posted = self._posted.pop(name, None)
        if posted is None:
            raise BenchhouseError(f"the page did not send {name}")
        return posted

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def lookup(self, path: str) -> tuple[str, Path | bytes] | None:
        """The name and content that a request gets; None for a wrong secret or an unknown name."""
        name = self._name(path)
        with self._lock:
            content = self._content.get(name) if name else None
        return None if name is None or content is None else (name, content)

    def expected_name(self, path: str) -> str | None:
        """The name that a request may post to; None for a wrong secret or a name without an expected post."""
        name = self._name(path)
        with self._lock:
            return name if name in self._posted else None

    def store(self, name: str, body: bytes) -> None:
        """Keep a posted body for `take`."""
        with self._lock:
            self._posted[name] = body

    def _name(self, path: str) -> str | None:
        secret, _, name = path.partition("?")[0].removeprefix("/").partition("/")
        is_authorized = secrets.compare_digest(secret.encode(), self._secret.encode())
        return name if is_authorized and name else None


class _Server(ThreadingHTTPServer):
    """One thread per connection, up to `MAX_CONNECTIONS`; further connections are closed unread."""

    daemon_threads = True

    def __init__(self, *values: Any) -> None:
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(*values)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, *_: Any) -> None:
        """Print nothing: the page reports missing data itself."""


def _handler_of(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One request of one connection. Method names are the standard library's.

        Until it has shown the secret, a request has `REQUEST_LIMIT_S` in total and its body is not read.
        """

        protocol_version = "HTTP/1.1"
        timeout = SILENCE_LIMIT_S

        def setup(self) -> None:
            super().setup()
            # With only a socket timeout, a client could send one byte at a time forever.
            self._limit = threading.Timer(REQUEST_LIMIT_S, self._disconnect)
            self._limit.daemon = True
            self._limit.start()

        def finish(self) -> None:
            self._limit.cancel()
            super().finish()

        def do_GET(self) -> None:
            entry = site.lookup(self.path) if self._is_allowed() else None
            if entry is None:
                return self._respond(HTTPStatus.NOT_FOUND)
            self._limit.cancel()
            name, content = entry
            kind = CONTENT_TYPES.get(PurePosixPath(name).suffix, BYTES)
            if isinstance(content, bytes):
                self._respond(HTTPStatus.OK, kind, len(content))
                self.wfile.write(content)
                return None
            with content.open("rb") as file:
                self._respond(HTTPStatus.OK, kind, content.stat().st_size)
                shutil.copyfileobj(file, self.wfile, 1 << 20)
            return None

        def do_POST(self) -> None:
            name = site.expected_name(self.path) if self._is_allowed() else None
            length = self.headers.get("Content-Length", "")
            if name is None or not (length.isascii() and length.isdecimal()):
                return self._respond(HTTPStatus.NOT_FOUND)
            if len(length) > MAX_LENGTH_DIGITS or int(length) > MAX_BODY_BYTES:
                return self._respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            self._limit.cancel()
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                return self._respond(HTTPStatus.BAD_REQUEST)
            site.store(name, body)
            return self._respond(HTTPStatus.NO_CONTENT)

        def log_message(self, format: str, *values: Any) -> None:
            """Print nothing: stderr is for errors."""

        def _is_allowed(self) -> bool:
            """Whether the request names this host (another site could make its name resolve to this address) and has
            small headers."""
            size = sum(len(name) + len(value) for name, value in self.headers.items())
            return self.headers.get("Host") == site.host and size <= MAX_HEADER_BYTES

        def _disconnect(self) -> None:
            with suppress(OSError):  # already closed
                self.connection.shutdown(socket.SHUT_RDWR)

        def _respond(self, status: HTTPStatus, kind: str = BYTES, length: int = 0) -> None:
            self.close_connection = True
            self.send_response(status)
            for name, value in {**ISOLATION, "Content-Type": kind, "Connection": "close"}.items():
                self.send_header(name, value)
            if status is not HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(length))
            self.end_headers()

    return Handler
