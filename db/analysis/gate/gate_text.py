"""The gate's findings as text, Markdown, JSON, JUnit XML for CI servers, and comments and annotations for GitHub.

Text from a warehouse is untrusted. In a comment its markup is escaped, and what GitHub would still turn into links
(@names, #numbers, addresses) is broken up with a zero-width space. In a workflow log a line may be a command
(`::error::`, `##[add-path]`), so text that is not an annotation is printed with commands disabled.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any

from benchmarking.core.doubts import doubt_notes
from benchmarking.core.metrics import DEFAULT_METRIC
from benchmarking.core.quality import QUALITY_METRICS
from benchmarking.core.records import to_json
from benchmarking.core.tables import NOTHING, Column, Table, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import (
    command_lines,
    listed,
    markdown_code,
    markdown_escaped,
    markdown_table,
    number,
    visible,
    wrapped,
)
from db.analysis.gate.findings import (
    BAD,
    JUDGED,
    LOAD,
    NOT_POSSIBLE,
    SHORT,
    WORDS,
    Finding,
    QualityCheck,
    Verdict,
    counts,
    exit_code,
)
from db.analysis.gate.gate import DETECTOR, DETECTOR_VERSION, EARLY_FALSE_ALARMS, EARLY_RUNS, PARAMETERS
from db.analysis.junit import Case
from db.values import SETTINGS, doubt_word, heading, optional_number, percent_change, subjects_of

MAX_NAMES = 4
"""Maximum series listed in a note; the rest are counted."""
PREFIX = 13
"""Characters of a run id in a note: those that its time decides."""
SUBJECTS = ("model_id", "device", "runtime", "precision", SETTINGS)
COLUMNS = (
    *("result_id", "run_id", "session_id", "series_id", "hardware_id", "git_commit"),
    *("model_id", "device", "device_name", "runtime", "precision", SETTINGS, "status", "validity"),
)
"""Columns of a finding in JSON."""
NAME = "benchhouse check"
WITH_REASON: tuple[Verdict, ...] = ("failed", "regressed", "accepted", "trend", "unfit", *SHORT)


def gate_text(findings: Sequence[Finding], quality: Sequence[QualityCheck] = (), page: Page = PLAIN) -> str:
    """Text for a terminal: a row per judged series, worst first, and notes on the verdicts."""
    tables = (_table(findings, page), _quality_table(quality, page))
    parts = [wrapped(_head(findings), page.text_width)]
    parts += [table_text(table, page) for table in tables if table.rows]
    lines = [summary(findings, quality), *_notes(findings), *_quality_notes(quality)]
    notes = wrapped("\n".join(lines), page.text_width)
    commands = [
        (wrapped if text.startswith(NOT_POSSIBLE) else command_lines)(f"{what}: {text}", page.text_width)
        for what, text in _commands(findings)
    ]
    parts.append("\n".join([notes, *commands]))
    return "\n\n".join(parts)


def gate_markdown(findings: Sequence[Finding], quality: Sequence[QualityCheck] = ()) -> str:
    """Markdown for a pull request comment, with names escaped."""
    parts = [f"**{markdown_escaped(summary(findings, quality))}**", markdown_escaped(_head(findings))]
    parts += [
        markdown_table(table.headings, table.rows, right=table.numbers)
        for table in (_table(findings), _quality_table(quality))
        if table.rows
    ]
    lines = [markdown_escaped(line) for line in (*_notes(findings), *_quality_notes(quality))]
    lines += [
        f"{what}: {markdown_escaped(text) if text.startswith(NOT_POSSIBLE) else markdown_code(text)}"
        for what, text in _commands(findings)
    ]
    parts.append("\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts) + "\n"


def summary(findings: Iterable[Finding], quality: Sequence[QualityCheck] = ()) -> str:
    """One line of counts: "1 regressed, 7 fine: environment, not code?", "8 fine; quality: 1 worse, 4 equivalent"."""
    known = tuple(findings)
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts(known).items())
    environment = any(finding.common_shift is not None and finding.verdict in BAD for finding in known)
    text = f"{text}: environment, not code?" if environment else text
    words = [check.judgement.verdict for check in quality]
    of_quality = ", ".join(f"{words.count(word)} {word}" for word in WORDS if word in words)
    return f"{text}; quality: {of_quality}" if of_quality else text


def subject(finding: Finding) -> str:
    """The series of a finding: model, device, runtime, precision and point."""
    return f"{finding.candidate.subject}, {finding.candidate.point.label}"


def sentence(finding: Finding) -> str:
    """A finding in a sentence."""
    judgement = finding.judgement
    if judgement is None or judgement.relative_change is None:
        return finding.reason or finding.verdict
    assert judgement.centre is not None
    unit = finding.candidate.metric.unit
    text = (
        f"{finding.candidate.metric.column} is {number(judgement.value)} {unit}, "
        f"{percent_change(judgement.relative_change)} against {number(judgement.centre)} {unit}, predicted from "
        f"{_runs(finding)} runs; expected {_expected(finding)}"
    )
    if finding.confirmation is not None:
        limit = f" ({word})" if (word := _confirmed_if(finding)) is not None else ""
        text += f"; in a fresh session {number(finding.confirmation.value)} {unit}{limit}"
    return f"{text}; {finding.reason}" if finding.reason else text


def _head(findings: Sequence[Finding]) -> str:
    sessions = sorted({finding.candidate.session_id for finding in findings})
    commits = sorted({(finding.candidate.git_commit or "")[:10] for finding in findings} - {""})
    words = [f"session {', '.join(sessions)}", *([f"commit {', '.join(commits)}"] if commits else [])]
    return ", ".join([*words, *_subjects(findings)[1]])


def _table(findings: Sequence[Finding], page: Page = PLAIN) -> Table:
    """A row per finding with a verdict or a value, without the subjects that all of them share."""
    shown = [finding for finding in findings if finding.verdict in JUDGED or finding.candidate.value is not None]
    several, _ = _subjects(findings)
    several_metrics = len({finding.candidate.metric.column for finding in findings}) > 1
    number_column = partial(Column[Finding], is_number=True)
    columns = [
        *(Column(heading(name), partial(_subject_word, name=name), is_key=True) for name in several),
        Column("point", lambda one: one.candidate.point.label, is_key=True),
        *([Column[Finding]("metric", lambda one: one.candidate.metric.column)] if several_metrics else []),
        number_column(
            heading="predicted", text=lambda one: optional_number(one.judgement.centre if one.judgement else None)
        ),
        number_column(heading="now", text=lambda one: optional_number(one.candidate.value)),
        number_column(
            heading="remeasured", text=lambda one: optional_number(one.confirmation.value if one.confirmation else None)
        ),
        Column("limit", _confirmed_if),
        Column("unit", lambda one: one.candidate.metric.unit, spare=2),  # the metric's name ends with it
        number_column(
            heading="change",
            text=lambda one: (
                None
                if one.judgement is None or one.judgement.relative_change is None
                else percent_change(one.judgement.relative_change)
            ),
        ),
        Column("expected", _expected),
        number_column(
            heading="runs",
            text=_runs,
            spare=1,
        ),
        Column("verdict", lambda one: one.verdict, is_state=True),
        Column("doubts", lambda one: doubt_word(one.candidate.doubts) or None, is_state=True),
    ]
    return table_of(columns, shown, page)


def _subject_word(finding: Finding, name: str) -> str:
    return str(getattr(finding.candidate, name) or NOTHING)


def _expected(finding: Finding) -> str | None:
    """The range of expected values: of one run, where several are worse together than each by itself."""
    judgement, is_lower_better = finding.judgement, finding.candidate.metric.better == "lower"
    if judgement is None or judgement.high is None or judgement.low is None:
        return None
    of_one = " (one run)" if judgement.together > 1 else ""
    return f"up to {number(judgement.high)}{of_one}" if is_lower_better else f"from {number(judgement.low)}{of_one}"


def _confirmed_if(finding: Finding) -> str | None:
    """Beyond what a regression is confirmed: "confirmed above 126.9"."""
    again = finding.confirmation
    if again is None or again.high is None or again.low is None:
        return None
    is_lower_better = finding.candidate.metric.better == "lower"
    return f"confirmed above {number(again.high)}" if is_lower_better else f"confirmed below {number(again.low)}"


def _runs(finding: Finding) -> str:
    """The number of runs that the prediction is from, and of those before a change whose variation counts: 3+12."""
    if finding.judgement is None:
        return str(len(finding.candidate.segment))
    borrowed = finding.judgement.borrowed
    return f"{finding.judgement.n}+{borrowed}" if borrowed else str(finding.judgement.n)


def _notes(findings: Sequence[Finding]) -> list[str]:
    """What the verdicts are based on, why some are missing, and what to do."""
    shifts = {one.common_shift.text for one in findings if one.common_shift is not None and one.verdict in BAD}
    lines = [f"environment, not code: {text}" for text in sorted(shifts)]
    if lines:
        lines.append("this is no proof: check what changed on the machine, and measure again when it is idle")
    if any(finding.verdict in ("regressed", "not confirmed", "accepted", "fine") for finding in findings):
        found = [finding.judgement for finding in findings if finding.judgement is not None]
        runs = [one.n + one.borrowed for one in found if one.centre is not None]
        is_early = bool(runs) and median(runs) < EARLY_RUNS
        share = EARLY_FALSE_ALARMS if is_early else PARAMETERS.false_alarms
        few = f", of fewer than {EARLY_RUNS} runs" if is_early else ""
        lines.append(
            f"what regressed is worse than the earlier runs predict for all series of a check together (false alarms "
            f"on at most {share:.0%} of the checks{few}), and by more than {PARAMETERS.min_change:.0%}"
            + ("" if any(one.verdict in BAD for one in findings) else ": nothing here regressed")
        )
    if any(_confirmed_if(finding) is not None for finding in findings):
        lines.append(
            "the limit by which a fresh session confirms is wider than the expected range, since the machine may still "
            "be in the state that raised the alarm"
        )
    if any(finding.judgement is not None and finding.judgement.borrowed for finding in findings):
        lines.append(
            "runs A+B: the A since the last change of level give the prediction, the B before it only their variation"
        )
    metrics = {finding.candidate.metric.column for finding in findings}
    series: dict[tuple[str, str], dict[str, dict[str, None]]] = {}  # the metrics of each subject, which two may share
    for one in findings:
        if one.reason is not None and one.verdict in WITH_REASON:
            of_reason = series.setdefault((one.verdict, one.reason), {})
            of_reason.setdefault(subject(one), {})[one.candidate.metric.column] = None
    for (verdict, why), of_reason in series.items():
        names = [
            name if len(found) == len(metrics) else f"{name}, {', '.join(found)}" for name, found in of_reason.items()
        ]
        said = why if why.startswith(verdict) else f"{verdict}: {why}"
        lines.append(f"{said} ({listed(names, MAX_NAMES, '; ')})")
    judged = [finding for finding in findings if finding.verdict in JUDGED]
    several, _ = _subjects(findings)
    labels = [" ".join([*(_subject_word(one, name) for name in several), one.candidate.point.label]) for one in judged]
    doubts = ((kind, label) for one, label in zip(judged, labels, strict=True) for kind in one.candidate.doubts)
    lines += doubt_notes(dict.fromkeys(doubts))  # once for all metrics
    return lines


def _quality_table(quality: Sequence[QualityCheck], page: Page = PLAIN) -> Table:
    """A row per measure of quality with a value, worst first."""
    number_column = partial(Column[QualityCheck], is_number=True)
    several = len({check.subject for check in quality}) > 1
    columns = [
        *([Column[QualityCheck]("subject", lambda one: one.subject, is_key=True)] if several else []),
        Column("quality", lambda one: QUALITY_METRICS[one.metric].heading, is_key=True),
        number_column(heading="baseline", text=lambda one: optional_number(one.before)),
        number_column(heading="now", text=lambda one: optional_number(one.after)),
        Column("unit", lambda one: QUALITY_METRICS[one.metric].unit or None, spare=1),
        Column("change (95 %)", lambda one: one.interval),
        Column("margin", lambda one: QUALITY_METRICS[one.metric].margin_in_words),
        Column("verdict", lambda one: one.judgement.verdict, is_state=True),
    ]
    return table_of(columns, [check for check in quality if check.after is not None], page)


def _quality_notes(quality: Sequence[QualityCheck]) -> list[str]:
    """What the verdicts on quality are based on, and why some are missing."""
    judged = [check for check in quality if check.judgement.verdict != "not judged"]
    baselines = sorted({check.baseline_run_id[:PREFIX] for check in judged if check.baseline_run_id is not None})
    lines = []
    if judged:
        verb = "is" if any(check.judgement.verdict == "worse" for check in judged) else "would be"
        lines.append(
            f"quality {verb} worse if the 95 % interval of the change lies beyond the margin; baseline: run "
            f"{listed(baselines, MAX_NAMES)}"
        )
    by_reason: dict[str, dict[str, list[str]]] = {}
    for check in quality:
        if check.judgement.verdict == "not judged" and check.judgement.reason is not None:
            names = by_reason.setdefault(check.judgement.reason, {}).setdefault(check.subject, [])
            names.append(QUALITY_METRICS[check.metric].heading)
    for reason, of_subjects in by_reason.items():
        names = [f"{', '.join(headings)} of {subject}" for subject, headings in of_subjects.items()]
        lines.append(f"quality not judged: {reason} ({listed(names, MAX_NAMES, '; ')})")
    return lines


def _commands(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """What to do next, and the command for it: to measure each regression again; without any verdict, to gate now."""
    is_one = len({finding.candidate.hardware_id for finding in findings}) == 1
    commands = [
        ("" if is_one else f" on {finding.candidate.device_name or 'its machine'}", finding.repeat_command)
        for finding in findings
        if finding.repeat_command is not None and finding.verdict == "regressed"
    ]
    again = [(f"measure again{where}", text) for where, text in dict.fromkeys(commands)]
    sides = (
        (finding.repeat_command, finding.candidate.metric.column)
        for finding in findings
        if finding.verdict in SHORT and finding.repeat_command
        if finding.candidate.value is not None  # else the same command again has none either
    )
    side, column = next(sides, ("", ""))
    if not side or side.startswith(NOT_POSSIBLE):
        return again
    if side.startswith(f"{' '.join(LOAD)} "):  # which has limits of its own
        return [*again, ("to gate now, without a history, with the other flags of this load", side)]
    metric = () if column == DEFAULT_METRIC else ("--metric", column)
    words = ("benchhouse", "ab", side, "--worktree-a", "FOLDER", *metric, "--fail-on", "slower")
    return [*again, ("to gate now, without a history, with the code to compare with in FOLDER", shlex.join(words))]


def _subjects(findings: Sequence[Finding]) -> tuple[list[str], list[str]]:
    """The subjects in which findings differ, and the shared ones, which are in the head."""
    return subjects_of(SUBJECTS, findings, lambda finding, name: getattr(finding.candidate, name))


def gate_document(findings: Sequence[Finding], quality: Sequence[QualityCheck] = ()) -> dict[str, Any]:
    """The JSON document: all findings, worst first, and the exit code."""
    found: list[dict[str, Any]] = []
    for finding in findings:
        candidate = finding.candidate
        last_good = finding.last_good
        found.append(
            {
                "verdict": finding.verdict,
                "why": finding.reason,
                **{name: getattr(candidate, name) for name in COLUMNS},
                "point": to_json(candidate.point),
                "metric": candidate.metric.column,
                "unit": candidate.metric.unit,
                "value": candidate.value,
                "doubts": list(candidate.doubts),
                "judgement": to_json(finding.judgement),
                "again": to_json(finding.confirmation),
                "again_result_id": finding.confirmation_result_id,
                "last_good_result_id": None if last_good is None else last_good.result_id,
                "last_good_commit": None if last_good is None else last_good.git_commit,
                "environment": None if finding.common_shift is None else finding.common_shift.text,
                "measure_again": finding.repeat_command,
            }
        )
    return {
        "detector": DETECTOR,
        "detector_version": DETECTOR_VERSION,
        "parameters": asdict(PARAMETERS),
        "exit_code": exit_code(findings, quality),
        "counts": counts(findings),
        "findings": found,
        "quality": [to_json(check) for check in quality],
    }


def junit_cases(findings: Sequence[Finding], quality: Sequence[QualityCheck] = ()) -> list[Case]:
    """The test cases for JUnit XML: regressed and failed findings and worse qualities are failures; what could not be
    judged is skipped."""
    cases = []
    for finding in findings:
        candidate, message = finding.candidate, sentence(finding)
        details = [message, f"series {candidate.series_id}", f"run {candidate.run_id}"]
        details += [f"environment, not code? {finding.common_shift.text}"] if finding.common_shift is not None else []
        details += [f"doubts: {', '.join(candidate.doubts)}"] if candidate.doubts else []
        details += [f"measure again: {finding.repeat_command}"] if finding.repeat_command is not None else []
        cases.append(
            Case(
                subject=candidate.subject,
                name=f"{candidate.point.label} {candidate.metric.column}",
                result="failure" if finding.verdict in BAD else "passed" if finding.verdict in JUDGED else "skipped",
                kind=finding.verdict,
                message=message,
                details=details,
            )
        )
    for check in quality:
        verdict = check.judgement.verdict
        cases.append(
            Case(
                subject=check.subject,
                name=f"quality {check.metric}",
                result="failure" if verdict == "worse" else "skipped" if verdict == "not judged" else "passed",
                kind=verdict,
                message=check.text,
                details=[check.text, f"run {check.run_id}", f"baseline run {check.baseline_run_id}"],
            )
        )
    return cases


MARKER = "<!-- benchhouse check -->"
"""First line of a comment, by which a workflow finds its earlier comment."""
MAX_CHARACTERS = 60_000
"""Maximum characters of a comment; GitHub refuses more than 65 536."""
MAX_ANNOTATIONS = 10
"""Maximum annotations of one kind that GitHub shows per step."""
MAX_MESSAGE = 2_000
LEVELS: dict[Verdict, str] = {
    **dict.fromkeys(BAD, "error"),
    "not confirmed": "warning",
    "accepted": "notice",
    "trend": "warning",
    "improved": "notice",
}


def unjudged_markdown(what: str, reason: str) -> str:
    """Markdown that says why there are no findings."""
    return f"**{NAME}: {markdown_escaped(what)}**\n\n{markdown_escaped(reason)}\n"


def unjudged_annotation(what: str, reason: str) -> str:
    """The workflow command that says why there are no findings."""
    return _command("error" if what == "error" else "warning", f"benchhouse: {what}", reason)


def github_comment(findings: Sequence[Finding], quality: Sequence[QualityCheck] = ()) -> str:
    """The body of a comment. If it is too long, it is cut and ends with the number of omitted lines."""
    body = gate_markdown(findings, quality)
    if len(body) > MAX_CHARACTERS:
        lines, kept, length = body.split("\n"), 0, 0
        while length + len(lines[kept]) < MAX_CHARACTERS:
            length += len(lines[kept]) + 1
            kept += 1
        body = "\n".join([*lines[:kept], "", f"{len(lines) - kept} more lines are omitted", ""])
    return comment(body)


def comment(body: str) -> str:
    """The body of a comment that a workflow finds again."""
    return f"{MARKER}\n{body}"


def workflow_annotations(findings: Sequence[Finding], quality: Sequence[QualityCheck] = ()) -> list[str]:
    """A workflow command for each finding that needs attention, worst first. If GitHub would not show all of a kind,
    the last one counts the rest."""
    known: list[tuple[str | None, str, str]] = [
        (LEVELS.get(finding.verdict), finding.verdict, _message(finding)) for finding in findings
    ]
    levels = {"worse": "error", "better": "notice"}
    known += [
        (levels.get(check.judgement.verdict), f"quality {check.judgement.verdict}", f"{check.subject}: {check.text}")
        for check in quality
    ]
    lines: list[str] = []
    for level in dict.fromkeys(LEVELS.values()):
        of_level = [(title, message) for of_finding, title, message in known if of_finding == level]
        shown = of_level if len(of_level) <= MAX_ANNOTATIONS else of_level[: MAX_ANNOTATIONS - 1]
        lines += [_command(level, f"benchhouse: {title}", message) for title, message in shown]
        if len(of_level) > len(shown):
            lines.append(_command(level, "benchhouse", f"{len(of_level) - len(shown)} more"))
    return lines


def without_commands(text: str) -> str:
    """The text for a workflow log, with workflow commands disabled."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}\n{text}\n::{token}::"


def _message(finding: Finding) -> str:
    doubt = "" if finding.common_shift is None else f" (environment, not code? {finding.common_shift.text})"
    return f"{subject(finding)}: {sentence(finding)}{doubt}"


def _command(level: str, title: str, message: str) -> str:
    """A workflow command with GitHub's escapes: % and line ends in a message, also : and , in a property."""
    text = visible(message)
    text = text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} ..."
    return f"::{level} title={_escaped(visible(title)).replace(':', '%3A').replace(',', '%2C')}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
