"""The text of a bisection: its steps, and its conclusion."""

from __future__ import annotations

from benchmarking.bisection.search import Conclusion
from benchmarking.bisection.steps import Log, PointChange, Step
from benchmarking.core.text import duration, visible
from benchmarking.core.untrusted.history import CommitText, History

SHORT = 12
ROLES = {"whole": "BAD", "merge base": "common ancestor", "step": "step", "culprit": "culprit and its parent"}


def step_line(number: int, step: Step) -> str:
    """A step as one line."""
    where = f"{step.commit[:SHORT]} against {step.against[:SHORT]}"
    details = f"{step.reason}" if step.reason else "; ".join(map(_change, step.points))
    how = f"{step.rounds} rounds, {duration(step.seconds)}" if step.rounds else "not measured"
    return visible(f"{number}. {ROLES[step.role]}: {where} ({step.subject}): {_outcome(step)}: {details} [{how}]")


def _outcome(step: Step) -> str:
    return {"bad": "changed", "good": "not changed", "skip": "skipped"}[step.outcome]


def log_text(log: Log, conclusion: str | None = None) -> str:
    """The log as text: the search, a line per step, and the conclusion."""
    head = [
        f"good: {log.good}",
        f"bad: {log.bad}",
        f"metric: {log.metric}, rounds: {', '.join(map(str, log.looks))}",
        visible(f"command: {' '.join(log.command)}"),
    ]
    steps = [step_line(number, step) for number, step in enumerate(log.steps, 1)]
    return "\n".join([*head, "", *steps, *(["", conclusion] if conclusion else [])]) + "\n"


def conclusion_text(found: Conclusion, history: History) -> str:
    """The conclusion in a few lines."""
    step = found.step
    changes = [f"  {_change(one)}" for one in step.points] if step is not None else []
    if found.kind == "equal":
        return "\n".join(["BAD is equivalent to GOOD: there is no change to find", *changes])
    if found.kind == "not judged":
        reason = "" if step is None else visible(step.reason or "")
        return f"no verdict on whether BAD differs from GOOD: {reason}; a higher --max-rounds detects smaller changes"
    named = [_commit_line(commit, history.text(commit)) for commit in found.commits]
    if found.kind == "merge base":
        head = "a common ancestor of GOOD and BAD already has the change, so it is on GOOD's side"
        return "\n".join([f"{head}:", f"  {named[0]}", *changes])
    if found.kind == "skipped":
        head = "the culprit is one of these commits, all but the last of which had no verdict:"
        return "\n".join([head, *(f"  {name}" for name in named), "BAD against GOOD:", *changes])
    parent = (found.parent or "")[:SHORT]
    if found.kind == "not confirmed":
        reason = f": {visible(step.reason)}" if step is not None and step.reason else ""
        head = f"not confirmed: when measured again, the commit does not differ from its parent {parent}{reason}"
        return "\n".join([head, f"  {named[0]}", *changes])
    return "\n".join([f"culprit: {named[0]}", f"against its parent {parent}:", *changes])


def _commit_line(commit: str, text: CommitText) -> str:
    return f"{commit} {text.subject} ({text.author}, {text.time})"


def _change(one: PointChange) -> str:
    if one.change is None:
        return visible(f"{one.point}: {one.verdict}: {one.reason}")
    interval = "" if one.low is None or one.high is None else f" ({one.low:+.1%} .. {one.high:+.1%})"
    return visible(f"{one.point}: {one.change:+.1%}{interval}, {one.verdict}")
