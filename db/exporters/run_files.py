"""Run files: each run as the JSON that a measurement writes, which `setup_benchmark_db --ingest FOLDER` loads.

A run is exported as a whole, even if only some of its results are selected: a warehouse that loaded one part could not
load the rest, which has the same run id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarking.core.errors import UsageError
from benchmarking.core.records import Run, dumps
from benchmarking.core.untrusted.redaction import redacted_record
from db.exporters.support.exporting import ExportRequest, Scope, Tables, folder_output, text_output, whole_runs
from db.run_records import StoredRun

if TYPE_CHECKING:
    from db.warehouse import Warehouse

FILE = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonExporter:
    """A folder of run files, one run in a file, or one run per line on stdout."""

    name: str = "json"
    summary: str = (
        "a folder of run files, for benchhouse setup --ingest; FILE.json for one run; stdout: one run per line"
    )
    tables: tuple[Tables, ...] = ("all",)
    can_be_anonymous: bool = True

    def export(self, warehouse: Warehouse, request: ExportRequest) -> tuple[Path, ...]:
        runs = _exported(whole_runs(Scope(warehouse, request.selection)), request)
        output = request.output
        if output is None:
            with text_output(None) as stream:
                stream.writelines(f"{dumps(run)}\n" for run in runs)
            return ()
        if output.suffix == FILE and not request.is_folder:
            first = next(runs)
            if next(runs, None) is not None:
                raise UsageError(
                    f"{output}: a run file contains one run, but several are selected: give a folder, or select one run"
                )
            with text_output(output) as stream:
                stream.write(f"{dumps(first)}\n")
        else:
            with folder_output(output) as folder:
                for run in runs:
                    (folder / file_name(run)).write_text(f"{dumps(run)}\n", encoding="utf-8")
        return (output,)


def file_name(run: Run) -> str:
    """A unique file name; names sort by the start of the runs."""
    cell = run.cell
    started = re.sub(r"[-:]|\.\d+", "", run.started_at)
    parts = (started, cell.workload.model_id, cell.device.selector, cell.runtime, cell.precision)
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", "_".join(parts))
    return f"{words[:150]}_{re.sub('[^A-Za-z0-9-]', '-', run.run_id)}{FILE}"


def _exported(stored_runs: Iterator[StoredRun], request: ExportRequest) -> Iterator[Run]:
    """The runs, redacted if asked. The user is notified of samples that a run file cannot contain."""
    for stored in stored_runs:
        if stored.compacted:
            request.notify(
                f"run {stored.run.run_id}: left out the quantiles of {stored.compacted} launches and metrics, whose "
                "raw samples were compacted: a run file has no field for them (Parquet does)"
            )
        yield redacted_record(stored.run, anonymous=True) if request.anonymous else stored.run


PLUGIN = JsonExporter()
