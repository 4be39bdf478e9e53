"""Compares two selections of stored results point by point, or the values of a column in one selection.

All comparable results of a side count. If runs of both sides overlapped on one host and their launches alternated (both
launches of a round began before those of the next round), rounds are compared; otherwise sessions are.
The quality of the models of both sides is compared run by run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from benchmarking.core import plugins
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import HIGHEST_RATE, RATE_HIGH, RATE_LOW, HighestRate
from benchmarking.core.metrics import Direction, Metric
from benchmarking.core.provenance import version_differences
from benchmarking.core.quality import QUALITY_METRICS, QualityVerdict, judge_quality
from benchmarking.core.records import LOOP, Json
from benchmarking.core.tables import NOTHING
from benchmarking.core.text import ends, grouped, number
from benchmarking.core.verdicts import judging
from benchmarking.core.verdicts.judging import Pair, log_variance
from benchmarking.core.verdicts.launches import MIN_ROUNDS
from benchmarking.core.verdicts.sessions import (
    MIN_SESSIONS,
    Session,
    SessionScatter,
    are_apart,
    of_common_sittings,
    of_sittings,
    session_mean,
)
from benchmarking.core.verdicts.words import Condition, Judgement, Outcome, outcome, verdict_sentence
from db.analysis.compare.matching import (
    MODEL_KEYS,
    Matched,
    MayDiffer,
    Measured,
    Representative,
    allowed_across,
    differences,
    in_words,
    match,
    nearest,
    why_not_compared,
)
from db.analysis.compare.stored_results import Details, read_details, read_results, session_scatter
from db.analysis.gate.gate import Shift, common_shift, times_worse
from db.analysis.selection import Selection
from db.connection import literal
from db.run_records import evaluations_beside, qualities
from db.values import FURTHER_SETTINGS, SETTINGS

if TYPE_CHECKING:
    from db.warehouse import Warehouse

SUBJECT = ("model_id", "device", "runtime", "precision", "num_threads", SETTINGS)
"""Columns that identify what was measured, besides the point."""
PROVENANCE = ("git_commit", "tool_version", "host", "driver")
LOADS_DECIDE = (
    "five loads of each side or more, in turns, each with --repetitions 3, decide; benchhouse recommend MODEL "
    "--request-rate RATE ranks servers by what is stored"
)
"""In place of `judging.AB_HINT`, for load tests."""
SEARCHES = f"""
SELECT result_id, other_metrics, extra FROM all_results
WHERE result_id IN (SELECT unnest(?::VARCHAR[])) AND other_metrics[{literal(HIGHEST_RATE)}] IS NOT NULL
"""
NOT_SET = "not set"
"""The value of --by of results without one, such as threads that are left to the runtime."""
OF_SEARCHES = (HIGHEST_RATE, RATE_LOW, RATE_HIGH)
"""Metrics that are the answer of a search."""
OWN_RATES = "each search measured this at its own highest rate, under different loads"
SAME_RESULT = "the same result is on both sides: narrow one of the selections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A result in a comparison."""

    result_id: str
    run_id: str
    started_at: str
    """Start of the run, UTC, ISO 8601."""
    results: int
    """Number of comparable results of the point; this is the newest."""
    left_out: int = 0
    """Sessions among them that do not count: the other side has none, or fewer, of their day."""
    launches: int
    """Launches with a value, in all these results."""
    launch_values: tuple[float, ...] = ()
    """Value of each launch of this result."""
    value: float | None
    """Value of the result, in the metric's unit."""
    validity: str | None
    doubts: tuple[str, ...]
    """Kinds of doubt, without those of severity info."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A point that both sides have, and its judgement."""

    point: str
    """Label of the point, or both labels if they differ."""
    subject: Mapping[str, tuple[str | None, str | None]]
    """Model, device, runtime, ... of both sides."""
    differs: Mapping[str, tuple[object, object]]
    """The series keys in which the sides differ, with both values."""
    is_simulated: bool
    """Whether the numbers come from a script or an emulator instead of a device."""
    before: Side
    after: Side
    judgement: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A point that only one side has."""

    point: str
    subject: Mapping[str, str | None]
    result_id: str
    definition: str | None
    """Name of the definitions of an imported result; None for ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides and their findings, worst first."""

    before: str
    """The selection as the user typed it."""
    after: str
    metric: str
    """Its column."""
    title: str
    """The metric in words, with its unit."""
    unit: str
    better: Direction | None = None
    findings: tuple[Finding, ...] = ()
    only_before: tuple[Single, ...] = ()
    only_after: tuple[Single, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Findings by verdict."""
    provenance: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    """Commit, host and versions, where they differ in the same way in all pairs."""
    quality: tuple[QualityFinding, ...] = ()
    """The quality of the models of both sides, where both measured it."""
    rates: tuple[str, ...] = ()
    """The highest rates within the limits that searches found on both sides, and which side serves more."""
    sentence: str = ""
    """All verdicts in a sentence about the two sides: `verdict_sentence`."""
    nearest: str | None = None
    """Why the two results that differ least are no pair, if no point is on both sides."""
    moved_together: str | None = None
    """Description of a common shift of nearly all points, which suggests the machine rather than the code; or None."""

    @property
    def is_empty(self) -> bool:
        """Whether no point has an interval to judge by."""
        return all(finding.judgement.scope is None for finding in self.findings)

    def gate(self, metric: Metric, asked: Sequence[Condition]) -> Outcome:
        """What `--fail-on` makes of it; without it, whether any point has an interval."""
        return outcome([finding.judgement for finding in self.findings], metric, asked)


