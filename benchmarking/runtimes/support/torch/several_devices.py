"""One model on several devices: the option `placement`, its limits, and the calls.

replicas: a call splits the batch's rows over the replicas, runs them in parallel, one thread per replica, and joins the
outputs. This requires a family with independent rows. sharded: consecutive layers are on consecutive devices
(accelerate's device map), and a call passes through them in turn."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from benchmarking.core.contracts import TOKEN, Mark, Operation, Option, Stage
from benchmarking.core.errors import UnsupportedError, memory_errors
from benchmarking.core.lazy_modules import np, torch
from benchmarking.core.plugins import is_installed
from benchmarking.core.records import Cell, Device, Json, Point, Precision, Readings, Workload
from benchmarking.devices.support.handles import SEPARATOR, combine_readings, parts
from benchmarking.devices.support.torch_gpu import current_gpu
from benchmarking.runtimes.support.torch import model_loading
from benchmarking.runtimes.support.torch.torch_session import TorchOperation, TorchSession
from benchmarking.runtimes.support.torch.torch_settings import attention_of, implementation_of
from benchmarking.runtimes.support.worker_threads import WorkerThreads
from benchmarking.workloads.support.families import family_named, plugin_of

OPTION = "placement"
REPLICAS, SHARDED = "replicas", "sharded"
PLACEMENT = Option(
    OPTION,
    "one model on several devices: replicas that split the batch, or layers spread over the devices",
    values=(REPLICAS, SHARDED),
)
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bfloat16", "float16")


def why_not(device: Device, workload: Workload, precision: Precision) -> str | None:
    """None, or why a workload cannot run on several devices at a precision."""
    if len(parts(device)) < 2:
        return None
    if precision not in PRECISIONS:
        return f"several devices support {', '.join(PRECISIONS)}, not {precision}"
    return None if workload.family is not None else "a model of an unknown family cannot be placed on several devices"


def check(placement: object, workload: Workload) -> None:
    """Raise UnsupportedError if a placement is not possible for a workload; None means no placement."""
    if placement == SHARDED and not is_installed("accelerate"):
        raise UnsupportedError("placement sharded needs accelerate: pip install accelerate")
    family = family_named(workload.family)
    if placement == REPLICAS and (family is None or not family.can_split_batch):
        raise UnsupportedError(
            f"placement replicas splits the batch, but the rows of {workload.family} depend on each other: "
            "use --placement sharded, or one device"
        )


def why_not_point(cell: Cell, point: Point) -> str | None:
    """None, or why a point cannot be split."""
    count = len(parts(cell.device))
    if cell.runtime_mode.get(OPTION) != REPLICAS or point.batch_size >= count:
        return None
    return (
        f"cannot split a batch of {point.batch_size} over {count} devices: "
        f"use --batch-sizes of {count} or more, or --placement sharded"
    )


def weight_copies(cell: Cell) -> int:
    """Number of copies of the weights in the devices' memory."""
    return len(parts(cell.device)) if cell.runtime_mode.get(OPTION) == REPLICAS else 1


