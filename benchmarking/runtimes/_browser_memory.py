"""What a model takes in a browser: the processes that hold it, and the page's own figures."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from benchmarking.records import NOT_SUPPORTED, Json, Readings

if TYPE_CHECKING:
    from benchmarking.runtimes._browser import Browser


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
