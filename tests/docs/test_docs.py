"""Every block of the README and of docs/ runs, or is output that a script writes; every link leads somewhere."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarking.core import child_process
from benchmarking.core.doubts import IMPORTED, KINDS
from benchmarking.devices import cuda, rocm
from benchmarking.runtimes.support.onnxruntime import ort_runtime
from db.warehouse import Warehouse
from tests.docs import cli_page
from tests.helpers.child_server import Popen, is_like_the_server
from tests.helpers.doc_pages import INSTALL, INSTALLATIONS, PAGES, Block, blocks, with_doubts, with_outputs
from tests.helpers.paths import ROOT
from tests.helpers.terminal import on_a_terminal

pytestmark = pytest.mark.forked_children

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
MAY_BE_WIDE = re.compile(r"\||<!--|\d+\. ")
"""Rows of tables, marks, and the notes of the support table."""
PACKAGES = ("benchmarking", "db", "visualize")
ADDING = ROOT / "docs" / "adding-a-plugin.md"
PLACE = re.compile(r"`((?:benchmarking|db|visualize|schema|tests|examples)/[\w/.-]*)`")
DOTTED = re.compile(r"\b(?:benchmarking|db|visualize|tests)(?:\.[a-z_]+)+(?:\.[A-Z]\w+)?\b(?!/)")
KINDS_OF_PLUGINS = (
    "benchmarking/devices",
    "benchmarking/runtimes",
    "benchmarking/workloads",
    "db/importers",
    "db/exporters",
    "visualize/charts",
)
README_LINES = 200
MAX_WIDTH = 120
TABLES = 12
"""Tables and views, at least, that the page about the warehouse has to name."""
SQL_QUESTIONS = 20
ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture(params=PAGES, ids=lambda page: page.stem)
def page(request: pytest.FixtureRequest) -> Path:
    return request.param


def run_page(found: tuple[Block, ...]) -> None:
    """Run the blocks in the current folder, the Python ones in one namespace."""
    names: dict[str, Any] = {"__name__": "__page__"}
    printed = ""
    for block in (one.in_the_test() for one in found):
        match block.kind:
            case "sh":
                printed = shell(block, block.text)
            case "installation":
                assert block.text.startswith("pip install -c constraints.txt -e "), block.place
                if "main-command" in block.marks:
                    printed = shell(block, block.text.removeprefix(INSTALL))
            case "python":
                exec(compile(block.text, block.place, "exec"), names)
            case "sql":
                ask(block)
            case "file":
                file = Path(block.file_name)
                file.parent.mkdir(exist_ok=True)
                file.write_text(block.text, encoding="utf-8")
            case "exact output":
                assert printed.splitlines() == block.text.splitlines(), block.place
            case "output":
                assert block.text.strip(), block.place
            case "generated":
                assert block.page == cli_page.PAGE, f"{block.place}: only the page about commands is generated"
            case "unknown":
                pytest.fail(f"{block.place}: neither run nor marked as output, see tests/helpers/doc_pages.py")


def shell(block: Block, command: str) -> str:
    shown = on_a_terminal(command, Path.cwd())
    assert shown.code == 0, f"{block.place}: exit code {shown.code}\n{shown.text}\n{shown.stderr}"
    return shown.text


def ask(block: Block) -> None:
    """Every statement is answered, by the one who only reads."""
    with Warehouse.open("benchmark_db.duckdb", for_questions=True) as warehouse:
        for statement in statements(block.text):
            assert warehouse.query(statement).arrow().num_columns > 0, block.place


def statements(text: str) -> Iterator[str]:
    yield from (part for part in text.split(";") if part.strip())


@pytest.mark.slow
def test_every_block_of_the_page_runs_or_is_marked_as_output(page, scratch, monkeypatch):
    if page.stem == "cluster":
        pytest.importorskip("distributed")
    found = blocks(page)
    if any(block.file_name.split("/")[0] in PACKAGES for block in found if block.kind == "file"):
        copy_packages(scratch)
        monkeypatch.setenv("PYTHONPATH", str(scratch))
    run_page(found)


def copy_packages(folder: Path) -> None:
    """Copies of the packages, to which a page adds files; commands run these where the folder is on PYTHONPATH."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package)  # with what is compiled already
    shutil.copytree(ROOT / "schema", folder / "db" / "schema")


def test_every_link_of_the_page_leads_to_a_file_and_a_heading(page):
    text = page.read_text(encoding="utf-8")
    for target in LINK.findall(text):
        if urllib.parse.urlsplit(target).scheme:
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        if anchor:
            assert anchor in map(slug, HEADING.findall(file.read_text(encoding="utf-8"))), target


