"""The page about the architecture names files, functions and folders that exist, and imports that are so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarking.core import records
from tests.helpers.doc_pages import blocks
from tests.helpers.paths import ROOT

PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILE = re.compile(r"`([\w/.]+\.(?:py|sql))`")
FUNCTION = re.compile(r"`([\w.]+)\(\)`")
FOLDER = re.compile(r"(?:^|  )([a-z]+)/(?=\s|$)", re.MULTILINE)
WALKS = ("From a command line to the timed call", "From a sample to its row")
CLASSES = re.compile(r"`([A-Z]\w+)`")


def section(heading: str) -> str:
    return TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def steps(heading: str) -> list[tuple[str, list[str]]]:
    """The file and the functions of each row of a walk."""
    rows = [line for line in section(heading).splitlines() if line.startswith("| `")]
    return [(FILE.findall(row)[0], FUNCTION.findall(row)) for row in rows]


def definitions(path: Path) -> set[str]:
    """Names of the functions and classes of a module, and of methods as `Class.method`."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield f"{prefix}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{node.name}.")

    return set(walk(ast.parse(path.read_text(encoding="utf-8")).body, ""))


def test_every_file_that_is_named_exists():
    named = [name for name in FILE.findall(TEXT) if "/" in name]
    assert len(named) > 20
    assert [
        name for name in named if not (ROOT / name).is_file() and not (ROOT / "benchmarking" / name).is_file()
    ] == []


@pytest.mark.parametrize("heading", WALKS)
def test_every_step_of_a_walk_is_a_function_of_its_file(heading):
    found = steps(heading)
    assert len(found) >= 10
    absent = [
        f"{file}: {function}"
        for file, functions in found
        for function in functions
        if function not in definitions(ROOT / file)
    ]
    assert absent == []
    assert all(functions for file, functions in found if file.endswith(".py"))


def test_the_walks_meet_in_the_timed_region():
    there, back = map(steps, WALKS)
    file, (function,) = back[0]
    assert function in dict(there)[file]


def test_every_record_of_the_table_is_one():
    names = CLASSES.findall(
        "\n".join(line for line in TEXT.splitlines() if line.startswith("| `") and "()" not in line)
    )
    table = section("Data flow").split("| record |")[1]
    first = [CLASSES.findall(row.split("|")[1]) for row in table.splitlines() if row.startswith("| `")]
    assert names
    assert [name for cell in first for name in cell if not hasattr(records, name)] == []


def drawings() -> list[str]:
    return [block.text for block in blocks(PAGE) if block.kind == "drawing"]


def test_every_folder_of_the_house_is_drawn_and_the_other_way_round():
    drawn = set(FOLDER.findall(drawings()[0]))
    found = {
        path.name
        for room in ("benchmarking", "db", "visualize", "schema")
        for path in (ROOT / room, *(ROOT / room).rglob("*"))
        if path.is_dir() and any(path.glob("*.*")) and "support" not in path.parent.parts and path.name != "__pycache__"
    }
    assert drawn - found == {"tests", "conformance", "perf", "docs", "hardware"}
    assert found - drawn == {"examples"}


def floors() -> list[set[str]]:
    """The rooms of benchmarking from the ground up, as the page draws them."""
    drawing = drawings()[1].split("inside benchmarking:")[1]
    return [
        set(re.findall(r"\w+", floor)) for line in drawing.splitlines() for floor in line.split("<--") if floor.strip()
    ]


def room_of(module: str) -> str:
    """The room of a module of benchmarking; empty for a command."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (ROOT / "benchmarking" / parts[1]).is_dir() else ""


def imports_at_the_top(path: Path) -> Iterator[str]:
    """Modules of benchmarking that are imported as soon as this one is."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmarking."):
            yield str(node.module)


def test_inside_benchmarking_imports_go_down_the_floors_that_are_drawn():
    height = {room: number for number, rooms in enumerate(floors()) for room in rooms}
    assert {
        path.name for path in (ROOT / "benchmarking").iterdir() if (path / "__init__.py").is_file()
    } == height.keys()
    up = {
        path.relative_to(ROOT / "benchmarking").as_posix()
        for path in (ROOT / "benchmarking").rglob("*.py")
        if (own := room_of(".".join(path.relative_to(ROOT).with_suffix("").parts)))
        for module in imports_at_the_top(path)
        if not room_of(module) or height[room_of(module)] > height[own]
    }
    assert up == {"runtimes/bench.py"}
    assert "`runtimes/bench.py` is the only module that imports upwards" in TEXT
