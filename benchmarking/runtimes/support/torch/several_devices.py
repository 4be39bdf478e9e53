"""One model on several devices: a replica on each, which share the batch, or its layers spread over them.

replicas: every call splits the batch's rows over the replicas, starts all of them together and waits for all. Only
families whose rows do not depend on each other can be split so, and the outputs are put together again.
sharded: the layers lie on one device after the other (accelerate's device map) and a call goes through them in turn.

Threads that do one thing each, all at the same time, again and again: one for each replica of a model.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from statistics import fmean
from typing import Any

from benchmarking.core.contracts import TOKEN, Mark, Operation, Stage
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Cell, Json, Point, Precision, Readings
from benchmarking.devices.support.handles import SEPARATOR
from benchmarking.runtimes.support.placement import OPTION, REPLICAS, shares
from benchmarking.runtimes.support.torch import attention_kernels, model_loading
from benchmarking.runtimes.support.torch.session import Loaded, TorchOperation, TorchSession
from benchmarking.runtimes.support.torch.settings import memory_errors
from benchmarking.workloads.support.families import plugin_of

PER_CALL = "_per_call"


def load(cell: Cell, torch_names: str, stage: Stage) -> tuple[Any, int, dict[str, Json]]:
    """The model on the devices of a joined name ("cuda:0,cuda:1"), how many parameters it has, and what was read back.

    Of replicas the model is a ModuleList of them. Raises UnsupportedError when what runs is not what was asked for.
    """
    names = torch_names.split(SEPARATOR)
    attention = cell.runtime_mode.get("attention")
    implementation = attention_kernels.implementation_of(None if attention is None else str(attention))
    with stage("weights_read"):
        model, loaded = model_loading.load_model(cell.workload, cell.precision, implementation)
    if cell.workload.weights == "pretrained":
        model_loading.check_finite(model, cell.workload.model_id)
    count = model_loading.parameter_count(model)
    place = _replicated if cell.runtime_mode[OPTION] == REPLICAS else _sharded
    with stage("to_device"):
        model, placed = place(model, names, cell.precision, implementation)
    return model, count, {**placed, **loaded, OPTION: str(cell.runtime_mode[OPTION])}


def session(loaded: Loaded) -> TorchSession:
    """The session on what `load` gave."""
    if loaded.cell.runtime_mode[OPTION] == REPLICAS:
        return ReplicaSession(loaded)
    first = loaded.torch_name.split(SEPARATOR)[0]
    return TorchSession(dataclasses.replace(loaded, torch_name=first))


class ReplicaSession(TorchSession):
    """A replica of the model on each device."""

    def operation(self, point: Point) -> ReplicatedOperation:  # type: ignore[override]
        import torch

        workload, names = self._cell.workload, self._torch_name.split(SEPARATOR)
        plugin = plugin_of(workload)
        if (why_not := plugin.check(workload, point)) is not None:
            raise UsageError(why_not)
        prepared = self._processing.inputs(plugin, workload, point)
        operations, start = [], 0
        for replica, name, rows in zip(self.model, names, shares(point.batch_size, len(names)), strict=True):
            own = dataclasses.replace(point, batch_size=rows)
            with memory_errors(f"placing the inputs of {own.label} on {name}"):
                arrays = _rows(prepared.arrays, point.batch_size, slice(start, start + rows))
                inputs = {key: torch.from_numpy(array).to(name) for key, array in arrays.items()}
                inner = plugin.torch_operation(replica, workload, own, inputs, self._cell.runtime_mode)
            operations.append(TorchOperation(inner, own.label, attention=self.attention))
            start += rows
        return ReplicatedOperation(operations, names, prepared.readings)


class ReplicatedOperation(Operation):
    """A call split over replicas: all are started together, and the call ends with the last of them."""

    def __init__(
        self, operations: Sequence[TorchOperation], names: Sequence[str], preparation: Callable[[], Readings]
    ) -> None:
        self.items_per_call = sum(each.items_per_call for each in operations)
        self.tokens_per_call = _sum([each.tokens_per_call for each in operations])
        self.prompt_tokens_per_call = _sum([each.prompt_tokens_per_call for each in operations])
        self.new_tokens = operations[0].new_tokens
        self._operations = operations
        self._names = names
        self._preparation = preparation
        self._crew = Crew(len(operations))

    def reset(self) -> None:
        for each in self._operations:
            each.reset()

    def run(self, mark: Mark) -> list[Any]:
        """The replicas' outputs, in the order of the batch."""
        marks = JoinedMarks(mark, len(self._operations))
        return self._crew.run([self._task(index, marks) for index in range(len(self._operations))])

    def problem(self, output: list[Any]) -> str | None:
        found = (
            f"{name}: {problem}"
            for each, name, one in zip(self._operations, self._names, output, strict=True)
            if (problem := each.problem(one)) is not None
        )
        return next(found, None)

    def readings(self, output: list[Any]) -> Readings:
        told = [each.readings(one) for each, one in zip(self._operations, output, strict=True)]
        return self._preparation() | joined(told)

    def count(self) -> Readings:
        """Of all replicas together."""
        told = [each.count() for each in self._operations]
        return joined(told, add=lambda name: True)

    def arrays(self, output: list[Any]) -> dict[str, Any]:
        """The outputs put together again along the batch."""
        import numpy as np

        told = [each.arrays(one) for each, one in zip(self._operations, output, strict=True)]
        return {name: np.concatenate([one[name] for one in told]) for name in told[0]}

    def verified(self) -> Mapping[str, Json]:
        """What the first replica's call runs on, and which device has how much of the batch."""
        batch: list[Json] = [
            {"device": name, "batch_size": each.items_per_call}
            for name, each in zip(self._names, self._operations, strict=True)
        ]
        return {**self._operations[0].verified(), "batch_by_device": batch}

    def close(self) -> None:
        self._crew.close()

    def _task(self, index: int, marks: JoinedMarks) -> Callable[[], Any]:
        operation, mark = self._operations[index], marks.of(index)

        def task() -> Any:
            try:
                return operation.run(mark)
            except BaseException:
                marks.abort()
                raise

        return task


