"""The house keeps its floors: who may import whom, what packages there are, and what stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache, lru_cache

import pytest

from tests.helpers.paths import ROOT

ROOMS = ("benchmarking", "db", "visualize")
SHARED = {"benchmarking.core"}
"""What every floor may use: records, errors, tables of words, statistics and small helpers that measure nothing."""
DOORS = {"benchmarking/sweep/run/command_session.py": {"db.service"}}
"""File -> the modules above it that it may start as a process: the one door from measuring to the warehouse."""
FRONT_DOORS = {"benchmarking/core/command_names.py", "benchmarking/console_scripts.py"}
"""They name the commands of every floor: nothing but modules with a `main`."""
NAME_IN_STRING = re.compile(rf"(?:^|-m )((?:{'|'.join(ROOMS)})(?:\.[a-z_][a-z0-9_]*)+)\.?(?=$|[: ])")
SLOW = "dataclasses.dataclass"
HEAVY = {
    *("torch", "transformers", "numpy", "scipy", "pandas", "duckdb", "pyarrow", "matplotlib", "seaborn", "openvino"),
    "rich",
}


def sources(room):
    return sorted((ROOT / room).rglob("*.py"))


@lru_cache(maxsize=1)
def walked(tree):
    """The nodes of a file, and the ids of those inside a function."""
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return nodes, {id(node) for function in functions for node in ast.walk(function)}


def imports(tree):
    """(module, is inside a function) for each import."""
    nodes, inside = walked(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", id(node) in inside) for alias in node.names)


def is_command(tree):
    return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)


def is_shared(module):
    return any(module == name or module.startswith(f"{name}.") for name in SHARED)


def may(room, module):
    """Whether a room may import a module of the house."""
    if module.startswith("benchmarking."):
        return room == "benchmarking" or is_shared(module)
    if module.startswith("db."):
        return room in ("db", "visualize")
    return room == "visualize"


def named_modules(tree):
    """(module, is inside a function) for each module of the house that a string names, as `-m` arguments do."""
    nodes, inside = walked(tree)
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # strings that are statements
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield from ((module, id(node) in inside) for module in NAME_IN_STRING.findall(node.value))


@cache
def read(path):
    """What a file imports, what its strings name, and whether it is a command."""
    tree = ast.parse(path.read_text())
    return tuple(imports(tree)), tuple(named_modules(tree)), is_command(tree)


def module_exists(module):
    place = ROOT / ("schema" if module == "db.schema" else module.replace(".", "/"))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_is_below_it(room):
    wrong = []
    for path in sources(room):
        imported, _, has_main = read(path)
        for module, inside in imported:
            of_house = module.split(".")[0] in ROOMS
            if of_house and not may(room, module) and not (inside and has_main):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert wrong == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_names_in_strings_only_what_is_below_it(room):
    wrong = []
    for path in sources(room):
        file = str(path.relative_to(ROOT))
        _, named, has_main = read(path)
        for module, inside in named:
            is_door = file in FRONT_DOORS or module in DOORS.get(file, ())
            if not may(room, module) and not (inside and has_main) and not is_door:
                wrong.append(f"{file} names {module}")
    assert wrong == []


def test_modules_named_in_strings_exist():
    named = {
        (str(path.relative_to(ROOT)), module) for room in ROOMS for path in sources(room) for module, _ in read(path)[1]
    }
    assert {door for _, door in named} >= {"db.service", "benchmarking.sweep.run", "benchmarking.runtimes"}
    assert sorted((file, module) for file, module in named if not module_exists(module)) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('run("db.commands.compare")', ["db.commands.compare"]),
        ('run(f"benchmarking.sweep.run.{name}")', ["benchmarking.sweep.run"]),
        ('run("python -m db.service runs")', ["db.service"]),
        ('TABLE = {"a": "visualize.visualize_benchmarks:main"}', ["visualize.visualize_benchmarks"]),
        ('"""Prose: db.service."""', []),
        ('note("see db.file_copy for more")', []),
    ],
)
def test_names_in_strings_are_found(line, expected):
    assert [module for module, _ in named_modules(ast.parse(line))] == expected


def test_doors_are_used_and_lead_to_commands():
    for file, modules in DOORS.items():
        named = {module for module, _ in named_modules(ast.parse((ROOT / file).read_text()))}
        assert modules <= named
        for module in modules:
            assert is_command(ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text()))


def test_what_a_module_does_as_a_program_stands_at_its_end():
    """A process would otherwise begin before the names below are defined."""
    early = [
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in sources(room)
        if "__main__" in (text := path.read_text())
        for node in ast.parse(text).body[:-1]
        if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
    ]
    assert early == []


def test_what_is_run_as_a_file_imports_from_its_repository_only_below_the_line_that_finds_it():
    """It would fail without an installed package, or take parts of another version from one."""
    line = "    sys.path[0] = "
    texts = {path: path.read_text() for room in ROOMS for path in sources(room)}
    above = {path: text.partition(line)[0] + f"{line}''" for path, text in texts.items() if f"\n{line}" in text}
    assert len(above) > 25
    early = {
        str(path.relative_to(ROOT)): module
        for path, text in above.items()
        for module, _ in imports(ast.parse(text))
        if module.split(".")[0] in ROOMS
    }
    assert early == {}


def test_only_one_module_imports_duckdb():
    users = [
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in sources(room)
        if any(module.split(".")[0] == "duckdb" for module, _ in read(path)[0])
    ]
    assert users == ["db/connection.py"]


def test_data_classes_start_fast():
    """`benchmarking.core.lazy_dataclass` says why."""
    users = [
        str(path.relative_to(ROOT)) for room in ROOMS for path in sources(room) for m, _ in read(path)[0] if m == SLOW
    ]
    assert users == ["benchmarking/core/lazy_dataclass.py"]


def test_schema_holds_no_code():
    assert [path.name for path in (ROOT / "schema").rglob("*.py")] == ["__init__.py"]
    assert all(isinstance(node, ast.Expr) for node in ast.parse((ROOT / "schema/__init__.py").read_text()).body)


def test_the_package_list_is_the_folders():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = sorted(project["tool"]["setuptools"]["packages"])
    found = {
        str(path.parent.relative_to(ROOT)).replace("/", ".")
        for room in ROOMS
        for path in (ROOT / room).rglob("__init__.py")
    }
    assert listed == sorted(found | {"db.schema"})


def test_every_command_of_the_front_door_exists_under_both_spellings():
    from benchmarking.core.command_names import SCRIPT_ALIASES, SCRIPTS

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    names = {"benchhouse": "benchhouse", "profiler": "profiler", "profiler.py": "profiler"}
    names |= {spelling: name for name in (*SCRIPTS.values(), *SCRIPT_ALIASES) for spelling in (name, f"{name}.py")}
    assert scripts == {spelling: f"benchmarking.console_scripts:{name}" for spelling, name in names.items()}


def test_every_command_of_the_front_door_has_a_main():
    from benchmarking.cli import COMMANDS

    for command in COMMANDS.values():
        assert is_command(ast.parse((ROOT / f"{command.module.replace('.', '/')}.py").read_text())), command


def test_importing_commands_and_plugins_imports_nothing_heavy():
    from benchmarking.cli import COMMANDS

    modules = [command.module for command in COMMANDS.values()]
    modules += ["benchmarking.sweep.run.supervisor", "benchmarking.sweep.plan.request", "benchmarking.sweep.run.worker"]
    for folder in ("devices", "runtimes", "workloads"):
        for path in (ROOT / "benchmarking" / folder).glob("[!_]*.py"):
            modules.append(f"benchmarking.{folder}.{path.stem}")
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.split(".")[0] for name in done.stdout.split()} & HEAVY == set()


@pytest.mark.parametrize(("command", "most"), [("run", 185), ("load", 200), ("ab", 85), ("cache", 80)])
def test_help_imports_few_modules_and_nothing_that_measures(command, most):
    code = f"import sys\nfrom benchmarking.cli import main\nmain([{command!r}, '--help'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = [name for name in done.stdout.splitlines()[-1].split() if name.split(".")[0] in ROOMS]
    assert {"benchmarking.sweep.run.supervisor", "benchmarking.graphs.operations"}.isdisjoint(modules)
    assert len(modules) <= most
