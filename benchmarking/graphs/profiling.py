"""Profiles of exported graphs: node times from a runtime's own profiler, and the model's modules that the nodes came
from.

An export records in each node the modules in which it was traced. A runtime fuses nodes and names the result after one
of them ("node_linear_3/MatMulAddFusion/"), so an executed node belongs to the longest node name in the file that is a
prefix of its own. A node without module information, such as one made by an optimisation of the export, belongs to the
modules that use its results. Unmatched nodes count as outside modules, and `matched_share` is the matched part.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import onnx
from benchmarking.core.profiles import (
    OTHER,
    OUTSIDE,
    Breakdown,
    ModuleInfo,
    ModuleTime,
    ModuleTraits,
    OperatorTime,
    classify_modules,
)
from benchmarking.core.records import NOT_SUPPORTED
from benchmarking.workloads.support.graph_contents import all_nodes

SCOPES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
"""Metadata keys of a node: paths and classes of the modules around it, the node's own module last."""
KEPT_METADATA = (SCOPES, CLASSES)
NO_SCOPE = "_empty"
"""Prefix of torch's scope name for a node outside modules."""
WRAPPED = "model"
"""Name of the model inside the wrapper module of the export."""
PRODUCTS = ("MatMul", "Gemm", "Conv")
"""Operators that show that their module has weights, unless they are an attention's own product."""

Node = tuple[str, str]
"""A graph of the model and the name of a node in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTime:
    graph: str
    """The graph that contains it, since node names are unique only within a graph."""
    name: str
    operator: str
    placed: str
    module: str | None = None
    """Its module, if the runtime reports it other than by the name."""
    ms: float
    """Time without the nodes of its subgraphs."""
    inside_ms: float = 0.0
    """Time of the nodes of its subgraphs."""
    device_ms: float | None = None
    """Time of what it launched on an accelerator, without the nodes of its subgraphs; None if that is unknown."""
    launches: int = 0
    """Number of kernels and copies that it launched."""

    @property
    def key(self) -> Node:
        return self.graph, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """The modules from which the nodes in a bundle's files came."""

    modules: Mapping[Node, str]
    """Module paths by node."""
    module_infos: Mapping[str, ModuleInfo]
    """Kinds and layers of the modules, by path in the model's order."""
    tensors: Mapping[Node, str] = field(default_factory=dict)
    """Module paths by graph and tensor name, from the node that makes the tensor."""

    @classmethod
    def of(cls, files: Mapping[str, Path]) -> Origins:
        """Read from the ONNX file of each graph; empty for files without the metadata."""
        modules: dict[Node, str] = {}
        tensors: dict[Node, str] = {}
        traits: dict[str, ModuleTraits] = {}
        graphs = {name: onnx.load(str(path), load_external_data=False).graph for name, path in files.items()}
        nodes = {(name, node.name): node for name, graph in graphs.items() for node in all_nodes(graph)}
        scoped = {key: (node.op_type, scope) for key, node in nodes.items() if (scope := _enclosing_modules(node))}
        tops = {path.partition(".")[0] for _, scope in scoped.values() for path, _ in scope if path}
        wrapper = f"{WRAPPED}." if tops == {WRAPPED} else ""  # the export's, if all paths begin with it
        for key, (operator, scope) in scoped.items():
            for path, class_name in scope:
                name = class_name.rpartition(".")[2]
                # The model itself has its class as its name, as in torch profiles.
                inner = name if wrapper == f"{path}." else path.removeprefix(wrapper)
                previous = traits.get(inner)
                traits[inner] = ModuleTraits(
                    class_name=name,
                    is_lookup=class_name.endswith(".Embedding"),
                    is_convolution=name in ("Conv1d", "Conv2d", "Conv3d"),
                    is_activation="activation" in class_name,
                    has_weights=operator in PRODUCTS or (previous is not None and previous.has_weights),
                )
                modules[key] = inner
        for name, graph in graphs.items() if modules else ():
            known: dict[str, str] = {}
            for node in (node for node in graph.node if node.name):
                if (name, node.name) in modules:
                    known[node.name] = modules[name, node.name]
                elif SCOPES in {entry.key for entry in node.metadata_props}:  # else it may be anywhere
                    known[node.name] = OUTSIDE
            inferred = infer_modules(_producers(graph), known, traits)
            modules |= {(name, node): module for node, module in inferred.items()}
            tensors |= {
                (name, tensor): inferred[node.name]
                for node in graph.node
                if node.name in inferred
                for tensor in node.output
            }
        return cls(modules=modules, module_infos=classify_modules(traits), tensors=tensors)

    def module(self, graph: str, node: str) -> str:
        """The module of an executed node, by the longest known prefix of its name; `OUTSIDE` if there is none."""
        name = node
        while name and (graph, name) not in self.modules:
            name = name[: max(name.rfind("/"), name.rfind("_"), 0)]
        return self.modules.get((graph, name), OUTSIDE)

    def optimised(self, files: Mapping[str, Path]) -> Origins:
        """Extended by the nodes of a runtime's optimised graphs: a node has the module of the tensor that it makes,
        whose name is unchanged, else of the node that it is named after, else of its neighbours."""
        modules = dict(self.modules)
        for name, path in files.items():
            graph = onnx.load(str(path), load_external_data=False).graph
            known: dict[str, str] = {}
            for node in graph.node:
                candidates = [self.tensors[name, tensor] for tensor in node.output if (name, tensor) in self.tensors]
                candidates += [module for module in (self.module(name, node.name),) if module != OUTSIDE]
                if candidates and node.name:
                    known[node.name] = candidates[0]
            modules |= {
                (name, node): tensor
                for node, tensor in infer_modules(_producers(graph), known, self.module_infos).items()
            }
        return replace(self, modules=modules)