def compare(
    warehouse: Warehouse, before: Selection, after: Selection, metric: Metric, across: Collection[str] = ()
) -> Comparison:
    """Compare the selections. Columns for which they name different values may differ, and those in `across`."""
    earlier, later = read_results(warehouse, (before, after), metric)
    may_differ = allowed_across({*across, *contrasted_columns(before, after)})
    return _comparison(warehouse, match(earlier, later, may_differ), metric, before.text, after.text, may_differ)


def compare_within(
    warehouse: Warehouse,
    selection: Selection,
    column: str,
    metric: Metric,
    *,
    baseline: str | None = None,
    across: Collection[str] = (),
) -> Comparison:
    """Compare each value of the column with the baseline, by default the usual one or the first measured."""
    (results,) = read_results(warehouse, (selection,), metric)
    in_order = sorted(results, key=lambda one: (one.started_at, one.run_id))
    groups = grouped((result.columns[column] or NOT_SET, result) for result in in_order)
    if baseline is None:
        usual: str | None = "float32" if column == "precision" else None
        if column == "runtime":
            runtimes = map(plugins.runtime, plugins.names(plugins.RUNTIMES))
            usual = next(str(runtime.name) for runtime in runtimes if runtime.is_default)
        baseline = usual if usual in groups else next(iter(groups), "")
    may_differ = allowed_across({column, *across})
    matches = [
        match(groups.get(baseline, ()), group, may_differ) for value, group in groups.items() if value != baseline
    ]
    of_baseline = {one.result.result_id: one for each in matches for one in each.only_before}
    paired = {base.result.result_id for one in matches for base, _ in (*one.pairs, *one.refused)}
    matched = Matched(
        pairs=tuple(pair for one in matches for pair in one.pairs),
        refused=tuple(pair for one in matches for pair in one.refused),
        only_before=tuple(one for result_id, one in of_baseline.items() if result_id not in paired),
        only_after=tuple(single for one in matches for single in one.only_after),
    )
    others = ", ".join(value for value in groups if value != baseline)
    return _comparison(warehouse, matched, metric, baseline, others, may_differ)


def contrasted_columns(before: Selection, after: Selection) -> frozenset[str]:
    """The columns for which the selections name different values: batch=1 on both sides is no difference."""
    words_before, words_after = (
        {word.strip() for word in selection.text.partition("sql:")[0].split(",")} for selection in (before, after)
    )
    columns = [
        {name for word in words for name in Selection.parse(word).named}
        for words in (words_before - words_after, words_after - words_before)
    ]
    return frozenset(columns[0] & columns[1])


def with_what_decides(judgement: Judgement, keys: Mapping[str, object]) -> Judgement:
    """The judgement with what decides a load in place of `benchhouse ab`, which measures none."""
    if judgement.reason is None or keys.get(f"runtime_mode {LOOP}") is None:
        return judgement
    return replace(judgement, reason=judgement.reason.replace(judging.AB_HINT, LOADS_DECIDE))


