"""Thread scaling: the speedup of each number of threads over the fewest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import METRICS
from benchmarking.core.records import Result, Run, Status, canonical_hash, to_json
from benchmarking.core.tables import Column, Table, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, wrapped
from benchmarking.core.verdicts.launches import CALLS_NOTE
from benchmarking.core.verdicts.speedups import Speedup, speedups


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPoint:
    """A point with one number of threads."""

    point: str
    """Its label."""
    threads: int
    status: Status
    median_ms: float | None
    speedup: Speedup | None
    """Speedup over the fewest threads that measured the point; None for these, and if one is not ranked."""
    efficiency: float | None
    """Speedup as a share of perfect scaling, where twice the threads take half the time; None without a speedup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """One model on one device in one runtime at one precision, with several numbers of threads."""

    model_id: str
    device: str
    device_name: str | None
    runtime: str
    precision: str
    points: tuple[ScaledPoint, ...]
    """By point, then by the number of threads."""


def scalings(runs: Sequence[Run]) -> tuple[Scaling, ...]:
    """The scaling of each setup that was measured with several numbers of threads."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.cell.num_threads is not None:
            setup = canonical_hash([run.hardware.hardware_id, to_json(replace(run.cell, num_threads=None))])
            groups.setdefault(setup, []).append(run)
    scaled = []
    for group in groups.values():
        if len({run.cell.num_threads for run in group}) == 1:
            continue
        ordered = sorted(group, key=_threads)
        labels = dict.fromkeys(result.point.label for run in ordered for result in run.results)
        cell = ordered[0].cell
        scaled.append(
            Scaling(
                model_id=cell.subject,
                device=cell.device.selector,
                device_name=cell.device.name,
                runtime=cell.runtime,
                precision=cell.precision,
                points=tuple(point for label in labels for point in _points(label, ordered)),
            )
        )
    return tuple(scaled)


def scaling_text(scaling: Scaling, page: Page = PLAIN) -> str:
    """The scaling as text: title, table and remarks."""
    above, *below = (wrapped(text, page.text_width) for text in (title(scaling), *remarks(scaling)))
    return "\n".join([above, table_text(scaling_table(scaling, page), page), "", *below])


def title(scaling: Scaling) -> str:
    """The title of the scaling."""
    where = scaling.device_name or scaling.device
    return f"{scaling.model_id} on {where}, {scaling.runtime}, {scaling.precision}: scaling over threads"


def scaling_table(scaling: Scaling, page: Page = PLAIN) -> Table:
    """A row per point and number of threads."""
    return table_of(_COLUMNS, scaling.points, page)


def remarks(scaling: Scaling) -> list[str]:
    """Explanations of the terms in the table."""
    notes = ["efficiency: speedup as a share of perfect scaling, where twice the threads take half the time"]
    if any(point.speedup is not None and point.speedup.scope == "within" for point in scaling.points):
        notes.append(CALLS_NOTE)
    return notes


def _threads(run: Run) -> int:
    return run.cell.num_threads or 0


def _points(label: str, runs: Sequence[Run]) -> list[ScaledPoint]:
    """A point in each run; `runs` by their numbers of threads, ascending."""
    measured = [(run, result) for run in runs for result in run.results if result.point.label == label]
    base = next(((run, result) for run, result in measured if _is_ranked(run, result)), None)
    points = []
    for run, result in measured:
        speedup, efficiency = None, None
        if base is not None and base[1] is not result and _is_ranked(run, result):
            (speedup,) = speedups([(base[1], result)])
        if speedup is not None and base is not None:
            efficiency = speedup.ratio / (_threads(run) / _threads(base[0]))
        points.append(
            ScaledPoint(
                point=label,
                threads=_threads(run),
                status=result.status,
                median_ms=result.metrics.get("latency_median_ms"),
                speedup=speedup,
                efficiency=efficiency,
            )
        )
    return points


def _is_ranked(run: Run, result: Result) -> bool:
    """Whether a result may be compared: measured, not invalid, and on real hardware."""
    return result.status == "ok" and result.validity != "invalid" and not run.is_simulated


def _interval(point: ScaledPoint) -> str | None:
    ratio = point.speedup
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return f"{ratio.low:#.3g} .. {ratio.high:#.3g}" + (" (calls)" if ratio.scope == "within" else "")


_number = partial(Column[ScaledPoint], is_number=True)
_COLUMNS: tuple[Column[ScaledPoint], ...] = (
    Column(heading="point", text=lambda point: point.point, is_key=True),
    _number(heading="threads", text=lambda point: str(point.threads), is_key=True),
    _number(
        heading=METRICS["latency_median_ms"].heading,
        text=lambda point: None if point.median_ms is None else number(point.median_ms),
    ),
    _number(heading="speedup", text=lambda point: None if point.speedup is None else f"{point.speedup.ratio:#.3g}"),
    _number(heading="95 % interval", text=_interval),
    _number(heading="efficiency", text=lambda point: None if point.efficiency is None else f"{point.efficiency:.0%}"),
    Column(
        heading="state",
        text=lambda point: "" if point.status == "ok" else point.status.replace("_", " "),
        is_state=True,
    ),
)
