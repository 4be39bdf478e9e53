"""One bad value, damaged or missing row, printed line or emoji changes at most the result that it belongs to.

Every importer's recorded files are changed in one place at a time; all other results must stay as they are.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter

import pytest

from benchmarking.core.errors import FormatError
from db.importers.support.files import importers
from tests.db.importers.test_mutations import files_of, foreign, places, replaced

BAD = ("NaN", "Infinity", "-Infinity", "-1", '"text"', "1" + "0" * 400, "null")
"""Values as JSON writes them."""
NUMBER = re.compile(r"(?<![\w.:-])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.:-])")
"""A number in a text: a cell of a table, a printed value."""
NOISE = "ggml_cuda_init: found 1 devices, and one more word"
MOST_OF_A_ROW = 2
"""Results of a row: a row of MLAgility's first reports has two devices."""
READ_NO_TEXT = {"benchmark_duckdb"}
"""Formats whose values are changed in tests of their own."""
READ_AS_ONE = {"onnxruntime_perf_test": "csv"}
"""Formats of which joined files of this name are one: a tool appends its launches."""
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")
PLACES = 6
"""Places of a file that are changed, chosen by a seeded generator."""


def outcome(importer, file):
    """The metrics and sizes of each result, and why the file was refused (None if it was not)."""
    if not importer.recognises(file):
        return Counter(), "unknown format"
    try:
        runs = list(importer.runs(file))
    except FormatError as error:
        return Counter(), str(error)
    facts = Counter(tuple(sorted(result.metrics.items())) for run in runs for result in run.results)
    return facts, None


def lost(before, after):
    """The number of results that changed or are gone."""
    return sum((before - after).values())


def values_in(data, kinds):
    """The paths of values of these kinds, in a random but fixed order."""
    found = []
    for path in places(data):
        value = data
        for key in path:
            value = value[key]
        if isinstance(value, kinds) and not isinstance(value, bool):
            found.append(path)
    return random.Random(1).sample(found, min(PLACES, len(found)))


def as_json(path):
    try:
        return json.loads(path.read_text())
    except ValueError:
        return None


def changes(path):
    """(what, text) of each changed copy of a file."""
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    data = as_json(path)
    if data is not None:
        for place in values_in(data, (int, float)):
            for bad in BAD:
                yield "value", f"{place} = {bad[:20]}", json.dumps(replaced(data, place, "@@")).replace('"@@"', bad, 1)
        for place in values_in(data, str):
            if place[0] == "result_columns":
                continue  # the names of the other values
            changed = json.dumps(replaced(data, place, f"{value_at(data, place)}\N{GRINNING FACE}"))
            yield "emoji", f"{place}", changed
        yield from damaged_rows(data)
        text = json.dumps(data, indent=1)
        lines = text.splitlines(keepends=True)
    else:
        numbers = list(NUMBER.finditer(text))
        for found in random.Random(4).sample(numbers, min(PLACES, len(numbers))):
            for bad in BAD:
                word = bad.strip('"').replace("null", "")
                yield (
                    "cell",
                    f"{found[0]} at {found.start()} = {word[:20]}",
                    text[: found.start()] + word + text[found.end() :],
                )
    yield "noise", "a time before each line", "".join(f"2026-05-01T10:11:12Z {line}" for line in lines)
    for at in {0, len(lines), *random.Random(2).sample(range(len(lines) + 1), min(3, len(lines)))}:
        yield "noise", f"above line {at + 1}", "".join([*lines[:at], f"{NOISE}\n", *lines[at:]])
    if data is None and len(lines) > 2:
        gone = random.Random(3).randrange(1, len(lines))
        yield "row", f"without line {gone + 1}", "".join(lines[:gone] + lines[gone + 1 :])


def damaged_rows(data):
    """The rows of a file, and before them as many that are none; a field that is no row."""
    if isinstance(data, dict):
        yield "noise", "note", json.dumps({**data, "note": "text"})
    for place in places(data):
        rows = value_at(data, place)
        if len(place) < 2 and isinstance(rows, list) and rows and isinstance(rows[0], dict):
            for bad in (None, "text"):
                damaged = json.dumps(replaced(data, place, [*[bad] * len(rows), *rows]))
                yield "noise", f"{len(rows)} * {bad} in {place}", damaged


def value_at(data, path):
    for key in path:
        data = data[key]
    return data


@pytest.mark.parametrize("importer", importers(), ids=lambda importer: importer.name)
def test_everything_else_is_stored(importer):
    if importer.name in READ_NO_TEXT:
        pytest.skip("reads no text")
    tried = 0
    for path in files_of(importer.name):
        before, refused = outcome(importer, foreign(path, path.read_bytes()))
        if refused:
            continue
        tried += 1
        for what, where, text in changes(path):
            file = foreign(path, text.encode())
            after, why = outcome(importer, file)
            case = f"{path.name}: {what} {where}: {why or [one.text for one in file.left_out]}"
            if what == "noise":
                assert lost(before, after) == 0, case
            elif what in ("row", "cell"):
                assert why is None or what == "row" or sum(before.values()) <= MOST_OF_A_ROW, case
                assert why or lost(before, after) <= MOST_OF_A_ROW, case
            else:
                assert lost(before, after) <= 1, case
                assert why is None or sum(before.values()) == 1, case
    assert tried, "no file of this format is in the fixtures"


@pytest.mark.parametrize("importer", importers(), ids=lambda importer: importer.name)
def test_a_file_that_is_joined_to_another_keeps_its_results(importer):
    """As by `cat a.csv b.csv`: those of the second are stored beside them, or it is named or refused."""
    if importer.name in READ_NO_TEXT:
        pytest.skip("reads no text")
    for path in files_of(importer.name):
        if path.name.endswith(READ_AS_ONE.get(importer.name, "-")):
            continue
        text = path.read_bytes().decode(errors="replace")
        before, refused = outcome(importer, foreign(path, text.encode()))
        other = DECIMAL.sub(lambda found: f"{2 * float(found[0]):.6f}", text)
        file = foreign(path, f"{text}\n{other}".encode())
        after, why = outcome(importer, file)
        case = f"{path.name}: {why or [one.text for one in file.left_out]}"
        assert why or refused or lost(before, after) == 0, case
        assert why or refused or other == text or after.total() > before.total() or file.left_out, case