def infer_modules(
    producers: Mapping[str, Sequence[str]], known: Mapping[str, str], paths: Collection[str]
) -> dict[str, str]:
    """The modules of all nodes, including those not in `known`: the innermost of the `paths` around all nodes that use
    a node's results, else around all of its inputs. `producers` holds the nodes in execution order, each with the nodes
    whose results it uses. Nodes without known neighbours are left out."""
    modules = dict(known)
    consumers: dict[str, list[str]] = defaultdict(list)
    for node, sources in producers.items():
        for source in sources:
            consumers[source].append(node)
    for neighbours, order in ((consumers, reversed(list(producers))), (producers, producers)):
        for node in order:
            known_neighbours = [modules[neighbour] for neighbour in neighbours.get(node, ()) if neighbour in modules]
            if node not in modules and known_neighbours:
                first, *others = map(_enclosing_paths, dict.fromkeys(known_neighbours))
                around_all = (path for path in first if path in paths and all(path in other for other in others))
                modules[node] = next(around_all, OUTSIDE)
    return modules


def breakdown(
    calls: Sequence[Sequence[NodeTime]], call_ms: Sequence[float], origins: Origins, *, has_samples: bool = True
) -> Breakdown:
    """Means over calls. `call_ms` are the calls' times; the part that no node took is outside of operators. Without
    samples, `calls` is only the mean call, for a profiler that reports only means."""
    host_ms = sum(call_ms) / len(call_ms)
    module_of_node = {
        node.key: origins.module(*node.key) if node.module is None else node.module for call in calls for node in call
    }
    on_device = any(node.device_ms is not None for call in calls for node in call)
    executions: dict[tuple[str, str, str], list[NodeTime]] = defaultdict(list)
    for call in calls:
        for node in call:
            executions[module_of_node[node.key], node.operator, node.placed].append(node)
    times = [
        OperatorTime(
            module=module,
            operator=operator,
            kind=_info(origins, module).kind,
            layer=_info(origins, module).layer,
            placed=provider,
            calls=len(nodes) / len(calls),
            exclusive_ms=sum(node.ms for node in nodes) / len(calls),
            inclusive_ms=sum(node.ms + node.inside_ms for node in nodes) / len(calls),
            device_ms=sum(node.device_ms or 0.0 for node in nodes) / len(calls) if on_device else None,
        )
        for (module, operator, provider), nodes in executions.items()
    ]
    operators = tuple(sorted(times, key=lambda time: (-time.exclusive_ms, time.module, time.operator)))
    in_nodes = sum(time.exclusive_ms for time in operators)
    outside_ms = max(host_ms - in_nodes, 0.0)
    matched = sum(time.exclusive_ms for time in operators if time.module != OUTSIDE)
    metrics = {"operator_calls": sum(map(len, calls)) / len(calls), "outside_operators_ms": outside_ms}
    if on_device:
        metrics["kernel_launches"] = sum(node.launches for call in calls for node in call) / len(calls)
    names = ("allocations", "allocated_bytes", "peak_bytes", "flops", "bytes_accessed", "kernel_launches")
    why_not = f"{NOT_SUPPORTED}: the profiler reports only node times"
    return Breakdown(
        host_ms=max(host_ms, in_nodes),
        modules=_modules(calls, module_of_node, origins, outside_ms, on_device=on_device, has_samples=has_samples),
        operators=operators,
        metrics=metrics,
        missing={name: why_not for name in names if name not in metrics},
        details={"matched_share": matched / in_nodes} if in_nodes else {},
    )