def test_every_file_and_folder_that_a_page_names_exists(page):
    made = {block.file_name for block in blocks(page) if block.kind == "file"}
    named = set(PLACE.findall(page.read_text(encoding="utf-8"))) - made
    assert [place for place in sorted(named) if not (ROOT / place).exists()] == []


def test_every_module_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    made = {block.file_name.removesuffix(".py").replace("/", ".") for block in blocks(page) if block.kind == "file"}
    assert [name for name in sorted(set(DOTTED.findall(text)) - made) if not is_module_or_part(name)] == []


def is_module_or_part(name: str) -> bool:
    """Whether the name is that of a module, or of something in one."""
    if (ROOT / name.replace(".", "/")).with_suffix(".py").is_file() or (ROOT / name.replace(".", "/")).is_dir():
        return True
    module, _, attribute = name.rpartition(".")
    return (ROOT / module.replace(".", "/")).with_suffix(".py").is_file() and hasattr(
        importlib.import_module(module), attribute
    )


@pytest.mark.skipif(sys.platform != "linux", reason="commands are forked on Linux")
def test_the_commands_of_a_page_are_forked_in_an_activated_environment(scratch, monkeypatch):
    monkeypatch.setenv("PS1", "(venv) ")
    monkeypatch.setattr(Popen, "server_environment", child_process.environment())
    assert is_like_the_server(json.loads(on_a_terminal("python -c '" + ENVIRONMENT + "'", scratch).text))


def test_a_forked_child_imports_our_packages_from_the_folders_of_its_environment(tmp_path, monkeypatch):
    module = tmp_path / "visualize" / "shown.py"
    module.parent.mkdir()
    for file, text in ((module, "print(__file__)"), (module.with_name("__init__.py"), "")):
        file.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert is_like_the_server(os.environ)
    command = [sys.executable, "-P", "-m", "visualize.shown"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"{module}\n"


@pytest.mark.parametrize(
    ("library", "variable"),
    [("mlx_lm", "TRANSFORMERS_NO_ADVISORY_WARNINGS"), ("onnxruntime_genai", "ORT_LIB_PATH")],
)
def test_children_are_forked_after_a_library_has_set_variables_in_the_process_of_the_tests(library, variable):
    pytest.importorskip(library)
    assert variable in os.environ
    assert is_like_the_server(os.environ)


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HF_HUB_CACHE", "PYTHONHASHSEED", "TZ"])
def test_a_child_starts_as_users_do_where_a_variable_differs_that_is_read_at_the_start(name, monkeypatch):
    monkeypatch.setattr(Popen, "server_environment", child_process.environment())
    assert is_like_the_server({**child_process.environment(), "BENCHHOUSE_CACHE_DIR": "/of/the/test", "MARK": "x"})
    assert not is_like_the_server({**child_process.environment(), name: "of the test"})


def test_every_kind_of_plugin_has_a_worked_example():
    made = {block.file_name.rsplit("/", 1)[0] for block in blocks(ADDING) if block.kind == "file"}
    assert set(KINDS_OF_PLUGINS) <= made


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_lines_of_prose_are_no_wider_than_the_page(page):
    inside = {line for block in blocks(page) for line in range(block.line, block.line + block.text.count("\n") + 2)}
    wide = [
        number
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > MAX_WIDTH and number not in inside and not MAY_BE_WIDE.match(line)
    ]
    assert wide == []


def test_the_readme_is_short_and_has_both_commands_once():
    readme = ROOT / "README.md"
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= README_LINES
    marks = [mark for block in blocks(readme) for mark in block.marks if mark in INSTALLATIONS]
    assert sorted(marks) == sorted(INSTALLATIONS)


def test_every_page_is_linked_from_the_readme():
    targets = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert {str(page.relative_to(ROOT)) for page in PAGES[1:]} <= targets


def test_measuring_says_of_every_doubt_what_the_program_says():
    text = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"| `{kind}` |" not in text] == []
    assert with_doubts(text) == text


def test_a_row_about_a_doubt_is_rewritten_and_no_other():
    row = "| `few_samples` | info | old | words |"
    kind = KINDS["few_samples"]
    meaning = kind.meaning[0].upper() + kind.meaning[1:]
    advice = kind.advice[0].upper() + kind.advice[1:]
    assert with_doubts(f"before\n{row}\n| `undated` | info | a | b |\n") == (
        f"before\n| `few_samples` | info | {meaning}. | {advice}. |\n| `undated` | info | a | b |\n"
    )


def test_measuring_has_every_doubt_about_imported_results():
    text = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    assert sorted(kind for kind in IMPORTED if f"| `{kind}` |" not in text) == []


