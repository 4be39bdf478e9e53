"""Profiles of exported graphs: the times of nodes as a runtime's own profiler tells them, and the modules of the model
that the nodes came from.

An export keeps in each node which modules of the model it was traced in. A runtime fuses nodes and names the result
after one of them ("node_linear_3/MatMulAddFusion/"), so a node that runs belongs to the longest name of the file that
its own begins with. A node that says nothing of modules, as one that an optimisation of the export made, belongs where
its results are used. What cannot be matched counts as in no module, and `matched_share` says how much could.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarking.core.profiles import OTHER, OUTSIDE, Breakdown, ModuleTime, OperatorTime
from benchmarking.core.records import NOT_SUPPORTED
from benchmarking.runtimes.support.module_kinds import Described, Place, places

SCOPES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
"""Keys of a node's metadata: the paths, and the classes, of the modules around it; the last of each is the node's."""
KEPT_METADATA = (SCOPES, CLASSES)
NO_SCOPE = "_empty"
"""Begins the name that torch gives the scope of a node of no module."""
WRAPPED = "model"
"""Name of the model in the module that it is exported in."""
PRODUCTS = ("MatMul", "Gemm", "Conv")
"""Operators whose module has weights, unless it is an attention's product of its own."""


Node = tuple[str, str]
"""A graph of the model, and the name of a node in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTime:
    """One execution of a node."""

    graph: str
    """Which of the model's graphs it is in: names of nodes are each graph's own."""
    name: str
    operator: str
    placed: str
    module: str | None = None
    """Its module, where the runtime tells it otherwise than by the name."""
    ms: float
    """Without the nodes of graphs inside it."""
    inside_ms: float = 0.0
    """Of those."""

    @property
    def key(self) -> Node:
        """The node."""
        return self.graph, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """The modules that the nodes of a bundle's files came from."""

    modules: Mapping[Node, str]
    """Node -> path of its module."""
    places: Mapping[str, Place]
    tensors: Mapping[Node, str] = field(default_factory=dict)
    """Graph and name of a tensor -> path of the module of the node that makes it."""

    @classmethod
    def of(cls, files: Mapping[str, Path]) -> Origins:
        """Read from the ONNX file of each graph; empty for those without the metadata."""
        import onnx

        modules: dict[Node, str] = {}
        tensors: dict[Node, str] = {}
        described: dict[str, Described] = {}
        graphs = {name: onnx.load(str(path), load_external_data=False).graph for name, path in files.items()}
        nodes = {(name, node.name): node for name, graph in graphs.items() for node in _nodes(graph)}
        scoped = {key: (node.op_type, around) for key, node in nodes.items() if (around := _around(node))}
        wrapper = _wrapper(path for _, around in scoped.values() for path, _ in around)
        for key, (operator, around) in scoped.items():
            inner = [(_unwrapped(path, class_name, wrapper), class_name) for path, class_name in around]
            modules[key] = inner[-1][0]
            for path, class_name in inner:
                _describe(described, path, class_name, has_weights=operator in PRODUCTS)
        for name, graph in graphs.items() if modules else ():
            known = {node.name: modules.get((name, node.name), _unscoped(node)) for node in graph.node if node.name}
            told = {node: module for node, module in known.items() if module is not None}
            found = filled(_producers(graph), told, described)
            modules |= {(name, node): module for node, module in found.items()}
            tensors |= {
                (name, one): found[node.name] for node in graph.node if node.name in found for one in node.output
            }
        return cls(modules=modules, places=places(described), tensors=tensors)

    def module(self, graph: str, node: str) -> str:
        """The module of a node that ran, by the longest name that its own begins with; `OUTSIDE` if there is none."""
        name = node
        while name and (graph, name) not in self.modules:
            name = name[: max(name.rfind("/"), name.rfind("_"), 0)]
        return self.modules.get((graph, name), OUTSIDE)

    def optimised(self, files: Mapping[str, Path]) -> Origins:
        """With the nodes of the graphs that a runtime made of these: a node has the module of the tensor that it makes,
        which keeps its name, else of the node that it is named after, else of its neighbours."""
        import onnx

        modules = dict(self.modules)
        for name, path in files.items():
            graph = onnx.load(str(path), load_external_data=False).graph
            known: dict[str, str] = {}
            for node in graph.node:
                told = [self.tensors[name, one] for one in node.output if (name, one) in self.tensors]
                told += [module for module in (self.module(name, node.name),) if module != OUTSIDE]
                if told and node.name:
                    known[node.name] = told[0]
            modules |= {(name, node): one for node, one in filled(_producers(graph), known, self.places).items()}
        return replace(self, modules=modules)


