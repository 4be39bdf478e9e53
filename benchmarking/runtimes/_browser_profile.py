"""Where the kernels of a call in a page ran, from the profile that ONNX Runtime Web writes to the console.

The format is that of ONNX Runtime's profiles elsewhere: a JSON list of events, here one to a line, with other lines of
the console between them.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarking.errors import FormatError
from benchmarking.records import Json
from benchmarking.runtimes._browser_page import ModelPage
from benchmarking.runtimes._ort_profile import CPU, PRODUCTS, QUANTIZED_PRODUCTS, WHOLE, Kernel, placement, read_profile

BEGIN = "profile of "
"""What the page writes before each graph's profile, followed by the graph's name."""
EVENT = '{"cat" :'
PROVIDERS: Mapping[str, str] = {
    "wasm": "CPUExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "webnn": "WebNNExecutionProvider",
}
"""What profiles call the page's providers."""


def profile_of(page: ModelPage) -> Mapping[str, Json]:
    """Where one call more ran, in sessions that are profiled. Raises FormatError without a profile."""
    page.browser.console.clear()
    page.browser.call("profile")
    told = kernels(page.browser.console)
    page.browser.console.clear()
    return page_placement(told, PROVIDERS[page.settings.provider["name"]])


def page_placement(told: Sequence[Kernel], wanted: str) -> dict[str, Json]:
    """What `placement` tells, with `nodes_of_whole_numbers_on_cpu` told apart: ids, positions and masks.

    WebGPU's shaders have no 64-bit integers, so its provider leaves such nodes to the processor on purpose, as it does
    those about shapes. A matrix product of integers is none of them."""
    told_all = placement(told, wanted)
    different = {kernel.name: kernel for kernel in told}.values()
    on_cpu = [kernel for kernel in different if kernel.provider == CPU != wanted and not kernel.is_about_shapes]
    unasked = [kernel for kernel in on_cpu if not _is_of_whole_numbers(kernel)]
    return {
        **told_all,
        "nodes_on_cpu_unasked": len(unasked),
        "nodes_of_whole_numbers_on_cpu": len(on_cpu) - len(unasked),
        "operators_on_cpu_unasked": dict(sorted(Counter(kernel.operator for kernel in unasked).items())),
    }


def _is_of_whole_numbers(kernel: Kernel) -> bool:
    is_product = kernel.operator in PRODUCTS or kernel.operator in QUANTIZED_PRODUCTS
    return not is_product and all(kind in WHOLE for kind, _ in kernel.outputs)


def kernels(console: Iterable[str]) -> tuple[Kernel, ...]:
    """The kernels of all profiles on a console. Raises FormatError when there is none."""
    events: dict[str, list[str]] = {}
    graph: str | None = None
    for line in (line for message in console for line in message.splitlines()):
        if line.startswith(BEGIN):
            graph = line.removeprefix(BEGIN)
            events[graph] = []
        elif graph is not None and line.startswith(EVENT):
            events[graph].append(line.rstrip().rstrip(","))
    found = [kernel for graph, lines in events.items() for kernel in _read(graph, lines)]
    if not found:
        raise FormatError("the page's console has no profile of ONNX Runtime Web")
    return tuple(found)


def _read(graph: str, events: list[str]) -> tuple[Kernel, ...]:
    with tempfile.TemporaryDirectory(prefix="benchhouse-profile-") as folder:
        path = Path(folder) / f"{graph}.json"
        path.write_text(f"[{','.join(events)}]", encoding="utf-8")
        return read_profile(path, graph)
