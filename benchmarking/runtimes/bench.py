"""Benchmarks that people wrote themselves, whatever they run: a class found by file and name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarking.devices import DeviceHandle
from benchmarking.errors import UsageError
from benchmarking.records import Cell, Device, Point, Precision, Scalar, Workload
from benchmarking.runtimes import Runtime, Session, Stage

OPTION = "variant"


class BenchRuntime(Runtime):
    """The runtime `bench`. Modes: who times the calls (timed_by), and the variant.

    What a benchmark needs it imports itself, when its file is."""

    name = "bench"
    runs_models = False
    is_compared = False

    def supports(self, device: Device, workload: Workload, precision: Precision) -> str | None:
        if workload.source != "bench":
            return "runtime bench runs people's own benchmarks, not models: see batch_benchmark --benches"
        devices = workload.config["devices"]
        if isinstance(devices, list) and devices and device.type not in devices:
            return f"{workload.config['bench']} runs on {', '.join(map(str, devices))}, not on {device.type}"
        if device.type == "null" and workload.config["timed_by"] != "bench":
            return "device null has no clock of its own: there a benchmark must time itself"
        return None

    def options(self, workload: Workload) -> tuple[str, ...]:
        return (OPTION,)

    def mode(self, device: Device, workload: Workload, options: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        if unknown := sorted(set(options) - {OPTION}):
            raise UsageError(f"runtime bench has no option {unknown[0]!r}; it has {OPTION}")
        return {"timed_by": str(workload.config["timed_by"]), **options}

    def open(self, cell: Cell, handle: DeviceHandle, stage: Stage, points: Sequence[Point]) -> Session:
        from pathlib import Path

        from benchmarking.benches._loading import load_class
        from benchmarking.runtimes._bench_session import BenchSession

        path = Path(cell.workload.path or "")
        with stage("import"):
            bench = load_class(path, str(cell.workload.config["bench"]))
        return BenchSession(bench, path, cell, handle)


PLUGIN = BenchRuntime()