def _comparison(
    warehouse: Warehouse, matched: Matched, metric: Metric, before: str, after: str, may_differ: MayDiffer
) -> Comparison:
    all_pairs = [*matched.pairs, *matched.refused]
    compared = {measured.result_id: measured for pair in matched.pairs for side in pair for measured in side.comparable}
    overlapping = [_overlapping(*pair) for pair in matched.pairs]
    simultaneous = {measured.result_id: measured for pairs in overlapping for both in pairs for measured in both}
    details = read_details(warehouse, list(compared.values()), list(simultaneous.values()), metric)
    answers = _highest_rates(warehouse, all_pairs)
    pairs = [_pair(*pair, overlap, details) for pair, overlap in zip(matched.pairs, overlapping, strict=True)]
    if metric.column not in OF_SEARCHES:
        pairs = [
            Pair(why_not_comparable=OWN_RATES) if base.result.result_id in answers else pair
            for (base, _), pair in zip(matched.pairs, pairs, strict=True)
        ]
    pairs += [
        Pair(  # a result that is unfit is none with another flag either
            why_not_comparable=_by_side(base.result.unfit, one.result.unfit)
            or why_not_compared(differences(base.result.keys, one.result.keys), may_differ)
        )
        for base, one in matched.refused
    ]
    judgements = judging.judge(pairs, metric)
    findings = [
        _finding(base, one, with_what_decides(judgement, base.result.keys), details, pair.left_out)
        for (base, one), judgement, pair in zip(all_pairs, judgements, pairs, strict=True)
    ]
    findings.sort(key=lambda one: _severity(one, metric), reverse=True)
    quality, evaluations = _compared_quality(warehouse, findings)
    # An imported evaluation whose scores stand beside the speeds of a finding is no point of its own.
    findings = [one for one in findings if not {one.before.run_id, one.after.run_id} <= evaluations]
    only_before, only_after = (
        tuple(
            Single(
                point=result.point,
                subject={name: result.columns[name] for name in SUBJECT},
                result_id=result.result_id,
                definition=None if (definition := result.keys.get("definition")) is None else str(definition),
            )
            for result in (one.result for one in side)
            if result.run_id not in evaluations
        )
        for side in (matched.only_before, matched.only_after)
    )
    # The differences of code, host and versions that all pairs share.
    per_pair = [_environments(before.result, after.result) for before, after in matched.pairs]
    provenance = (
        {name: both for name, both in per_pair[0].items() if all(differs.get(name) == both for differs in per_pair)}
        if per_pair
        else {}
    )
    closest = None if all_pairs else nearest(matched)
    why_apart = None
    if closest is not None:
        one, other = (representative.result for representative in closest)
        both = one.point if one.point == other.point else f"{one.point} / {other.point}"
        why_apart = f"{both}: {why_not_compared(differences(one.keys, other.keys), may_differ)}"
    return Comparison(
        before=before,
        after=after,
        metric=metric.column,
        title=metric.words,
        unit=metric.unit,
        better=metric.better,
        findings=tuple(findings),
        only_before=only_before,
        only_after=only_after,
        counts=Counter(one.judgement.verdict for one in findings),
        provenance=provenance,
        quality=quality,
        rates=_rate_sentences(answers, findings),
        sentence=_sentences(findings, metric),
        nearest=why_apart,
        moved_together=_common_change(findings, metric),
    )


def _common_change(findings: Sequence[Finding], metric: Metric) -> str | None:
    """Description of the change that all sides have in common; None without one. Only for sides that differ in no key
    and were not interleaved: interleaving cancels the state of the machine."""
    judged = [(finding, finding.judgement.change) for finding in findings if finding.judgement.change is not None]
    if any(one.differs or one.judgement.scope == "in turns" for one, _ in judged):
        return None
    shift = common_shift(
        Shift(
            group=" ".join(str(one.subject[name]) for name in ("model_id", "runtime", "precision")),
            ratio=times_worse(change, metric),
            is_finding=one.judgement.is_worse is not None,
        )
        for one, change in judged
    )
    return None if shift is None else shift.text


def _sentences(findings: Sequence[Finding], metric: Metric) -> str:
    """A sentence about each two sides, by what distinguishes them if that is one thing ("eager", "onnxruntime"), else
    one about A and B."""
    compared = [finding for finding in findings if finding.judgement.change is not None] or findings
    apart = {name for finding in compared for name in _apart(finding)}
    groups: dict[tuple[str, str], list[Judgement]] = {}
    for finding in findings:
        own = _apart(finding)
        first: str | None = "A"
        second: str | None = "B"
        is_one_model = own == {"model_id"} or not {*finding.differs}.intersection(MODEL_KEYS)
        if own == apart and len(own) == 1 and own != {SETTINGS} and is_one_model:
            first, second = finding.subject[next(iter(own))]
        elif own <= {SETTINGS}:  # which are many, and of tasks and the like: the only one that differs, by its name
            differs = in_words(finding.differs)
            if len(differs) == 1:
                first, second = [f"{name} {value}" for name, both in differs.items() for value in both]
        sides = ("A", "B") if first is None or second is None else (first, second)
        groups.setdefault(sides, []).append(finding.judgement)
    return ". ".join(verdict_sentence(*sides, judgements, metric) for sides, judgements in groups.items())


