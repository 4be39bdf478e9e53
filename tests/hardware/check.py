"""Does a machine's hardware agree with what benchhouse says of it? Each check compares a number or claim of the program
with a loop of its own, and one table says right, wrong, or not applicable with the reason.

    python tests/hardware/check.py --device cuda:0

It needs torch, transformers, numpy and benchhouse's own small packages; neither duckdb, pyarrow nor onnx. About half an
hour on a machine with one GPU; --only and --models limit it, and each check can be run alone. Exit code 1 when anything
is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

FAMILIES = (
    *("tiny-bert", "tiny-gpt2", "tiny-t5", "tiny-vit", "tiny-clip", "tiny-whisper"),
    *("tiny-llava", "tiny-unet", "tiny-mixtral", "tiny-mamba", "tiny-rag"),
)
"""A small model of each family."""
DATA_SHEETS = {
    "B200": {"bfloat16": 2250e12, "float16": 2250e12, "copy": 8.0e12},
    "H200": {"bfloat16": 989e12, "float16": 989e12, "copy": 4.8e12},
    "H200 NVL": {"bfloat16": 835e12, "float16": 835e12, "copy": 4.8e12},
    "H100 80GB HBM3": {"bfloat16": 989e12, "float16": 989e12, "copy": 3.35e12},
    "H100 NVL": {"bfloat16": 835e12, "float16": 835e12, "copy": 3.9e12},
    "H100 PCIe": {"bfloat16": 756e12, "float16": 756e12, "copy": 2.0e12},
    "A100-SXM4-80GB": {"bfloat16": 312e12, "float16": 312e12, "copy": 2.039e12},
    "A100-SXM4-40GB": {"bfloat16": 312e12, "float16": 312e12, "copy": 1.555e12},
    "A100 80GB PCIe": {"bfloat16": 312e12, "float16": 312e12, "copy": 1.935e12},
    "A100-PCIE-40GB": {"bfloat16": 312e12, "float16": 312e12, "copy": 1.555e12},
    "L40S": {"bfloat16": 362e12, "float16": 362e12, "copy": 0.864e12},
    "L4": {"bfloat16": 121e12, "float16": 121e12, "copy": 0.3e12},
    "T4": {"float16": 65e12, "copy": 0.32e12},
    "GeForce RTX 4090": {"bfloat16": 165e12, "float16": 165e12, "copy": 1.008e12},
    "GeForce RTX 5090": {"bfloat16": 209e12, "float16": 209e12, "copy": 1.792e12},
    "Instinct MI300X": {"bfloat16": 1307e12, "float16": 1307e12, "copy": 5.3e12},
}
"""By exact product name, as the driver gives it after the vendor's: dense FLOP/s on tensor cores with 32-bit sums, and
bytes per second of the memory, as the vendors' data sheets state them."""
VENDORS = ("NVIDIA ", "AMD ", "Tesla ")
NEEDED = {
    **{name: name for name in ("torch", "transformers", "numpy", "platformdirs", "psutil", "rich", "safetensors")},
    "yaml": "PyYAML",
}
"""Modules that a bare machine needs, and their packages."""
SENSORS = {"cuda": ("pynvml", "nvidia-ml-py")}
"""By kind of GPU the module of its sensors, and its package; an AMD GPU without amdsmi has the kernel's."""
LOAD = """
import sys, torch
matrix = torch.ones(4096, 4096, device=sys.argv[1])
print("started", flush=True)
while True:
    matrix @ matrix
    torch.cuda.synchronize()
"""
"""Another process that computes on the GPU until it is killed."""


class NotApplicableError(Exception):
    """Why a check says nothing on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of a check."""

    name: str
    claim: str
    outcome: str
    """right, wrong or not applicable."""
    evidence: str


class Wrong(Exception):  # noqa: N818 - an outcome, like NotApplicableError
    """What was found in place of what was claimed."""


def near(what: str, found: float, expected: float, tolerance: float, why: str) -> str:
    """The evidence that two numbers agree within a share of the expected one, for a reason. Raises Wrong."""
    off = abs(found - expected) / abs(expected) if expected else abs(found)
    text = f"{what}: {found:.5g}, own loop {expected:.5g}, off by {off:.1%} (allowed {tolerance:.0%}: {why})"
    if off > tolerance:
        raise Wrong(text)
    return text