def filled(producers: Mapping[str, Sequence[str]], known: Mapping[str, str], paths: Collection[str]) -> dict[str, str]:
    """The modules of nodes, also of those that are not `known`: of the `paths` the innermost around all that take a
    node's results, else around all that it is made of. `producers` has the nodes in the order they run in, each with
    those it takes from; a node with neither kind of neighbour that is known stays out."""
    found = dict(known)
    takers: dict[str, list[str]] = defaultdict(list)
    for node, sources in producers.items():
        for source in sources:
            takers[source].append(node)
    for neighbours, order in ((takers, reversed(list(producers))), (producers, producers)):
        for node in order:
            around = [found[one] for one in neighbours.get(node, ()) if one in found]
            if node not in found and around:
                found[node] = _common(around, paths)
    return found


def _common(inside: Sequence[str], paths: Collection[str]) -> str:
    """The innermost of the paths around all of these; `OUTSIDE` for none."""
    first, *others = map(_outwards, dict.fromkeys(inside))
    return next(path for path in first if path == OUTSIDE or (path in paths and all(path in one for one in others)))


def breakdown(
    calls: Sequence[Sequence[NodeTime]], call_ms: Sequence[float], origins: Origins, *, has_samples: bool = True
) -> Breakdown:
    """The means over calls. `call_ms` are the calls' times; what no node took of them is outside of operators. Without
    samples `calls` is the mean call alone, as of a profiler that only tells means."""
    host_ms = sum(call_ms) / len(call_ms)
    placed = {
        node.key: origins.module(*node.key) if node.module is None else node.module for call in calls for node in call
    }
    operators = _operators(calls, placed, origins)
    in_nodes = sum(one.exclusive_ms for one in operators)
    outside_ms = max(host_ms - in_nodes, 0.0)
    matched = sum(one.exclusive_ms for one in operators if one.module != OUTSIDE)
    names = ("allocations", "allocated_bytes", "peak_bytes", "flops", "bytes_accessed", "kernel_launches")
    return Breakdown(
        host_ms=max(host_ms, in_nodes),
        modules=_modules(calls, placed, origins, outside_ms, has_samples=has_samples),
        operators=operators,
        metrics={"operator_calls": sum(map(len, calls)) / len(calls), "outside_operators_ms": outside_ms},
        missing=dict.fromkeys(names, f"{NOT_SUPPORTED}: the profiler tells the times of nodes only"),
        details={"matched_share": matched / in_nodes if in_nodes else 0.0},
    )


def _operators(
    calls: Sequence[Sequence[NodeTime]], placed: Mapping[Node, str], origins: Origins
) -> tuple[OperatorTime, ...]:
    spent: dict[tuple[str, str, str], list[NodeTime]] = defaultdict(list)
    for call in calls:
        for node in call:
            spent[placed[node.key], node.operator, node.placed].append(node)
    found = [
        OperatorTime(
            module=module,
            operator=operator,
            kind=_place(origins, module).kind,
            layer=_place(origins, module).layer,
            placed=where,
            calls=len(nodes) / len(calls),
            exclusive_ms=sum(node.ms for node in nodes) / len(calls),
            inclusive_ms=sum(node.ms + node.inside_ms for node in nodes) / len(calls),
        )
        for (module, operator, where), nodes in spent.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.exclusive_ms, one.module, one.operator)))