def _apart(finding: Finding) -> set[str]:
    """The columns of its subject in which the sides of a finding differ. The settings tell each side from others of it,
    so that their words may differ where no setting does."""
    apart = {name for name, (first, second) in finding.subject.items() if first != second}
    of_settings = {
        name for name in finding.differs if name.startswith(("runtime_mode ", "config ")) or name in FURTHER_SETTINGS
    }
    return apart if of_settings else apart - {SETTINGS}


def is_load(representative: Representative) -> bool:
    """Whether it is of a load test."""
    return representative.result.keys.get(f"runtime_mode {LOOP}") is not None


def _highest_rates(
    warehouse: Warehouse, pairs: Sequence[tuple[Representative, Representative]]
) -> Mapping[str, HighestRate]:
    """The answers of searches by result_id, if there are load tests among the pairs."""
    ids = [side.result.result_id for pair in pairs for side in pair if is_load(pair[0])]
    rows = warehouse.query(SEARCHES, (ids,)).dicts() if ids else ()
    found = {
        row["result_id"]: HighestRate.of(row["other_metrics"], json.loads(row["extra"]).get("load") or {})
        for row in rows
    }
    return {result_id: answer for result_id, answer in found.items() if answer is not None}


def _rate_sentences(answers: Mapping[str, HighestRate], findings: Sequence[Finding]) -> tuple[str, ...]:
    """A sentence about each two searches for the highest rate within the same limits. The intervals are of one search
    each: what differs between sessions is not in them, so that they are no verdict."""
    sentences = []
    for finding in findings:
        before, after = answers.get(finding.before.result_id), answers.get(finding.after.result_id)
        if before is not None and after is not None:
            which = before.compared(after)
            point = f" ({finding.point})" if len(answers) > 2 else ""
            sentences.append(
                f"highest rate within the limits{point}: A {before.text}, B {after.text}: {which} (by one search each; "
                "the machine may have differed)"
            )
    return tuple(sentences)


def _overlapping(before: Representative, after: Representative) -> list[tuple[Measured, Measured]]:
    """The results whose runs overlapped on one machine, as interleaved runs do; those of one command first. A run of
    unknown end is taken as its start alone; the machine is that of the host, which --anonymous omits, or of the command
    that measured both."""
    ended = [(other, other.finished_at or other.started_at) for other in after.comparable]
    pairs = []
    for one in before.comparable:
        end = one.finished_at or one.started_at
        for other in (other for other, other_end in ended if one.started_at <= other_end and other.started_at <= end):
            identities = ((result.columns["host"], result.ab, result.session_id) for result in (one, other))
            if any(first and first == second for first, second in zip(*identities, strict=True)):
                pairs.append((one, other))
    return sorted(pairs, key=lambda both: (both[0].ab != both[1].ab, both[0].session_id != both[1].session_id))


