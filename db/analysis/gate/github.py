"""The gate's findings for GitHub: the body of a comment, and annotations of a workflow.

Text from a warehouse is a stranger's. In a comment its markup is escaped, and what GitHub makes links of all the same
(@names, #numbers, addresses) is broken with a zero-width space. In the log of a workflow a line may be a command
(`::error::`, `##[add-path]`), so text that is not an annotation is printed while commands are stopped.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from benchmarking.core.text import visible
from db.analysis.gate.findings import BAD, Finding, Verdict
from db.analysis.gate.gate import Parameters
from db.analysis.gate.text import gate_markdown, sentence, subject

MARKER = "<!-- benchhouse check -->"
"""The first line of a comment, by which a workflow finds its own again."""
MAX_CHARACTERS = 60_000
"""Of a comment; GitHub refuses more than 65 536."""
MAX_ANNOTATIONS = 10
"""Of a kind that GitHub shows of a step."""
MAX_MESSAGE = 2_000
LINKED = re.compile(r"@|#(?=\d)|(?<=[a-zA-Z]):(?=//)|(?<=[wW]{3})\.|(?<=GH)-(?=\d)", re.IGNORECASE)
APART = "&#8203;"
"""A zero-width space, in Markdown."""
LEVELS: dict[Verdict, str] = {
    **dict.fromkeys(BAD, "error"),
    "not confirmed": "warning",
    "improved": "notice",
}


def github_comment(findings: Sequence[Finding], parameters: Parameters) -> str:
    """The body of a comment. One that would be too long ends with how many lines are left out."""
    body = LINKED.sub(lambda found: f"{found[0]}{APART}", gate_markdown(findings, parameters))
    return f"{MARKER}\n{_cut(body)}"


def github_note(text: str) -> str:
    """The body of a comment that says why there are no findings. The text is ours."""
    return f"{MARKER}\n{text}\n"


def workflow_annotations(findings: Sequence[Finding]) -> list[str]:
    """A workflow command for each finding that somebody should see, worst first; of more than GitHub shows of a kind,
    the last one counts the others."""
    lines: list[str] = []
    for level in dict.fromkeys(LEVELS.values()):
        found = [one for one in findings if LEVELS.get(one.verdict) == level]
        shown = found if len(found) <= MAX_ANNOTATIONS else found[: MAX_ANNOTATIONS - 1]
        lines += [_command(level, f"benchhouse: {one.verdict}", _message(one)) for one in shown]
        if len(found) > len(shown):
            lines.append(_command(level, "benchhouse", f"{len(found) - len(shown)} more"))
    return lines


def without_commands(text: str) -> str:
    """The text for a workflow's log, in which no line is a command."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}\n{text}\n::{token}::"


def _message(finding: Finding) -> str:
    doubt = "" if finding.together is None else f" (environment, not code? {finding.together.text})"
    return f"{subject(finding)}: {sentence(finding)}{doubt}"


def _command(level: str, title: str, message: str) -> str:
    """GitHub's own escapes: of a message for % and line ends, of a property for : and , too."""
    text = visible(message)
    text = text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} ..."
    return f"::{level} title={_escaped(visible(title)).replace(':', '%3A').replace(',', '%2C')}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _cut(body: str) -> str:
    if len(body) <= MAX_CHARACTERS:
        return body
    lines = body.split("\n")
    kept, length = 0, 0
    while length + len(lines[kept]) < MAX_CHARACTERS:
        length += len(lines[kept]) + 1
        kept += 1
    return "\n".join([*lines[:kept], "", f"{len(lines) - kept} more lines are left out", ""])
