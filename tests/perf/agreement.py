"""Compares the reported times with those of a bare loop.

The median latency of bert-base-uncased at batch 1, sequence 128, against a bare loop: in fresh processes, interleaved,
which holds on a quiet machine only, since processes of their own differ; and call by call in one process, which noise
hits alike. Then the supervisor's own CPU and memory while its worker measures. Prints figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from typing import Any

import psutil

BARE_LOOP = """
import json, statistics, sys, time
import torch
from transformers import BertConfig, BertModel
torch.manual_seed(0)
model = BertModel(BertConfig()).eval()
ids = torch.randint(1000, 30000, (1, 128))
calls = []
with torch.inference_mode():
    for _ in range({warmup}):
        model(input_ids=ids)
    for _ in range({iterations}):
        start = time.perf_counter()
        model(input_ids=ids)
        calls.append(time.perf_counter() - start)
print(json.dumps(statistics.median(calls) * 1e3))
"""


def same_process_ratio(calls: int) -> float:
    """Median of the harness's calls over the median of bare calls of the same model, taken in turns."""
    import torch

    from benchmarking.core.records import Cell, Point
    from benchmarking.devices.cpu import PLUGIN as CPU
    from benchmarking.measure.timing import Stopwatch, quiet_gc
    from benchmarking.runtimes.eager import PLUGIN as EAGER
    from benchmarking.workloads.support.resolve import resolve

    (device,) = CPU.probe()
    workload = resolve("bert-base-uncased", weights="random")
    mode = EAGER.mode(device, workload, {})
    cell = Cell(workload=workload, device=device, requested_device="cpu", runtime="eager", runtime_mode=mode)
    handle = CPU.open(device)
    session = EAGER.open(cell, handle, lambda name: nullcontext(), ())
    watch = Stopwatch(session.operation(Point(batch_size=1, sequence_length=128)), handle)
    ids = torch.randint(1000, 30000, (1, 128))
    bare = []
    with quiet_gc():
        for number in range(calls):
            if number % 2:
                watch.run(1)
            bare.append(bare_call_ms(session.model, ids))
            if not number % 2:
                watch.run(1)
    warm = calls // 10
    return statistics.median(watch.calls_ms[warm:]) / statistics.median(bare[warm:])


def bare_call_ms(model: Any, ids: Any) -> float:
    import torch

    with torch.inference_mode():
        start = time.perf_counter()
        model(input_ids=ids)
        return (time.perf_counter() - start) * 1e3


def bare_ms(iterations: int) -> float:
    """Median of a bare loop in a fresh process, in ms."""
    code = BARE_LOOP.format(warmup=20, iterations=iterations)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout))


def harness_ms(iterations: int) -> tuple[float, float, float]:
    """Median by the command, in ms; the supervisor's CPU share of one core and its memory in MB while it waited."""
    command = [sys.executable, "-m", "benchmarking.run_hardware_benchmark", "--model-id", "bert-base-uncased"]
    command += ["--device", "cpu", "--batch-sizes", "1", "--sequence-lengths", "128", "--launches", "1", "--json"]
    command += ["--iterations", str(iterations), "--warmup-iterations", "20", "--quiet"]
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        share, memory_mb = watch(psutil.Process(process.pid))
        if process.wait() != 0:
            raise SystemExit(f"the command failed: {' '.join(command)}")
        out.seek(0)
        (run,) = json.load(out)
    return run["results"][0]["metrics"]["latency_median_ms"], share, memory_mb


def watch(supervisor: psutil.Process) -> tuple[float, float]:
    """CPU share and peak memory of the supervisor from its worker's start to the worker's end."""
    begin = None
    share = memory_mb = 0.0
    while supervisor.is_running() and supervisor.status() != psutil.STATUS_ZOMBIE:
        try:
            worker = any(
                "benchmarking.sweep.run.worker" in " ".join(child.cmdline()) for child in supervisor.children()
            )
            times, rss = supervisor.cpu_times(), supervisor.memory_info().rss
        except psutil.Error:
            break
        now = (time.monotonic(), times.user + times.system)
        if worker and begin is None:
            begin = now
        elif worker and begin is not None and now[0] > begin[0]:
            share = (now[1] - begin[1]) / (now[0] - begin[0])
            memory_mb = max(memory_mb, rss / 1e6)
        time.sleep(0.5)
    return share, memory_mb


def main() -> int:
    """Print a line a round, then the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--calls", type=int, default=400, help="of either kind, in turns, in one process")
    arguments = parser.parse_args()
    print(
        f"one process, in turns: ratio {same_process_ratio(arguments.calls):.4f} of {arguments.calls} calls", flush=True
    )
    ratios, shares, memories = [], [], []
    for number in range(arguments.rounds):
        bare = bare_ms(arguments.iterations)
        harness, share, memory_mb = harness_ms(arguments.iterations)
        ratios.append(harness / bare)
        shares.append(share)
        memories.append(memory_mb)
        print(
            f"round {number + 1}: bare {bare:.2f} ms, harness {harness:.2f} ms, ratio {harness / bare:.4f}", flush=True
        )
    if not ratios:
        return 0
    print(f"ratio: median {statistics.median(ratios):.4f}, from {min(ratios):.4f} to {max(ratios):.4f}")
    print(f"supervisor while it waits: {max(shares):.2%} of a core at most, {max(memories):.1f} MB at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