def split_batch(batch_size: int, count: int) -> list[int]:
    """Number of the batch's rows for each of `count` devices, as even as possible, larger shares first."""
    return [batch_size // count + (index < batch_size % count) for index in range(count)]


def load(cell: Cell, torch_names: str, stage: Stage) -> tuple[Any, int, dict[str, Json]]:
    """The model on the devices of a joined name ("cuda:0,cuda:1"), its number of parameters, and verified facts.

    Replicas are a ModuleList. Raises UnsupportedError if the result differs from the request.
    """
    names, family = torch_names.split(SEPARATOR), plugin_of(cell.workload)
    is_given = cell.workload.weights == "given"
    implementation = implementation_of(attention_of(cell.runtime_mode))
    with stage("weights_read"):
        model, loaded = model_loading.load_model(cell.workload, cell.precision, implementation)
    if cell.workload.weights == "pretrained":
        model_loading.check_finite(model, cell.workload.model_id)
    count = model_loading.parameter_count(model)
    with stage("to_device"):
        if cell.runtime_mode[OPTION] == REPLICAS:
            # The last replica is the model itself, so no copy stays on the host.
            replicas = []
            for index, name in enumerate(names):
                with memory_errors(f"copying the model to {name}"):
                    replica = model if index == len(names) - 1 else copy.deepcopy(model)
                replicas.append(model_loading.to_device(replica, name))
            verified = [
                model_loading.verify(one, cell.precision, name, implementation, has_own_types=is_given)
                for one, name in zip(replicas, names, strict=True)
            ]
            model = torch.nn.ModuleList(replicas)
            placed_facts = {
                **verified[0],
                **family.verified(replicas[0]),
                "parameter_devices": sorted(set(names)),
                "replicas": len(names),
            }
        else:  # consecutive layers on consecutive devices, with about equal bytes on each
            with memory_errors(
                f"spreading {model_loading.weights_bytes(model)} bytes of weights over {', '.join(names)}"
            ):
                places = device_map(model, names)
                model = importlib.import_module("accelerate").dispatch_model(model, device_map=dict(places))
            placed_facts = model_loading.verify(
                model, cell.precision, torch_names, implementation, has_own_types=is_given
            )
            placed_facts |= {**family.verified(model), "device_map": dict[str, Json](places)}
    return model, count, {**placed_facts, **loaded, OPTION: str(cell.runtime_mode[OPTION])}


class ReplicaSession(TorchSession):
    """A session with a replica of the model on each device."""

    def operation(self, point: Point) -> ReplicatedOperation:  # type: ignore[override]
        names = self._torch_name.split(SEPARATOR)
        plugin, prepared = self.prepared(point)
        operations, start = [], 0
        for replica, name, rows in zip(self.model, names, split_batch(point.batch_size, len(names)), strict=True):
            replica_point = dataclasses.replace(point, batch_size=rows)
            # Arrays whose first dimension is not the batch go to every replica.
            arrays = {
                key: array[start : start + rows] if array.ndim and array.shape[0] == point.batch_size else array
                for key, array in prepared.arrays.items()
            }
            inner = self.family_operation(plugin, replica, replica_point, arrays, name)
            operations.append(TorchOperation(inner, replica_point.label, attention=self.attention))
            start += rows
        return ReplicatedOperation(operations, names, prepared.readings)


class ReplicatedOperation(Operation):
    """A call split over replicas that start together; it ends when the last one ends."""

    def __init__(
        self, operations: Sequence[TorchOperation], names: Sequence[str], preparation: Callable[[], Readings]
    ) -> None:
        self.items_per_call = sum(operation.items_per_call for operation in operations)
        self.tokens_per_call = _sum([operation.tokens_per_call for operation in operations])
        self.prompt_tokens_per_call = _sum([operation.prompt_tokens_per_call for operation in operations])
        self.new_tokens = operations[0].new_tokens
        self.streams = operations[0].streams
        self._operations = operations
        self._names = names
        self._preparation = preparation
        self._threads = WorkerThreads(len(operations))

    def reset(self) -> None:
        for operation in self._operations:
            operation.reset()

    def run(self, mark: Mark) -> list[Any]:
        """The replicas' outputs, in batch order."""
        marks = JoinedMarks(mark, len(self._operations))

        def call(index: int) -> Any:
            try:
                with current_gpu(torch, self._names[index]):  # otherwise the thread's current device is the first
                    return self._operations[index].run(marks.of(index))
            except BaseException:
                marks.abort()
                raise

        return self._threads.run([partial(call, index) for index in range(len(self._operations))])

    def problem(self, output: list[Any]) -> str | None:
        problems = (
            f"{name}: {problem}"
            for each, name, one in zip(self._operations, self._names, output, strict=True)
            if (problem := each.problem(one)) is not None
        )
        return next(problems, None)

    def readings(self, output: list[Any]) -> Readings:
        readings = [each.readings(one) for each, one in zip(self._operations, output, strict=True)]
        return self._preparation() | merge_readings(readings)

    def count(self) -> Readings:
        """The sums over all replicas."""
        return merge_readings([operation.count() for operation in self._operations], add=lambda name: True)

    def arrays(self, output: list[Any]) -> dict[str, Any]:
        """The outputs joined along the batch."""
        arrays = [each.arrays(one) for each, one in zip(self._operations, output, strict=True)]
        return {name: np.concatenate([array[name] for array in arrays]) for name in arrays[0]}

    def verified(self) -> Mapping[str, Json]:
        """The facts of the first replica, and each device's share of the batch."""
        batch: list[Json] = [
            {"device": name, "batch_size": each.items_per_call}
            for name, each in zip(self._names, self._operations, strict=True)
        ]
        return {**self._operations[0].verified(), "batch_by_device": batch}

    def close(self) -> None:
        self._threads.close()


def merge_readings(
    readings: Sequence[Readings], add: Callable[[str], bool] = lambda name: name.endswith("_per_call")
) -> Readings:
    """The combined readings of all replicas: those per call are added, others averaged. A reading that one replica
    lacks is missing, with its reason."""
    return combine_readings(readings, {name: sum if add(name) else fmean for name in readings[0].values})


def device_map(model: Any, names: Sequence[str]) -> dict[str, str]:
    """Devices by name of the model's part, in order, with about equal bytes on each.

    A part goes to the device whose even share of all bytes contains the part's middle. A part that shares parameters
    with an earlier part (a head tied to the embedding) goes to that part's device. Raises UnsupportedError if the model
    does not declare which parts must stay whole, or if a device gets no part."""
    unsplittable = frozenset(getattr(model, "_no_split_modules", None) or ())
    if not unsplittable:
        raise UnsupportedError(
            f"{type(model).__name__} does not declare where it can be split: use --placement replicas"
        )
    units = list(_units(model, unsplittable))
    total = sum(model_loading.weights_bytes(unit) for _, unit in units)
    places: dict[str, str] = {}
    device_of_parameter: dict[int, str] = {}
    used: set[str] = set()
    assigned_bytes = 0
    for part, unit in units:
        size = model_loading.weights_bytes(unit)
        device = names[min(int((assigned_bytes + size / 2) * len(names) / max(total, 1)), len(names) - 1)]
        shared = [
            device_of_parameter[id(parameter)]
            for parameter in unit.parameters()
            if id(parameter) in device_of_parameter
        ]
        places[part] = shared[0] if shared else device
        device_of_parameter |= {id(parameter): places[part] for parameter in unit.parameters()}
        assigned_bytes += size
        used |= {places[part]} if size else set()
    if unused := [name for name in names if name not in used]:
        raise UnsupportedError(
            f"the model is too small to be split over {', '.join(names)}: {unused[0]} would get no part"
        )
    return places


def _units(module: Any, unsplittable: frozenset[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The parts that stay whole, in order: those declared by the model, those with their own parameters, and leaves."""
    for name, child in module.named_children():
        direct = [*child.parameters(recurse=False), *child.buffers(recurse=False)]
        if type(child).__name__ in unsplittable or direct or not list(child.children()):
            yield prefix + name, child
        else:
            yield from _units(child, unsplittable, f"{prefix}{name}.")


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


class JoinedMarks:
    """Joins the marks of parallel replicas: a mark counts when the last replica reaches it. At the end of a phase the
    replicas wait for each other, since that mark waits for the devices; at a token they do not."""

    def __init__(self, mark: Mark, replicas: int) -> None:
        self._mark = mark
        self._lock = threading.Lock()
        self._tokens = [0] * replicas
        self._reached = 0
        self._phase = ""
        self._barrier = threading.Barrier(replicas, action=lambda: self._mark(self._phase))

    def of(self, replica: int) -> Mark:
        def mark(name: str) -> None:
            if name != TOKEN:
                self._phase = name
                self._barrier.wait()
                return
            with self._lock:
                self._tokens[replica] += 1
                if min(self._tokens) > self._reached:
                    self._reached += 1
                    self._mark(TOKEN)

        return mark

    def abort(self) -> None:
        """Release replicas that wait for one that failed."""
        self._barrier.abort()
