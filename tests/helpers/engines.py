"""Models in inference engines, opened and called as by a worker, and the tokens of eager for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.contracts import Operation
from benchmarking.core.records import Cell, Device, Point, Workload
from benchmarking.workloads.support.families import plugin_of

CPU = Device(type="cpu", selector="cpu", found=True, precisions=("float32", "int8", "int4"))
POINT = Point(batch_size=1, sequence_length=24, new_tokens=12)


def installed(name: str) -> Any:
    """A runtime's plugin; skips where it is not installed."""
    runtime = plugins.load("benchmarking.runtimes", name)
    if (missing := runtime.missing()) is not None:
        pytest.skip(f"{name}: {missing}")
    return runtime


def tokens_of(model: Any, prompts: np.ndarray, count: int) -> list[list[int]]:
    """Greedy tokens by whole passes without a cache: nothing of ours takes part."""
    import torch

    ids = torch.from_numpy(prompts)
    with torch.inference_mode():
        for _ in range(count):
            ids = torch.cat([ids, model(input_ids=ids).logits[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
    found: list[list[int]] = ids[:, prompts.shape[1] :].tolist()
    return found


@contextmanager
def opened(name: str, workload: Workload, point: Point = POINT, **options: Any) -> Iterator[tuple[Any, Operation]]:
    """The session and operation of a point on an engine, its build made: as a worker opens it."""
    runtime = installed(name)
    precision = options.pop("precision", "float32")
    mode = runtime.mode_at(precision, runtime.mode(CPU, workload, options))
    cell = Cell(
        workload=workload, device=CPU, requested_device="cpu", runtime=name, runtime_mode=mode, precision=precision
    )
    if runtime.has_build(cell):
        runtime.prepare(cell, [point], BuildStore(), "if_needed")
    session = runtime.open(cell, SimpleNamespace(), lambda stage: nullcontext(), [point])
    try:
        operation = session.operation(point)
        yield session, operation
        operation.close()
    finally:
        session.close()


def called(operation: Operation, marks: list[str] | None = None) -> list[list[int]]:
    """The tokens of one call, made like a timed one."""
    operation.reset()
    output = operation.run((marks if marks is not None else []).append)
    operation.runtime_times_ns()
    assert operation.problem(output) is None
    return [list(row) for row in output]


def prompts_at(workload: Workload, point: Point, seed: int = 0) -> np.ndarray:
    return plugin_of(workload).inputs(workload, point, seed)["input_ids"]