def joined(told: Sequence[Readings], add: Callable[[str], bool] = lambda name: name.endswith(PER_CALL)) -> Readings:
    """Replicas' numbers as one's: those of a call are added, of the others the mean is taken. What one does not tell is
    missing, with its reason."""
    missing = {name: why for one in told for name, why in one.missing.items()}
    values: dict[str, Json] = {}
    for name in told[0].values:
        numbers = [value for one in told if isinstance(value := one.values.get(name), int | float)]
        if len(numbers) == len(told):
            values[name] = sum(numbers) if add(name) else fmean(numbers)
    return Readings(values=values, missing={name: why for name, why in missing.items() if name not in values})


def _replicated(
    model: Any, names: Sequence[str], precision: Precision, implementation: str | None
) -> tuple[Any, dict[str, Json]]:
    """A ModuleList of the model on each device; the last one is the model itself, so that the host holds one copy."""
    import torch

    replicas = []
    for index, name in enumerate(names):
        with memory_errors(f"copying the model to {name}"):
            replica = model if index == len(names) - 1 else copy.deepcopy(model)
        replicas.append(model_loading.to_device(replica, name))
    verified = [
        model_loading.verify(one, precision, name, implementation) for one, name in zip(replicas, names, strict=True)
    ]
    return torch.nn.ModuleList(replicas), {
        **verified[0],
        "parameter_devices": sorted(set(names)),
        "replicas": len(names),
    }


def _sharded(
    model: Any, names: Sequence[str], precision: Precision, implementation: str | None
) -> tuple[Any, dict[str, Json]]:
    """The model with its layers on one device after the other, about as many bytes on each."""
    with memory_errors(f"spreading {model_loading.weights_bytes(model)} bytes of weights over {', '.join(names)}"):
        places = device_map(model, names)
        model = importlib.import_module("accelerate").dispatch_model(model, device_map=dict(places))
    verified = model_loading.verify(model, precision, SEPARATOR.join(names), implementation)
    return model, {**verified, "device_map": dict[str, Json](places)}


