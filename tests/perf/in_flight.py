"""Requests kept in flight against whole rounds of them, each awaited: throughput on one operation, in turns.

    python -m tests.perf.in_flight [--model-id tiny-bert] [--sequence-length 128] [--runtimes R,R] [--concurrency N,N]

Prints the ratio rounds / kept by runtime and number in flight: its median and quartiles over pairs, whose order
alternates. Exits 1 where rounds are faster by more than the pairs' spread.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np

from benchmarking.builds.store import BuildStore
from benchmarking.core import plugins
from benchmarking.core.contracts import Operation
from benchmarking.core.records import Cell, Point
from benchmarking.devices.cpu import PLUGIN as CPU
from benchmarking.measure.timing import no_mark
from benchmarking.runtimes.support.worker_threads import WorkersOperation
from benchmarking.workloads.support.resolve import resolve

RUNTIMES = {"openvino": {"hint": "throughput"}, "onnxruntime": {}}
THREADS = {"onnxruntime": 1}
"""Of a request: ONNX Runtime's threads wait by spinning, so more than the processors can run slow each other down."""
PAIRS, PAIR_S = 21, 0.5


def main() -> int:
    """Measure and print; returns 1 when keeping requests in flight is slower."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-id", default="tiny-bert")
    parser.add_argument("--sequence-length", type=int, default=128)
    parser.add_argument("--runtimes", default=",".join(RUNTIMES))
    parser.add_argument("--concurrency", default="2,3,4,5")
    arguments = parser.parse_args()
    is_slower = False
    for runtime in arguments.runtimes.split(","):
        for requests in map(int, arguments.concurrency.split(",")):
            point = Point(batch_size=1, sequence_length=arguments.sequence_length, concurrency=requests)
            ratios = measured(runtime, arguments.model_id, point)
            low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
            print(f"{runtime:12} {requests} in flight: rounds / kept {middle:.3f} (quartiles {low:.3f} .. {high:.3f})")
            is_slower |= bool(low > 1)
    return int(is_slower)


def measured(runtime: str, model_id: str, point: Point) -> list[float]:
    """Throughput of rounds over that of requests kept in flight, by pair."""
    plugin, (device,) = plugins.load("benchmarking.runtimes", runtime), CPU.probe()
    workload = resolve(model_id, weights="random")
    mode = plugin.mode(device, workload, RUNTIMES[runtime])
    cell = Cell(
        workload=workload,
        device=device,
        requested_device="cpu",
        runtime=runtime,
        runtime_mode=mode,
        num_threads=THREADS.get(runtime),
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BENCHHOUSE_CACHE_DIR"] = folder
        plugin.prepare(cell, (point,), BuildStore(Path(folder)), "if_needed")
        plugin.import_libraries()
        session = plugin.open(cell, CPU.open(device), lambda name: nullcontext(), (point,))
        operation = session.operation(point)
        try:
            operation.run(lambda name: None)
            return pairs(operation)
        finally:
            operation.close()
            session.close()


def pairs(operation: Operation) -> list[float]:
    """The ratios, each from rounds and kept requests that ran right after each other."""
    rounds_of = max(10, int(PAIR_S * rate(operation, 20, kept=True) / operation.requests_in_flight))
    ratios = []
    for number in range(PAIRS):
        first_kept = bool(number % 2)
        one, other = (rate(operation, rounds_of, kept=kept) for kept in (first_kept, not first_kept))
        ratios.append(other / one if first_kept else one / other)
    return ratios


def rate(operation: Operation, rounds: int, *, kept: bool) -> float:
    """Requests per second, the final wait inside."""
    requests = operation.requests_in_flight
    started = time.perf_counter()
    if kept:
        operation.keep_in_flight(rounds * requests, time.perf_counter_ns)
    elif isinstance(operation, WorkersOperation):
        for _ in range(rounds):  # one request each: left to themselves, one worker may take two of a short round
            operation._threads.run([partial(each.run, no_mark) for each in operation._operations])
    else:
        for _ in range(rounds):
            operation.keep_in_flight(requests, time.perf_counter_ns)
    return rounds * requests / (time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(main())