def holds(condition: bool, text: str) -> str:
    """The evidence that a claim holds. Raises Wrong with it when it does not."""
    if not condition:
        raise Wrong(text)
    return text


class Machine:
    """The device, a model on it, and ways to measure: by the program, and by loops that use torch only."""

    def __init__(self, selector: str, model_id: str, folder: Path, models: tuple[str, ...]) -> None:
        from benchmarking.devices.support.select import select

        self.selector = selector
        self.model_id = model_id
        self.folder = folder
        self.models = models
        self.device = select(selector, lambda device: None)
        self.is_cuda = self.device.type in ("cuda", "rocm")

    def need_gpu(self) -> None:
        """Raise NotApplicableError on a machine without the device that the check is about."""
        if not self.is_cuda:
            raise NotApplicableError(f"no GPU: {self.device.selector} is {self.device.name}")

    @cached_property
    def handle(self) -> Any:
        """The device, opened by the program."""
        from benchmarking.core.plugins import kind_of

        kind = kind_of(self.device.type)
        assert kind is not None
        return kind.open(self.device)

    @cached_property
    def session(self) -> Any:
        """The model, loaded by the program."""
        from benchmarking.core.records import Cell
        from benchmarking.runtimes.eager import PLUGIN
        from benchmarking.workloads.support.resolve import resolve

        workload = resolve(self.model_id, weights="random")
        cell = Cell(
            workload=workload,
            device=self.device,
            requested_device=self.selector,
            runtime=PLUGIN.name,
            runtime_mode=PLUGIN.mode(self.device, workload, {}),
        )
        return PLUGIN.open(cell, self.handle, lambda name: nullcontext(), ())

    @cached_property
    def operation(self) -> Any:
        from benchmarking.core.records import Point

        return self.session.operation(Point(batch_size=1, sequence_length=64))

    @cached_property
    def measured(self) -> Any:
        """The program's measurement of the model, in this process: passes and all."""
        from benchmarking.core.records import Point
        from benchmarking.measure.context import settings
        from benchmarking.measure.point import measure_point

        chosen = replace(settings("quick"), counts_steady_warmup=False)
        point = Point(batch_size=1, sequence_length=64)
        return measure_point(self.operation, self.handle, point, 0, chosen, device=self.device)

    def metric(self, name: str) -> float:
        """One of its numbers. Raises Wrong with the reason where it is missing."""
        found = self.measured.metrics.get(name)
        if found is None:
            raise Wrong(f"{name} is missing: {self.measured.missing.get(name)}")
        return float(found)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the program's calls."""
        import torch

        from benchmarking.core.records import Point

        _, prepared = self.session.prepared(Point(batch_size=1, sequence_length=64))
        return {name: torch.from_numpy(array).to(self.handle.torch_name) for name, array in prepared.arrays.items()}

    def call(self) -> object:
        """A call of the same model, by torch alone."""
        import torch

        model, inputs = self.session.model, self.inputs  # opened outside of it: weights are filled in place, by threads
        with torch.inference_mode():
            return model(**inputs)

    def sync(self) -> None:
        """Wait for the GPU, by torch alone."""
        import torch

        if self.is_cuda:
            torch.cuda.synchronize(self.handle.torch_name)

    def own_call_s(self, count: int = 100) -> list[float]:
        """Wall times of calls in a loop of our own."""
        times = []
        for _ in range(count):
            self.sync()
            start = time.perf_counter()
            self.call()
            self.sync()
            times.append(time.perf_counter() - start)
        return times

    def command(self, module: str, *arguments: str) -> tuple[int, Any, str]:
        """A command of the program: exit code, its JSON, and stderr. Its runs are anybody's to read in `folder`."""
        command = [sys.executable, "-m", f"benchmarking.{module}", *arguments, "--json", "--quiet"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=environment, check=False)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            raise Wrong(f"{' '.join(command[2:])}: exit code {done.returncode}: {done.stderr.strip()[-300:]}") from None
        return done.returncode, answer, done.stderr

    def close(self) -> None:
        """Release the model and the device."""
        for opened in ("session", "handle"):
            if opened in self.__dict__:
                getattr(self, opened).close()


def runs_in(answer: Any) -> list[dict[str, Any]]:
    """The runs in a command's JSON."""
    found: list[dict[str, Any]] = answer["runs"] if isinstance(answer, dict) and "runs" in answer else answer
    return found