def device_map(model: Any, names: Sequence[str]) -> dict[str, str]:
    """Which device each part of the model goes to, by the parts' names, in order and about as many bytes on each.

    A part lies where its middle falls when all bytes are cut into even shares; one that shares parameters with an
    earlier part (a head tied to the embedding) goes where that one is. Raises UnsupportedError for a model that does
    not say which of its parts must stay whole, and when a device is left without one.
    """
    whole = frozenset(getattr(model, "_no_split_modules", None) or ())
    if not whole:
        raise UnsupportedError(f"{type(model).__name__} does not say where it may be cut: take --placement replicas")
    units = list(_units(model, whole))
    total = sum(model_loading.weights_bytes(unit) for _, unit in units)
    places: dict[str, str] = {}
    homes: dict[int, str] = {}
    used: set[str] = set()
    before = 0
    for part, unit in units:
        size = model_loading.weights_bytes(unit)
        even = names[min(int((before + size / 2) * len(names) / max(total, 1)), len(names) - 1)]
        shared = [homes[id(parameter)] for parameter in unit.parameters() if id(parameter) in homes]
        places[part] = shared[0] if shared else even
        homes |= {id(parameter): places[part] for parameter in unit.parameters()}
        before += size
        used |= {places[part]} if size else set()
    if unused := [name for name in names if name not in used]:
        raise UnsupportedError(
            f"the model is too small to be spread over {', '.join(names)}: nothing is left for {unused[0]}"
        )
    return places


def _units(module: Any, whole: frozenset[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The parts that stay whole, in order: those the model names, those with parameters of their own, and leaves."""
    for name, child in module.named_children():
        own = [*child.parameters(recurse=False), *child.buffers(recurse=False)]
        if type(child).__name__ in whole or own or not list(child.children()):
            yield prefix + name, child
        else:
            yield from _units(child, whole, f"{prefix}{name}.")


def _rows(arrays: Mapping[str, Any], batch_size: int, rows: slice) -> dict[str, Any]:
    """The rows of a share; what does not have the batch first is every replica's."""
    return {
        name: array[rows] if array.ndim and array.shape[0] == batch_size else array for name, array in arrays.items()
    }


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


Task = Callable[[], Any]


class Crew:
    """Waiting threads, one to a replica. Threads and not processes: the weights are loaded once, and what the lock of
    the interpreter costs them is part of what data parallelism in one process costs."""

    def __init__(self, size: int) -> None:
        self._tasks: list[SimpleQueue[Task | None]] = [SimpleQueue() for _ in range(size)]
        self._done: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
        for index in range(size):
            threading.Thread(target=self._work, args=(index,), name=f"replica-{index}", daemon=True).start()

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """What the tasks gave, in their order, once all are done. Raises what the first of them raised, but rather than
        that it was left waiting at a mark, what another one raised."""
        for queue, task in zip(self._tasks, tasks, strict=True):
            queue.put(task)
        ended = sorted((self._done.get() for _ in tasks), key=lambda one: one[0])
        errors = [error for _, _, error in ended if error is not None]
        if errors:
            raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
        return [result for _, result, _ in ended]

    def close(self) -> None:
        """End the threads."""
        for queue in self._tasks:
            queue.put(None)

    def _work(self, index: int) -> None:
        while (task := self._tasks[index].get()) is not None:
            try:
                self._done.put((index, task(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised again where `run` was called
                self._done.put((index, None, error))


class JoinedMarks:
    """The marks of replicas that run at the same time as those of one call: each counts when the last one has come to
    it. At the end of a phase the replicas wait for each other, since that mark waits for the devices; at a token they
    do not."""

    def __init__(self, mark: Mark, replicas: int) -> None:
        self._mark = mark
        self._replicas = replicas
        self._lock = threading.Lock()
        self._tokens = [0] * replicas
        self._reached = 0
        self._phase = ""
        self._barrier = threading.Barrier(replicas, action=self._end_phase)

    def of(self, replica: int) -> Mark:
        """The mark that a replica calls."""

        def mark(name: str) -> None:
            if name == TOKEN:
                self._token(replica)
            else:
                self._phase = name
                self._barrier.wait()

        return mark

    def abort(self) -> None:
        """Let nobody wait for a replica that will not come."""
        self._barrier.abort()

    def _token(self, replica: int) -> None:
        with self._lock:
            self._tokens[replica] += 1
            if min(self._tokens) > self._reached:
                self._reached += 1
                self._mark(TOKEN)

    def _end_phase(self) -> None:
        self._mark(self._phase)
