"""Compares the quality of the models on both sides of a comparison, run by run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarking.core.quality import QUALITY_METRICS, QualityMetric, QualityValue
from benchmarking.core.text import number
from benchmarking.core.verdicts.quality import QualityVerdict, judge_quality

if TYPE_CHECKING:
    from db.analysis.compare.comparison import Finding
    from db.warehouse import Warehouse

QUALITY = "SELECT * FROM quality_results WHERE run_id IN (SELECT unnest($runs)) AND value IS NOT NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityFinding:
    """A measure of quality that both sides have, and its judgement."""

    subject: str
    """What was measured on both sides: "onnxruntime float32 -> onnxruntime int4"."""
    metric: str
    before: float
    after: float
    judgement: QualityVerdict

    @property
    def text(self) -> str:
        """ "KL 0.0001 -> 0.005 nats: worse (+0.0049, 95 % interval 0.0047 .. 0.0051, margin 0.01 nats)" """
        metric, judgement = QUALITY_METRICS[self.metric], self.judgement
        values = f"{metric.heading} {number(self.before)} -> {number(self.after)} {metric.unit}".rstrip()
        if judgement.low is None or judgement.high is None:
            return f"{values}: {judgement.verdict}: {judgement.reason}"
        shown = [number(100 * one if metric.is_relative else one) for one in (judgement.low, judgement.high)]
        unit = "%" if metric.is_relative else metric.unit
        interval = f"95 % interval of the change {' .. '.join(shown)} {unit}".rstrip()
        return f"{values}: {judgement.verdict} ({interval}; margin {metric.margin_in_words})"


def compared_quality(warehouse: Warehouse, findings: Sequence[Finding]) -> tuple[QualityFinding, ...]:
    """The quality of each pair of runs of the findings that both have it, in the order of the findings."""
    pairs: dict[tuple[str, str], str] = {}
    for one in findings:
        sides = [" ".join(filter(None, (one.subject[n][i] for n in ("runtime", "precision")))) for i in (0, 1)]
        words = sides[0] if sides[0] == sides[1] else " -> ".join(sides)
        pairs.setdefault((one.before.run_id, one.after.run_id), words)
    rows: dict[str, dict[str, Mapping[str, Any]]] = {}
    runs = sorted({run for pair in pairs for run in pair})
    for row in warehouse.query(QUALITY, {"runs": runs}).dicts() if runs else ():
        rows.setdefault(row["run_id"], {})[row["metric"]] = row
    found = []
    for (before, after), subject in pairs.items():
        of_before, of_after = rows.get(before, {}), rows.get(after, {})
        for name, metric in QUALITY_METRICS.items():
            if name in of_before and name in of_after:
                found.append(_finding(subject, metric, of_before[name], of_after[name]))
    return tuple(found)


def quality_notes(findings: Sequence[QualityFinding]) -> list[str]:
    """A line for each measure; with what it is about, if there are several pairs of runs."""
    several = len({one.subject for one in findings}) > 1
    return [f"quality{f' ({one.subject})' if several else ''}: {one.text}" for one in findings]


def _finding(
    subject: str, metric: QualityMetric, before: Mapping[str, Any], after: Mapping[str, Any]
) -> QualityFinding:
    one, other = (
        QualityValue(value=row["value"], low=row["low"], high=row["high"], by_window=tuple(row["by_window"]))
        for row in (before, after)
    )
    same = bool(before["inputs"]) and before["inputs"] == after["inputs"]
    judgement = judge_quality(one, other, metric, same_windows=same)
    return QualityFinding(subject=subject, metric=metric.name, before=one.value, after=other.value, judgement=judgement)