def _modules(
    calls: Sequence[Sequence[NodeTime]],
    module_of_node: Mapping[Node, str],
    origins: Origins,
    outside_ms: float,
    *,
    on_device: bool,
    has_samples: bool,
) -> tuple[ModuleTime, ...]:
    """Modules with nodes in them, in model order. Graphs do not record how often a module was called, so the number is
    the maximum over its nodes."""
    exclusive: dict[str, float] = defaultdict(float)
    inclusive: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(calls))
    device_exclusive: dict[str, float] = defaultdict(float)
    device_inclusive: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(calls))
    runs: dict[str, dict[Node, int]] = defaultdict(lambda: defaultdict(int))
    for number, call in enumerate(calls):
        for node in call:
            module = module_of_node[node.key]
            exclusive[module] += node.ms / len(calls)
            device_exclusive[module] += (node.device_ms or 0.0) / len(calls)
            for enclosing in _enclosing_paths(module):
                inclusive[enclosing][number] += node.ms
                device_inclusive[enclosing][number] += node.device_ms or 0.0
                runs[enclosing][node.key] += 1
    exclusive[OUTSIDE] += outside_ms
    order = [*(path for path in origins.module_infos if path in inclusive and path != OUTSIDE), OUTSIDE]
    return tuple(
        ModuleTime(
            module=path,
            class_name=_info(origins, path).class_name or None,
            kind=_info(origins, path).kind,
            layer=_info(origins, path).layer,
            calls=max(runs[path].values(), default=len(calls)) / len(calls),
            inclusive_ms=sum(inclusive[path]) / len(calls) + (outside_ms if path == OUTSIDE else 0.0),
            exclusive_ms=exclusive[path],
            outside_operators_ms=outside_ms if path == OUTSIDE else 0.0,
            device_inclusive_ms=sum(device_inclusive[path]) / len(calls) if on_device else None,
            device_exclusive_ms=device_exclusive[path] if on_device else None,
            inclusive_samples_ms=tuple((device_inclusive if on_device else inclusive)[path]) if has_samples else (),
        )
        for path in order
    )


def _producers(graph: Any) -> dict[str, list[str]]:
    """The nodes of a graph in order, each with the nodes whose results it uses."""
    named = [node for node in graph.node if node.name]
    producer_of = {output: node.name for node in named for output in node.output}
    return {node.name: [producer_of[tensor] for tensor in node.input if tensor in producer_of] for node in named}


def _enclosing_modules(node: Any) -> list[tuple[str, str]]:
    """Paths and classes of the modules around a node, outermost first; empty if the file does not record them."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    try:
        scopes, classes = (ast.literal_eval(metadata.get(key, "")) for key in KEPT_METADATA)
    except (ValueError, SyntaxError):
        return []
    if not isinstance(scopes, list) or not isinstance(classes, list) or len(scopes) != len(classes):
        return []
    pairs = [(str(path), str(name)) for path, name in zip(scopes, classes, strict=True)][:-1]
    return [(path, name) for path, name in pairs if not path.startswith(NO_SCOPE)]


def _info(origins: Origins, path: str) -> ModuleInfo:
    info = origins.module_infos.get(path) if path != OUTSIDE else None
    return info or ModuleInfo(path=path, class_name="", kind=OTHER, layer=None)


def _enclosing_paths(path: str) -> list[str]:
    """A path and its parents, ending with `OUTSIDE`, the call."""
    parts = path.split(".") if path else []
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]
