"""A comparison as text: a table with the worst first, and below it what the verdicts rest on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarking.core.tables import NOTHING, Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import markdown_escaped, markdown_table, number, visible_lines
from db.analysis.compare.comparison import Comparison, Finding, Side, Single
from db.analysis.compare.judging import CONFIDENCE, MAX_Q, MIN_CHANGE, MIN_HISTORY_RUNS, MIN_LAUNCHES, Scope

MAX_KINDS = 2
"""Kinds of doubt that are named; the others are counted."""
MAX_NAMES = 8
"""Points that are named in a line; the others are counted."""
NAMES = {"model_id": "model", "num_threads": "threads"}
"""Headings of columns that people call otherwise."""
CHANGED = ("slower", "faster", "more", "less")
ORDER = (*CHANGED, "inconclusive", "equivalent", "not comparable")
SCOPES: Mapping[Scope, str] = {
    "interleaved": "the sides ran in turns: a drift of the machine is in both",
    "between sessions": "the sides did not run in turns: the intervals allow for how much runs of these series differ",
    "within session": (
        f"the sides did not run in turns, and with fewer than {MIN_HISTORY_RUNS} earlier runs of a series nobody knows "
        "how much its runs differ: within-session only, another session may say otherwise"
    ),
}


def comparison_text(comparison: Comparison, *, only_changes: bool = False, page: Page = PLAIN) -> str:
    """For a terminal."""
    table = _table(comparison, only_changes=only_changes)
    head = visible_lines("\n".join(_head(comparison)))
    below = visible_lines("\n".join([_summary(comparison), *_remarks(comparison)]))
    return "\n\n".join(part for part in (head, table_text(table, page) if table.rows else "", below) if part)


def comparison_markdown(comparison: Comparison, *, only_changes: bool = False) -> str:
    """For a comment on a pull request; no text in it is taken for markup."""
    table = _table(comparison, only_changes=only_changes)
    head, remarks = _head(comparison), _remarks(comparison)
    parts = [f"**{markdown_escaped(_summary(comparison))}**", "\n".join(f"- {markdown_escaped(line)}" for line in head)]
    parts += [markdown_table(table.headings, table.rows, right=table.numbers)] if table.rows else []
    parts += ["\n".join(f"- {markdown_escaped(line)}" for line in remarks)] if remarks else []
    return "\n\n".join(parts)


def _head(comparison: Comparison) -> list[str]:
    """What is compared, and what all points have in common or differ in."""
    lines = [f"{comparison.metric}, A: {comparison.before}, B: {comparison.after}"]
    shared = {name: said for name, said in _subjects(comparison).items() if len(set(said)) == 1}
    lines += [", ".join(f"{_name(name)} {said[0]}" for name, said in shared.items() if said[0] != NOTHING)]
    told = {**_common_differences(comparison), **comparison.provenance}
    lines += ["differs: " + "; ".join(f"{name}: {_both(*values)}" for name, values in told.items())] if told else []
    return [line for line in lines if line]


def _table(comparison: Comparison, *, only_changes: bool) -> Table:
    """A row for each finding that can be compared; columns of subjects that are the same everywhere are left out."""
    findings = [one for one in comparison.findings if one.judgement.change is not None]
    findings = [one for one in findings if not only_changes or one.judgement.verdict in CHANGED]
    several = [name for name, said in _subjects(comparison).items() if len(set(said)) > 1]
    unit = comparison.unit
    numbers = (f"A {unit}", f"B {unit}", "change", f"{100 * CONFIDENCE:.0f} % interval")
    first = len(several) + 1
    headings = ("point", *map(_name, several), *numbers, "verdict", "q", "launches", "doubts")
    return Table(
        headings=headings,
        rows=tuple(_row(one, several) for one in findings),
        numbers=(*range(first, first + len(numbers)), headings.index("q"), headings.index("launches")),
        states=(headings.index("verdict"), headings.index("doubts")),
        keys=first,
    )


def _row(finding: Finding, subjects: Sequence[str]) -> tuple[str, ...]:
    judgement = finding.judgement
    assert judgement.before is not None
    assert judgement.after is not None
    return (
        finding.point,
        *(_both(*finding.subject[name]) for name in subjects),
        number(judgement.before),
        number(judgement.after),
        NOTHING if judgement.change is None else f"{judgement.change:+.1%}",
        _interval(judgement.low, judgement.high),
        judgement.verdict,
        NOTHING if judgement.q_value is None else f"{judgement.q_value:.2g}",
        f"{finding.before.launches} / {finding.after.launches}",
        _doubts(finding),
    )


def _interval(low: float | None, high: float | None) -> str:
    return NOTHING if low is None or high is None else f"{low:+.1%} .. {high:+.1%}"


def _doubts(finding: Finding) -> str:
    """The first kinds of each side's doubts: "A drift; B steal, drift +2"."""
    sides = [(name, side.doubts) for name, side in (("A", finding.before), ("B", finding.after)) if side.doubts]
    return "; ".join(f"{name} {_listed(kinds, MAX_KINDS)}" for name, kinds in sides)


