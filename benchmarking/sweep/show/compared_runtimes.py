"""Compares runs of one model by several runtimes: latency, output error and memory at each point, then speedups.

Invalid results and those of emulators are shown but never ranked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from statistics import geometric_mean

from benchmarking.core.doubts import SEVERITIES
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC, LATENCY_WALL, METRICS, peak_memory_column
from benchmarking.core.plugins import default_runtime
from benchmarking.core.records import Result, Run, Samples, Status, Validity, canonical_hash, to_json
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import counted, number, wrapped
from benchmarking.core.verdicts.judging import Speedup, launch_medians_ms, speedups
from benchmarking.core.verdicts.launches import CALLS_NOTE
from benchmarking.core.verdicts.words import verdict_sentence
from benchmarking.sweep.show.report import interval_text, is_ranked, left_out
from benchmarking.workloads.support.families import is_given

BY_AB = "; benchhouse ab A B measures two of them until it can tell"
WORST_FIRST = tuple(severity for severity in reversed(SEVERITIES) if severity != "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A runtime at a point. None: not measured."""

    runtime: str
    status: Status
    error: str | None
    validity: Validity | None
    doubts: tuple[str, ...]
    """Kinds of doubt above severity info."""
    median_ms: float | None
    speedup: Speedup | None
    """Speedup over the baseline; None if one of the two is not ranked."""
    output_error: float | None
    """Relative L2 distance from the reference output."""
    equal_token_share: float | None
    is_reference: bool
    peak_memory_mb: float | None
    is_fastest: bool
    """Whether its median is the lowest of the ranked results, or it is not judged slower than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointComparison:
    """All runtimes at a point."""

    point: str
    """Its label."""
    entries: tuple[Entry, ...]

    @property
    def is_undecided(self) -> bool:
        """Whether there are several runtimes, of which none is judged slower than the one with the lowest median."""
        return len(self.entries) > 1 and all(entry.is_fastest for entry in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The speedups of a runtime over all points."""

    runtime: str
    points: int
    geometric_mean: float
    best: float
    best_point: str
    worst: float
    worst_point: str
    doubtful: int
    """Number of points at which one of the two sides is in doubt."""
    sentence: str
    """The verdicts on all points: `verdict_sentence`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One model on one device at one precision, by several runtimes."""

    model_id: str
    task: str
    device: str
    device_name: str | None
    precision: str
    baseline: str
    """The baseline of speedups: the default runtime, or the first if that was not measured."""
    points: tuple[PointComparison, ...]
    summaries: tuple[Summary, ...]
    not_measured: Mapping[str, str] = field(default_factory=dict)
    """Runtime -> why it was not measured."""


def compare(runs: Sequence[Run], refused: Mapping[str, str] | None = None) -> Comparison:
    """The comparison of runs that differ only in their runtime; `refused` are runtimes without a run, and why."""
    skipped = {
        run.cell.runtime: next((result.error for result in run.results if result.error), "skipped")
        for run in runs
        if run.status == "skipped" and run.results
    }
    measured = [run for run in runs if run.cell.runtime not in skipped] or list(runs)
    default = default_runtime()
    baseline = next((run for run in measured if run.cell.runtime == default), measured[0])
    labels = dict.fromkeys(result.point.label for run in measured for result in run.results)
    points = _points(labels, measured, baseline)
    cell = baseline.cell
    ratios_of: dict[str, list[tuple[float, str, Speedup]]] = {}
    doubtful: Counter[str] = Counter()
    for point in points:
        is_base_doubtful = any(entry.doubts for entry in point.entries if entry.runtime == cell.runtime)
        for entry in point.entries:
            if entry.speedup is not None and entry.runtime != cell.runtime:
                ratios_of.setdefault(entry.runtime, []).append((entry.speedup.ratio, point.point, entry.speedup))
                doubtful[entry.runtime] += is_base_doubtful or bool(entry.doubts)
    summaries = []
    for runtime, ratios in ratios_of.items():
        best, worst = max(ratios, key=lambda item: item[0]), min(ratios, key=lambda item: item[0])
        judgements = [speedup.judgement for *_, speedup in ratios]
        summaries.append(
            Summary(
                runtime=runtime,
                points=len(ratios),
                geometric_mean=geometric_mean([ratio for ratio, *_ in ratios]),
                best=best[0],
                best_point=best[1],
                worst=worst[0],
                worst_point=worst[1],
                doubtful=doubtful[runtime],
                sentence=verdict_sentence(cell.runtime, runtime, judgements, METRICS[DEFAULT_METRIC]),
            )
        )
    return Comparison(
        model_id=cell.subject,
        task=cell.workload.task,
        device=cell.device.selector,
        device_name=cell.device.name,
        precision=cell.precision,
        baseline=cell.runtime,
        points=points,
        summaries=tuple(summaries),
        not_measured={**skipped, **(refused or {})},
    )


