"""Compares the runtime onnxruntime with a bare loop of `session.run`.

One encoder at batch 1, on the bundle that the runtime itself makes: call by call in one process, in turns, which noise
hits alike; then fresh processes, slice by slice in turns. Prints figures. On a busy machine take `--num-threads 1`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from openvino_agreement import WARM_UP, harness, harness_median_ms
from turns import agreement, outputs_in_turns

BARE_LOOP = """
import json, statistics, sys, time
import numpy as np
import onnxruntime
file, ids, num_threads, iterations, warm_up = json.loads(sys.argv[1])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = num_threads
session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
feeds = {"input_ids": np.load(ids)}
calls = []
for _ in range(warm_up + iterations):
    start = time.perf_counter()
    session.run(None, feeds)
    calls.append(time.perf_counter() - start)
print(json.dumps(statistics.median(calls[warm_up:]) * 1e3))
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What all of them run."""

    cell: Any
    point: Any
    model: Path
    ids: Path
    iterations: int


def case_of(arguments: argparse.Namespace, folder: Path) -> Case:
    """The cell, its bundle, made if it is not there, and its inputs in a file."""
    from benchmarking.builds.store import BuildStore
    from benchmarking.core.records import Cell, Point
    from benchmarking.devices.cpu import PLUGIN as CPU
    from benchmarking.graphs.bundle import read_bundle
    from benchmarking.graphs.exported_model import find_bundle
    from benchmarking.runtimes.onnxruntime import PLUGIN
    from benchmarking.runtimes.support.onnxruntime.ort_runtime import default_num_threads
    from benchmarking.workloads.support.families import plugin_of
    from benchmarking.workloads.support.resolve import resolve

    (device,), workload = CPU.probe(), resolve(arguments.model_id, weights="random")
    cell = Cell(workload=workload, device=device, requested_device="cpu", runtime="onnxruntime")
    mode = PLUGIN.mode(device, workload, {})
    cell = dataclasses.replace(cell, runtime_mode=mode, num_threads=arguments.num_threads or default_num_threads())
    point = Point(batch_size=1, sequence_length=arguments.sequence_length)
    PLUGIN.prepare(cell, (point,), BuildStore(), "if_needed")
    bundle = find_bundle(cell, point)
    ids = folder / "ids.npy"
    np.save(ids, plugin_of(workload).inputs(workload, point, workload.seed)["input_ids"])
    file = bundle / read_bundle(bundle).graphs["model"].file
    return Case(cell=cell, point=point, model=file, ids=ids, iterations=arguments.iterations)


def same_process_ratio(case: Case) -> float:
    """Median of the harness's calls over the median of bare `session.run` calls, in turns."""
    import onnxruntime

    from benchmarking.devices.cpu import PLUGIN as CPU
    from benchmarking.measure.timing import Stopwatch, quiet_gc
    from benchmarking.runtimes.onnxruntime import PLUGIN

    handle = CPU.open(case.cell.device)
    session = PLUGIN.open(case.cell, handle, lambda name: nullcontext(), (case.point,))
    watch = Stopwatch(session.operation(case.point), handle)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case.cell.num_threads
    bare_session = onnxruntime.InferenceSession(str(case.model), options, providers=["CPUExecutionProvider"])
    feeds, bare = {"input_ids": np.load(case.ids)}, []
    with quiet_gc():
        for number in range(case.iterations + WARM_UP):
            if number % 2:
                watch.run(1)
            start = time.perf_counter()
            bare_session.run(None, feeds)
            bare.append((time.perf_counter() - start) * 1e3)
            if not number % 2:
                watch.run(1)
    return statistics.median(watch.calls_ms[WARM_UP:]) / statistics.median(bare[WARM_UP:])


def bare_loop(case: Case) -> list[str]:
    """Prints its median in ms."""
    job = json.dumps([str(case.model), str(case.ids), case.cell.num_threads, case.iterations, WARM_UP])
    return [sys.executable, "-c", BARE_LOOP, job]


def main() -> int:
    """Print a line a round, then the median of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-id", default="bert-base-uncased", help="an encoder")
    parser.add_argument("--sequence-length", type=int, default=128)
    parser.add_argument("--num-threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        case = case_of(arguments, Path(folder))
        print(f"one process, in turns: ours / bare {same_process_ratio(case):.4f}", flush=True)
        rounds = [round_of(case, number) for number in range(arguments.rounds)]
    if len(rounds) > 2:
        print(f"ours / bare: {agreement([ours / bare for bare, ours in rounds])}")
    return 0


def round_of(case: Case, number: int) -> tuple[float, float]:
    """The medians of a bare loop and of the command in ms, from fresh processes in turns."""
    own = harness(case.cell, case.point, case.iterations)
    texts = outputs_in_turns({"bare": bare_loop(case), "ours": own})
    bare, ours = float(texts["bare"]), harness_median_ms(texts["ours"])
    print(f"round {number + 1}: bare {bare:.3f} ms, ours {ours:.3f} ms", flush=True)
    return bare, ours


if __name__ == "__main__":
    sys.exit(main())
