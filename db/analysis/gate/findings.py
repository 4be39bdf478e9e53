"""The gate's findings: a verdict for each candidate, confirmed by a fresh session if there was one.

To confirm a regression, the flagged run is measured again and compared. The caller supplies the function that measures,
because this layer cannot.

Verdicts, worst first:

    failed           worked before, fails now
    regressed        worse than the earlier runs predict; with --confirm, in the fresh session too
    not confirmed    worse, but not in the fresh session
    accepted         worse, and its alert is triaged as something else than a regression
    trend            moves slowly and steadily: no commit is to blame
    improved         better than the earlier runs predict
    fine             neither
    unfit            measured, but too doubtful to judge
    too noisy        the runs before it vary so much that hardly anything would be found
    not enough data  too few runs before it, or no value

The gate on quality judges each measure of the newest runs by its baseline, an earlier run of the series on the same
inputs. Quality hardly varies from night to night, so it needs no history: the baseline is the first of the earlier
runs, until one is better, or a worse one is accepted (its alert is triaged as anything but a regression). So a loss
that is below the margin each night cannot add up unseen. Judged by `benchmarking.core.quality`.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import MeasuredRun, naive_now
from benchmarking.core.quality import QUALITY_METRICS, Quality, QualityMetric, QualityVerdict, Source, judge_quality
from benchmarking.core.records import LOOP, REQUEST_RATE, SCENARIO, TOO_FEW_SAMPLES, Point
from benchmarking.core.text import counted, grouped, why_text
from db.analysis.compare.comparison import QualityFinding
from db.analysis.gate.candidates import Candidate, SegmentRun, confirming_results
from db.analysis.gate.gate import (
    PARAMETERS,
    Case,
    CommonShift,
    Judgement,
    Outcome,
    Shift,
    common_shift,
    judge_all,
    times_worse,
)
from db.analysis.gate.nights import Night
from db.run_records import measured_runs, qualities
from db.values import reason_words

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
SELECT judged_id, r.run_id, r.series_id, min(r.result_id) AS result_id, r.git_commit, r.git_branch
FROM judged JOIN all_results r USING (series_id)
WHERE r.run_id = judged_id OR (
    r.run_id IN (SELECT run_id FROM quality_results) AND r.session_id <> judged.session_id
    AND row(r.history_time, r.started_at) <= row(judged.history_time, judged.started_at)
)
GROUP BY judged_id, r.run_id, r.series_id, r.git_commit, r.git_branch, r.history_time, r.started_at
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
        of_branch = {run: row for run, row in of_run.items() if row["git_branch"] == own["git_branch"]}
        if own["git_branch"] is not None and len(of_branch) >= PARAMETERS.min_points:  # as in `candidates`
            of_run = of_branch
        for name, metric in QUALITY_METRICS.items():
            earlier = [row for row in of_run.values() if name in known[row["run_id"]].values]
            after = None if now is None else now.values.get(name)
            if after is None and not earlier:
                continue
            if now is None:
                reason = f"not measured in this run{TO_ADD[metric.source]}"
            elif metric.name not in now.values:
                reason = why_text(now.missing.get(metric.name, "not measured in this run"))
            elif earlier:
                reason = "the earlier runs measured it on other inputs"
            else:
                reason = "no earlier run of the series has it"
            check = QualityCheck(
                subject=subject,
                metric=name,
                before=None,
                after=None if after is None else after.value,
                judgement=QualityVerdict(verdict="not judged", reason=reason),
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


Verdict = Literal[
    "failed",
    "regressed",
    "not confirmed",
    "accepted",
    "trend",
    "improved",
    "fine",
    "unfit",
    "too noisy",
    "not enough data",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
BAD: tuple[Verdict, ...] = ("failed", "regressed")
SHORT: tuple[Verdict, ...] = ("too noisy", "not enough data")
"""Verdicts that a history cannot give, but a comparison in turns may."""
JUDGED: tuple[Verdict, ...] = (*BAD, "not confirmed", "accepted", "trend", "improved", "fine")
OUTCOMES: Mapping[Outcome, Verdict] = {
    "worse": "regressed",
    "better": "improved",
    "trend": "trend",
    "fine": "fine",
    "too_noisy": "too noisy",
    "not_enough_data": "not enough data",
}
MOST_ALERTS = 4
"""Maximum alerts named whose results make a series noisy."""
NOT_POSSIBLE = "not possible: "
"""Prefix of a reason that replaces a command."""
LOAD = ("benchhouse", "load")
"""How the command of a load begins, which limits gate."""
ALL_BENCHES = "benchhouse batch --benches benches"
"""Measures the user's own benchmarks, where they are by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A candidate and its verdict."""

    candidate: Candidate
    verdict: Verdict
    reason: str | None = None
    """Why it failed, is unfit or has no verdict; why a regression could not be measured again."""
    judgement: Judgement | None = None
    """None for a failed or unfit candidate."""
    confirmation: Judgement | None = None
    """Judgement of the same point in a fresh session, by the same segment; None if it was not measured again."""
    confirmation_result_id: str | None = None
    common_shift: CommonShift | None = None
    """The common change of its session, which suggests the environment rather than the code; or None."""
    repeat_command: str | None = None
    """The command that measures it again, or why there is none; None if it is not needed, which is for regressions,
    and for too few runs if nothing has a verdict."""

    @property
    def last_good(self) -> SegmentRun | None:
        """The newest run before those that the verdict is about."""
        return self.candidate.last_good(1 if self.judgement is None else self.judgement.together)

    @property
    def ratio(self) -> float:
        """How much worse it is (`times_worse`); 1 without a verdict."""
        change = self.judgement.relative_change if self.judgement is not None else None
        return 1.0 if change is None else times_worse(change, self.candidate.metric)


