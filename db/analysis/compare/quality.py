"""Compares the quality of the models on both sides of a comparison, run by run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarking.core.quality import QUALITY_METRICS
from benchmarking.core.tables import NOTHING
from benchmarking.core.text import number
from benchmarking.core.verdicts.quality_verdicts import QualityVerdict, judge_quality
from db.run_records import qualities

if TYPE_CHECKING:
    from db.analysis.compare.comparison import Finding
    from db.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityFinding:
    """A measure of quality that both sides have, and its judgement."""

    subject: str
    """What was measured on both sides: "onnxruntime float32 -> onnxruntime int4"."""
    metric: str
    before: float | None
    after: float | None
    """None if it was not measured; `judgement` has the reason."""
    judgement: QualityVerdict

    @property
    def text(self) -> str:
        """ "KL 0.0001 -> 0.005 nats: worse (+0.0049, 95 % interval 0.0047 .. 0.0051, margin 0.01 nats)" """
        metric, judgement = QUALITY_METRICS[self.metric], self.judgement
        both = " -> ".join(NOTHING if one is None else number(one) for one in (self.before, self.after))
        values = f"{metric.heading} {both} {metric.unit}".rstrip()
        if judgement.low is None or judgement.high is None:
            return f"{values}: {judgement.verdict}: {judgement.reason}"
        interval = f"95 % interval of the change {self.interval}"
        return f"{values}: {judgement.verdict} ({interval}; margin {metric.margin_in_words})"

    @property
    def interval(self) -> str | None:
        """The 95 % interval of the change with its unit; None without one."""
        metric, judgement = QUALITY_METRICS[self.metric], self.judgement
        if judgement.low is None or judgement.high is None:
            return None
        shown = [number(100 * one if metric.is_relative else one) for one in (judgement.low, judgement.high)]
        return f"{' .. '.join(shown)} {'%' if metric.is_relative else metric.unit}".rstrip()


def compared_quality(warehouse: Warehouse, findings: Sequence[Finding]) -> tuple[QualityFinding, ...]:
    """The quality of each pair of runs of the findings that both have it, in the order of the findings."""
    pairs: dict[tuple[str, str], str] = {}
    for one in findings:
        sides = [" ".join(filter(None, (one.subject[n][i] for n in ("runtime", "precision")))) for i in (0, 1)]
        words = sides[0] if sides[0] == sides[1] else " -> ".join(sides)
        pairs.setdefault((one.before.run_id, one.after.run_id), words)
    known = qualities(warehouse, sorted({run for pair in pairs for run in pair}))
    found = []
    for (before, after), subject in pairs.items():
        if before not in known or after not in known:
            continue
        first, second = known[before], known[after]
        for name, metric in QUALITY_METRICS.items():
            if name in first.values and name in second.values:
                a, b = first.values[name], second.values[name]
                judgement = judge_quality(a, b, metric, same_windows=first.same_inputs(name, second))
                found.append(
                    QualityFinding(subject=subject, metric=name, before=a.value, after=b.value, judgement=judgement)
                )
    return tuple(found)


def quality_notes(findings: Sequence[QualityFinding]) -> list[str]:
    """A line for each measure; with what it is about, if there are several pairs of runs."""
    several = len({one.subject for one in findings}) > 1
    return [f"quality{f' ({one.subject})' if several else ''}: {one.text}" for one in findings]
