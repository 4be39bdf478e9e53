"""Compares the runtime openvino with a bare loop of the library and with OpenVINO's benchmark_app.

One encoder at batch 1 with the latency hint, on the build that the runtime itself makes. Call by call in one process,
in turns, which noise hits alike; then fresh processes: a bare loop, benchmark_app, and the command, slice by slice in
turns. Prints figures. On a busy machine take `--num-threads 1`: threads that wait for each other measure their
neighbours.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from turns import agreement, outputs_in_turns

WARM_UP = 20
BARE_LOOP = """
import json, statistics, sys, time
import numpy as np
import openvino
file, ids, properties, iterations, warm_up = json.loads(sys.argv[1])
request = openvino.Core().compile_model(file, "CPU", properties).create_infer_request()
request.set_tensor("input_ids", openvino.Tensor(np.load(ids)))
calls = []
for _ in range(warm_up + iterations):
    start = time.perf_counter()
    request.infer()
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
    properties: dict[str, Any]
    iterations: int


def case_of(arguments: argparse.Namespace, folder: Path) -> Case:
    """The cell, its build, made if it is not there, and its inputs in a file."""
    from benchmarking.builds.store import BuildStore
    from benchmarking.core.records import Cell, Point
    from benchmarking.devices.cpu import PLUGIN as CPU
    from benchmarking.runtimes.openvino import PLUGIN
    from benchmarking.runtimes.support.openvino.compile import find_build, properties
    from benchmarking.workloads.support.families import plugin_of
    from benchmarking.workloads.support.resolve import resolve

    (device,), workload = CPU.probe(), resolve(arguments.model_id, weights="random")
    cell = Cell(
        workload=workload,
        device=device,
        requested_device="cpu",
        runtime="openvino",
        runtime_mode=PLUGIN.mode(device, workload, {}),
        num_threads=arguments.num_threads,
    )
    point = Point(batch_size=1, sequence_length=arguments.sequence_length)
    PLUGIN.prepare(cell, (point,), BuildStore(), "if_needed")
    ids = folder / "ids.npy"
    np.save(ids, plugin_of(workload).inputs(workload, point, workload.seed)["input_ids"])
    return Case(
        cell=cell,
        point=point,
        model=find_build(cell, point) / "model.xml",
        ids=ids,
        properties=properties(cell, point, has_states=False),
        iterations=arguments.iterations,
    )


def same_process_ratio(case: Case) -> float:
    """Median of the harness's calls over the median of bare `infer()` calls, in turns."""
    import openvino

    from benchmarking.devices.cpu import PLUGIN as CPU
    from benchmarking.measure.timing import Stopwatch, quiet_gc
    from benchmarking.runtimes.openvino import PLUGIN

    handle = CPU.open(case.cell.device)
    session = PLUGIN.open(case.cell, handle, lambda name: nullcontext(), (case.point,))
    watch = Stopwatch(session.operation(case.point), handle)
    request = openvino.Core().compile_model(str(case.model), "CPU", case.properties).create_infer_request()
    request.set_tensor("input_ids", openvino.Tensor(np.load(case.ids)))
    bare = []
    with quiet_gc():
        for number in range(case.iterations + WARM_UP):
            if number % 2:
                watch.run(1)
            start = time.perf_counter()
            request.infer()
            bare.append((time.perf_counter() - start) * 1e3)
            if not number % 2:
                watch.run(1)
    return statistics.median(watch.calls_ms[WARM_UP:]) / statistics.median(bare[WARM_UP:])


def bare_loop(case: Case) -> list[str]:
    """Prints its median in ms."""
    job = json.dumps([str(case.model), str(case.ids), case.properties, case.iterations, WARM_UP])
    return [sys.executable, "-c", BARE_LOOP, job]


def benchmark_app(case: Case) -> list[str]:
    """OpenVINO's own tool, on the same file and input."""
    shape = f"[1,{case.point.sequence_length}]"
    command = [sys.executable, "-c", "from openvino.tools.benchmark.main import main; main()"]
    command += ["-m", str(case.model), "-d", "CPU", "-hint", "latency", "-api", "sync", "-infer_precision", "f32"]
    command += ["-niter", str(case.iterations), "-data_shape", f"input_ids{shape}", "-i", f"input_ids:{case.ids}"]
    if case.cell.num_threads is not None:
        # Its own -nthreads does not go with -hint; a file of properties does.
        file = case.ids.with_name("properties.json")
        file.write_text(json.dumps({"CPU": {"INFERENCE_NUM_THREADS": case.cell.num_threads}}), encoding="utf-8")
        command += ["-load_config", str(file)]
    return command


def harness(cell: Any, point: Any, iterations: int) -> list[str]:
    """The command, as a user types it."""
    command = [sys.executable, "-m", "benchmarking.run_hardware_benchmark", "--model-id", cell.workload.model_id]
    command += ["--device", "cpu", "--runtime", cell.runtime, "--weights", "random", "--batch-sizes", "1"]
    command += ["--launches", "1", "--sequence-lengths", str(point.sequence_length), "--iterations", str(iterations)]
    command += ["--warmup-iterations", str(WARM_UP)]
    if cell.num_threads is not None:
        command += ["--num-threads", str(cell.num_threads)]
    return [*command, "--json", "--quiet"]


def harness_median_ms(text: str) -> float:
    """The median in what the command prints."""
    (run,) = json.loads(text)
    return float(run["results"][0]["metrics"]["latency_median_ms"])


def benchmark_app_median_ms(text: str) -> float:
    """The median in what benchmark_app prints."""
    found = re.search(r"Median:\s+([\d.]+) ms", text)
    if found is None:
        raise SystemExit("benchmark_app printed no median")
    return float(found[1])


def main() -> int:
    """Print a line a round, then the medians of the ratios."""
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
    for other in ("bare", "benchmark_app") if len(rounds) > 2 else ():
        print(f"ours / {other}: {agreement([one['ours'] / one[other] for one in rounds])}")
    return 0


def round_of(case: Case, number: int) -> dict[str, float]:
    """Each one's median in ms, from fresh processes in turns."""
    own = harness(case.cell, case.point, case.iterations)
    commands = {"bare": bare_loop(case), "benchmark_app": benchmark_app(case), "ours": own}
    texts = outputs_in_turns(commands)
    found = {
        "bare": float(texts["bare"]),
        "benchmark_app": benchmark_app_median_ms(texts["benchmark_app"]),
        "ours": harness_median_ms(texts["ours"]),
    }
    figures = ", ".join(f"{name} {value:.3f} ms" for name, value in found.items())
    print(f"round {number + 1}: {figures}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