def judge_candidates(candidates: Iterable[Candidate]) -> tuple[Finding, ...]:
    """One finding per candidate, worst first. All of them share the budget of false alarms."""
    known = tuple(candidates)
    judgements = judge_all([_case(candidate, candidate.night) for candidate in known])
    findings = [_finding(one, judgement) for one, judgement in zip(known, judgements, strict=True)]
    # The findings, with the common change of their machine and session if there is one.
    groups = grouped(
        ((one.candidate.hardware_id, one.candidate.session_id, one.candidate.metric.column), one)
        for one in findings
        if one.verdict in ("regressed", "accepted", "improved", "fine", "trend")
    )
    shared: dict[int, CommonShift | None] = {}
    for members in groups.values():
        shift = common_shift(
            Shift(
                group="\n".join((one.candidate.model_id, one.candidate.runtime, one.candidate.precision)),
                ratio=one.ratio,
                is_finding=one.verdict not in ("fine", "trend"),
            )
            for one in members
        )
        shared |= {id(one): shift for one in members if one.verdict in ("regressed", "improved")}
    return worst_first(replace(one, common_shift=shared[id(one)]) if id(one) in shared else one for one in findings)


def _case(candidate: Candidate, newest: Night | None) -> Case:
    return Case(
        segments=candidate.nights,
        newest=newest,
        metric=candidate.metric,
        since=candidate.since,
        is_simulated=candidate.simulated is True,
    )