def comparisons(runs: Sequence[Run]) -> tuple[Comparison, ...]:
    """A comparison for each model, device and precision measured with several runtimes."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        cell, workload = run.cell, run.cell.workload
        model = (workload.config_hash, workload.path, workload.task, workload.weights, cell.subject)
        where = (run.hardware.hardware_id, cell.device.selector, cell.num_threads, cell.cpu_list)
        groups.setdefault(canonical_hash(to_json([*model, *where, cell.precision])), []).append(run)
    return tuple(compare(group) for group in groups.values() if len({run.cell.runtime for run in group}) > 1)


def condensed(run: Run) -> Run:
    """The run with the raw samples reduced to the median of each launch, which is all that a comparison needs."""

    def medians(result: Result) -> tuple[Samples, ...]:
        by_launch = launch_medians_ms(result)
        return tuple(
            replace(samples, values=(by_launch[samples.launch],))
            for samples in result.samples
            if samples.phase == "measure" and samples.metric == LATENCY_WALL and samples.launch in by_launch
        )

    return replace(run, results=tuple(replace(result, samples=medians(result)) for result in run.results))


def _points(labels: Iterable[str], runs: Sequence[Run], baseline: Run) -> tuple[PointComparison, ...]:
    """All runs at each point. All verdicts are of one comparison."""
    by_label = {
        label: [(run, result) for run in runs if (result := _result(run, label)) is not None] for label in labels
    }
    points: list[tuple[Result | None, Result, list[Result]]] = []
    for label, results in by_label.items():  # the baseline, the lowest median, and all
        ranked = [result for run, result in results if is_ranked(run, result)]
        base = _result(baseline, label)
        if ranked:
            best = min(ranked, key=lambda result: result.metrics["latency_median_ms"])
            points.append((base if base is not None and is_ranked(baseline, base) else None, best, ranked))
    over_base = [(base, one) for base, _, ranked in points if base is not None for one in ranked if one is not base]
    by_result = {pair[1].result_id: ratio for pair, ratio in zip(over_base, speedups(over_base), strict=True)}
    # The best and the baseline have one verdict, that of the sentence; only others are judged against the best.
    over_best = [
        (best, one)
        for base, best, ranked in points
        if best is not base
        for one in ranked
        if one is not best and one is not base
    ]
    behind = {
        other.result_id
        for (_, other), ratio in zip(over_best, speedups(over_best), strict=True)
        if ratio is not None and ratio.judgement.verdict == "slower"
    }
    for base, best, ranked in points:
        for one in ranked:
            ratio = by_result.get(one.result_id)
            if base is None or ratio is None or (best is not base and best is not one):
                continue
            if ratio.judgement.verdict == ("slower" if best is base else "faster"):
                behind.add((one if best is base else base).result_id)
    fastest = {one.result_id for *_, ranked in points for one in ranked} - behind
    return tuple(
        PointComparison(
            point=label,
            entries=tuple(
                _entry(run, result, by_result.get(result.result_id), is_fastest=result.result_id in fastest)
                for run, result in results
            ),
        )
        for label, results in by_label.items()
    )


def _result(run: Run, label: str) -> Result | None:
    return next((result for result in run.results if result.point.label == label), None)


def _entry(run: Run, result: Result, speedup: Speedup | None, *, is_fastest: bool) -> Entry:
    from benchmarking.sweep.run.reference import is_reference

    metrics, workload = result.metrics, run.cell.workload
    has_references = workload.family is not None or is_given(workload)
    return Entry(
        runtime=run.cell.runtime,
        status=result.status,
        error=result.error,
        validity=result.validity,
        doubts=tuple(doubt.kind for severity in WORST_FIRST for doubt in result.doubts if doubt.severity == severity),
        median_ms=metrics.get("latency_median_ms"),
        speedup=speedup,
        output_error=metrics.get("output_error"),
        equal_token_share=metrics.get("output_equal_token_share"),
        is_reference=result.status == "ok" and has_references and is_reference(run.cell),
        peak_memory_mb=None if (peak := peak_memory_column(metrics)) is None else metrics[peak],
        is_fastest=is_fastest,
    )


def comparison_text(comparison: Comparison, page: Page = PLAIN) -> str:
    """The comparison as text: title, table and remarks."""
    rows = [
        _Row(
            point=point.point if place == 0 else "",
            entry=entry,
            is_baseline=entry.runtime == comparison.baseline,
            is_marked=entry.is_fastest and not point.is_undecided,
        )
        for point in comparison.points
        for place, entry in enumerate(point.entries)
    ]
    table = table_of(_COLUMNS, rows, page)
    where = comparison.device_name or comparison.device
    title = (
        f"{comparison.model_id} ({comparison.task}) on {where}, {comparison.precision}: "
        f"runtimes compared, speedup over {comparison.baseline}"
    )
    above, *below = (wrapped(text, page.text_width) for text in (title, *remarks(comparison), *left_out(table)))
    return "\n".join([above, table_text(table, page), "", *below])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A runtime at a point, in the table."""

    point: str
    """Label of the point in its first row, else empty."""
    entry: Entry
    is_baseline: bool
    is_marked: bool
    """Whether it has the mark of the fastest, which is left out where all have it."""