def run_files(folder: Path) -> list[dict[str, Any]]:
    """The runs in the files of a folder."""
    found = [json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))]
    return [one for one in found if one.get("format") == "benchhouse-run"]


# The checks: what the docstring claims, the program's word against an independent measurement.


def wall_time(machine: Machine) -> str:
    """The wall time of a call is what a bare loop sees."""
    from benchmarking.measure.timing import Stopwatch, quiet_gc

    watch = Stopwatch(machine.operation, machine.handle)
    bare: list[float] = []
    with quiet_gc(), one_thread():
        machine.own_call_s(5)
        end = time.perf_counter() + 3
        while len(bare) < 30 or (len(bare) < 300 and time.perf_counter() < end):
            watch.run(1)
            bare += machine.own_call_s(2)
            watch.run(1)
    found, expected = min(watch.calls_ms[5:]), min(bare) * 1e3
    return near("fastest call in ms", found, expected, 0.15, "taken in turns; the fastest are free of disturbances")


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes on one thread: on a busy machine several wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def host_gap(machine: Machine) -> str:
    """The host's gap is the wall time less that of a replayed graph, which launches nothing."""
    machine.need_gpu()
    import torch

    machine.call()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        machine.call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        machine.call()
    replay_s = time_of(lambda: graph.replay(), machine, 200)
    wall_s = statistics.median(machine.own_call_s())
    gap_ms = machine.metric("host_gap_ms")
    off = abs(gap_ms / 1e3 - (wall_s - replay_s)) / wall_s
    text = (
        f"host_gap_ms {gap_ms:.4g}; own wall {wall_s * 1e3:.4g} ms less replay {replay_s * 1e3:.4g} ms: off by "
        f"{off:.1%} of the wall time (allowed 20%: kernels of a graph lie a microsecond apart)"
    )
    return holds(off <= 0.2, text)


def event_time(machine: Machine) -> str:
    """The device's time by events holds its kernels' time, and not more than the wall time."""
    machine.need_gpu()
    series = {one.metric: one.values for one in machine.measured.samples if one.phase == "measure"}
    events, wall = (statistics.median(series[name]) for name in ("latency_device", "latency_wall"))
    kernels = wall - machine.metric("host_gap_ms")
    text = f"kernels {kernels:.4g} ms, events {events:.4g} ms, wall {wall:.4g} ms"
    return holds(0.95 * kernels <= events <= 1.02 * wall, text)


def after_a_trace(machine: Machine) -> str:
    """A trace of kernels leaves later calls as fast as before."""
    machine.need_gpu()
    machine.own_call_s(50)
    before = statistics.median(machine.own_call_s(200))
    tracer = machine.handle.tracer()
    assert tracer is not None

    def traced() -> None:
        machine.own_call_s(3)

    tracer.spans(traced)
    machine.own_call_s(20)
    after = statistics.median(machine.own_call_s(200))
    return near("call in s after a trace", after, before, 0.05, "clocks move by a few percent")


def queued_calls(machine: Machine) -> str:
    """Pipelined throughput is that of a bare loop with one wait at its end."""
    machine.need_gpu()
    expected = 1 / time_of(machine.call, machine, 500)
    return near("items/s", machine.metric("throughput_pipelined"), expected, 0.1, "host-bound loops vary between runs")


def token_sync(machine: Machine) -> str:
    """Fetching each token costs what it costs a bare loop of the same kind."""
    machine.need_gpu()
    flags = ("--model-id", "tiny-gpt2", "--device", machine.selector, "--batch-sizes", "1", "--sequence-lengths", "32")
    ms = {}
    for mode in ("each", "end"):
        _, answer, _ = machine.command(
            "run_hardware_benchmark", *flags, "--new-tokens", "128", "--token-sync", mode, "--launches", "1"
        )
        ms[mode] = runs_in(answer)[0]["results"][0]["metrics"]["time_per_output_token_ms"]
    own = {mode: own_token_ms(machine, fetches=mode == "each") for mode in ms}
    off = abs((ms["each"] - ms["end"]) - (own["each"] - own["end"])) / ms["each"]
    text = (
        f"each {ms['each']:.4g}, end {ms['end']:.4g} ms a token; own loop {own['each']:.4g}, {own['end']:.4g}: the "
        f"costs differ by {off:.0%} of a token (allowed 25%: the loops differ in what else they do for a token)"
    )
    return holds(off <= 0.25, text)


