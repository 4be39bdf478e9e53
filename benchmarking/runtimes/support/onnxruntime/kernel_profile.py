"""Where the kernels of an ONNX Runtime session ran, read from the profile that the session wrote.

A session lists the providers that it may use; only the profile shows the provider that actually ran a kernel.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.core.errors import BenchhouseError, FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json
from benchmarking.runtimes.support.onnxruntime.ort_runtime import CPU

KERNEL_SUFFIX = "_kernel_time"
NODE, LAUNCHED = "Node", "Kernel"
"""Categories of events: a node's run on the host, and a kernel or copy on the device.

Only builds with --enable_cuda_profiling trace the device (2026-11: the packages on PyPI do not). An event of the device
follows the node that launched it in the file and holds its name (MergeEvents in gpu_profiler_common.h)."""
PARENT = "parent_name"
RUN = "model_run"
"""Name of the event around a run of a graph."""
MAX_EVENTS = 1_000_000
"""Number of events that ONNX Runtime keeps; it drops later ones."""
WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap", "BeamSearch", "GreedySearch", "Sampling"})
"""Operators with subgraphs."""

INTEGER_TYPES = frozenset({"int32", "int64", "uint8", "bool"})
PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "Conv", "FusedConv", "NhwcFusedConv", "Attention"})
PRODUCTS |= {"MultiHeadAttention", "GroupQueryAttention"}
"""Operators with nearly all of a transformer's arithmetic. They compute in the type of their first input."""
QUANTIZED_PRODUCTS: Mapping[str, str] = {
    **dict.fromkeys(("MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "ConvInteger"), "int8"),
    **dict.fromkeys(("QLinearMatMul", "QLinearConv", "QGemm", "QAttention"), "int8"),
    "MatMulNBits": "float with weights of few bits",
}
"""Compute type of operators with integer weights. MatMulNBits quantizes its activations too if it is told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One execution of a node, or of a part of the graph that a provider runs as a whole."""

    name: str
    operator: str
    provider: str
    duration_us: int
    input_types: tuple[str, ...]
    """ONNX Runtime's names: "float", "float16", "int64"."""
    outputs: tuple[tuple[str, int], ...]
    """Type and number of dimensions of each."""
    began_us: int = 0
    """Start, by the profile's clock."""
    thread: int = 0
    inside_us: int = 0
    """The part of its duration spent in kernels inside it: a node with subgraphs (If, Loop) encloses theirs."""
    device_us: tuple[int, ...] | None = None
    """Durations of what it launched on the device; None if the profile has none that a node launched."""

    @property
    def node(self) -> str:
        """The node's own name, without the graph's name and number."""
        return self.name.split("/", 2)[-1]

    @property
    def is_about_shapes(self) -> bool:
        """Whether it only computes sizes and positions: integers in at most one dimension. ONNX Runtime keeps such
        nodes on the CPU on purpose, because the CPU needs their results."""
        return bool(self.outputs) and all(kind in INTEGER_TYPES and rank <= 1 for kind, rank in self.outputs)


def read_profile(path: Path, graph: str) -> tuple[Kernel, ...]:
    """The kernels in a profile, with names prefixed by the graph's. Raises FormatError for any other file."""
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
        runs: list[Mapping[str, Any]] = []
        launched: list[list[int]] = []  # by run
        latest: dict[Any, list[int]] = {}  # that of the latest run, by its name
        for event in events:
            category = event.get("cat")
            if category == NODE and str(event["name"]).endswith(KERNEL_SUFFIX) and "provider" in event["args"]:
                runs.append(event)
                launched.append([])
                latest[str(event["name"])] = launched[-1]
            elif category == LAUNCHED and (parent := latest.get(event["args"].get(PARENT))) is not None:
                parent.append(int(event["dur"]))
        has_device = any(launched)
        kernels = []
        for event, device_us in zip(runs, launched, strict=True):
            details = event["args"]
            kernel = Kernel(
                name=f"{graph}/{details.get('node_index', '')}/{str(event['name']).removesuffix(KERNEL_SUFFIX)}",
                operator=str(details.get("op_name", "")),
                provider=str(details["provider"]),
                duration_us=int(event["dur"]),
                began_us=int(event["ts"]),
                thread=int(event.get("tid", 0)),
                input_types=tuple(kind for kind, _ in _typed(details.get("input_type_shape", ()))),
                outputs=_typed(details.get("output_type_shape", ())),
                device_us=tuple(device_us) if has_device else None,
            )
            kernels.append(kernel)
        return tuple(kernels)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{path}: not a profile of ONNX Runtime ({type(error).__name__}: {error})") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphProfile:
    kernels: tuple[Kernel, ...]
    runs_us: tuple[int, ...]
    """Start of each run of the graph."""


def read_graph_profile(path: Path, graph: str) -> GraphProfile:
    """The kernels in a profile and the runs that they belong to. Raises FormatError for any other file, and
    BenchhouseError if the profile exceeded ONNX Runtime's limit."""
    kernels = read_profile(path, graph)
    events = json.loads(path.read_text(encoding="utf-8"))
    if sum(event.get("cat") != LAUNCHED for event in events) >= MAX_EVENTS:
        raise BenchhouseError(
            f"ONNX Runtime keeps {MAX_EVENTS} events per profile, but graph {graph} has more: profile fewer calls "
            "(--num-runs) or tokens (--new-tokens)"
        )
    runs = sorted(int(event["ts"]) for event in events if event.get("name") == RUN)
    # The kernels in order of time, each with the time of those directly inside it.
    nested = [0] * len(kernels)
    ordered = sorted(kernels, key=lambda kernel: (kernel.began_us, -kernel.duration_us))
    open_kernels: dict[int, list[int]] = defaultdict(list)
    for index, kernel in enumerate(ordered):
        stack = open_kernels[kernel.thread]
        while stack:  # inside another one that began before it, which must be a node with subgraphs
            outer = ordered[stack[-1]]
            ends_us = outer.began_us + outer.duration_us
            if outer.operator in WITH_GRAPHS and kernel.began_us + kernel.duration_us <= ends_us:
                break
            stack.pop()
        if stack:
            nested[stack[-1]] += kernel.duration_us
        stack.append(index)
    return GraphProfile(
        kernels=tuple(replace(kernel, inside_us=nested_us) for kernel, nested_us in zip(ordered, nested, strict=True)),
        runs_us=tuple(runs),
    )


def placement(kernels: Sequence[Kernel], requested: str, *, quantizes_activations: bool = False) -> dict[str, Json]:
    """Where the kernels ran; `requested` is the requested provider, `quantizes_activations` what the nodes' attributes
    say, which a profile lacks.

    nodes, nodes_by_provider        distinct kernels; a part compiled by a provider counts as one
    time_share_by_provider          shares of the kernels' time
    nodes_on_cpu_unasked            ran on the CPU provider although another was requested, without the next
    nodes_of_shapes_on_cpu          the same, but only for sizes and positions
    operators_on_cpu_unasked        operators of nodes_on_cpu_unasked, with their counts
    compute_types                   compute types of matrix products and convolutions, with their counts: a CPU without
                                    float16 kernels gets float32 ones with casts around them
    """
    products = {**QUANTIZED_PRODUCTS, **({"MatMulNBits": "int8"} if quantizes_activations else {})}
    distinct = {kernel.name: kernel for kernel in kernels}.values()
    fallbacks = [kernel for kernel in distinct if kernel.provider == CPU != requested]
    unasked = [kernel for kernel in fallbacks if not kernel.is_about_shapes]
    times_us: Counter[str] = Counter()
    for kernel in kernels:
        times_us[kernel.provider] += kernel.duration_us
    total_us = times_us.total()  # 0 if no time passed on the profile's clock, which counts microseconds
    shares: dict[str, Json] = {name: time_us / total_us for name, time_us in sorted(times_us.items()) if total_us}
    return {
        "nodes": len(distinct),
        "nodes_by_provider": _counted(kernel.provider for kernel in distinct),
        "time_share_by_provider": shares,
        "nodes_on_cpu_unasked": len(unasked),
        "nodes_of_shapes_on_cpu": len(fallbacks) - len(unasked),
        "operators_on_cpu_unasked": _counted(kernel.operator for kernel in unasked),
        "compute_types": _counted(
            products.get(kernel.operator) or kernel.input_types[0]
            for kernel in distinct
            if kernel.operator in products or (kernel.operator in PRODUCTS and kernel.input_types)
        ),
    }


def _typed(listed: Iterable[Mapping[str, Sequence[int]]]) -> tuple[tuple[str, int], ...]:
    return tuple((kind, len(shape)) for typed in listed for kind, shape in typed.items())


def _counted(names: Iterable[str]) -> dict[str, Json]:
    return dict(sorted(Counter(names).items()))
