"""What a docstring names in backticks exists: constants, classes, and names with the module or class they belong to."""

from __future__ import annotations

import re

from tests.helpers.paths import ROOT

PACKAGES = ("benchmarking", "db", "visualize")
LONG_STRING = re.compile(r'(^[ \t]*)?"""(.*?)"""', re.MULTILINE | re.DOTALL)
"""A string in three quotes; with the first group, one that is a statement of its own, and so documentation."""
REFERENCE = re.compile(r"(?<!`)`((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:\(\))?`(?!`)")
"""A name in backticks. A plain word in lower case may be a value, a column or a file, and is not looked up."""
OF_OTHERS = {"RecordBatch", "T5LayerNorm", "false_discovery_control", "json", "py", "onnx", "bin"}
"""Names in other packages, which our code does not use itself, and suffixes of files."""


def parts(text):
    """The documentation in a file, and the rest of it."""
    documentation = [found[2] for found in LONG_STRING.finditer(text) if found[1] is not None]
    return documentation, LONG_STRING.sub(lambda found: found[0] if found[1] is None else "", text)


def references(text):
    """The names in a text that must exist."""
    return [
        name for name in REFERENCE.findall(text) if re.fullmatch(r"\w+(\.\w+)+|[A-Z][A-Z0-9_]+|[A-Z][a-z]\w*", name)
    ]


def test_names_in_docstrings_exist():
    files = {path: parts(path.read_text()) for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))}
    code = [rest for _, rest in files.values()] + [path.read_text() for path in (ROOT / "schema").rglob("*.sql")]
    known = {word for text in code for word in re.findall(r"\w+", text)} | OF_OTHERS
    known |= {part for path in files for part in (path.stem, *path.relative_to(ROOT).parts)}
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, (documentation, _) in files.items()
        for text in documentation
        for name in references(text)
        if name.rpartition(".")[2] not in known
    ]
    assert missing == []


def test_references_are_constants_classes_and_names_with_an_owner():
    documentation, rest = parts(
        '"""`KEPT`, `a.b()`."""\nSQL = """\n`Run`\n"""\n"""`trace.Ranges`, `is_kept`, `x = 1`."""'
    )
    assert [name for text in documentation for name in references(text)] == ["KEPT", "a.b", "trace.Ranges"]
    assert "`Run`" in rest
    assert "KEPT" not in rest