def own_token_ms(machine: Machine, *, fetches: bool) -> float:
    """Milliseconds of a forward pass of one token, whose result is or is not brought to the host each time."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=1000, n_positions=512)
    model = GPT2LMHeadModel(config).eval().to(machine.handle.torch_name)
    token = torch.zeros(1, 1, dtype=torch.int64, device=machine.handle.torch_name)

    def step() -> None:
        nonlocal token
        with torch.inference_mode():
            token = model(token).logits[:, -1:].argmax(-1)
            if fetches:
                token.item()

    return time_of(step, machine, 300) * 1e3


def time_of(call: Callable[[], object], machine: Machine, count: int) -> float:
    """Seconds of a call among many, with one wait at the end."""
    for _ in range(20):
        call()
    machine.sync()
    start = time.perf_counter()
    for _ in range(count):
        call()
    machine.sync()
    return (time.perf_counter() - start) / count


def calibration(machine: Machine) -> str:
    """Measured peaks are below the data sheet's, and not far below."""
    machine.need_gpu()
    sheet = data_sheet(str(machine.device.name))
    if sheet is None:
        raise NotApplicableError(f"no data sheet of {machine.device.name} in here")
    _, answer, _ = machine.command("run_hardware_benchmark", "--calibrate-device", "--device", machine.selector)
    shares = {}
    for run in runs_in(answer):
        for result in run["results"]:
            found = result["metrics"]
            if "peak_flops_per_sec" in found and run["cell"]["precision"] in sheet:
                shares[run["cell"]["precision"]] = found["peak_flops_per_sec"] / sheet[run["cell"]["precision"]]
            if "peak_copy_bytes_per_sec" in found:  # a copy reads and writes
                shares["copy"] = found["peak_copy_bytes_per_sec"] / sheet["copy"]
    text = ", ".join(f"{name} {share:.0%} of the data sheet" for name, share in shares.items())
    return holds(bool(shares) and all(0.4 < share <= 1.02 for share in shares.values()), text or "no peak")


def weights(machine: Machine) -> str:
    """The size of the weights is the sum over the parameters, to the byte."""
    own = sum(one.numel() * one.element_size() for one in {*machine.session.model.parameters()})
    own += sum(one.numel() * one.element_size() for one in machine.session.model.buffers())
    return holds(machine.session.weights_bytes == own, f"{machine.session.weights_bytes} bytes, own sum {own}")


def device_memory(machine: Machine) -> str:
    """The peak of device memory is what torch's allocator counts in a bare loop."""
    machine.need_gpu()
    import torch

    found = machine.metric("device_allocated_peak_bytes")
    torch.cuda.reset_peak_memory_stats(machine.handle.torch_name)
    machine.own_call_s(5)
    own = torch.cuda.max_memory_allocated(machine.handle.torch_name)
    return near("bytes", found, own, 0.02, "inputs of the two loops differ by some kilobytes")


