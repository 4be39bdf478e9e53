"""A comparison as text: a table, worst change first, and notes on its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter

from benchmarking.core.doubts import doubt_notes
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.tables import NOTHING, Column, Table, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import counted, listed, markdown_escaped, markdown_table, number, wrapped
from benchmarking.core.verdicts.judging import CONFIDENCE, MAX_Q
from benchmarking.core.verdicts.launches import NEXT, level_notes, next_launch_text
from benchmarking.core.verdicts.words import CHANGED, MIN_CHANGE, ORDER, SIMULATED, Condition, Scope
from db.analysis.compare.comparison import Comparison, Finding, Single
from db.analysis.compare.matching import INSTEAD, in_words
from db.analysis.junit import Case, junit_xml
from db.values import doubt_word, heading, optional_number, percent_change, subjects_of

MOST_DETECTABLE = 10.0
"""Above it, results are too noisy for the figure to mean anything."""
MAX_NAMES = 8
"""Maximum points listed in a note; the rest are counted."""
MOST_SUBJECTS = 4
"""Maximum lines about what only one side has."""
SCOPES: Mapping[Scope, str] = {
    "in turns": "A and B were measured in turns and are compared by rounds: machine drift affects both",
    "between sessions": (
        "A and B were not measured in turns: the intervals include the variation between sessions, and drift"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonWords:
    """A comparison in words, for pages and reports."""

    summary: str
    """ "2 slower, 1 equivalent" """
    head: tuple[str, ...]
    """What is compared, what all points share, and the differences that all of them have."""
    table: Table
    findings: tuple[Finding, ...]
    """The finding of each table row."""
    notes: tuple[str, ...]
    """What the verdicts are based on, and the points without a verdict."""


def comparison_words(comparison: Comparison, *, only_changes: bool = False, page: Page = PLAIN) -> ComparisonWords:
    """The parts that the texts are made of."""
    findings = [finding for finding in comparison.findings if finding.judgement.change is not None]
    if only_changes:
        findings = [finding for finding in findings if finding.judgement.verdict in CHANGED]
    return ComparisonWords(
        summary=_summary(comparison),
        head=tuple(_head(comparison)),
        table=_table(comparison, findings, page),
        findings=tuple(findings),
        notes=tuple(_notes(comparison)),
    )


def comparison_text(comparison: Comparison, *, only_changes: bool = False, page: Page = PLAIN) -> str:
    """Text for a terminal."""
    words = comparison_words(comparison, only_changes=only_changes, page=page)
    head = wrapped("\n".join(words.head), page.text_width)
    below = wrapped("\n".join([words.summary, *words.notes]), page.text_width)
    table = table_text(words.table, page) if words.findings else ""
    return "\n\n".join(part for part in (head, table, below) if part)


def comparison_markdown(comparison: Comparison, *, only_changes: bool = False) -> str:
    """Markdown for a pull request comment, with names escaped."""
    words = comparison_words(comparison, only_changes=only_changes)
    head, notes = ("\n".join(f"- {markdown_escaped(line)}" for line in lines) for lines in (words.head, words.notes))
    table = words.table
    rows = markdown_table(table.headings, table.rows, right=table.numbers) if words.findings else ""
    return "\n\n".join(part for part in (f"**{markdown_escaped(words.summary)}**", head, rows, notes) if part)


def comparison_junit(
    comparison: Comparison, asked: Sequence[Condition], exit_code: int, reason: str, *, suite: str
) -> str:
    """JUnit XML of a command that ends with this exit code for this reason, a test case per point: what `--fail-on
    slower` fails is a failure, and what has no verdict is skipped."""
    cases = []
    for finding in comparison.findings:
        judgement, verdict = finding.judgement, finding.judgement.verdict
        figures = [
            f"{side} {number(value)} {comparison.unit}".rstrip()
            for side, value in (("A", judgement.before), ("B", judgement.after))
            if value is not None
        ]
        change = [] if judgement.change is None else [percent_change(judgement.change)]
        interval = [] if (found := _interval(finding)) is None else [f"{100 * CONFIDENCE:.0f} % interval {found}"]
        message = "; ".join(filter(None, (", ".join((*figures, *change, *interval)), judgement.reason)))
        is_failure = judgement.is_worse is True and "slower" in asked
        cases.append(
            Case(
                subject=", ".join(filter(None, (_subject(name, finding) for name in finding.subject))),
                name=f"{finding.point} {comparison.metric}",
                result="failure" if is_failure else "skipped" if verdict == "not judged" else "passed",
                kind=verdict,
                message=message or verdict,
                details=[message, f"run A {finding.before.run_id}", f"run B {finding.after.run_id}"],
            )
        )
    return junit_xml(suite, cases, exit_code, "; ".join(filter(None, (reason, comparison.nearest))))


def _head(comparison: Comparison) -> list[str]:
    """What is compared, what all points share, and the differences that all of them have."""
    # The other tables show the median launch, under the metric's name; a change is the ratio of these means.
    launches = max(
        (side.launches for finding in comparison.findings for side in (finding.before, finding.after)), default=0
    )
    mean = ", geometric mean of the launches" if launches > 1 else ""
    lines = [f"{comparison.title}{mean}; A: {comparison.before}, B: {comparison.after}"]
    lines += [", ".join(_subjects(comparison)[1])]
    # The keys that differ in the same way in all compared findings, except those that have a column.
    of_findings = [finding.differs for finding in comparison.findings if finding.judgement.change is not None]
    shown = comparison.findings[0].subject if comparison.findings else {}
    first = of_findings[0] if of_findings else {}
    same = {name: values for name, values in first.items() if all(other.get(name) == values for other in of_findings)}
    columns = {in_words({name: ("", "")}).popitem()[0] for name in same if name in shown}
    differs = {name: values for name, values in in_words(same).items() if name not in columns} | {
        **comparison.provenance
    }
    if differs:
        lines.append("differs: " + "; ".join(f"{name}: {_pair_text(*values)}" for name, values in differs.items()))
    return [line for line in lines if line]


def _table(comparison: Comparison, findings: Sequence[Finding], page: Page) -> Table:
    """A row per finding, without the subjects that all of the comparison share."""
    several, _ = _subjects(comparison)
    unit = comparison.unit
    number_column = partial(Column[Finding], is_number=True)
    columns = [
        Column[Finding]("point", attrgetter("point"), is_key=True),
        *(Column[Finding](heading(name), partial(_subject, name), is_key=True) for name in several),
        number_column(heading=f"A {unit}", text=lambda one: optional_number(one.judgement.before)),
        number_column(heading=f"B {unit}", text=lambda one: optional_number(one.judgement.after)),
        number_column(
            heading="change",
            text=lambda one: None if one.judgement.change is None else percent_change(one.judgement.change),
        ),
        number_column(heading=f"{100 * CONFIDENCE:.0f} % interval", text=_interval),
        number_column(heading="detectable", text=_detectable, spare=1),
        Column[Finding]("verdict", lambda one: one.judgement.verdict, is_state=True),
        number_column(heading="launches", text=lambda one: f"{one.before.launches} / {one.after.launches}", spare=2),
        Column[Finding]("doubts", _doubts, is_state=True),
    ]
    return table_of(columns, findings, page)


def _subject(name: str, finding: Finding) -> str:
    return _pair_text(*finding.subject[name])


def _interval(finding: Finding) -> str | None:
    low, high = finding.judgement.low, finding.judgement.high
    return None if low is None or high is None else f"{percent_change(low)} .. {percent_change(high)}"


def _detectable(finding: Finding) -> str | None:
    smallest = finding.judgement.detectable
    if smallest is None:
        return None
    return f"{smallest:.1%}" if smallest < MOST_DETECTABLE else f"> {MOST_DETECTABLE:.0%}"


def _doubts(finding: Finding) -> str:
    """One word: "noisy" for both sides, "A noisy" for one."""
    before, after = doubt_word(finding.before.doubts), doubt_word(finding.after.doubts)
    if before == after:
        return before
    return ", ".join(f"{name} {word}" for name, word in (("A", before), ("B", after)) if word)


def _summary(comparison: Comparison) -> str:
    """ "2 slower, 1 equivalent, 1 not judged" """
    counts = [f"{comparison.counts[verdict]} {verdict}" for verdict in ORDER if comparison.counts.get(verdict)]
    text = ", ".join(counts) or "nothing to compare"
    return text if comparison.moved_together is None else f"{text}: environment, not code?"


def _notes(comparison: Comparison) -> list[str]:
    """What the verdicts are based on, and the points without a verdict."""
    findings = comparison.findings
    lines = [*comparison.rates, *([comparison.sentence] if findings else [])]
    several_pairs = len({measure.subject for measure in comparison.quality}) > 1
    for measure in comparison.quality:
        lines.append(f"quality{f' ({measure.subject})' if several_pairs else ''}: {measure.text}")
    lines += [] if comparison.moved_together is None else [f"environment, not code: {comparison.moved_together}"]
    scopes = {finding.judgement.scope for finding in findings}
    lines += [text for scope, text in SCOPES.items() if scope in scopes]
    if any(scopes):
        lines.append(
            f"a change has q <= {MAX_Q:g} (Benjamini-Hochberg, over this comparison) and is at least {MIN_CHANGE:.0%}; "
            "detectable: the smallest change at one point that would be found with a probability of about 80%"
        )
    without = [finding for finding in findings if finding.judgement.change is None]
    if 0 < len(without) < len(findings):
        have = "has" if len(without) == 1 else "have"
        lines.append(f"{len(without)} of {counted(len(findings), 'point')} {have} no figures, and no row in the table")
    several, _ = _subjects(comparison)
    points: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        if finding.judgement.reason is not None:
            label = _label(finding, several)
            points.setdefault((finding.judgement.verdict, finding.judgement.reason), []).append(label)
    if len(points) > 1 or len(findings) > len(next(iter(points.values()), ())):  # else the sentence has the reason
        lines += [f"{verdict}: {reason} ({listed(names, MAX_NAMES)})" for (verdict, reason), names in points.items()]
    raw = []
    for finding in without:
        first, second = finding.before.value, finding.after.value
        if first is not None and second is not None:
            values = f"A {number(first)}, B {number(second)} {comparison.unit}".rstrip()
            is_ratio = first and not any(name in INSTEAD for name in finding.differs)
            change = f" ({percent_change(second / first - 1)})" if is_ratio else ""
            raw.append(f"{_label(finding, several) if several else finding.point}: {values}{change}")
    lines += [f"as measured, without a verdict: {listed(raw, MAX_NAMES, '; ')}"] if raw else []
    # Where the launches lie on two levels, and where another launch of each side would be
    launches = {
        _side_label(finding, place, several): (finding.before, finding.after)[place].launch_values
        for finding in findings
        if finding.judgement.change is not None
        for place in (0, 1)
    }
    ends = [f"{label} {text}" for label, values in launches.items() if (text := next_launch_text(values))]
    what = (
        f"{NEXT} ({comparison.unit}, with 95 % probability)" if comparison.unit else f"{NEXT} (with 95 % probability)"
    )
    lines += [*level_notes(launches), *([f"{what}: {listed(ends, MAX_NAMES, '; ')}"] if ends else [])]
    lines += doubt_notes(
        (kind, _side_label(finding, place, several))
        for finding in findings
        for place in (0, 1)
        for kind in (finding.before, finding.after)[place].doubts
        if finding.judgement.change is not None or kind in (finding.judgement.reason or "")
    )
    for name, sides_of in (("A", [one.before for one in findings]), ("B", [one.after for one in findings])):
        if (most := max((side.results for side in sides_of), default=1)) > 1:
            left_out = max(side.left_out for side in sides_of)
            but = f" but up to {left_out}, of days that the other side lacks or has less of" if left_out else ""
            lines.append(f"{name}: a point has up to {most} comparable results, and its figure is of all of them{but}")
    if any(finding.is_simulated for finding in findings):
        lines.append(SIMULATED)
    # Why two tools' results have no point in common, and what to look at instead.
    sides = comparison.only_before, comparison.only_after
    before, after = ({single.definition or "this program" for single in side} for side in sides)
    if not findings and before and after and not before & after:
        both = " / ".join(listed(sorted(side), MAX_NAMES) for side in (before, after))
        lines.append(f"definition: {both}: {INSTEAD['definition']}")
    lines += _only_in("A", comparison.only_before) + _only_in("B", comparison.only_after)
    return lines if comparison.nearest is None else [*lines, f"nearest: {comparison.nearest}"]


def _only_in(name: str, singles: Sequence[Single]) -> list[str]:
    """Points that only one side has, by subject: an import may have dozens."""
    points_by_subject: dict[str, list[str]] = {}
    for single in singles:
        named = {name: value for name, value in single.subject.items() if value is not None}
        subject = ", ".join(f"{heading(name)} {value}" if value.isdigit() else value for name, value in named.items())
        points_by_subject.setdefault(subject, []).append(single.point)
    found = list(points_by_subject.items())
    shown = found if len(found) <= MOST_SUBJECTS else found[: MOST_SUBJECTS - 1]
    lines = [f"only in {name}: {subject}: {listed(points, MAX_NAMES)}" for subject, points in shown]
    if others := found[len(shown) :]:
        points = sum(len(points) for _, points in others)
        lines.append(f"only in {name}: {points} points of {len(others)} other setups (--json lists them)")
    return lines


def _subjects(comparison: Comparison) -> tuple[list[str], list[str]]:
    """The columns in which the findings differ, which tell points of one name apart, and what they share in words."""
    names = comparison.findings[0].subject if comparison.findings else ()

    def value(finding: Finding, name: str) -> str | None:
        return None if (text := _subject(name, finding)) == NOTHING else text

    return subjects_of(names, comparison.findings, value)


def _label(finding: Finding, several: Sequence[str]) -> str:
    """ "gpt2 b1 s128", with what else distinguishes it: "gpt2 eager / onnxruntime b1 s128"."""
    names = dict.fromkeys(("model_id", *several))
    return " ".join([*(_pair_text(*finding.subject[name]) for name in names), finding.point])


def _side_label(finding: Finding, place: int, several: Sequence[str]) -> str:
    """A side of a point: "B b1 s128", or "B onnxruntime b1 s128" where the findings are of several."""
    own = (finding.subject[name][place] for name in several)
    return " ".join(["AB"[place], *(value for value in own if value is not None), finding.point])


def _pair_text(one: object, other: object) -> str:
    """The values of both sides: "cpu", or "1 / 2"."""
    texts = [NOTHING if value is None else str(value) for value in (one, other)]
    return texts[0] if texts[0] == texts[1] else " / ".join(texts)
