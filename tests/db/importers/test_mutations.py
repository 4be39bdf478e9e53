"""For any content, an importer gives runs that a warehouse can hold, or an error: never anything else.

Every importer's recorded files are cut off, overwritten and filled with absurd values.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarking.core import plugins
from benchmarking.core.errors import FormatError
from db.importers.support.files import ForeignFile, importers, read_file, recognising
from db.rows import run_rows
from tests.helpers.paths import FIXTURES

IMPORTS = FIXTURES / "imports"
MAX_SIZE_BYTES = 60_000
"""Of a file to mutate: larger ones take the time of many smaller ones, and show nothing more."""
ABSURD = (
    *("1e400", "-1e400", "NaN", "-1", "0", "0.5", "1e308", str(10**30), str(-(2**63)), str(2**31), "9" * 400),
    *('""', '"x"', '"NaN"', '"1e999"', '"\\ud800"', '"\\u0000"', '"0001-01-01T00:00:00+14:00"', '"9999-12-31"'),
    *("null", "true", "[]", "{}", '[[["a"]]]', "[NaN]", "[1e400]", '[-1, "x"]', '{"a": {"b": [null]}}'),
    "[" * 150 + "]" * 150,
)
"""Values as JSON writes them; in other formats their text."""


def files_of(name):
    """Recorded files of an importer that are text."""
    paths = sorted(path for path in (IMPORTS / name).rglob("*") if path.is_file())
    return [path for path in paths if path.stat().st_size < MAX_SIZE_BYTES and b"\0" not in path.read_bytes()]


def foreign(path, content):
    return ForeignFile(
        path=path,
        content=content,
        sha256=hashlib.sha256(content).hexdigest(),
        modified_at=datetime(2026, 1, 2, 3, 4, 5),
    )


def places(value, path=()):
    """The paths of everything in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(value, path, marker):
    """A copy with the marker at the path."""
    if not path:
        return marker
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], marker)
    return copy


def with_absurd_value(draw, text):
    """One value of a JSON file, or one cell or word of another, replaced."""
    absurd = draw(st.sampled_from(ABSURD))
    try:
        data = json.loads(text)
    except ValueError:
        cells = [at for at, one in enumerate(text) if one in '";,:|= \n']
        at = draw(st.sampled_from(cells or [0]))
        end = next((place for place in cells if place > at), len(text))
        return text[: at + 1] + json.loads(f"[{json.dumps(absurd)}]")[0].strip('"') + text[end:]
    path = draw(st.sampled_from(list(places(data))))
    return json.dumps(replaced(data, path, "@@marker@@")).replace('"@@marker@@"', absurd, 1)


@st.composite
def mutated(draw, paths):
    """A recorded file, changed."""
    path = draw(st.sampled_from(paths))
    content = path.read_bytes()
    how = draw(st.sampled_from(("value", "value", "value", "cut", "bytes", "line")))
    if how == "value":
        return foreign(path, with_absurd_value(draw, content.decode()).encode("utf-8", "surrogatepass"))
    at = draw(st.integers(0, max(0, len(content) - 1)))
    if how == "cut":
        return foreign(path, content[:at])
    if how == "bytes":
        return foreign(path, content[:at] + draw(st.binary(max_size=8)) + content[at + draw(st.integers(0, 40)) :])
    lines = content.splitlines(keepends=True)
    gone = draw(st.integers(0, len(lines) - 1))
    return foreign(path, b"".join(lines[:gone] + lines[gone + 1 :]))


def all_rows(importer, file):
    """The rows of every run in the file; none when it is refused."""
    try:
        return [
            run_rows(run, metric_columns=(), source=None, source_sha256=file.sha256, ingested_at=file.modified_at)
            for run in importer.runs(file)
        ]
    except FormatError:
        return []


@pytest.mark.parametrize("importer", importers(), ids=lambda importer: importer.name)
def test_a_damaged_file_gives_runs_or_a_reason(importer):
    paths = files_of(importer.name)
    if not paths:
        pytest.skip("reads no text")

    @settings(
        max_examples=30,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(file=mutated(paths))
    def check(file):
        assert importer.recognises(file) in (True, False)
        all_rows(importer, file)

    check()


@pytest.mark.parametrize("name", plugins.by_name("db.importers"))
def test_recorded_files_are_recognised_only_by_their_own_importer(name):
    for path in files_of(name):
        assert [importer.name for importer in recognising(read_file(path))] == [name], path


@pytest.mark.parametrize("importer", importers(), ids=lambda importer: importer.name)
def test_a_text_of_a_megabyte_is_imported_or_refused(importer):
    huge = "x" * 1_000_000
    for content in (huge, json.dumps(huge), json.dumps({huge: huge}), f"{huge},{huge}\n1,2\n"):
        file = foreign(Path("huge.json"), content.encode())
        assert importer.recognises(file) in (True, False)
        all_rows(importer, file)