def utilization(machine: Machine) -> str:
    """Utilization is what another program sees while the same calls run."""
    machine.call()
    if not machine.is_cuda:
        return processor_utilization(machine)
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100", "-i"]
    uuid = str(machine.device.facts.values.get("uuid"))
    try:
        watcher = subprocess.Popen([*command, uuid], stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise NotApplicableError(f"no nvidia-smi to compare with: {error}") from error
    machine.own_call_s(1)
    time_of(machine.call, machine, max(100, round(3 / statistics.median(machine.own_call_s(20)))))
    watcher.kill()
    seen = [float(line) for line in watcher.communicate()[0].split() if line.strip().isdigit()][10:]
    if not seen:
        raise NotApplicableError("nvidia-smi shows no utilization of this GPU")
    found, own = machine.metric("utilization_max_percent"), max(seen)
    return holds(
        abs(found - own) <= 20, f"largest {found:.0f} %, nvidia-smi {own:.0f} % (allowed 20: their periods differ)"
    )


def processor_utilization(machine: Machine) -> str:
    """The process's CPU time over that of its processors, by the monitor and by the process's own clock."""
    from benchmarking.measure.monitor import DeviceMonitor

    with DeviceMonitor(machine.device) as monitor:
        begin, spent = time.monotonic_ns(), time.process_time_ns()
        while time.monotonic_ns() < begin + 1_000_000_000:
            machine.call()
        end, spent = time.monotonic_ns(), time.process_time_ns() - spent
        found = monitor.between(begin, end).summary()["utilization_mean_percent"]
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own = 100 * spent / (end - begin) / processors
    text = f"{found:.1f} %, own clock {own:.1f} % (allowed 12 points: the monitor's samples leave out the ends)"
    return holds(abs(found - own) <= 12, text)


def energy(machine: Machine) -> str:
    """Joules are those of the power that the driver shows during a bare loop."""
    machine.need_gpu()
    if "energy_gpu_j_per_call" not in machine.measured.metrics:
        raise NotApplicableError(str(machine.measured.missing.get("energy_gpu_j_per_call")))
    readings: list[float] = []
    end = time.perf_counter() + 6
    while time.perf_counter() < end:
        machine.own_call_s(20)
        watts = machine.handle.momentary_power_w()
        if watts is not None:
            readings.append(watts)
    if not readings:
        raise NotApplicableError("the driver shows no momentary power")
    own = statistics.fmean(readings[len(readings) // 3 :])
    found = machine.metric("power_mean_w")
    return near("watts over calls", found, own, 0.12, "the GPU warms up, and its sensor is within a few percent")


def foreign_load(machine: Machine) -> str:
    """Another process that computes on the GPU makes a result invalid, and an idle GPU does not."""
    machine.need_gpu()
    flags = ("--model-id", machine.model_id, "--device", machine.selector, "--batch-sizes", "1", "--launches", "1")

    def doubts() -> list[str]:
        _, answer, _ = machine.command("run_hardware_benchmark", *flags, "--sequence-lengths", "64")
        return [doubt["kind"] for doubt in runs_in(answer)[0]["results"][0]["doubts"]]

    alone = doubts()
    with other_process(machine):
        together = doubts()
    text = f"alone: {', '.join(alone) or 'no doubt'}; with a load: {', '.join(together) or 'no doubt'}"
    return holds("foreign_process" in together and "foreign_process" not in alone, text)


@contextmanager
def other_process(machine: Machine) -> Iterator[None]:
    """Inside, another process computes on the GPU."""
    load = subprocess.Popen([sys.executable, "-c", LOAD, machine.handle.torch_name], stdout=subprocess.PIPE, text=True)
    try:
        assert load.stdout is not None
        load.stdout.readline()
        yield
    finally:
        load.kill()
        load.communicate()


def out_of_memory(machine: Machine) -> str:
    """A point that runs out of memory costs itself; smaller ones before and after are measured."""
    return fault(machine, "out-of-memory", ("memory", "allocate"))


def device_assert(machine: Machine) -> str:
    """A device-side assert costs its point; the others are measured in a new process."""
    machine.need_gpu()
    return fault(machine, "device-assert", ("device-side assert", "index"))


def fault(machine: Machine, name: str, words: tuple[str, ...]) -> str:
    """The three points of a benchmark of faults, of which the second fails with one of these words."""
    benches, folder = str(Path(__file__).with_name("benches")), machine.folder / name
    machine.command(
        *("batch_benchmark", "--benches", benches, "--include", f"*{name}*", "--devices", machine.selector),
        *("--launches", "1", "--warmup-iterations", "1", "--output-dir", str(folder)),
        *("--db-path", str(machine.folder / "results.duckdb")),
    )
    results = [result for run in run_files(folder) for result in run["results"]]
    by_size = {result["point"]["batch_size"]: result for result in results}
    states = {size: result["status"] for size, result in sorted(by_size.items())}
    error = str(by_size[2]["error"]) if 2 in by_size else "no second point"
    is_right = states == {1: "ok", 2: "failed", 4: "ok"} and any(word in error for word in words)
    return holds(is_right, f"points {states}; the error: {error[:90]}")


def spooling(machine: Machine) -> str:
    """With --save every point is in a run file, also where duckdb is not installed."""
    folder = machine.folder / "spool"
    _, answer, _ = machine.command(
        *("run_hardware_benchmark", "--model-id", "tiny-bert", "--device", machine.selector, "--batch-sizes", "1,2"),
        *("--sequence-lengths", "16", "--iterations", "3", "--warmup-iterations", "1", "--launches", "1", "--save"),
        *("--output-dir", str(folder), "--db-path", str(folder / "results.duckdb")),
    )
    kept = run_files(folder)
    medians = [[r["metrics"]["latency_median_ms"] for r in run["results"]] for run in (*kept, *runs_in(answer))]
    is_right = len(kept) == 1 and len(medians[0]) == 2 and medians[0] == medians[-1]
    return holds(is_right, f"{len(kept)} run file, medians {medians[0] if medians else 'none'} ms as printed")


def cold_cache(machine: Machine) -> str:
    """Calls with cold caches are slower, as in a bare loop that fills memory between its calls."""
    import torch

    from benchmarking.core.contracts import Operation
    from benchmarking.measure.timing import Stopwatch

    cache = machine.handle.last_level_cache_bytes() or 32 << 20
    place = machine.handle.torch_name
    # A processor's private cache: larger data would need several threads, whose waking is slower than any memory.
    data = torch.ones(min(cache // 16, 2 << 20) if machine.is_cuda else 16 << 10, device=place)
    filler = torch.ones(cache, device=place)

    class Sum(Operation):
        items_per_call = 1

        def run(self, mark: Any) -> Any:
            return data.sum()

        def problem(self, output: Any) -> str | None:
            return None

        def count(self) -> Any:
            raise NotImplementedError

    # In turns, and by the median: another tenant of a shared cache disturbs all three alike, and a single early call
    # that found its data again would be the minimum.
    turns: dict[str, list[float]] = {"warm": [], "own": [], "found": []}
    with one_thread(), machine.handle.cold_cache() as cold:
        flushes = {"warm": None, "own": lambda: filler.add_(1), "found": cold.flush}
        for _ in range(10):
            for name, flush in flushes.items():
                watch = Stopwatch(Sum(), machine.handle, flush=flush)
                watch.run(5)
                turns[name] += watch.calls_ms
    warm, own, found = map(statistics.median, turns.values())
    text = f"{found / warm:.2f} times as long with cold caches, {own / warm:.2f} times after a bare fill of memory"
    return holds(found > 1.05 * warm and found > 0.5 * own, text)


def families(machine: Machine, model: str) -> str:
    """A model of every family runs, and its output equals that of the eager float32 model on the CPU."""
    code, answer, stderr = machine.command(
        *("run_hardware_benchmark", "--model-id", model, "--device", machine.selector, "--batch-sizes", "1"),
        *("--iterations", "3", "--warmup-iterations", "1", "--launches", "1"),
    )
    results = [result for run in runs_in(answer) for result in run["results"]]
    wrong = [f"{result['status']}: {result['error']}" for result in results if result["status"] != "ok"]
    wrong += [f"{kind} in doubt" for result in results for kind in invalid_kinds(result)]
    if wrong or code or not results:
        raise Wrong(wrong[0] if wrong else f"exit code {code}: {stderr[-100:]}")
    errors = [result["metrics"].get("output_error") for result in results]
    compared = [f"{error:.1e}" for error in errors if error is not None]
    return f"{len(results)} points, output error {', '.join(compared) or 'not compared, as it is the reference itself'}"


def invalid_kinds(result: dict[str, Any]) -> list[str]:
    """The doubts that make a result invalid, less those of calls that are all alike."""
    return [doubt["kind"] for doubt in result["doubts"] if doubt["severity"] == "invalid"]


CHECKS: dict[Callable[..., str], float] = {
    wall_time: 15,
    weights: 15,
    spooling: 20,
    event_time: 15,
    device_memory: 20,
    host_gap: 30,
    queued_calls: 20,
    out_of_memory: 45,
    after_a_trace: 30,
    token_sync: 40,
    cold_cache: 15,
    utilization: 30,
    energy: 60,
    calibration: 90,
    families: 40,
    foreign_load: 40,
    device_assert: 60,
}
"""Every check with the seconds that it may take on a machine with one GPU (`families`: each of its models), in the
order of what a second of it tells: first contact and the clocks, then faults and sensors, then what is long; last what
leaves a GPU warm or disturbed."""


def data_sheet(name: str) -> dict[str, float] | None:
    """The data sheet of a GPU by its exact name; None for any other: an L40S is no L4."""
    for vendor in VENDORS:
        name = name.removeprefix(vendor)
    return DATA_SHEETS.get(name.removesuffix(" OAM").strip())


def judged(check: Callable[..., str], machine: Machine, *of: str) -> Verdict:
    """A check's outcome, for one of its models if it has some; an error of its own is wrong, too."""
    claim = " ".join((check.__doc__ or "").split())
    try:
        outcome, evidence = "right", check(machine, *of)
    except NotApplicableError as error:
        outcome, evidence = "not applicable", str(error)
    except Wrong as error:
        outcome, evidence = "wrong", str(error)
    except Exception as error:  # noqa: BLE001 - the table shows every check, whatever one of them meets
        outcome, evidence = "wrong", f"the check itself failed: {type(error).__name__}: {error}"
    return Verdict(name=" ".join((check.__name__, *of)), claim=claim, outcome=outcome, evidence=evidence)


def row(verdict: Verdict) -> str:
    """A verdict as lines of the table."""
    first = f"{verdict.outcome.upper():<15} {verdict.name:<22} {verdict.claim}"
    return f"{first}\n{textwrap.fill(verdict.evidence, 110, initial_indent=' ' * 16, subsequent_indent=' ' * 16)}"


def main(argv: list[str] | None = None) -> int:
    """Run the checks and print the table; 1 when anything is wrong."""
    names = [check.__name__ for check in CHECKS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="device to check (default: cuda:0)")
    parser.add_argument("--model", default="bert-base-uncased", help="model of the loops (default: bert-base-uncased)")
    parser.add_argument("--models", default=",".join(FAMILIES), help="models of the families (default: one of each)")
    parser.add_argument("--only", default=",".join(names), help=f"checks to run, of {', '.join(names)} (default: all)")
    parser.add_argument("--json", metavar="FILE", help="file for the verdicts, a JSON line after each check")
    parser.add_argument(
        "--budget", type=float, metavar="S", help="seconds after which no check begins that would not end in time"
    )
    arguments = parser.parse_args(argv)
    wanted = arguments.only.split(",")
    if unknown := sorted(set(wanted) - set(names)):
        parser.error(f"--only: unknown check {unknown[0]!r}")
    needed = {**NEEDED, **dict(pair for kind, pair in SENSORS.items() if arguments.device.startswith(kind))}
    if missing := [package for name, package in needed.items() if importlib.util.find_spec(name) is None]:
        parser.error(f"missing packages: pip install {' '.join(missing)}")
    started_s, verdicts = time.monotonic(), list[Verdict]()
    with tempfile.TemporaryDirectory(prefix="benchhouse-hardware-") as folder, lines(arguments.json) as write:
        machine = Machine(arguments.device, arguments.model, Path(folder), tuple(arguments.models.split(",")))
        print(f"{machine.device.selector}: {machine.device.name}, driver {machine.device.driver or 'none'}\n")
        for check, usual_s in CHECKS.items():
            if check.__name__ not in wanted:
                continue
            for of in [(model,) for model in machine.models] if check is families else [()]:
                left_s = None if arguments.budget is None else arguments.budget - (time.monotonic() - started_s)
                if left_s is not None and usual_s > left_s:
                    name = " ".join((check.__name__, *of))
                    print(f"{'LEFT OUT':<15} {name:<22} takes about {usual_s:g} s, {max(0.0, left_s):.0f} s are left")
                    continue
                verdicts.append(judged(check, machine, *of))
                write(verdicts[-1])
                print(row(verdicts[-1]), flush=True)
        machine.close()
    counts = {
        outcome: sum(one.outcome == outcome for one in verdicts) for outcome in ("right", "wrong", "not applicable")
    }
    print(f"\n{', '.join(f'{count} {outcome}' for outcome, count in counts.items())}")
    return 1 if counts["wrong"] else 0


@contextmanager
def lines(path: str | None) -> Iterator[Callable[[Verdict], None]]:
    """Writes a JSON line per verdict to a file, on disk at once: a run that is killed keeps what it learned."""
    if path is None:
        yield lambda verdict: None
        return
    with Path(path).open("w", encoding="utf-8") as opened:

        def write(verdict: Verdict) -> None:
            opened.write(json.dumps({name: getattr(verdict, name) for name in verdict.__slots__}) + "\n")
            opened.flush()
            os.fsync(opened.fileno())

        yield write


if __name__ == "__main__":
    sys.exit(main())
