"""Thread scaling: the speedup of each number of threads over the fewest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from benchmarking.core.metrics import METRICS
from benchmarking.core.records import Result, Run, Status, canonical_hash, to_json
from benchmarking.core.tables import Column, Table, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, wrapped
from benchmarking.measure.speedup import Speedup, speedups


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
            groups.setdefault(_setup(run), []).append(run)
    several = (group for group in groups.values() if len({run.cell.num_threads for run in group}) > 1)
    return tuple(_scaling(sorted(group, key=_threads)) for group in several)


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
    if any(one.speedup is not None and one.speedup.scope == "within" for one in scaling.points):
        notes.append("(calls): fewer than 3 launches, so the interval covers only the variation between calls")
    return notes


def _setup(run: Run) -> str:
    """The key shared by runs that differ only in their threads."""
    cell = replace(run.cell, num_threads=None)
    return canonical_hash([run.hardware.hardware_id, to_json(cell)])


def _threads(run: Run) -> int:
    return run.cell.num_threads or 0


def _scaling(runs: Sequence[Run]) -> Scaling:
    """`runs` by their numbers of threads, ascending."""
    labels = dict.fromkeys(result.point.label for run in runs for result in run.results)
    cell = runs[0].cell
    return Scaling(
        model_id=cell.subject,
        device=cell.device.selector,
        device_name=cell.device.name,
        runtime=cell.runtime,
        precision=cell.precision,
        points=tuple(one for label in labels for one in _point(label, runs)),
    )


def _point(label: str, runs: Sequence[Run]) -> list[ScaledPoint]:
    found = [(run, result) for run in runs for result in run.results if result.point.label == label]
    base = next(((run, result) for run, result in found if _is_ranked(run, result)), None)
    return [_scaled(run, result, base) for run, result in found]


def _is_ranked(run: Run, result: Result) -> bool:
    """Whether a result may be compared: measured, not invalid, and on real hardware."""
    return result.status == "ok" and result.validity != "invalid" and not run.is_simulated


def _scaled(run: Run, result: Result, base: tuple[Run, Result] | None) -> ScaledPoint:
    ratio = None
    if base is not None and base[1] is not result and _is_ranked(run, result):
        (ratio,) = speedups([(base[1], result)])
    thread_ratio = _threads(run) / _threads(base[0]) if base is not None else 1.0
    return ScaledPoint(
        point=result.point.label,
        threads=_threads(run),
        status=result.status,
        median_ms=result.metrics.get("latency_median_ms"),
        speedup=ratio,
        efficiency=None if ratio is None else ratio.ratio / thread_ratio,
    )


def _interval(one: ScaledPoint) -> str | None:
    ratio = one.speedup
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return f"{ratio.low:#.3g} .. {ratio.high:#.3g}" + (" (calls)" if ratio.scope == "within" else "")


def _state(one: ScaledPoint) -> str:
    return "" if one.status == "ok" else one.status.replace("_", " ")


_number = partial(Column[ScaledPoint], is_number=True)
_COLUMNS: tuple[Column[ScaledPoint], ...] = (
    Column(heading="point", text=lambda one: one.point, is_key=True),
    _number(heading="threads", text=lambda one: str(one.threads), is_key=True),
    _number(
        heading=METRICS["latency_median_ms"].heading,
        text=lambda one: None if one.median_ms is None else number(one.median_ms),
    ),
    _number(heading="speedup", text=lambda one: None if one.speedup is None else f"{one.speedup.ratio:#.3g}"),
    _number(heading="95 % interval", text=_interval),
    _number(heading="efficiency", text=lambda one: None if one.efficiency is None else f"{one.efficiency:.0%}"),
    Column(heading="state", text=_state, is_state=True),
)
