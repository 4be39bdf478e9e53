"""Prints the size of the house: `python -m tests.house`. It sets no limits.

Counted are the files under version control of the packages `benchmarking`, `db` and `visualize`; the tests are counted
apart. A package file of one line (a docstring) is not a module.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from tests.helpers.paths import ROOT

ROOMS = ("benchmarking", "db", "visualize")


def main(argv: Sequence[str]) -> int:
    """Print the counts of the packages and of the tests: a line each, or one JSON object with `--json`."""
    counts = {"packages": counted(ROOMS), "tests": counted(("tests",))}
    if "--json" in argv:
        print(json.dumps(counts))
        return 0
    for part, numbers in counts.items():
        print(part)
        for name, number in numbers.items():
            print(f"    {name:<56} {number}")
    return 0


def counted(folders: Sequence[str]) -> dict[str, str | int | float]:
    """The counts of the Python files below the folders, by what is counted."""
    files = {path: path.read_text(encoding="utf-8") for path in tracked(folders)}
    modules = {path: text for path, text in files.items() if not is_bare_package_file(path, text)}
    lengths = [text.count("\n") for text in modules.values()]
    folder, most = Counter(path.parent for path in modules if path.name != "__init__.py").most_common(1)[0]
    private = [name for path, text in files.items() for name in private_imports(path, text)]
    trees = [ast.parse(text) for text in files.values()]
    spans = [lines for tree in trees for _, lines in functions_of(tree)]
    single = [lines for tree in trees for lines in single_caller_lines(tree)]
    total = sum(text.count("\n") for text in files.values())
    names = Counter(path.name for path in modules if path.name != "__init__.py")
    return {
        "files": len(files),
        "lines in files": total,
        "modules (without package files of one line)": len(modules),
        "lines in modules": sum(lengths),
        "median module, in lines": median(lengths),
        "longest module, in lines": max(lengths),
        "modules under 70 lines": sum(length < 70 for length in lengths),
        "modules over 400 lines": sum(length > 400 for length in lengths),
        "largest flat folder, in modules": f"{most} ({folder.relative_to(ROOT)})",
        "functions": len(spans),
        "median function, in lines": median(spans),
        "longest function, in lines": max(spans),
        "private functions with one caller": f"{len(single)} ({sum(single)} lines)",
        "private functions with one caller, in 1 000 lines": round(len(single) * 1000 / total, 1),
        "module names that occur twice or more": sum(count > 1 for count in names.values()),
        "names across packages that begin with _": f"{len(private)} imports of {len(set(private))} names",
    }


def tracked(folders: Iterable[str]) -> list[Path]:
    """The Python files under version control below the folders."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *folders]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in listed if name.endswith(".py") and (ROOT / name).is_file()]


def is_bare_package_file(path: Path, text: str) -> bool:
    """Whether a file is an `__init__.py` of at most one line."""
    return path.name == "__init__.py" and text.count("\n") <= 1


def private_imports(path: Path, text: str) -> Iterator[str]:
    """Each import, from another of our packages, of a module or name that begins with an underscore."""
    own = ".".join(path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.level or (node.module or "").split(".")[0] not in ROOMS:
            continue
        *package, module = (node.module or "").split(".")
        for name in node.names:
            is_private = any(is_underscored(part) for part in (*package, module, name.name))
            if is_private and own not in (".".join(package), node.module):
                yield f"{node.module}.{name.name}"


def functions_of(tree: ast.Module) -> list[tuple[str, int]]:
    """The name of each function and method, and its length from `def` to its last line."""
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def single_caller_lines(tree: ast.Module) -> list[int]:
    """The length of each private function and method whose name is used once in its module."""
    used = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return [lines for name, lines in functions_of(tree) if is_underscored(name) and used[name] == 1]


def is_underscored(name: str) -> bool:
    """Whether a name begins with one underscore: private by convention; `__init__` and `__future__` are not."""
    return name.startswith("_") and not name.startswith("__")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
