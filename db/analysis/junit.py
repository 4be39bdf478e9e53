"""JUnit XML, by which CI servers show the verdicts of a gate as tests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from benchmarking.core.command_line import clipped, one_line
from benchmarking.core.errors import BenchhouseError, UsageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import visible

STDOUT = Path("-")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot represent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A test case: what was judged, and the verdict on it."""

    subject: str
    name: str
    result: Literal["passed", "failure", "error", "skipped"]
    kind: str
    """The verdict."""
    message: str
    details: Sequence[str] = ()
    """Lines about a failure or an error."""


@contextmanager
def junit_of_error(path: Path | None, name: str) -> Iterator[None]:
    """Inside, an expected error is written to the file, if there is one, since a CI shows its files. Raises UsageError
    for stdout, where the comparison is."""
    if path == STDOUT:
        raise UsageError("--junit takes a file: stdout is for the comparison")
    try:
        yield
    except BenchhouseError as error:
        if path is not None:
            write_for_ci("--junit", path, junit_xml(name, [error_case(name, clipped(one_line(str(error))))]))
        raise


def error_case(name: str, reason: str) -> Case:
    """The test case that says why a command has no verdict."""
    return Case(subject=name, name="verdict", result="error", kind="error", message=reason, details=[reason])


def write_for_ci(flag: str, path: Path, text: str) -> None:
    """Write the file of a flag, or print it for "-". Raises StorageError."""
    if path == STDOUT:
        print(text.rstrip("\n"))
        return
    with storage_errors(f"{flag}: cannot write {path}", "choose another path"):
        path.write_text(text, encoding="utf-8")


def junit_xml(suite_name: str, cases: Sequence[Case]) -> str:
    """A suite of the test cases."""
    results = Counter(case.result for case in cases)
    counts = {"failures": results["failure"], "errors": results["error"], "skipped": results["skipped"]}
    numbers = {name: str(count) for name, count in {"tests": len(cases), **counts}.items()}
    attributes = {"name": suite_name, **numbers, "time": "0"}
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(root, "testsuite", attributes)
    for case in cases:
        of_case = {"classname": _safe(case.subject), "name": _safe(case.name), "time": "0"}
        element, message = ElementTree.SubElement(suite, "testcase", of_case), _safe(case.message)
        if case.result == "passed":
            ElementTree.SubElement(element, "system-out").text = f"{case.kind}: {message}"
        elif case.result == "skipped":
            ElementTree.SubElement(element, "skipped", {"message": message})
        else:
            bad = ElementTree.SubElement(element, case.result, {"message": message, "type": _safe(case.kind)})
            bad.text = "\n".join(map(_safe, case.details))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _safe(text: str) -> str:
    """The text without characters that XML cannot represent; ElementTree escapes the rest."""
    return NOT_XML.sub("?", visible(text))
