"""A bundle's graphs as OpenVINO's infer requests: one at a time, or several at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.graphs.bundle import Graph, State
from benchmarking.graphs.runner import GraphRunner, Placed
from benchmarking.records import Json

if TYPE_CHECKING:
    import numpy as np

Verify = Callable[[], Mapping[str, Json]]


class GraphRequest:
    """One infer request of a graph, with the tensors it was last given.

    A tensor that is given again is left where it is: setting one costs some microseconds, and the feeds of a forward
    pass never change.
    """

    def __init__(self, request: Any, graph: Graph) -> None:
        self.request = request
        self._set: dict[str, Placed] = {}
        states = {state.output for state in graph.states}
        self._outputs = tuple(tensor.name for tensor in graph.outputs if tensor.name not in states)
        self._states = _variables(request, graph)
        self._empty: dict[tuple[str, int], Any] = {}

    def bind(self, feeds: Mapping[str, Placed]) -> None:
        """Give the request its inputs."""
        bound = self._set
        for name, tensor in feeds.items():
            if bound.get(name) is not tensor:
                self.request.set_tensor(name, tensor)
                bound[name] = tensor

    def infer(self, feeds: Mapping[str, Placed]) -> dict[str, Placed]:
        """Run once and wait: the outputs by name, in the request's own memory until the next run.

        `share_outputs` keeps OpenVINO from copying every output to a new array.
        """
        self.bind(feeds)
        self.request.infer(share_outputs=True)
        return self.outputs()

    def outputs(self) -> dict[str, Placed]:
        """What the last run left in the request."""
        get = self.request.get_tensor
        return {name: get(name) for name in self._outputs}

    def begin(self, batch_size: int, first: Mapping[str, Placed]) -> None:
        """Set every state: to what is in `first` by the state's input, else to zeros or nothing.

        `reset_state` alone would leave a free batch dimension at 0, which is not the size of what comes in.
        """
        self.request.reset_state()
        for state, variable in self._states:
            given = first.get(state.input)
            variable.state = self._fresh(state, variable, batch_size) if given is None else given

    def _fresh(self, state: State, variable: Any, batch_size: int) -> Any:
        key = (state.input, batch_size)
        if key not in self._empty:
            self._empty[key] = _zeros(state, variable, batch_size)
        return self._empty[key]


class OpenVinoRunner(GraphRunner):
    """Graphs called one after the other, each in one request: the latency hint."""

    requests = 1
    """In flight at once."""

    def __init__(self, compiled: Mapping[str, Any], graphs: Mapping[str, Graph], verify: Verify) -> None:
        """`compiled` has the openvino.CompiledModel of each graph; `verify` is asked after the timed calls."""
        self._by_graph = {
            name: GraphRequest(model.create_infer_request(), graphs[name]) for name, model in compiled.items()
        }
        self._verify = verify
        self._last: GraphRequest | None = None

    def place(self, array: np.ndarray) -> Placed:
        import openvino

        return openvino.Tensor(array)  # a copy, so that the array may go

    def fetch(self, tensor: Placed) -> np.ndarray:
        array: np.ndarray = tensor.data
        return array

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        self._last = self._by_graph[graph]
        return self._last.infer(feeds)

    def begin(self, graph: str, batch_size: int, first: Mapping[str, Placed]) -> None:
        self._by_graph[graph].begin(batch_size, first)

    def step(self, graph: str, feeds: Mapping[str, Placed], states: None) -> tuple[Mapping[str, Placed], None]:
        return self._by_graph[graph].infer(feeds), None

    def request_latency_ms(self) -> float | None:
        """What OpenVINO says the last call of a graph without states took inside; None before there was one."""
        return None if self._last is None else float(self._last.request.latency)

    def verified(self) -> Mapping[str, Json]:
        return {**self._verify(), "requests": self.requests}


class ConcurrentRunner(GraphRunner):
    """The graph of a forward pass in several requests at once: the throughput hint. A call starts each of them and ends
    when the last is done."""

    def __init__(self, compiled: Any, graph: Graph, requests: int, verify: Verify) -> None:
        import openvino

        self.requests = requests
        self._queue = openvino.AsyncInferQueue(compiled, requests)
        self._by_number = [GraphRequest(self._queue[number], graph) for number in range(requests)]
        self._verify = verify

    def place(self, array: np.ndarray) -> Placed:
        import openvino

        return openvino.Tensor(array)

    def fetch(self, tensor: Placed) -> np.ndarray:
        array: np.ndarray = tensor.data
        return array

    def call(self, graph: str, feeds: Mapping[str, Placed]) -> Mapping[str, Placed]:
        for each in self._by_number:
            each.bind(feeds)
        start = self._queue.start_async
        for _ in self._by_number:
            start(share_inputs=True)
        self._queue.wait_all()
        return self._by_number[0].outputs()

    def begin(self, graph: str, batch_size: int, first: Mapping[str, Placed]) -> None:
        raise NotImplementedError("the throughput hint is for graphs without states")

    def step(self, graph: str, feeds: Mapping[str, Placed], states: None) -> tuple[Mapping[str, Placed], None]:
        raise NotImplementedError("the throughput hint is for graphs without states")

    def request_latency_ms(self) -> float | None:
        """What OpenVINO says a request of the last call took inside: the median of all of them."""
        from statistics import median

        return median(float(each.request.latency) for each in self._by_number)

    def verified(self) -> Mapping[str, Json]:
        """What the compiled model says, and whether all requests of the last call gave the same output."""
        import numpy as np

        first = self._by_number[0].outputs()
        same = all(
            np.array_equal(tensor.data, first[name].data)
            for each in self._by_number[1:]
            for name, tensor in each.outputs().items()
        )
        return {**self._verify(), "requests": self.requests, "requests_agree": same}


def _variables(request: Any, graph: Graph) -> tuple[tuple[State, Any], ...]:
    """Each state with the request's variable of it, whose name is the state's input and output together."""
    by_name = {variable.name: variable for variable in request.query_state()}
    return tuple((state, by_name[state.input + state.output]) for state in graph.states)


def _zeros(state: State, variable: Any, batch_size: int) -> Any:
    """A state before the first call: batch sizes filled in, in the variable's type."""
    import numpy as np
    import openvino

    shape = [batch_size if size == "batch" else int(size) for size in state.first]
    return openvino.Tensor(np.zeros(shape, dtype=variable.state.element_type.to_dtype()))