def _modules(
    calls: Sequence[Sequence[NodeTime]],
    placed: Mapping[Node, str],
    origins: Origins,
    outside_ms: float,
    *,
    has_samples: bool,
) -> tuple[ModuleTime, ...]:
    """Modules with nodes in them, in the order of the model. How often one was called a graph does not tell: it is the
    most that one of its nodes ran."""
    own: dict[str, float] = defaultdict(float)
    inclusive: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(calls))
    runs: dict[str, dict[Node, int]] = defaultdict(lambda: defaultdict(int))
    for number, call in enumerate(calls):
        for node in call:
            module = placed[node.key]
            own[module] += node.ms / len(calls)
            for around in _outwards(module):
                inclusive[around][number] += node.ms
                runs[around][node.key] += 1
    own[OUTSIDE] += outside_ms
    order = [*(path for path in origins.places if path in inclusive and path != OUTSIDE), OUTSIDE]
    return tuple(
        ModuleTime(
            module=path,
            class_name=_place(origins, path).class_name or None,
            kind=_place(origins, path).kind,
            layer=_place(origins, path).layer,
            calls=max(runs[path].values(), default=len(calls)) / len(calls),
            inclusive_ms=sum(inclusive[path]) / len(calls) + (outside_ms if path == OUTSIDE else 0.0),
            exclusive_ms=own[path],
            outside_operators_ms=outside_ms if path == OUTSIDE else 0.0,
            inclusive_samples_ms=tuple(inclusive[path]) if has_samples else (),
        )
        for path in order
    )


def _nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph, and those of the graphs inside them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _nodes(inner)


def _producers(graph: Any) -> dict[str, list[str]]:
    """The nodes of a graph in order, each with those whose results it takes."""
    named = [node for node in graph.node if node.name]
    made = {output: node.name for node in named for output in node.output}
    return {node.name: [made[one] for one in node.input if one in made] for node in named}


def _unscoped(node: Any) -> str | None:
    """`OUTSIDE` for a node that is known to be of no module; None for one that says nothing of modules."""
    return OUTSIDE if any(entry.key == SCOPES for entry in node.metadata_props) else None


def _around(node: Any) -> list[tuple[str, str]]:
    """Paths and classes of the modules around a node, the outermost first; empty where the file does not tell."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    scopes, classes = (_listed(metadata.get(key)) for key in KEPT_METADATA)
    if len(scopes) != len(classes):
        return []
    pairs = list(zip(scopes, classes, strict=True))[:-1]
    return [(path, name) for path, name in pairs if not path.startswith(NO_SCOPE)]


def _wrapper(paths: Iterable[str]) -> str:
    """The prefix of the module that exporting wraps the model in, if all paths begin with it."""
    firsts = {path.partition(".")[0] for path in paths if path}
    return f"{WRAPPED}." if firsts == {WRAPPED} else ""


def _unwrapped(path: str, class_name: str, wrapper: str) -> str:
    """A path without the wrapper; the model itself has the name of its class, as in profiles of torch."""
    return class_name.rpartition(".")[2] if wrapper == f"{path}." else path.removeprefix(wrapper)


def _describe(described: dict[str, Described], path: str, class_name: str, *, has_weights: bool) -> None:
    before = described.get(path)
    described[path] = Described(
        class_name=class_name.rpartition(".")[2],
        is_lookup=class_name.endswith(".Embedding"),
        is_convolution=class_name.rpartition(".")[2] in ("Conv1d", "Conv2d", "Conv3d"),
        is_activation="activation" in class_name,
        has_weights=has_weights or (before is not None and before.has_weights),
    )


def _place(origins: Origins, path: str) -> Place:
    place = origins.places.get(path) if path != OUTSIDE else None
    return place or Place(path=path, class_name="", kind=OTHER, layer=None)


def _outwards(path: str) -> list[str]:
    """A path and those around it, down to `OUTSIDE`, the call."""
    parts = path.split(".") if path else []
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _listed(text: str | None) -> list[str]:
    """The names in a list that was written as Python writes it; empty for anything else."""
    try:
        value = ast.literal_eval(text or "")
    except (ValueError, SyntaxError):
        return []
    return [str(one) for one in value] if isinstance(value, list) else []