def remarks(comparison: Comparison) -> list[str]:
    """The summary of each runtime, the runtimes that were not measured, and the meaning of the marks."""
    entries = [entry for point in comparison.points for entry in point.entries]
    lines = [summary.sentence for summary in comparison.summaries]
    for summary in comparison.summaries if len(comparison.points) > 1 else ():  # of one, the table has all
        points = counted(summary.points, "point")
        points += f", {summary.doubtful} with a doubt" if summary.doubtful else ""
        mean, best, worst = map(_times, (summary.geometric_mean, summary.best, summary.worst))
        if summary.points == 1:
            doubt = " (with a doubt)" if summary.doubtful else ""
            lines.append(f"{summary.runtime} over {comparison.baseline}: {mean} at {summary.best_point}{doubt}")
            continue
        lines.append(
            f"{summary.runtime} over {comparison.baseline}: geometric mean {mean} ({points}), best {best} at "
            f"{summary.best_point}, worst {worst} at {summary.worst_point}"
        )
    lines += [f"{runtime}: not measured: {why}" for runtime, why in comparison.not_measured.items()]
    lines += [
        f"{point.point}, {entry.runtime}: {_status(entry)}: {entry.error}"
        for point in comparison.points
        for entry in point.entries
        if entry.status != "ok"
    ]
    undecided = [point.point for point in comparison.points if point.is_undecided]
    if undecided:
        where = f" at {', '.join(undecided)}" if len(undecided) < len(comparison.points) else ""
        lines.append(f"no runtime is shown to be slower than the one with the lowest median{where}{BY_AB}")
    if any(entry.is_fastest for point in comparison.points if not point.is_undecided for entry in point.entries):
        lines.append("* lowest median, or not judged slower than it; without invalid ones and emulators")
    if any(_is_off_medians(point, comparison.baseline) for point in comparison.points):
        lines.append("a speedup is the mean of the launches' ratios, so it may differ from the ratio of the medians")
    if any(entry.speedup is not None and entry.speedup.scope == "within" for entry in entries):
        lines.append(CALLS_NOTE)
    return lines


def _is_off_medians(point: PointComparison, baseline: str) -> bool:
    """Whether a speedup is more than 2 % off the ratio of the medians in the table."""
    base = next((entry.median_ms for entry in point.entries if entry.runtime == baseline), None)
    return base is not None and any(
        entry.speedup is not None and entry.median_ms and abs(entry.speedup.ratio * entry.median_ms / base - 1) > 0.02
        for entry in point.entries
    )


def _speedup(row: _Row) -> str | None:
    if row.is_baseline and row.entry.median_ms is not None:
        return "1"
    return None if row.entry.speedup is None else _times(row.entry.speedup.ratio)


def _error(row: _Row) -> str | None:
    if row.entry.is_reference:
        return "reference"
    return None if row.entry.output_error is None else number(row.entry.output_error, 2)


def _status(entry: Entry) -> str:
    return entry.status.replace("_", " ")


def _verdict(row: _Row) -> str:
    """The status of a point without numbers, else the validity if there are doubts.

    Failures are explained below this table, doubts below the tables of the runs.
    """
    if row.entry.status != "ok":
        return _status(row.entry)
    return str(row.entry.validity) if row.entry.doubts else ""


_COLUMNS: tuple[Column[_Row], ...] = (
    Column("point", lambda row: row.point, is_key=True),
    Column("runtime", lambda row: row.entry.runtime + " *" * row.is_marked, is_key=True),
    Column(
        METRICS["latency_median_ms"].heading,
        lambda row: None if row.entry.median_ms is None else number(row.entry.median_ms),
        is_number=True,
    ),
    Column("speedup", _speedup, is_number=True),
    Column("95 % interval", lambda row: interval_text(row.entry.speedup, _times), is_number=True),
    Column("error", _error, is_number=True),
    Column(
        "equal tokens",
        lambda row: None if row.entry.equal_token_share is None else f"{row.entry.equal_token_share:.0%}",
        is_number=True,
        spare=1,
    ),
    Column(
        "peak MB",
        lambda row: None if row.entry.peak_memory_mb is None else f"{row.entry.peak_memory_mb:.0f}",
        is_number=True,
        spare=2,
    ),
    Column("doubts", _verdict, is_state=True),
)


def _times(ratio: float) -> str:
    """A ratio with three significant digits and no exponent."""
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:#.3g}" if ratio >= 1e-4 else number(ratio)