def test_measuring_has_every_number_of_a_result():
    text = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    with Warehouse.open(":memory:") as warehouse:
        rows = warehouse.query(
            "SELECT column_name AS name FROM duckdb_columns() WHERE table_name = 'benchmark_results' "
            "AND data_type IN ('DOUBLE', 'BIGINT', 'INTEGER')"
        ).dicts()
    assert [row["name"] for row in rows if f"`{row['name']}`" not in text] == []


def test_the_page_about_the_warehouse_names_every_table_and_view_and_asks_twenty_questions():
    page = ROOT / "docs" / "warehouse.md"
    text = page.read_text(encoding="utf-8")
    with Warehouse.open(":memory:") as warehouse:
        names = [
            row["name"]
            for row in warehouse.query(
                "SELECT table_name AS name FROM duckdb_tables() WHERE NOT internal "
                "UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal"
            ).dicts()
        ]
    assert len(names) >= TABLES
    assert [name for name in names if f"| `{name}` |" not in text] == []
    asked = [statement for block in blocks(page) if block.kind == "sql" for statement in statements(block.text)]
    assert len(asked) >= SQL_QUESTIONS


PAGE = """# A page

<!-- in the test: world => moon -->
```sh
echo hello world
```

<!-- output -->
```
old
lines
```

text between
```
neither
```
"""


@pytest.fixture
def small_page(tmp_path, monkeypatch):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    monkeypatch.setattr("tests.helpers.doc_pages.ROOT", tmp_path)
    return path


def test_blocks_have_the_marks_above_them(small_page):
    run, output, neither = blocks(small_page)
    assert (run.kind, run.line, run.text) == ("sh", 4, "echo hello world\n")
    assert run.in_the_test().text == "echo hello moon\n"
    assert (output.kind, output.text) == ("output", "old\nlines\n")
    assert neither.kind == "unknown"


def test_a_block_that_is_neither_run_nor_output_fails(small_page):
    with pytest.raises(pytest.fail.Exception, match=r"page\.md:15: neither run nor marked"):
        run_page(blocks(small_page))


def test_a_replacement_of_what_is_not_in_the_block_fails(small_page):
    small_page.write_text(PAGE.replace("echo hello world", "echo hello"))
    with pytest.raises(ValueError, match=r"page\.md:4: no 'world'"):
        blocks(small_page)[0].in_the_test()


def test_a_failing_command_fails_with_its_place(small_page):
    small_page.write_text("```sh\necho trouble >&2; false\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1: exit code 1\s+trouble"):
        run_page(blocks(small_page))


def test_an_exact_output_that_is_another_one_fails(small_page):
    small_page.write_text("```sh\necho a\n```\n\n<!-- output: exact -->\n```\nb\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:6"):
        run_page(blocks(small_page))


def test_outputs_are_put_into_their_blocks_and_nothing_else_changes(small_page):
    written = with_outputs(small_page, {9: "new"})
    assert written == PAGE.replace("old\nlines\n", "new\n")


def test_the_command_of_each_platform_takes_the_pinned_torch_from_the_index_that_is_advised():
    text = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    commands = dict(re.findall(r"^\| ([\w ,]+) \| `(pip install [^`]+)` \|$", text, re.MULTILINE))
    assert list(commands) == ["Linux, NVIDIA GPU", "Linux, AMD GPU", "Windows, NVIDIA GPU", "macOS", "CPU only"]
    indexes = {}
    for platform, command in commands.items():
        assert re.fullmatch(
            r"pip install -c constraints\.txt( --extra-index-url https://download\.pytorch\.org/whl/\w[\w.]*)?"
            + (r' -e "\.\[measure-amd\]"' if "AMD" in platform else r' -e "\.\[measure\]"'),
            command,
        ), command
        indexes[platform] = command.rpartition("/whl/")[2].partition(" ")[0] if "/whl/" in command else None
    assert indexes["Linux, NVIDIA GPU"] == indexes["Windows, NVIDIA GPU"] == cuda.WHEEL_INDEX
    assert (indexes["Linux, AMD GPU"], indexes["macOS"], indexes["CPU only"]) == (rocm.WHEEL_INDEX, None, "cpu")
    (bound,) = re.findall(r"^torch([<=>].*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert re.fullmatch(r"<=[\d.]+", bound), "a pin would replace a GPU's torch, a pinned build exclude all others"
    assert f"`{bound.removeprefix('<=')}+{cuda.WHEEL_INDEX}`" in text


def test_onnxruntime_and_the_advised_torch_have_cuda_of_one_major():
    """The CUDA libraries of torch serve ONNX Runtime's provider, as the page says."""
    if ort_runtime.provider_library("cuda") is None:
        pytest.skip("onnxruntime-gpu is not installed")
    assert cuda.WHEEL_INDEX.startswith(f"cu{ort_runtime.linked('cuda').cuda}")
