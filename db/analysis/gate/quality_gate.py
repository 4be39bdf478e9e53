"""The gate on quality: judges each measure of the newest runs by its baseline, an earlier run of the series on the same
inputs.

Quality hardly varies from night to night, so it needs no history: the baseline is the first of the earlier runs, until
one is better, or a worse one is accepted (its alert is triaged as anything but a regression). So a loss that is below
the margin each night cannot add up unseen. Judged by `benchmarking.core.verdicts.quality_verdicts`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarking.core.quality import QUALITY_METRICS, Quality, QualityMetric, Source
from benchmarking.core.verdicts.quality_verdicts import QualityVerdict, judge_quality
from db.analysis.compare.comparison import QualityFinding
from db.run_records import qualities

if TYPE_CHECKING:
    from db.warehouse import Warehouse

Row = Mapping[str, Any]
DETECTOR = "quality"
DETECTOR_VERSION = "1"
WORDS = ("worse", "accepted", "better", "equivalent", "not judged")
"""Verdicts, worst first."""
TO_ADD: Mapping[Source, str] = {
    "inputs": ": add --quality",
    "questions": ": add --quality-file FILE",
    "evaluation": "",
}
"""What to do where a run has no quality, by what the measure is of."""
RUNS = """
WITH judged AS (
    SELECT run_id AS judged_id, session_id, series_id, history_time, started_at
    FROM all_results WHERE run_id IN (SELECT unnest($runs))
)
SELECT judged_id, r.run_id, r.series_id, min(r.result_id) AS result_id, r.git_commit
FROM judged JOIN all_results r USING (series_id)
WHERE r.run_id = judged_id OR (
    r.run_id IN (SELECT run_id FROM quality_results) AND r.session_id <> judged.session_id
    AND row(r.history_time, r.started_at) <= row(judged.history_time, judged.started_at)
)
GROUP BY judged_id, r.run_id, r.series_id, r.git_commit, r.history_time, r.started_at
ORDER BY judged_id, r.history_time, r.started_at, r.run_id, r.series_id  -- of each run the same series, for its alert
"""
ACCEPTED = """
SELECT metric, result_id, parameters FROM alerts
WHERE detector = $detector AND triage NOT IN ('new', 'regression')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCheck(QualityFinding):
    """A measure of quality of a run, and its judgement by its baseline."""

    run_id: str
    session_id: str
    series_id: str
    result_id: str
    """A result of the run, in the first of its series."""
    git_commit: str | None
    baseline_run_id: str | None = None
    baseline_result_id: str | None = None
    baseline_commit: str | None = None


def check_quality(warehouse: Warehouse, runs: Mapping[str, tuple[str, str]]) -> tuple[QualityCheck, ...]:
    """The measures of quality of runs (run id -> session id, subject) that they or earlier runs of their series have,
    worst first."""
    places: dict[str, dict[str, Row]] = {}
    for row in warehouse.query(RUNS, {"runs": list(runs)}).dicts():
        places.setdefault(row["judged_id"], {}).setdefault(row["run_id"], row)  # in order of the history
    known = qualities(warehouse, sorted({run for of_run in places.values() for run in of_run}), only_own=True)
    accepted: dict[str, set[str]] = {}
    for row in warehouse.query(ACCEPTED, {"detector": DETECTOR}).dicts():
        accepted.setdefault(row["metric"], set()).update((row["result_id"], *json.loads(row["parameters"])["results"]))
    checks = []
    for judged_id, of_run in places.items():
        session_id, subject = runs[judged_id]
        own, now = of_run.pop(judged_id), known.get(judged_id)
        for name, metric in QUALITY_METRICS.items():
            earlier = [row for row in of_run.values() if name in known[row["run_id"]].values]
            after = None if now is None else now.values.get(name)
            if after is None and not earlier:
                continue
            check = QualityCheck(
                subject=subject,
                metric=name,
                before=None,
                after=None if after is None else after.value,
                judgement=_not_judged(now, metric, bool(earlier)),
                session_id=session_id,
                **{field: own[field] for field in ("run_id", "series_id", "result_id", "git_commit")},
            )
            baseline = _baseline(earlier, known, now, metric, accepted.get(name, set()))
            if now is not None and after is not None and baseline is not None:
                before = known[baseline["run_id"]].values[name]
                judgement = judge_quality(before, after, metric, same_windows=True)
                if judgement.verdict == "worse" and own["result_id"] in accepted.get(name, set()):
                    judgement = replace(judgement, verdict="accepted")
                check = replace(
                    check,
                    before=before.value,
                    judgement=judgement,
                    baseline_run_id=baseline["run_id"],
                    baseline_result_id=baseline["result_id"],
                    baseline_commit=baseline["git_commit"],
                )
            checks.append(check)
    return tuple(sorted(checks, key=lambda one: WORDS.index(one.judgement.verdict)))


def _not_judged(now: Quality | None, metric: QualityMetric, has_earlier: bool) -> QualityVerdict:
    """Why a measure without a baseline, or without a value, has no verdict."""
    if now is None:
        reason = f"not measured in this run{TO_ADD[metric.source]}"
    elif metric.name not in now.values:
        kind, _, text = now.missing.get(metric.name, "not measured in this run").partition(": ")
        reason = text or kind.replace("_", " ")
    elif has_earlier:
        reason = "the earlier runs measured it on other inputs"
    else:
        reason = "no earlier run of the series has it"
    return QualityVerdict(verdict="not judged", reason=reason)


def _baseline(
    earlier: Sequence[Row], known: Mapping[str, Quality], now: Quality | None, metric: QualityMetric, accepted: set[str]
) -> Row | None:
    """The earlier run to judge by, among those on the same inputs; None without one."""
    baseline = None
    for row in earlier:
        if now is None or metric.name not in now.values or not now.same_inputs(metric.name, known[row["run_id"]]):
            continue
        if baseline is None or row["result_id"] in accepted:
            baseline = row
            continue
        before, after = (known[one["run_id"]].values[metric.name] for one in (baseline, row))
        if judge_quality(before, after, metric, same_windows=True).verdict == "better":
            baseline = row
    return baseline
