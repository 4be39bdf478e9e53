"""JUnit XML, by which CI servers show the verdicts of a gate as tests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from benchmarking.core.command_line import clipped, note, one_line
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, BenchhouseError, StorageError, UsageError, storage_errors
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
            write_for_ci(name, "--junit", path, junit_xml(name, (), error.exit_code, clipped(one_line(str(error)))))
        raise


def write_for_ci(command_name: str, flag: str, path: Path, text: str) -> int:
    """Write the file of a flag, or print it for "-". A file that cannot be written is a line on stderr and exit code 1,
    so that it takes neither the verdict nor another file with it."""
    if path == STDOUT:
        print(text.rstrip("\n"))
        return EXIT_OK
    try:
        with storage_errors(f"{flag}: cannot write {path}", "choose another path"):
            path.write_text(text, encoding="utf-8")
    except StorageError as error:
        note(f"{command_name}: error: {clipped(one_line(str(error)))}")
        return EXIT_FAILED
    return EXIT_OK


def junit_xml(suite_name: str, cases: Sequence[Case], exit_code: int, reason: str) -> str:
    """A suite of the test cases. If none of them is why the command ends with this exit code, one more is an error,
    with the reason: a CI that looks only at the file sees what one that looks at the exit code does."""
    results = Counter(case.result for case in cases)
    if exit_code != EXIT_OK and not (results["failure"] or results["error"]):
        why = Case(subject=suite_name, name="verdict", result="error", kind="error", message=reason, details=[reason])
        cases = [*cases, why]
        results["error"] = 1
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
