"""Changes to hand-made runs: other devices, other workloads, failed or doubtful points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarking.core.provenance import uuid7
from benchmarking.core.records import Doubt, Point, Result, Run, canonical_hash

Change = Callable[[Result], Result]
Where = Callable[[Point], bool]


class Alter:
    """Changes runs made by `make_run`."""

    LONG_MODEL = "an-organisation/an-extremely-long-model-name-that-goes-on-and-on-v2.5-instruct-awq-int4-128g-and-more"
    UNBREAKABLE_MODEL = "b" * 110
    LONG_DEVICE = "A Vendor's Accelerator Card with a Name for $x_1$ Every Occasion and a Very Long Suffix Indeed"

    @staticmethod
    def on_device(run: Run, name: str, selector: str = "cpu", **facts: Any) -> Run:
        """The run, as if measured on another device."""
        device = replace(run.cell.device, name=name, selector=selector, **facts)
        keys = {"device_name": name, "selector": selector}
        hardware = replace(run.hardware, device=device, hashed_keys=keys, hardware_id=canonical_hash(keys)[:16])
        return replace(run, cell=replace(run.cell, device=device), hardware=hardware)

    @staticmethod
    def workload(run: Run, **facts: Any) -> Run:
        """The run, as if of another workload."""
        return replace(run, cell=replace(run.cell, workload=replace(run.cell.workload, **facts)))

    @staticmethod
    def mode(run: Run, **settings: Any) -> Run:
        """The run, as if with other settings of the runtime."""
        return replace(run, cell=replace(run.cell, runtime_mode=settings))

    @staticmethod
    def renewed(run: Run) -> Run:
        """The run with new ids."""
        results = tuple(replace(result, result_id=uuid7()) for result in run.results)
        return replace(run, run_id=uuid7(), results=results)

    @staticmethod
    def results(run: Run, change: Change, where: Where = lambda point: True) -> Run:
        """The run with the results at some points changed."""
        changed = [change(result) if where(result.point) else result for result in run.results]
        return replace(run, results=tuple(changed))

    @staticmethod
    def varied(run: Run, each: float = 1.00013) -> Run:
        """The run with launches that differ by a small factor, as those of a fine clock do."""

        def vary(result: Result) -> Result:
            return replace(
                result,
                samples=tuple(
                    replace(one, values=tuple(value * each**one.launch for value in one.values))
                    for one in result.samples
                ),
            )

        return Alter.results(run, vary)

    @staticmethod
    def only(run: Run, where: Where) -> Run:
        """The run with the results at some points only."""
        return replace(run, results=tuple(result for result in run.results if where(result.point)))

    @staticmethod
    def failed(result: Result) -> Result:
        """The result, as if its point had failed."""
        error = "OutOfMemoryError: too big"
        return replace(result, status="failed", validity=None, error=error, metrics={}, launches=0, samples=())

    @staticmethod
    def noisy(result: Result) -> Result:
        """The result, in doubt."""
        return replace(result, validity="noisy", doubts=(Doubt(kind="cpu_pressure", severity="noisy"),))

    @staticmethod
    def invalid(result: Result) -> Result:
        """The result, with a wrong output."""
        return replace(result, validity="invalid", doubts=(Doubt(kind="nan_output", severity="invalid"),))

    @staticmethod
    def at(**changes: Any) -> Change:
        """A change of a result's point."""
        return lambda result: replace(result, point=replace(result.point, **changes))

    @staticmethod
    def metrics(**values: float | None) -> Change:
        """A change of a result's metrics; None takes one away."""

        def change(result: Result) -> Result:
            merged = {**result.metrics, **values}
            return replace(result, metrics={name: value for name, value in merged.items() if value is not None})

        return change