def _pair(
    before: Representative, after: Representative, overlapping: Sequence[tuple[Measured, Measured]], details: Details
) -> Pair:
    same = (
        {(measured.keys_hash, measured.started_at, measured.value) for measured in side.comparable}
        for side in (before, after)
    )
    if set.intersection(*same):  # also of a session that is stored twice
        return Pair(why_not_comparable=SAME_RESULT)
    if reason := _by_side(before.result.unfit, after.result.unfit):
        return Pair(why_not_comparable=reason)
    taken = set[tuple[str, int]]()
    interleaved = [(one.ab, rounds) for one, other in overlapping if (rounds := _rounds(one, other, details, taken))]
    if sum(len(rounds) for _, rounds in interleaved) < MIN_ROUNDS and (
        reason := _by_side(before.result.disturbed, after.result.disturbed)
    ):  # in turns, both sides are disturbed alike
        return Pair(why_not_comparable=reason)
    looks = Counter(ab for ab, _ in interleaved if ab is not None)
    sides = before.comparable, after.comparable
    # session_id -> its index in the time line of all sessions of both sides' series
    results = [measured for side in sides for measured in side]
    times: dict[str, datetime] = {}
    for series_id in {result.series_id for result in results}:
        times |= {session.session_id: session.started_at for session in details.other_sessions.get(series_id, ())}
    for result in results:
        times[result.session_id] = max(result.started_at, times.get(result.session_id, result.started_at))
    in_order = sorted(times, key=lambda session_id: (times[session_id], session_id))
    positions = {session_id: position for position, session_id in enumerate(in_order)}
    sessions: list[tuple[Session, ...]] = []
    for side in sides:
        groups = grouped((measured.session_id, measured) for measured in side)
        sessions.append(
            tuple(
                Session(
                    value=session_mean([member.value for member in members if member.value is not None]),
                    launches=tuple(
                        value for member in members for value in details.values.get(member.result_id, {}).values()
                    ),
                    position=positions[session_id],
                    time=min(member.started_at for member in members),
                )
                for session_id, members in sorted(groups.items(), key=lambda item: positions[item[0]])
            )
        )
    others = {
        series_id: tuple(
            Session(
                value=session.value,
                launches=tuple(details.history_values.get(session.result_id, {}).values()),
                position=positions[session.session_id],
                time=session.started_at,
            )
            for session in details.other_sessions.get(series_id, ())
        )
        for series_id in {result.series_id for result in results}
    }
    return replace(
        pair_of_sessions((sessions[0], sessions[1]), (sides[0][0].series_id, sides[1][0].series_id), others),
        rounds=tuple(values for _, rounds in interleaved for values, _ in rounds),
        is_first=tuple(is_before_first for _, rounds in interleaved for _, is_before_first in rounds),
        looks=max(looks.values(), default=1),
        clock_steps=(max(one.clock_step for one in sides[0]), max(one.clock_step for one in sides[1])),
        is_simulated=before.result.keys["simulated"] is True,
    )


def pair_of_sessions(
    sides: tuple[Sequence[Session], Sequence[Session]],
    series: tuple[str, str],
    others: Mapping[str, Sequence[Session]],
) -> Pair:
    """The sessions of two sides, each of a series, with the variation between sessions that all of their series show:
    `others` are those that are not compared, by series."""
    given = [tuple(group) for group in (*sides, *others.values())]
    is_apart = are_apart(*sides)
    groups = of_sittings(given) if is_apart else [*of_common_sittings(sides), *given[2:]]
    before, after, *unseen = groups
    by_series = dict(zip(others, unseen, strict=True))
    if len(by_series) == 1:
        scatter = [_scatter(by_series[series[0]], (before, after))] * 2
    else:
        scatter = [_scatter(by_series[one], [own]) for one, own in zip(series, (before, after), strict=True)]
    estimates = [session for session in scatter if session is not None]
    return Pair(
        before=before,
        after=after,
        scatter=(estimates[0], estimates[1]) if len(estimates) == 2 else None,
        is_of_sittings=sum(map(len, groups)) < sum(map(len, given)),
        left_out=(0, 0) if is_apart else (len(sides[0]) - len(before), len(sides[1]) - len(after)),
    )


def _by_side(before: str | None, after: str | None) -> str:
    """Why either result may not be compared, with its side; empty if both may."""
    named = [("A", before), ("B", after)]
    if before == after:
        named = [("A and B", before)]
    return "; ".join(f"{name}: {why}" for name, why in named if why is not None)


def _rounds(
    before: Measured, after: Measured, details: Details, taken: set[tuple[str, int]]
) -> list[tuple[tuple[float, float], bool]]:
    """The values of both sides in each round, and whether `before` was first; empty if the launches did not
    alternate. Launches of `taken` are in another round: two commands at once on a machine have each its own."""
    values = [details.values.get(side.result_id, {}) for side in (before, after)]
    starts = [details.starts.get(side.result_id, {}) for side in (before, after)]
    starts = [
        {number: start for number, start in begun.items() if number in own and (side.result_id, number) not in taken}
        for side, begun, own in zip((before, after), starts, values, strict=True)
    ]
    numbers = judging.rounds_in_turns(*starts)
    taken.update((side.result_id, number) for side in (before, after) for number in numbers)
    return [((values[0][number], values[1][number]), starts[0][number] <= starts[1][number]) for number in numbers]


