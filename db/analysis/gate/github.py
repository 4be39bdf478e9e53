"""The gate's findings for GitHub: the body of a comment, and workflow annotations.

Text from a warehouse is untrusted. In a comment its markup is escaped, and what GitHub would still turn into links
(@names, #numbers, addresses) is broken up with a zero-width space. In a workflow log a line may be a command
(`::error::`, `##[add-path]`), so text that is not an annotation is printed with commands disabled.
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
"""First line of a comment, by which a workflow finds its earlier comment."""
MAX_CHARACTERS = 60_000
"""Maximum characters of a comment; GitHub refuses more than 65 536."""
MAX_ANNOTATIONS = 10
"""Maximum annotations of one kind that GitHub shows per step."""
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
    """The body of a comment. If it is too long, it is cut and ends with the number of omitted lines."""
    body = LINKED.sub(lambda found: f"{found[0]}{APART}", gate_markdown(findings, parameters))
    return f"{MARKER}\n{_cut(body)}"


def github_note(text: str) -> str:
    """The body of a comment that explains why there are no findings. The text must be trusted."""
    return f"{MARKER}\n{text}\n"


def workflow_annotations(findings: Sequence[Finding]) -> list[str]:
    """A workflow command for each finding that needs attention, worst first. If GitHub would not show all of a kind,
    the last one counts the rest."""
    lines: list[str] = []
    for level in dict.fromkeys(LEVELS.values()):
        found = [one for one in findings if LEVELS.get(one.verdict) == level]
        shown = found if len(found) <= MAX_ANNOTATIONS else found[: MAX_ANNOTATIONS - 1]
        lines += [_command(level, f"benchhouse: {one.verdict}", _message(one)) for one in shown]
        if len(found) > len(shown):
            lines.append(_command(level, "benchhouse", f"{len(found) - len(shown)} more"))
    return lines


def without_commands(text: str) -> str:
    """The text for a workflow log, with workflow commands disabled."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}\n{text}\n::{token}::"


def _message(finding: Finding) -> str:
    doubt = "" if finding.together is None else f" (environment, not code? {finding.together.text})"
    return f"{subject(finding)}: {sentence(finding)}{doubt}"


def _command(level: str, title: str, message: str) -> str:
    """A workflow command with GitHub's escapes: % and line ends in a message, also : and , in a property."""
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
    return "\n".join([*lines[:kept], "", f"{len(lines) - kept} more lines are omitted", ""])
