"""The user's own values for imported runs, which replace or complete those in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from benchmarking.core.errors import FormatError
from benchmarking.core.records import Json, Precision, Run, canonical_hash
from db.importers.support.building import content_id, foreign_hardware, iso


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenValues:
    """Values from the user for imported runs. A value they replace is kept in `origin.kept["replaced"]`."""

    model_id: str | None = None
    device: str | None = None
    """Value of `--device`: cpu, cuda, cuda:1, ..."""
    device_name: str | None = None
    """The vendor's name of the model."""
    precision: Precision | None = None
    runtime: str | None = None
    """Engine or runtime that ran the model."""
    started_at: datetime | None = None
    """Naive UTC."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Added to the tags of the file. The id of a run does not depend on tags."""

    def applied_to(self, run: Run) -> Run:
        """The run with these values, on which its ids and hardware_id then depend."""
        tagged = replace(run, provenance=replace(run.provenance, tags={**run.provenance.tags, **self.tags}))
        stated: dict[str, Json] = {
            "model_id": self.model_id,
            "device": self.device,
            "device_name": self.device_name,
            "precision": self.precision,
            "runtime": self.runtime,
            "started_at": None if self.started_at is None else iso(self.started_at),
        }
        values = {name: value for name, value in stated.items() if value is not None}
        if not values:
            return tagged
        changed = self._changed(tagged, values)
        dated = changed if self.started_at is None else _at(changed, self.started_at)
        settled = {"engine_not_stated"} if self.runtime is not None else set()
        settled |= {"undated"} if self.started_at is not None else set()
        # The result without these doubts, which say that the file does not state a value that the user gave.
        certain = replace(
            dated,
            results=tuple(
                replace(one, doubts=tuple(doubt for doubt in one.doubts if doubt.kind not in settled))
                for one in dated.results
            ),
        )
        words = canonical_hash(values)
        results = tuple(replace(one, result_id=content_id(one.result_id, words)) for one in certain.results)
        return replace(certain, run_id=content_id(certain.run_id, words), results=results)

    def _changed(self, run: Run, values: Mapping[str, Json]) -> Run:
        """The run with the values but the time, and with those that they replace."""
        cell, hardware, origin = run.cell, run.hardware, run.origin
        selector = self.device or cell.device.selector
        device = replace(
            cell.device,
            type=cell.device.type if self.device is None else selector.partition(":")[0],
            selector=selector,
            name=self.device_name or cell.device.name,
        )
        of_file: dict[str, Json] = {
            "model_id": cell.workload.model_id,
            "device": cell.device.selector,
            "device_name": cell.device.name,
            "precision": cell.precision,
            "runtime": cell.runtime,
            "started_at": run.started_at,
        }
        replaced = {name: of_file[name] for name, value in values.items() if of_file[name] != value}
        if origin is not None and replaced:
            origin = replace(origin, kept={**origin.kept, "replaced": replaced})
        return replace(
            run,
            cell=replace(
                cell,
                workload=replace(cell.workload, model_id=self.model_id or cell.workload.model_id),
                device=device,
                requested_device=device.selector,
                precision=self.precision or cell.precision,
                runtime=self.runtime or cell.runtime,
            ),
            hardware=foreign_hardware(
                device, hardware.cpu_model, hardware.cpu_cores, hardware.cpu_threads, hardware.memory_bytes
            ),
            origin=origin,
        )


def _at(run: Run, time: datetime) -> Run:
    """The run moved to that time, with the same duration."""
    duration = datetime.fromisoformat(run.finished_at) - datetime.fromisoformat(run.started_at)
    try:
        finished = time + duration
    except OverflowError as error:
        raise FormatError(f"a run of {duration} cannot start at {iso(time)}: choose another date") from error
    results = tuple(
        replace(result, samples=tuple(replace(one, started_at=iso(time)) for one in result.samples))
        for result in run.results
    )
    return replace(run, started_at=iso(time), finished_at=iso(finished), results=results)
