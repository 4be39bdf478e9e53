"""What the gate found as JUnit's XML, which CI servers show: a test case for each series and metric."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from benchmarking.core.text import visible
from db.analysis.findings import BAD, JUDGED, Finding
from db.analysis.gate_text import sentence

NAME = "benchhouse check"
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


def junit_xml(findings: Sequence[Finding]) -> str:
    """The findings as a document: failures are what regressed or failed, skipped is what could not be judged."""
    failures = sum(finding.verdict in BAD for finding in findings)
    skipped = sum(finding.verdict not in JUDGED for finding in findings)
    counts = {"tests": len(findings), "failures": failures, "errors": 0, "skipped": skipped}
    attributes = {"name": NAME, **{name: str(count) for name, count in counts.items()}, "time": "0"}
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(root, "testsuite", attributes)
    for finding in findings:
        _case(suite, finding)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _case(suite: ElementTree.Element, finding: Finding) -> None:
    candidate = finding.candidate
    name = f"{candidate.point.label} {candidate.metric.column}"
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": _safe(candidate.subject), "name": _safe(name), "time": "0"}
    )
    said = _safe(sentence(finding))
    if finding.verdict in BAD:
        failure = ElementTree.SubElement(case, "failure", {"message": said, "type": finding.verdict})
        failure.text = "\n".join(map(_safe, _details(finding)))
    elif finding.verdict not in JUDGED:
        ElementTree.SubElement(case, "skipped", {"message": said})
    else:
        ElementTree.SubElement(case, "system-out").text = f"{finding.verdict}: {said}"


def _details(finding: Finding) -> list[str]:
    lines = [sentence(finding), f"series {finding.candidate.series_id}", f"run {finding.candidate.run_id}"]
    lines += [f"environment, not code? {finding.together.text}"] if finding.together is not None else []
    lines += [f"doubts: {', '.join(finding.candidate.doubts)}"] if finding.candidate.doubts else []
    return [*lines, *([f"measure again: {finding.repeat}"] if finding.repeat is not None else [])]


def _safe(text: str) -> str:
    """The text without characters that XML cannot hold; ElementTree escapes the rest."""
    return NOT_XML.sub("?", visible(text))