def with_confirmation(
    finding: Finding, candidate: Candidate | None, judgement: Judgement | None, failure: str | None
) -> Finding:
    """The finding after its point was measured again; if that failed, `candidate` is None and `failure` the reason.

    A regression is confirmed if the new value is worse too. Without a value the verdict stays, with the reason.
    """
    if candidate is None or judgement is None:
        reason = (
            failure
            or (candidate and (candidate.error or candidate.unfit or candidate.missing))
            or "its series was not measured"
        )
        return replace(finding, reason=f"could not be measured again: {reason}")
    measured = replace(finding, confirmation=judgement, confirmation_result_id=candidate.result_id)
    return measured if judgement.outcome == "worse" else replace(measured, verdict="not confirmed", common_shift=None)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorted by verdict, then by ratio; findings whose shown ratios are equal keep their order."""
    return tuple(sorted(findings, key=lambda finding: (VERDICTS.index(finding.verdict), -round(finding.ratio, 3))))


def exit_code(findings: Sequence[Finding], quality: Sequence[QualityCheck] = ()) -> int:
    """1 if anything regressed or failed, or a quality is worse; 3 if nothing could be judged, otherwise 0."""
    verdicts = {finding.verdict for finding in findings}
    of_quality = {check.judgement.verdict for check in quality}
    if verdicts & set(BAD) or "worse" in of_quality:
        return EXIT_FAILED
    return EXIT_OK if verdicts & set(JUDGED) or of_quality - {"not judged"} else EXIT_NOT_ENOUGH_DATA


def counts(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """The number of findings of each verdict, worst first."""
    verdicts = [finding.verdict for finding in findings]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts}


def _finding(candidate: Candidate, judgement: Judgement | None) -> Finding:
    if candidate.status != "ok":  # failed if it had numbers before, otherwise not enough data
        reason, runs = f"{candidate.status.replace('_', ' ')}: {candidate.error}", len(candidate.segment)
        if candidate.status == "skipped" or not runs:
            return Finding(candidate=candidate, verdict="not enough data", reason=reason)
        reason += f" (worked in {counted(runs, 'earlier run')})"
        return Finding(candidate=candidate, verdict="failed", reason=reason)
    if candidate.unfit is not None:
        return Finding(candidate=candidate, verdict="unfit", reason=candidate.unfit)
    if judgement is None:
        missing = reason_words(candidate.missing or "not measured")
        more = ": measure more calls (--iterations, or --num-requests of a load)" * (
            candidate.missing == TOO_FEW_SAMPLES
        )
        reason = f"no {candidate.metric.column}: {missing}{more}"
        return Finding(candidate=candidate, verdict="not enough data", reason=reason)
    why = judgement.why
    if why is None and judgement.outcome == "trend":
        per_run = "" if judgement.trend_per_run is None else f" by {judgement.trend_per_run:+.2%} a run"
        over = "" if judgement.trend_runs is None else f" over {judgement.trend_runs} runs"
        why = f"moves slowly{per_run}{over}, so no single commit is to blame"
    elif why is None and judgement.together > 1:
        why = f"the newest {judgement.together} runs together are outside what is expected of so many"
    verdict = OUTCOMES[judgement.outcome]
    if verdict == "too noisy" and candidate.counted_alerts:
        ids = " ".join(candidate.counted_alerts[:MOST_ALERTS])
        why = (
            f"{why}; some of them regressed: benchhouse alert set {ids} regression leaves them out, if that is no noise"
        )
    if verdict == "regressed" and candidate.accepted_as is not None:
        verdict, why = "accepted", f"worse, with an alert that is triaged as {candidate.accepted_as}"
    return Finding(candidate=candidate, verdict=verdict, reason=why, judgement=judgement)


CONFIRMS = "confirms"
"""Tag of a run that confirms another run; its value is that run's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaggedRun:
    """A run with a regression, and the points that regressed."""

    run: MeasuredRun
    points: tuple[Point, ...]

    @property
    def tags(self) -> dict[str, str]:
        """Tags for the run that confirms it: its own tags, and its id."""
        return {**self.run.tags, CONFIRMS: self.run.run_id}


MeasureAgain = Callable[[FlaggedRun], str | None]
"""Measures the points again and stores them as a run with the tags; returns the error, or None on success."""


