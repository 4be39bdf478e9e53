"""What the gate finds: a verdict for each candidate, what a fresh session said to it, and whether all moved together.

Pure. Verdicts, worst first:

    failed           it cannot be measured any more
    regressed        worse than its segment leads one to expect; with a fresh session, in that too
    not confirmed    worse, but not in a fresh session
    improved         better than its segment leads one to expect
    fine             neither
    unfit            measured, but the result is doubtful: nothing is said
    not enough data  too few runs before it, or no number
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK
from db.analysis.environment import Shift, Together, moved_together
from db.analysis.gate.candidates import Candidate
from db.analysis.gate.gate import DEFAULTS, Judgement, Outcome, Parameters, judge

Verdict = Literal["failed", "regressed", "not confirmed", "improved", "fine", "unfit", "not enough data"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
BAD: tuple[Verdict, ...] = ("failed", "regressed")
JUDGED: tuple[Verdict, ...] = (*BAD, "not confirmed", "improved", "fine")
OUTCOMES: Mapping[Outcome, Verdict] = {
    "worse": "regressed",
    "better": "improved",
    "fine": "fine",
    "not_enough_data": "not enough data",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A candidate and what is said of it."""

    candidate: Candidate
    verdict: Verdict
    why: str | None = None
    """Why it failed, is unfit or there is no verdict; why a regression could not be measured again."""
    judgement: Judgement | None = None
    """None for what failed or is unfit."""
    again: Judgement | None = None
    """Of the same point in a fresh session, against the same segment; None where it was not measured again."""
    again_result_id: str | None = None
    together: Together | None = None
    """With it: environment, not code."""
    repeat: str | None = None
    """The command that measures it again, or why there is none; None where nobody needs it."""

    @property
    def ratio(self) -> float:
        """By how much it is worse: 1.1 is 10 % slower, or 10 % fewer a second; 1 without a verdict."""
        change = self.judgement.relative_change if self.judgement is not None else None
        if change is None:
            return 1.0
        return 1 + change if self.candidate.metric.better == "lower" else 1 / (1 + change)


def found(candidates: Iterable[Candidate], parameters: Parameters = DEFAULTS) -> tuple[Finding, ...]:
    """A finding for each candidate, worst first."""
    return worst_first(_with_environment([_finding(candidate, parameters) for candidate in candidates]))


def confirmed(finding: Finding, again: Candidate | None, why_not: str | None, parameters: Parameters) -> Finding:
    """The finding after its point was measured again; `again` is None, and `why_not` says why, where it was not.

    Only a value that is worse too confirms a regression. One that could not be had refutes nothing: what was found
    stays, with the reason.
    """
    if again is None or again.value is None or again.unfit is not None:
        reason = why_not or (again and (again.error or again.unfit or again.missing)) or "its series was not measured"
        return replace(finding, why=f"could not be measured again: {reason}")
    judgement = judge(finding.candidate.values, again.value, finding.candidate.metric, parameters)
    told = replace(finding, again=judgement, again_result_id=again.result_id)
    return told if judgement.outcome == "worse" else replace(told, verdict="not confirmed", together=None)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By verdict, then by how much worse; what differs in less than is shown stays in its order."""
    return tuple(sorted(findings, key=lambda finding: (VERDICTS.index(finding.verdict), -round(finding.ratio, 3))))


def exit_code(findings: Sequence[Finding]) -> int:
    """1 when anything regressed or failed, 3 when nothing at all could be judged, else 0."""
    verdicts = {finding.verdict for finding in findings}
    if verdicts & set(BAD):
        return EXIT_FAILED
    return EXIT_OK if verdicts & set(JUDGED) else EXIT_NOT_ENOUGH_DATA


def counts(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """How many findings there are of each verdict, worst first."""
    verdicts = [finding.verdict for finding in findings]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts}


def _finding(candidate: Candidate, parameters: Parameters) -> Finding:
    if candidate.status != "ok":
        return _unmeasured(candidate)
    if candidate.unfit is not None:
        return Finding(candidate=candidate, verdict="unfit", why=candidate.unfit)
    if candidate.value is None:
        why = f"no {candidate.metric.column}: {candidate.missing or 'not measured'}"
        return Finding(candidate=candidate, verdict="not enough data", why=why)
    judgement = judge(candidate.values, candidate.value, candidate.metric, parameters)
    return Finding(candidate=candidate, verdict=OUTCOMES[judgement.outcome], why=judgement.why, judgement=judgement)


def _unmeasured(candidate: Candidate) -> Finding:
    """A point without numbers: a failure where there were numbers before, else nothing to judge."""
    why = f"{candidate.status.replace('_', ' ')}: {candidate.error}"
    runs = len(candidate.segment)
    if candidate.status == "skipped" or not runs:
        return Finding(candidate=candidate, verdict="not enough data", why=why)
    why += f" (measured in {runs} run{'s' * (runs > 1)} before)"
    return Finding(candidate=candidate, verdict="failed", why=why)


def _with_environment(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, those of a machine and session whose series moved together marked."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        if finding.verdict in ("regressed", "improved", "fine"):
            groups.setdefault(_place(finding), []).append(finding)
    together = {place: moved_together(map(_shift, members)) for place, members in groups.items()}
    moved: tuple[Verdict, ...] = ("regressed", "improved")
    return [
        replace(finding, together=together[_place(finding)]) if finding.verdict in moved else finding
        for finding in findings
    ]


def _place(finding: Finding) -> tuple[str, str, str]:
    return finding.candidate.hardware_id, finding.candidate.session_id, finding.candidate.metric.column


def _shift(finding: Finding) -> Shift:
    candidate = finding.candidate
    group = f"{candidate.model_id}\n{candidate.runtime}\n{candidate.precision}"
    return Shift(group=group, ratio=finding.ratio, is_finding=finding.verdict != "fine")
