"""What the user says of a foreign file, in place of what it says itself or does not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from benchmarking.errors import FormatError
from benchmarking.records import Device, Json, Origin, Precision, Result, Run, canonical_hash
from db.importers._building import content_id, foreign_hardware, iso


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Words of the user's about imported runs. What a file says instead is kept in `origin.kept["replaced"]`."""

    model_id: str | None = None
    device: str | None = None
    """A device as `--device` takes it: cpu, cuda, cuda:1, ..."""
    device_name: str | None = None
    """The vendor's name of the model."""
    precision: Precision | None = None
    started_at: datetime | None = None
    """Naive UTC."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Added to the file's own. They are no part of the run's id: other tags do not make another run."""

    def on(self, run: Run) -> Run:
        """The run as the user says it is, with ids and hardware that are hashes of that too."""
        tagged = replace(run, provenance=replace(run.provenance, tags={**run.provenance.tags, **self.tags}))
        said = self._said()
        if not said:
            return tagged
        changed = self._changed(tagged)
        dated = changed if self.started_at is None else _at(changed, self.started_at)
        return _renamed(dated, canonical_hash(said))

    def _said(self) -> dict[str, Json]:
        said: dict[str, Json] = {
            "model_id": self.model_id,
            "device": self.device,
            "device_name": self.device_name,
            "precision": self.precision,
            "started_at": None if self.started_at is None else iso(self.started_at),
        }
        return {name: value for name, value in said.items() if value is not None}

    def _changed(self, run: Run) -> Run:
        cell, hardware = run.cell, run.hardware
        device = self._device(cell.device)
        workload = replace(cell.workload, model_id=self.model_id or cell.workload.model_id)
        return replace(
            run,
            cell=replace(
                cell,
                workload=workload,
                device=device,
                requested_device=device.selector,
                precision=self.precision or cell.precision,
            ),
            hardware=foreign_hardware(
                device, hardware.cpu_model, hardware.cpu_cores, hardware.cpu_threads, hardware.memory_bytes
            ),
            origin=None if run.origin is None else self._origin(run, run.origin),
        )

    def _device(self, device: Device) -> Device:
        selector = self.device or device.selector
        return replace(
            device,
            type=device.type if self.device is None else selector.partition(":")[0],
            selector=selector,
            name=self.device_name or device.name,
        )

    def _origin(self, run: Run, origin: Origin) -> Origin:
        found: dict[str, Json] = {
            "model_id": run.cell.workload.model_id,
            "device": run.cell.device.selector,
            "device_name": run.cell.device.name,
            "precision": run.cell.precision,
            "started_at": run.started_at,
        }
        replaced = {name: found[name] for name, value in self._said().items() if found[name] != value}
        return replace(origin, kept={**origin.kept, "replaced": replaced}) if replaced else origin


def _at(run: Run, time: datetime) -> Run:
    """The run as one of that time, which is then no doubt any more; it lasts as long as it did."""
    lasted = datetime.fromisoformat(run.finished_at) - datetime.fromisoformat(run.started_at)
    try:
        finished = time + lasted
    except OverflowError as error:
        raise FormatError(f"a run that lasts {lasted} cannot begin at {iso(time)}: name another date") from error
    results = tuple(_result_at(result, iso(time)) for result in run.results)
    return replace(run, started_at=iso(time), finished_at=iso(finished), results=results)


def _result_at(result: Result, time: str) -> Result:
    doubts = tuple(doubt for doubt in result.doubts if doubt.kind != "undated")
    return replace(result, doubts=doubts, samples=tuple(replace(one, started_at=time) for one in result.samples))


def _renamed(run: Run, words: str) -> Run:
    results = tuple(replace(one, result_id=content_id(one.result_id, words)) for one in run.results)
    return replace(run, run_id=content_id(run.run_id, words), results=results)