def _summary(comparison: Comparison) -> str:
    """ "2 slower, 1 equivalent, 1 not comparable" """
    counts = [f"{comparison.counts[verdict]} {verdict}" for verdict in ORDER if comparison.counts.get(verdict)]
    text = ", ".join(counts) or "nothing to compare"
    return text if comparison.moved_together is None else f"{text}: environment, not code?"


def _remarks(comparison: Comparison) -> list[str]:
    """What the verdicts rest on, and what has none."""
    findings = comparison.findings
    lines = [] if comparison.moved_together is None else [f"environment, not code: {comparison.moved_together}"]
    scopes = {one.judgement.scope for one in findings}
    lines += [text for scope, text in SCOPES.items() if scope in scopes]
    if any(scopes):
        lines.append(
            f"a change has q <= {MAX_Q:g} (Benjamini and Hochberg, over this comparison) and is at least "
            f"{MIN_CHANGE:.0%}; values are geometric means of the launches' own, {MIN_LAUNCHES} or more on each side"
        )
    lines += _reasons(findings)
    lines += _counted("A", [one.before for one in findings]) + _counted("B", [one.after for one in findings])
    if any(one.is_simulated for one in findings):
        lines.append("simulated: numbers of a script or an emulator, which say nothing about a device")
    lines += _alone("A", comparison.only_before) + _alone("B", comparison.only_after)
    return lines


def _reasons(findings: Iterable[Finding]) -> list[str]:
    """Each reason for a verdict that says little, with its points."""
    points: dict[tuple[str, str], list[str]] = {}
    for one in findings:
        if one.judgement.reason is not None:
            points.setdefault((one.judgement.verdict, one.judgement.reason), []).append(_place(one))
    return [f"{verdict}: {reason} ({_listed(names, MAX_NAMES)})" for (verdict, reason), names in points.items()]


def _counted(name: str, sides: Sequence[Side]) -> list[str]:
    most = max((side.results for side in sides), default=1)
    return [f"{name}: of up to {most} results of a point the newest that can be compared stands"] if most > 1 else []


def _alone(name: str, singles: Sequence[Single]) -> list[str]:
    """Points of one side only, by what they are of."""
    places: dict[str, list[str]] = {}
    for one in singles:
        subject = ", ".join(_told(name, value) for name, value in one.subject.items() if value is not None)
        places.setdefault(subject, []).append(one.point)
    return [f"only in {name}: {subject}: {_listed(points, MAX_NAMES)}" for subject, points in places.items()]


def _told(name: str, value: str) -> str:
    """A value that says itself what it is, or has its name with it: "cpu", "threads 2"."""
    return f"{_name(name)} {value}" if value.isdigit() else value


def _place(finding: Finding) -> str:
    model = _both(*finding.subject["model_id"])
    return f"{model} {finding.point}"


def _subjects(comparison: Comparison) -> dict[str, list[str]]:
    """Column -> what each finding shows in it."""
    names = comparison.findings[0].subject if comparison.findings else ()
    return {name: [_both(*one.subject[name]) for one in comparison.findings] for name in names}


def _common_differences(comparison: Comparison) -> dict[str, tuple[object, object]]:
    """The keys in which all that can be compared differs alike, those left out that are columns."""
    differs = [one.differs for one in comparison.findings if one.judgement.change is not None]
    shown = comparison.findings[0].subject if comparison.findings else {}
    first = differs[0] if differs else {}
    return {
        name: both
        for name, both in first.items()
        if name not in shown and all(each.get(name) == both for each in differs)
    }


def _both(one: object, other: object) -> str:
    """What both sides have: "cpu", or "1 / 2"."""
    said = [NOTHING if value is None else str(value) for value in (one, other)]
    return said[0] if said[0] == said[1] else " / ".join(said)


def _listed(names: Sequence[str], most: int) -> str:
    more = f" +{len(names) - most}" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _name(column: str) -> str:
    return NAMES.get(column, column)