def _scatter(others: Sequence[Session], compared: Sequence[Sequence[Session]]) -> SessionScatter | None:
    """The variation between sessions of a series: of the sessions not compared, and of those of each side of the
    series. Two sides of a series share it: what one shows holds for the other. Hours and launches are those of the
    largest group. None if neither side has enough sessions without the other: two short rows do not show what comes and
    goes."""
    if max(len(others), 1) + max(map(len, compared)) <= MIN_SESSIONS:
        return None
    groups = sorted((others, *compared), key=len, reverse=True)
    return session_scatter(
        [[session.value for session in group] for group in groups],
        [session.time for session in groups[0] if session.time is not None],
        [log_variance(session.launches) for session in groups[0] if len(session.launches) >= judging.MIN_LAUNCHES],
    )


def _finding(
    before: Representative, after: Representative, judgement: Judgement, details: Details, left_out: tuple[int, int]
) -> Finding:
    one, other = before.result, after.result
    left_out = (0, 0) if judgement.scope == "in turns" else left_out
    return Finding(
        point=other.point if one.point == other.point else f"{one.point} / {other.point}",
        subject={name: (one.columns[name], other.columns[name]) for name in SUBJECT},
        differs=differences(one.keys, other.keys),
        is_simulated=bool(one.keys["simulated"] or other.keys["simulated"]),
        before=_side(before, details, left_out[0]),
        after=_side(after, details, left_out[1]),
        judgement=judgement,
    )


def _side(representative: Representative, details: Details, left_out: int) -> Side:
    result = representative.result
    return Side(
        result_id=result.result_id,
        run_id=result.run_id,
        started_at=result.started_at.isoformat(),
        results=len(representative.comparable),
        left_out=left_out,
        launches=sum(len(details.values.get(side.result_id, ())) for side in representative.comparable),
        value=result.value,
        validity=result.validity,
        doubts=result.doubts,
        launch_values=tuple(details.values.get(result.result_id, {}).values()),
    )


def _severity(finding: Finding, metric: Metric) -> tuple[int, float]:
    """A sort key: changes for the worse, then other compared results, then results that are not comparable."""
    judgement = finding.judgement
    if judgement.change is None:
        return 0, 0.0
    by = abs(judgement.change)
    return 2 if judgement.is_worse else 1, by if metric.is_worse(judgement.change) else -by


def _environments(before: Measured, after: Measured) -> dict[str, tuple[Json, Json]]:
    """What differs in the commit, host and versions."""
    columns = ({name: result.columns[name] for name in PROVENANCE} for result in (before, after))
    return {**differences(*columns), **version_differences(before.versions, after.versions)}


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
        both = " -> ".join(NOTHING if value is None else number(value) for value in (self.before, self.after))
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
        factor = 100 if metric.is_relative else 1
        shown = ends(factor * judgement.low, factor * judgement.high)
        return f"{' .. '.join(shown)} {'%' if metric.is_relative else metric.unit}".rstrip()


def _compared_quality(
    warehouse: Warehouse, findings: Sequence[Finding]
) -> tuple[tuple[QualityFinding, ...], frozenset[str]]:
    """The quality of each pair of runs of the findings that both have it, in the order of the findings, and the
    imported evaluations that measured it. What two evaluations say of several pairs is judged once."""
    pairs: dict[tuple[str, str], str] = {}
    for finding in findings:
        sides = [" ".join(filter(None, (finding.subject[n][i] for n in ("runtime", "precision")))) for i in (0, 1)]
        words = sides[0] if sides[0] == sides[1] else " -> ".join(sides)
        pairs.setdefault((finding.before.run_id, finding.after.run_id), words)
    runs = sorted({run for pair in pairs for run in pair})
    known, beside = qualities(warehouse, runs), evaluations_beside(warehouse, runs)
    found, seen = [], set[tuple[str, str, str]]()
    for (before, after), subject in pairs.items():
        if before not in known or after not in known:
            continue
        first, second = known[before], known[after]
        for name, metric in QUALITY_METRICS.items():
            measured_by = (name, beside.get((before, name), before), beside.get((after, name), after))
            if name in first.values and name in second.values and measured_by not in seen:
                seen.add(measured_by)
                a, b = first.values[name], second.values[name]
                judgement = judge_quality(a, b, metric, same_windows=first.same_inputs(name, second))
                shared = beside.get((before, name))
                if shared is not None and shared == beside.get((after, name)):
                    judgement = QualityVerdict(verdict="not judged", reason=f"one evaluation, run {shared}, is of both")
                found.append(
                    QualityFinding(subject=subject, metric=name, before=a.value, after=b.value, judgement=judgement)
                )
    return tuple(found), frozenset(beside.values()) & {run for _, *both in seen for run in both}