def flagged_runs(
    warehouse: Warehouse, findings: Iterable[Finding], verdicts: Sequence[Verdict] = ("regressed",)
) -> tuple[FlaggedRun, ...]:
    """The runs that contain findings of the verdicts, oldest first."""
    points = grouped((one.candidate.run_id, one.candidate.point) for one in findings if one.verdict in verdicts)
    runs = measured_runs(warehouse, "run_id IN (SELECT unnest(?))", (list(points),))
    return tuple(FlaggedRun(run=run, points=tuple(points[run.run_id])) for run in runs)


def with_commands(
    findings: Iterable[Finding],
    flagged: Iterable[FlaggedRun],
    command: Callable[[FlaggedRun], str],
    verdicts: Sequence[Verdict] = ("regressed",),
) -> tuple[Finding, ...]:
    """The findings; each of the verdicts has the command that measures it again, or why there is none."""
    texts, is_short = dict[str, str](), verdicts == SHORT
    for one in flagged:
        run, is_own_load = one.run, LOOP in one.run.runtime_mode and one.run.origin_format is None
        if run.is_own_benchmark and is_short:  # a side of ab: all that the file has
            text = ALL_BENCHES
        elif is_own_load and is_short:
            text = shlex.join((*LOAD, run.model_id, *_levels(one), "--limit", "LIMITS", "--fail-on", "missed"))
        elif (reason := run.why_not_repeatable) is not None:
            text = f"{NOT_POSSIBLE}{reason}"
        else:
            try:
                text = command(one)
            except UsageError as error:  # stored by a version with other settings
                text = f"{NOT_POSSIBLE}{error}"
        texts[run.run_id] = text
    return tuple(
        replace(finding, repeat_command=texts[finding.candidate.run_id]) if finding.verdict in verdicts else finding
        for finding in findings
    )


def confirm(
    findings: Sequence[Finding],
    flagged: Iterable[FlaggedRun],
    measure_again: MeasureAgain,
    open_warehouse: Callable[[], Warehouse],
) -> tuple[Finding, ...]:
    """The findings after measuring each flagged run again, worst first. The caller must not hold the database open."""
    since = naive_now()
    failures = {
        flagged_run.run.run_id: flagged_run.run.why_not_repeatable or measure_again(flagged_run)
        for flagged_run in flagged
    }
    with open_warehouse() as warehouse:
        # `failures`: run id -> why measuring it again failed. A point of such a run that was measured still
        # counts.
        confirming: dict[tuple[str, str], dict[str, Candidate]] = {}
        again: list[Candidate | None] = []
        for finding in findings:
            candidate = finding.candidate
            if finding.verdict != "regressed":
                again.append(None)
                continue
            key = (candidate.run_id, candidate.metric.column)
            if key not in confirming:
                confirming[key] = confirming_results(warehouse, candidate.run_id, since, candidate.metric)
            again.append(confirming[key].get(candidate.series_id))
        cases = [
            _case(finding.candidate, None if one is None else one.night)
            for finding, one in zip(findings, again, strict=True)
        ]
        judgements = judge_all(cases, is_confirmation=True)
        return worst_first(
            finding
            if finding.verdict != "regressed"
            else with_confirmation(finding, one, judgement, failures.get(finding.candidate.run_id))
            for finding, one, judgement in zip(findings, again, judgements, strict=True)
        )


def _levels(flagged: FlaggedRun) -> tuple[str, ...]:
    """The flags by which a load has these levels. Those of a closed loop in a scenario follow from the scenario."""
    mode = flagged.run.runtime_mode
    scenario = ("--scenario", str(mode[SCENARIO])) if SCENARIO in mode else ()
    if mode[LOOP] == "open":  # without a rate: all requests at once
        rates = {f"{point.axes.get(REQUEST_RATE, math.inf):.15g}" for point in flagged.points}
        return (*scenario, "--request-rate", ",".join(sorted(rates, key=float)))
    in_flight = ",".join(map(str, sorted({point.concurrency for point in flagged.points})))
    return scenario or ("--concurrency", in_flight)
